"""AIM over rows: one-ways, then rounds that make rows, score all candidates, and measure those that are worst.

McKenna, Mullins, Sheldon, Miklau: *AIM*, PVLDB 15(11), 2022.  The paper's: one-ways first; a round asks where what is
known is worst, weighted by the workload and less the noise that measuring would have; a tenth of a round's budget for
asking; later rounds have more budget.  Not the paper's: rows by sweeps stand in for the graphical model; scores of all
candidates get noise, in place of one draw by the exponential mechanism, and several marginals are taken from them; the
number of rounds and their budgets are public and fixed, where the paper anneals by what it sees.

Privacy: rho-zCDP for adding or removing one person with at most k records.  Of d attributes, d one-way marginals of
sensitivity k; in each of R rounds at most d (d - 1) scores of sensitivity k, against what was released before, and at
most d times ``per_column`` marginals, rounded up, of sensitivity k (or the d one-ways again, where no score is above
its noise): each is one mechanism instance.  The shares are fixed before any look, so the prices add up to rho (adaptive
composition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.mechanism_options import Aim
from privsyn.data_contracts.step_options import Selection
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress, ReleaseStep, Step
from privsyn.pipelines.adaptive import Candidates, build_residual_scores, build_rows_so_far, measure_again
from privsyn.pipelines.common_steps import (
    COMPRESS_DOMAIN,
    ENCODE,
    RECODE,
    build_one_way_step,
    get_options_as,
    read_one_way_counts,
)
from privsyn.pipelines.privsyn import RECODE_ROWS, build_first_measurement, build_scores_step, get_targets, weigh_evenly
from privsyn.pipelines.synthesis_steps import build_row_steps
from privsyn.tasks.steps import worst_marginals

LIMIT = (
    "The rows keep the relations of few columns, those that were measured in rounds; any others only as far as they "
    "follow from these."
)


def get_options(request: Request) -> Aim:
    """Return the request's options.  Raises TypeError if it asks for another mechanism."""
    return get_options_as(request, Aim)


def aim(request: Request) -> tuple[Step, ...]:
    """Return the one-ways, the rounds, and rows from all that was measured."""
    options = get_options(request)
    first, *further = options.exact_rounds()
    scores = build_scores_step(lambda r: Selection(max_cells=get_options(r).max_cells), lambda r: first[0])
    measure = replace(build_first_measurement(first[1], "worst_marginals_1.cliques"), limit=LIMIT)
    rounds: list[Step] = [scores, _build_choice(1, scores, measure), measure]
    stages = [measure.name]
    limits = Candidates(options.max_cells, options.gamma if options.triples else None)
    for n, (asking, measuring) in enumerate(further, start=2):
        rows = build_rows_so_far(n, tuple(stages))
        scores = build_residual_scores(n, tuple(stages), rows, asking, limits)
        measure = measure_again(n, f"worst_marginals_{n}.cliques", measuring)
        rounds += [rows, scores, _build_choice(n, scores, measure), measure]
        stages.append(measure.name)
    one_ways = build_one_way_step(options.exact_one_ways(), "equal")
    return (ENCODE, one_ways, COMPRESS_DOMAIN, RECODE_ROWS, *rounds, *build_row_steps(stages))


def _count_at_once(request: Request) -> int:
    return get_options(request).at_once(len(request.encoding.domain.attributes))


def _build_choice(n: int, scores: ReleaseStep, measure: ReleaseStep) -> Step:
    """Return the marginals to measure in round ``n``, by their noisy distances."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        queries, answers = inputs.noisy(scores.name)
        cliques, distances = [q.attributes for q in queries], [float(y[0]) for y in answers]
        noise, rho = (queries[0].sigma if queries else 0.0), float(measure.rho(request))
        how = (inputs.domain(), _count_at_once(request), rho, request.records, get_targets(request))
        chosen = worst_marginals.choose_worst_marginals(cliques, distances, noise, *how)
        return {"cliques": weigh_evenly(chosen, request, inputs)}

    def key(request: Request) -> dict[str, Any]:
        return {**measure.priced(request), "at_once": _count_at_once(request), **request.spec.targets()}

    return Step(
        f"worst_marginals_{n}",
        f"Worst marginals, round {n}",
        Kind.POSTPROCESS,
        (*read_one_way_counts([scores.name]), RECODE),
        {"cliques": tables.CLIQUES},
        key,
        run,
        words=lambda r: (
            "the few marginals in which independent columns, by the noisy one-ways, are worst are measured first"
            if n == 1
            else "rows made from what was measured so far say which few marginals are measured next"
        ),
    )
