"""AIM over rows: one-ways, then rounds that make rows, score all candidates, and measure those that are worst.

McKenna, Mullins, Sheldon, Miklau: *AIM*, PVLDB 15(11), 2022.  The paper's: one-ways first; a round asks where what is
known is worst, weighted by the workload and less the noise that measuring would have; a tenth of a round's budget for
asking; later rounds have more budget.  Not the paper's: rows by sweeps stand in for the graphical model; scores of all
candidates get noise, in place of one draw by the exponential mechanism, and several marginals are taken from them; the
number of rounds and their budgets are public and fixed, where the paper anneals by what it sees.

Privacy: rho-zCDP for adding or removing one person with at most k records.  Of d attributes, d one-way marginals of
sensitivity k; in each of R rounds at most d (d - 1) scores of sensitivity k, against what was released before, and at
most d times ``per_column`` marginals, rounded up, of sensitivity k (or the d one-ways again, where no score is above
its noise), and a table of sensitivity k for each named set: each is one mechanism instance.  The shares are fixed
before any look, so the prices add up to rho (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import Aim
from privsyn.data_contracts.step_options import Selection
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step
from privsyn.pipelines.adaptive import build_residual_scores, build_rows_so_far, measure_again, refine_again
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, get_options_as
from privsyn.pipelines.full_cell_steps import build_one_way_steps
from privsyn.pipelines.named_sets import build_set_steps, compute_share
from privsyn.pipelines.privsyn import RECODE_ROWS, build_choice_step, build_first_measurement, build_scores_step
from privsyn.pipelines.synthesis_steps import build_row_steps
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import worst_marginals

TREE_WIDTH_NOTE = (
    "The rows keep the relations of few columns, those that were measured in rounds; any others only as far as they "
    "follow from these."
)


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the one-ways, the rounds, and rows from all that was measured."""
    options, sets = get_options(request), compute_share(request)
    shares = [(asking, measuring * (1 - sets)) for asking, measuring in options.exact_rounds()]
    measuring = sum((measuring for _, measuring in options.exact_rounds()), Fraction(0))
    return (
        *build_one_way_steps(request, options.exact_one_ways(), "equal"),
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        *build_set_steps(request, measuring),
        *_build_rounds(options, shares),
        *build_row_steps(request),
    )


def _build_rounds(options: Aim, shares: Sequence[tuple[Fraction, Fraction]]) -> list[Step]:
    """Return the steps of all rounds; ``shares``: of each round, for asking and for measuring."""
    first, *further = shares
    scores = build_scores_step(lambda r: Selection(max_cells=get_options(r).max_cells), first[0])
    measure = build_first_measurement(first[1], "worst_marginals_1.cliques", TREE_WIDTH_NOTE)
    rounds: list[Step] = [scores, _build_choice(1, scores, measure), measure]
    gamma = options.gamma if options.triples else None
    for n, (asking, measuring) in enumerate(further, start=2):
        scores = build_residual_scores(n, asking, options.max_cells, gamma)
        measure = measure_again(n, f"worst_marginals_{n}.cliques", measuring)
        rounds += [refine_again(n), build_rows_so_far(n), scores, _build_choice(n, scores, measure), measure]
    return rounds


def get_options(request: Request) -> Aim:
    """Return the request's options.  Raises TypeError if it asks for another mechanism."""
    return get_options_as(request, Aim)


def _count_at_once(request: Request) -> int:
    return get_options(request).at_once(len(request.encoding.domain.attributes))


def _build_choice(n: int, scores: ReleaseStep, measure: ReleaseStep) -> Step:
    """Return the marginals to measure in round ``n``, by their noisy distances."""

    def choose(request: Request, inputs: Inputs) -> list[Clique]:
        queries, answers = inputs.noisy(scores.name)
        return worst_marginals.choose_worst_marginals(
            [q.attributes for q in queries],
            [float(y[0]) for y in answers],
            queries[0].sigma if queries else 0.0,
            inputs.domain(),
            _count_at_once(request),
            float(measure.rho(request)),
            request.records,
            targets=request.public.targets,
        )

    return build_choice_step(
        name=f"worst_marginals_{n}",
        title=f"Worst marginals, round {n}",
        scores=scores.name,
        choose=choose,
        settings=lambda r: {**measure.priced(r), "at_once": _count_at_once(r)},
        reads=(KnowledgePart.TARGETS,),
        words=(
            "the few marginals in which independent columns, by the noisy one-ways, are worst are measured first"
            if n == 1
            else "rows made from what was measured so far say which few marginals are measured next"
        ),
    )
