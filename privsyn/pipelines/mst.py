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
    counts_of,
    one_way_step,
    options_as,
    wide_codes,
)
from privsyn.pipelines.privsyn import RECODE_ROWS, evenly_weighed, first_measurement, noisy_scores, scores_step
from privsyn.pipelines.synthesis_steps import consistent_step, decode_step, refined, rows_from, synthesis_of
from privsyn.tasks.estimation.recode import coarse_domain, coarse_one_ways, noisy_total
from privsyn.tasks.steps import make_consistent, select_tree, synthesize
from privsyn.tasks.synthesis import graphical_rows, shards

THIRD = Fraction(1, 3)
MEASURED = ("measure_marginals",)


def _selection(request: Request) -> Selection:
    return Selection(max_cells=options_as(request, Mst).max_cells)


def _select(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    tree = select_tree.spanning_tree(noisy_scores(inputs), inputs.domain())
    return {"cliques": evenly_weighed(tree, request, inputs)}


SELECT_TREE = Step(
    "select_tree",
    "Select tree",
    Kind.POSTPROCESS,
    (*counts_of(["indif_scores"]), RECODE),
    {"cliques": tables.CLIQUES},
    lambda r: {},
    _select,
    words=lambda r: "the tree of pairs that links all columns with the largest noisy scores is measured",
)


MEASURE = replace(
    first_measurement(THIRD, "select_tree.cliques"),
    limit="The rows keep the relations along one tree that links all columns; any others only as far as they follow "
    "from these.",
)


def _draw(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode = refined(request, inputs, MEASURED)
    domain = coarse_domain(recode)
    measured = make_consistent.measured_marginals(*inputs.measured(MEASURED), domain)
    counts, variances = coarse_one_ways(recode)
    ones = {m.attributes[0]: (m.counts, v) for m, v in zip(counts, variances, strict=True)}
    settings = synthesis_of(request)
    wanted = shards.shards(synthesize.output_rows(noisy_total(recode), settings), settings)

    def batches() -> Batches:
        for s in wanted:
            progress(s.number, s.of)
            yield from graphical_rows.graphical_rows(measured, ones, domain, s.rows, s.own_seed).to_arrow().to_batches()

    return {"codes": wide_codes(batches(), domain)}


GRAPHICAL_ROWS = Step(
    "graphical_rows",
    "Graphical rows",
    Kind.POSTPROCESS,
    (RECODE, *counts_of(MEASURED)),
    {"codes": tables.SYNTHETIC_CODES},
    lambda r: r.spec.mechanism.synthesis.model_dump(include={"rows", "seed", "shard_rows"}),
    _draw,
    words=lambda r: "synthetic rows: drawn from the graphical model that the package mbi fits to the noisy counts",
)


def mst(request: Request) -> tuple[Step, ...]:
    """Return steps: three looks of a third of rho each, then rows as in every mechanism, or of a graphical model."""
    by_sweeps = options_as(request, Mst).rows_by == "sweeps"
    drawn = (consistent_step(MEASURED), GRAPHICAL_ROWS, decode_step(MEASURED, "graphical_rows.codes"))
    return (
        ENCODE,
        one_way_step(THIRD, "equal"),
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        scores_step(_selection, lambda r: THIRD),
        SELECT_TREE,
        MEASURE,
        *(rows_from(MEASURED) if by_sweeps else drawn),
    )
