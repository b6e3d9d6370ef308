"""PrivSyn on top of earlier releases of the same data: their looks, pooled with as many new ones, then rows.

The first steps are those of the earlier releases, with their keys, so that their noisy tables are found and nothing is
drawn for them again.  Each further release looks at one-ways, scores and marginals in the same codes.  Answers to the
same question are pooled by inverse variance.  All prices are in one sum (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, ReleaseStep, Step
from privsyn.pipelines.common_steps import (
    ENCODED,
    ONE_CELL,
    RECODE,
    build_one_way_step,
    publish_noisy,
)
from privsyn.pipelines.full_cell_steps import share_full_cells
from privsyn.pipelines.named_sets import (
    build_compression_step,
    build_set_measurement,
    build_set_steps,
    compute_share,
)
from privsyn.pipelines.privsyn import (
    COMBINE_CLIQUES,
    JOINT_COUNTS,
    SINGLE_COUNTS,
    build_measurement,
    build_scores_step,
    build_selection_step,
    build_up_to_measurement,
    get_options,
    key_choice,
)
from privsyn.pipelines.synthesis_steps import build_row_steps
from privsyn.pipelines.trend_steps import build_trend_step, explain_by_trends, share_trends
from privsyn.pipelines.value_steps import build_value_counts, share_values
from privsyn.tasks.estimation.noisy import count_marginals
from privsyn.tasks.estimation.recode import build_coarse_domain, pool_one_ways
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import combine_cliques, select_more


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of the earlier releases, then those of this one.

    Raises ValueError where nothing is improved.
    """
    improves = request.spec.improves
    if improves is None:
        raise ValueError("the request improves no release")
    options, total, sets = get_options(request), request.total_rho, compute_share(request)
    first, *further = (rho / total for rho in request.rounds)
    measurement, trends, values = options.split.exact()[2], share_trends(request), share_values(request)
    cells = share_full_cells(request)
    compress = build_compression_step(request, measurement * first)
    steps = list(build_up_to_measurement(options, measurement * (1 - sets), first, trends, values, cells, compress))
    steps += build_set_steps(request, measurement * first)
    for n, (part, earlier) in enumerate(zip(further, improves.earlier, strict=True), 2):
        steps += _build_round(n, part, earlier.run, options, 1 - sets, trends, values)
        if values:
            steps.append(build_value_counts(measurement * (1 - sets) * values * part, n))
        if sets:
            steps.append(build_set_measurement(measurement * sets * part, n))
    return (*steps, *build_row_steps(request))


def _build_round(
    n: int,
    part: Fraction,
    run: str,
    options: PrivSyn,
    of_pairs: Fraction,
    of_trends: Fraction,
    of_values: Fraction,
) -> tuple[Step, ...]:
    """Return the steps of the release number ``n``, which has this part of the budget and improves ``run``.

    ``of_pairs``: the part of the third stage's budget that is not for named sets; ``of_trends``: the part of that which
    trends have, and ``of_values`` counts of single values; 0: none are asked for.
    """
    split = options.split
    one_ways = _build_one_ways(n, split.exact()[0] * part, run, options)
    scores = _build_scores(n, split.exact()[1] * part)
    measure = build_measurement(
        name=f"measure_more_{n}",
        title=f"Measure more, release {n}",
        chosen=f"select_more_{n}.cliques",
        share=split.exact()[2] * part * of_pairs * (1 - of_trends - of_values),
        look=Look(what=JOINT_COUNTS, reason=lambda r: ONE_CELL, round=n, alone=SINGLE_COUNTS),
        files=publish_noisy(f"measured_{n}", f"has those of release {n}"),
    )
    trends = [build_trend_step(split.exact()[2] * part * of_pairs * of_trends, n)] if of_trends else []
    return one_ways, scores, *trends, _build_choice(n, measure), measure


def _build_one_ways(n: int, share: Fraction, run: str, options: PrivSyn) -> ReleaseStep:
    """Return a further look at every column on its own; its key names the run that is improved."""
    step = build_one_way_step(share, options.split.one_ways)
    return replace(
        step,
        name=f"one_way_marginals_{n}",
        title=f"One-way marginals, release {n}",
        settings=lambda r: {"one_ways": options.split.one_ways, "improves": run},
        look=replace(step.look, round=n),
        inputs=(ENCODED,),
        published=publish_noisy(f"one_way_{n}", f"has those of release {n}"),
    )


def _build_scores(n: int, share: Fraction) -> ReleaseStep:
    """Return a further look at how strongly pairs are related, against the same table as the first."""
    step = build_scores_step(lambda r: get_options(r).selection, share)
    return replace(
        step,
        name=f"indif_scores_{n}",
        title=f"InDif scores, release {n}",
        look=replace(step.look, round=n),
        published=publish_noisy(f"scores_{n}"),
    )


def _sum_measured_rho(request: Request, n: int) -> Fraction:
    """Return the budget of all marginals up to release ``n``."""
    of_pairs = get_options(request).split.exact()[2] * (1 - compute_share(request))
    return sum(request.rounds[:n], Fraction(0)) * of_pairs * (1 - share_trends(request) - share_values(request))


def _build_choice(n: int, measure: ReleaseStep) -> Step:
    """Return the choice of what release ``n`` measures: each clique's share of all budgets, less what it had."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        first_recode, fine, options = inputs.recode(), request.public.measured_again, get_options(request)
        binning = request.encoding.binning
        all_one_ways = pool_one_ways(first_recode, *inputs.one_ways_again(), binning)
        score_queries, scores_again = inputs.all_noisy(LookKind.SCORES)
        rho = float(_sum_measured_rho(request, n))
        pairs = select_more.select_from_all_scores(
            score_queries,
            scores_again,
            first_recode,
            {a: r for a, r in all_one_ways.items() if binning[a].chances is None},  # not what values are rounded to
            rho,
            request.records,
            options.selection,
            remeasure_one_ways=options.split.remeasure_one_ways,
            targets=request.public.targets,
            explained=explain_by_trends(request, inputs),
        )
        domain = build_coarse_domain(first_recode)
        weights = combine_cliques.weigh_cliques(pairs, domain, fine, options.selection)
        lacking = select_more.list_lacking(weights, select_more.map_spent(_list_marginals(inputs)), rho)
        return {"cliques": combine_cliques.tabulate_cliques(lacking, domain, fine)}

    return Step(
        name=f"select_more_{n}",
        title=f"Select more, release {n}",
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE,),
        wants=(LookKind.ONE_WAYS, LookKind.SCORES, LookKind.MARGINALS, LookKind.TRENDS),
        outputs={"cliques": tables.CLIQUES},
        settings=lambda r: {
            **key_choice(r, measure),
            **get_options(r).selection.model_dump(),
            "all": str(_sum_measured_rho(r, n)),
        },
        reads=(KnowledgePart.TARGETS,),
        inherits=(KnowledgePart.KNOWN_COLUMNS,),
        run=run,
        version=build_selection_step(measure).version + COMBINE_CLIQUES.version,
        words=lambda r: "all releases' noisy scores together say what to measure more",
    )


def _list_marginals(inputs: Inputs) -> list[Query]:
    """Return the queries of all looks at marginals, without sums beside them."""
    by_look = [inputs.noisy(look)[0] for look in inputs.list_looks(LookKind.MARGINALS)]
    return [q for queries in by_look for q in queries[: count_marginals([q.attributes for q in queries])]]
