"""PrivBayes' network and sampling over this project's scores: one-ways, a network, its families, rows drawn along it.

Zhang, Cormode, Procopiuc, Srivastava, Xiao: *PrivBayes*, SIGMOD 2014.  From the paper: 0.3 of the budget for the
network (here one-ways and scores) and 0.7 for the families, theta-usefulness, equal noise, no consistency before rows
are drawn.  Unlike the paper: noisy scores of pairs replace draws by the exponential mechanism, noise is discrete
Gaussian, low-count values are combined first, and consistent marginals are published beside the rows.

Privacy: rho-zCDP for adding or removing one person with at most k records.  With d attributes there are d one-way
marginals, at most d (d - 1) / 2 scores against them, and at most d - 1 families (or the one-ways again, if there is no
family).  Each is one mechanism instance of sensitivity k, and their prices add up to rho (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Iterator

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import PrivBayes
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
from privsyn.pipelines.one_shot import MEASURED, RECODE_ROWS, SCORES
from privsyn.pipelines.rung_steps import build_first_look
from privsyn.pipelines.synthesis_steps import MAKE_CONSISTENT, REFINE_CODES
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, estimate_total, map_coarse_one_ways
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import draw_rows, make_consistent


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps: three looks, then rows drawn along the network."""
    return (
        ENCODE,
        *build_first_look(),
        ONE_WAYS,
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        SCORES,
        BUILD_NETWORK,
        MEASURE,
        REFINE_CODES,
        MAKE_CONSISTENT,
        ANCESTRAL_ROWS,
        decode_from("ancestral_rows.codes"),
    )


def _choose_families(request: Request, inputs: Inputs) -> list[Clique]:
    scores, options, domain = read_noisy_scores(inputs), request.get_options(PrivBayes), inputs.domain()
    total, rho = estimate_total(inputs.recode()), inputs.rho[MEASURED]
    useful = draw_rows.count_useful_cells(total, len(domain.attributes) - 1, rho, request.records, options.usefulness)
    return draw_rows.build_bayesian_network(scores, domain, options.degree, min(useful, options.max_cells))


BUILD_NETWORK = build_choice_step(
    name="build_network",
    title="Build network",
    scores=SCORES.name,
    choose=_choose_families,
    fields=("mechanism.degree", "mechanism.usefulness", "mechanism.max_cells"),
    budgets=(MEASURED,),
    words="every column has as its parents the columns that it is related to most, by the noisy scores",
)

MEASURE = measure_chosen(
    "build_network.cliques",
    "The rows keep the relations of each column with a few others, its parents; any others only as far as they "
    "follow from these. They were drawn from noisy counts that were not brought into agreement first.",
)


def _draw(request: Request, inputs: Inputs, recode: Recode, progress: Progress) -> Iterator[CodeTable]:
    domain = build_coarse_domain(recode)
    families = make_consistent.build_measured_marginals(*inputs.measured(), domain)
    one_ways = {a: counts for a, (counts, _) in map_coarse_one_ways(recode).items()}
    for s in iterate_shards_to_draw(request, recode, progress):
        yield draw_rows.draw_ancestral_rows(families, one_ways, domain, s.rows, s.own_seed)


ANCESTRAL_ROWS = build_drawing_step(
    name="ancestral_rows",
    title="Ancestral rows",
    draw=_draw,
    fields=("mechanism.synthesis",),
    words="every column drawn given its parents, from the noisy counts as they were measured",
)
