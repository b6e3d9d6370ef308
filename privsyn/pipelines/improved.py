"""PrivSyn that improves earlier releases of the same data: their looks, pooled with new ones, then rows.

The first steps have the keys of the earlier releases, so their noisy tables are reused and no noise is drawn again.
Each further release looks at one-ways, scores and marginals in the same codes.  Answers to the same query are pooled by
inverse variance.  The prices of all looks add up (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, ReleaseStep, Step, repeat
from privsyn.pipelines.added_looks import ask_trends_again, count_values_again, explain_by_trends
from privsyn.pipelines.common_steps import ONE_CELL, ONE_WAYS, RECODE, publish_noisy
from privsyn.pipelines.mechanism_parts import build_measurement
from privsyn.pipelines.named_sets import measure_sets_again
from privsyn.pipelines.one_shot import (
    CHOICE,
    COMBINE_CLIQUES,
    JOINT_COUNTS,
    MEASURED,
    SCORES,
    SELECT_PAIRS,
    SINGLE_COUNTS,
    build_looks,
)
from privsyn.pipelines.synthesis_steps import build_row_steps
from privsyn.tasks.estimation.noisy import count_marginals, pool_answers
from privsyn.tasks.estimation.recode import build_coarse_domain, pool_one_ways
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import select_marginals


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of the earlier releases, then this release's steps.

    Raises ValueError if the request improves no release.
    """
    if request.spec.improves is None:
        raise ValueError("the request improves no release")
    rounds = (_build_round(n, earlier.run) for n, earlier in enumerate(request.spec.improves.earlier, 2))
    return (*build_looks(), *(step for steps in rounds for step in steps), *build_row_steps(request))


def _look_at_columns(n: int, run: str) -> ReleaseStep:
    """Return a further look at every column on its own; its key names the run that is improved."""
    again = repeat(ONE_WAYS, n, publish_noisy(f"one_way_{n}", f"has the counts of release {n}"))
    return replace(again, settings=lambda r: {**again.settings(r), "improves": run})


def _measure_more(n: int) -> ReleaseStep:
    """Return the measurement of the marginals that release ``n`` chooses."""
    return build_measurement(
        name=f"measure_more_{n}",
        title=f"Measure more, release {n}",
        chosen=f"select_more_{n}.cliques",
        look=LookDescription(counted=JOINT_COUNTS, reason=ONE_CELL, round=n, counted_alone=SINGLE_COUNTS),
        files=publish_noisy(f"measured_{n}", f"has the counts of release {n}"),
    )


def _select_more(n: int, request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    """Choose the cliques of release ``n``: each gets its share of all budgets, less what was spent on it."""
    first_recode, fine, options = inputs.recode(), request.public.measured_again, request.get_options(PrivSyn)
    binning = request.encoding.binning
    all_one_ways = pool_one_ways(first_recode, *inputs.one_ways_again(), binning)
    queries, scores = pool_answers(*inputs.all_noisy(LookKind.SCORES))  # of every release, against one table
    rho = float(sum(inputs.rho.values()))
    pairs = select_marginals.select(
        queries,
        [float(score[0]) for score in scores],
        first_recode,
        rho,
        request.records,
        options.selection,
        remeasure_one_ways=options.split.remeasure_one_ways,
        targets=request.public.targets,
        all_one_ways={a: r for a, r in all_one_ways.items() if binning[a].chances is None},  # not those of rounding
        explained=explain_by_trends(request, inputs),
    )
    domain = build_coarse_domain(first_recode)
    weights = select_marginals.weigh_cliques(pairs, domain, fine, options.selection)
    lacking = select_marginals.list_lacking(weights, select_marginals.map_spent(_list_marginals(inputs)), rho)
    return {"cliques": select_marginals.tabulate_cliques(lacking, domain, fine)}


def _choose_more(n: int) -> Step:
    """Return the step that chooses the cliques of release ``n``."""
    return Step(
        name=f"select_more_{n}",
        title=f"Select more, release {n}",
        kind=StepKind.POSTPROCESS,
        budgets=(MEASURED, *(f"measure_more_{i}" for i in range(2, n + 1))),
        inputs=(RECODE,),
        look_kinds=(LookKind.ONE_WAYS, LookKind.SCORES, LookKind.MARGINALS, LookKind.TRENDS),
        outputs={"cliques": tables.CLIQUES},
        fields=(*CHOICE, "mechanism.selection"),
        reads=(KnowledgePart.TARGETS,),
        inherits=(KnowledgePart.KNOWN_COLUMNS,),
        run=partial(_select_more, n),
        version=SELECT_PAIRS.version + COMBINE_CLIQUES.version + 1,
        words="all releases' noisy scores together say what to measure more",
    )


def _build_round(n: int, run: str) -> tuple[Step, ...]:
    """Return the steps of release number ``n``, which improves ``run`` by repeating the first release's looks."""
    return (
        _look_at_columns(n, run),
        repeat(SCORES, n, publish_noisy(f"scores_{n}")),
        ask_trends_again(n),
        _choose_more(n),
        _measure_more(n),
        count_values_again(n),
        measure_sets_again(n),
    )


def _list_marginals(inputs: Inputs) -> list[Query]:
    """Return the queries of all looks at marginals, without the trend sums that follow them."""
    by_look = [inputs.noisy(look)[0] for look in inputs.list_looks(LookKind.MARGINALS)]
    return [q for queries in by_look for q in queries[: count_marginals([q.attributes for q in queries])]]
