"""MST's structure with this project's selection and rows: one-ways, a tree of pairs, rows along the tree.

McKenna, Miklau, Sheldon: *Winning the NIST Contest*, Journal of Privacy and Confidentiality 11(3), 2021.  From the
paper: three looks with a third of rho each, equal noise within a look, a tree that links all columns, measured pair by
pair.  Unlike the paper: the maximum spanning tree of noisy scores replaces draws by the exponential mechanism.  Rows
come from consistent marginals by a tree start and sweeps, unless ``rows_by`` asks for the paper's graphical model,
fitted by the package mbi.

Privacy: rho-zCDP for adding or removing one person with at most k records.  With d attributes there are d one-way
marginals, at most d (d - 1) / 2 scores against them, and at most d - 1 pairs (or the one-ways again, if there is no
pair).  Each is one mechanism instance of sensitivity k, and their prices add up to rho (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Iterator

from privsyn.data_contracts.mechanism_options import Mst
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Progress, Step
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, ENCODE, ONE_WAYS
from privsyn.pipelines.mechanism_parts import (
    build_choice_step,
    build_drawing_step,
    decode_from,
    iterate_shards_to_draw,
    measure_chosen,
    read_noisy_scores,
)
from privsyn.pipelines.one_shot import RECODE_ROWS, SCORES
from privsyn.pipelines.rung_steps import build_first_look
from privsyn.pipelines.synthesis_steps import MAKE_CONSISTENT, REFINE_CODES, SHARDS, build_row_steps
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, map_coarse_one_ways
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import draw_rows, make_consistent, select_marginals


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps: three looks with a third of rho each, then rows by sweeps or by a graphical model."""
    return (
        ENCODE,
        *build_first_look(),
        ONE_WAYS,
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        SCORES,
        SELECT_TREE,
        measure_chosen("select_tree.cliques", LIMIT),
        *(build_row_steps(request) if request.get_options(Mst).rows_by == "sweeps" else GRAPHICAL_STEPS),
    )


LIMIT = (
    "The rows keep the relations along one tree that links all columns; any others only as far as they follow from "
    "these."
)


SELECT_TREE = build_choice_step(
    name="select_tree",
    title="Select tree",
    scores=SCORES.name,
    choose=lambda r, inputs: select_marginals.find_spanning_tree(read_noisy_scores(inputs), inputs.domain()),
    words="the tree of pairs that links all columns with the largest noisy scores is measured",
)


def _draw(request: Request, inputs: Inputs, recode: Recode, progress: Progress) -> Iterator[CodeTable]:
    domain = build_coarse_domain(recode)
    measured = make_consistent.build_measured_marginals(*inputs.measured(), domain)
    for s in iterate_shards_to_draw(request, recode, progress):
        yield draw_rows.draw_graphical_rows(measured, map_coarse_one_ways(recode), domain, s.rows, s.own_seed)


GRAPHICAL_STEPS = (
    REFINE_CODES,
    MAKE_CONSISTENT,
    build_drawing_step(
        name="graphical_rows",
        title="Graphical rows",
        draw=_draw,
        fields=("mechanism.synthesis.rows", *SHARDS),
        words="drawn from the graphical model that the package mbi fits to the noisy counts",
    ),
    decode_from("graphical_rows.codes"),
)
"""The last steps if a graphical model draws the rows."""
