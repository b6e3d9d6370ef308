"""MST's structure with this project's selection and rows: one-ways, a tree of pairs, rows along the tree.

McKenna, Miklau, Sheldon: *Winning the NIST Contest*, Journal of Privacy and Confidentiality 11(3), 2021.  The paper's:
three looks with a third of rho each, equal noise within a look, a tree that links all columns, measured pair by pair.
Not the paper's: the tree is the maximum spanning tree of noisy scores in place of draws by the exponential mechanism,
and rows come from consistent marginals by a tree start and sweeps, unless ``rows_by`` asks for the paper's graphical
model, which the package mbi fits.

Privacy: rho-zCDP for adding or removing one person with at most k records.  Of d attributes, d one-way marginals of
sensitivity k, at most d (d - 1) / 2 scores of sensitivity k against them, and at most d - 1 pairs of sensitivity k (or
the one-ways again, where there is no pair): each is one mechanism instance, and their prices add up to rho (adaptive
composition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.mechanism_options import Mst
from privsyn.data_contracts.step_options import Selection
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Batches, Output, Progress, Step
from privsyn.pipelines.common_steps import (
    COMPRESS_DOMAIN,
    ENCODE,
    RECODE,
    build_one_way_step,
    get_options_as,
    list_wide_codes,
    read_one_way_counts,
)
from privsyn.pipelines.privsyn import (
    RECODE_ROWS,
    build_first_measurement,
    build_scores_step,
    read_noisy_scores,
    weigh_evenly,
)
from privsyn.pipelines.synthesis_steps import (
    build_consistency_step,
    build_row_steps,
    decode_step,
    get_synthesis,
    pool_one_ways,
)
from privsyn.tasks.estimation.recode import build_coarse_domain, estimate_total, sum_coarse_one_ways
from privsyn.tasks.steps import make_consistent, select_tree, synthesize
from privsyn.tasks.synthesis import graphical_rows, shards

THIRD = Fraction(1, 3)
MEASURED = ("measure_marginals",)


def _build_selection(request: Request) -> Selection:
    return Selection(max_cells=get_options_as(request, Mst).max_cells)


def _select(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    tree = select_tree.find_spanning_tree(read_noisy_scores(inputs), inputs.domain())
    return {"cliques": weigh_evenly(tree, request, inputs)}


SELECT_TREE = Step(
    "select_tree",
    "Select tree",
    Kind.POSTPROCESS,
    (*read_one_way_counts(["indif_scores"]), RECODE),
    {"cliques": tables.CLIQUES},
    lambda r: {},
    _select,
    words=lambda r: "the tree of pairs that links all columns with the largest noisy scores is measured",
)


MEASURE = replace(
    build_first_measurement(THIRD, "select_tree.cliques"),
    limit="The rows keep the relations along one tree that links all columns; any others only as far as they follow "
    "from these.",
)


def _draw(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode = pool_one_ways(request, inputs, MEASURED)
    domain = build_coarse_domain(recode)
    measured = make_consistent.build_measured_marginals(*inputs.measured(MEASURED), domain)
    counts, variances = sum_coarse_one_ways(recode)
    ones = {m.attributes[0]: (m.counts, v) for m, v in zip(counts, variances, strict=True)}
    settings = get_synthesis(request)
    wanted = shards.plan_shards(synthesize.compute_output_rows(estimate_total(recode), settings), settings)

    def batches() -> Batches:
        for s in wanted:
            progress(s.number, s.of)
            yield from (
                graphical_rows.draw_graphical_rows(measured, ones, domain, s.rows, s.own_seed).to_arrow().to_batches()
            )

    return {"codes": list_wide_codes(batches(), domain)}


GRAPHICAL_ROWS = Step(
    "graphical_rows",
    "Graphical rows",
    Kind.POSTPROCESS,
    (RECODE, *read_one_way_counts(MEASURED)),
    {"codes": tables.SYNTHETIC_CODES},
    lambda r: r.spec.mechanism.synthesis.model_dump(include={"rows", "seed", "shard_rows"}),
    _draw,
    words=lambda r: "synthetic rows: drawn from the graphical model that the package mbi fits to the noisy counts",
)


def mst(request: Request) -> tuple[Step, ...]:
    """Return steps: three looks of a third of rho each, then rows as in every mechanism, or of a graphical model."""
    by_sweeps = get_options_as(request, Mst).rows_by == "sweeps"
    drawn = (build_consistency_step(MEASURED), GRAPHICAL_ROWS, decode_step(MEASURED, "graphical_rows.codes"))
    return (
        ENCODE,
        build_one_way_step(THIRD, "equal"),
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        build_scores_step(_build_selection, lambda r: THIRD),
        SELECT_TREE,
        MEASURE,
        *(build_row_steps(MEASURED) if by_sweeps else drawn),
    )
