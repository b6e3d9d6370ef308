"""Adaptive PrivSyn: after the paper's one measurement, rounds that make rows, score them, choose, and measure again.

The first measurement is round 1; ``mechanism.rounds`` says how many follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import drop_attributes
from privsyn.data_contracts.mechanism_options import Adaptive
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, ReleaseStep, Step
from privsyn.pipelines.common_steps import (
    ONE_CELL,
    RECODE,
    RECODED,
    RELEASED,
    get_options_as,
    list_released_tables,
    publish_noisy,
    stream_codes,
)
from privsyn.pipelines.full_cell_steps import share_full_cells
from privsyn.pipelines.named_sets import (
    build_compression_step,
    build_set_steps,
    compute_share,
)
from privsyn.pipelines.privsyn import (
    COMBINE_CLIQUES,
    build_measurement,
    build_selection_step,
    build_up_to_measurement,
    key_choice,
    read_noisy_scores,
)
from privsyn.pipelines.synthesis_steps import (
    APPEND_ATTRIBUTES,
    CONSISTENCY_READS,
    MAKE_CONSISTENT,
    MEASURED,
    REFINE_CODES,
    SYNTHESIZE,
    build_row_steps,
    get_synthesis,
    key_consistency,
    key_synthesis,
    list_attributes,
    read_consistent_marginals,
    read_zeros,
    split_sets,
)
from privsyn.pipelines.trend_steps import share_trends
from privsyn.pipelines.value_steps import share_values
from privsyn.tasks.codecs.binning import list_counted_alone, list_roundings
from privsyn.tasks.estimation.expected_error import NO_TARGETS
from privsyn.tasks.estimation.near_pairs import is_wide
from privsyn.tasks.estimation.recode import build_coarse_domain, estimate_total
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import append_attributes, combine_cliques, residual_scores, synthesize


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of PrivSyn, with the further rounds between its measurement and consistency."""
    options, sets = get_options(request), compute_share(request)
    rounds = [_build_round(number, options, 1 - sets) for number in range(2, options.rounds + 2)]
    first = options.exact_rounds().first * (1 - sets)
    return (
        *build_up_to_measurement(
            options,
            first,
            trends=share_trends(request),
            values=share_values(request),
            cells=share_full_cells(request),
            compress=build_compression_step(request, options.split.exact()[2]),
        ),
        *build_set_steps(request, options.split.exact()[2]),
        *(step for each in rounds for step in each),
        *build_row_steps(request),
    )


class Round(NamedTuple):
    """The steps of one further round, in order."""

    refined: Step
    rows: Step
    scores: ReleaseStep
    choice: Step
    measure: ReleaseStep


def get_options(request: Request) -> Adaptive:
    """Return the request's options.  Raises TypeError if it asks for another mechanism."""
    return get_options_as(request, Adaptive)


def _build_round(n: int, options: Adaptive, part: Fraction) -> Round:
    """Return the steps of round ``n``; ``part``: of the third stage's budget, what is not for named sets."""
    shares = options.exact_rounds()
    measure = measure_again(n, f"select_again_{n}.cliques", shares.measurement * part)
    refined, rows = refine_again(n), build_rows_so_far(n)
    gamma = options.selection.gamma if options.triples else None
    scores = build_residual_scores(n, shares.scores * part, options.selection.max_cells, gamma)
    return Round(refined, rows, scores, _build_choice(n, scores, measure), measure)


def measure_again(n: int, chosen: str, share: Fraction) -> ReleaseStep:
    """Return the measurement of round ``n``: the marginals in the table ``chosen``, with this share of the budget."""
    return build_measurement(
        name=f"measure_again_{n}",
        title=f"Measure again, round {n}",
        chosen=chosen,
        share=share,
        look=Look(what="joint counts where these were far", reason=lambda r: ONE_CELL, round=n),
        files=publish_noisy(f"round_{n}_measured"),
    )


def _count_versions(*same: Step) -> int:
    """Return a version that is raised whenever one of the steps with the same code is."""
    return sum(step.version for step in same)


def refine_again(n: int) -> Step:
    """Return the step that refines the codes by what was measured before round ``n``."""
    return replace(REFINE_CODES, name=f"{REFINE_CODES.name}_{n}", title=f"{REFINE_CODES.title}, round {n}")


def list_refined(n: int) -> tuple[str, str]:
    """Return the tables of the refined codes of round ``n``."""
    return f"{REFINE_CODES.name}_{n}.refined", f"{REFINE_CODES.name}_{n}.empty_cells"


def build_rows_so_far(n: int) -> Step:
    """Return the step that makes rows from what was measured so far, for the scores of round ``n``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, measured, by_trend = read_consistent_marginals(request, inputs)
        consistent = [*measured, *by_trend]
        domain, knowledge = build_coarse_domain(recode), request.public.in_codes(recode)
        by_code, sets = split_sets(consistent)
        tied = knowledge.tied | list_attributes(sets)
        core = append_attributes.select_core_marginals(by_code, domain, tied)
        settings = get_synthesis(request)
        settings = settings.model_copy(update={"oversample": 1, "seed": residual_scores.derive_seed(settings.seed, n)})
        number = residual_scores.count_rows_so_far(estimate_total(recode))
        rows = synthesize.synthesize(
            [*core.marginals, *sets],
            core.domain,
            settings,
            number,
            request.threads,
            progress,
            zeros=read_zeros(request, inputs, recode),
        )
        codes = append_attributes.append_attributes(rows, by_code, domain, settings.seed, tied)
        return {"codes": stream_codes(codes.to_arrow().to_batches(), domain)}

    def settings(request: Request) -> dict[str, Any]:
        key = {**key_synthesis(request), "oversample": 1}
        key["seed"] = residual_scores.derive_seed(key["seed"], n)
        synthesis = {name: value for name, value in key.items() if name not in ("rows", "shard_rows")}
        return {"consistency": key_consistency(request), "synthesis": synthesis}

    return Step(
        name=f"rows_so_far_{n}",
        title=f"Rows so far, round {n}",
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE, *list_refined(n)),
        wants=MEASURED,
        outputs={"codes": tables.SYNTHETIC_CODES},
        settings=settings,
        reads=CONSISTENCY_READS,
        run=run,
        version=_count_versions(MAKE_CONSISTENT, SYNTHESIZE, APPEND_ATTRIBUTES),
    )


def build_residual_scores(n: int, share: Fraction, max_cells: int, gamma: int | None) -> ReleaseStep:
    """Return how far the rows so far are from the private ones: at scored pairs and, if asked, at as many triples.

    max_cells: of a pair that was scored, at most; gamma: cells of a triple at most, None: no triples.
    """
    codes, triples = f"rows_so_far_{n}.codes", gamma is not None

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        cliques = residual_scores.list_candidates(
            read_noisy_scores(inputs),
            inputs.domain(),
            gamma or 0,
            triples=triples,
            targets=request.public.targets if triples else NO_TARGETS,
        )
        return residual_scores.plan_queries(cliques, rho, request.records)

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        so_far_rows = CodeTable.from_arrow(list(inputs.batches(codes)), inputs.domain())
        total = estimate_total(inputs.refined())
        return residual_scores.count_exactly(rows, so_far_rows, total, queries, request.threads)

    return ReleaseStep(
        name=f"residual_scores_{n}",
        title=f"Residual scores, round {n}",
        measures=LookKind.RESIDUALS,
        inputs=(RECODED, RECODE, *list_released_tables(["indif_scores"]), list_refined(n)[0], codes),
        outputs=RELEASED,
        settings=lambda r: {"max_cells": max_cells, "gamma": gamma, **_key_scored_pairs(r)},
        reads=(KnowledgePart.TARGETS,) if triples else (),
        plan=plan,
        exact=exact,
        share=lambda r: share,
        look=Look(
            what="how far the rows made so far are from the private table",
            reason=lambda r: (
                "k: against the rows made so far from what was released before, each of a person's k records "
                "changes one count by 1, so the L1 distance by at most 1; rounding down to whole records keeps it"
            ),
            noise_of="a distance",
            round=n,
        ),
        rows=RECODED,
        padded=True,
        published=publish_noisy(f"round_{n}_scores"),
    )


def _key_scored_pairs(request: Request) -> dict[str, Any]:
    """Return that pairs without a first score are no candidates, for cache keys.

    Nothing where all pairs have one: earlier keys have no such field.
    """
    some_unscored = list_counted_alone(request.encoding.binning) or is_wide(request.encoding.domain.attributes)
    return {"candidates": "scored"} if some_unscored else {}


def _build_choice(n: int, scores: ReleaseStep, measure: ReleaseStep) -> Step:
    """Return the cliques to measure in round ``n``, by their noisy distances."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode = inputs.refined()
        fine = drop_attributes(request.encoding.domain, list_roundings(request.encoding.binning))
        queries, answers = inputs.noisy(scores.name)
        weights = residual_scores.reselect_cliques(
            queries,
            [float(y[0]) for y in answers],
            recode,
            fine,
            float(measure.rho(request)),
            request.records,
            remeasure_one_ways=get_options(request).split.remeasure_one_ways,
            targets=request.public.targets,
        )
        return {"cliques": combine_cliques.tabulate_cliques(weights, inputs.domain(), fine)}

    return Step(
        name=f"select_again_{n}",
        title=f"Select again, round {n}",
        kind=StepKind.POSTPROCESS,
        inputs=(*list_released_tables([scores.name]), RECODE, list_refined(n)[0]),
        outputs={"cliques": tables.CLIQUES},
        settings=lambda r: key_choice(r, measure),
        reads=(KnowledgePart.TARGETS,),
        run=run,
        version=_count_versions(build_selection_step(measure), COMBINE_CLIQUES),
        words=lambda r: "rows made from what was measured so far say where to ask again",
    )
