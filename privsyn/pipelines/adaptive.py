"""Adaptive PrivSyn: after the paper's one measurement, rounds that make rows, score them, choose, and measure again.

The first measurement is round 1; ``mechanism.rounds`` says how many follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.mechanism_options import Adaptive
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, ReleaseStep, Step
from privsyn.pipelines.common_steps import ONE_CELL, RECODE, RELEASED, counts_of, options_as, published, wide_codes
from privsyn.pipelines.privsyn import (
    COMBINE_CLIQUES,
    RECODED,
    choice_key,
    measure_step,
    select_step,
    targets_of,
    up_to_measurement,
)
from privsyn.pipelines.synthesis_steps import (
    APPEND_ATTRIBUTES,
    consistency_key,
    consistent_marginals,
    consistent_step,
    forbidden_codes,
    refined,
    rows_from,
    rules_key,
    synthesis_key,
    synthesis_of,
    synthesize_step,
    tied,
)
from privsyn.tasks.estimation.recode import coarse_domain, noisy_total
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.steps import (
    append_attributes,
    combine_cliques,
    reselect_cliques,
    residual_scores,
    synthesize,
)


def options_of(request: Request) -> Adaptive:
    """Return the request's options.  Raises TypeError if it asks for another mechanism."""
    return options_as(request, Adaptive)


class Round(NamedTuple):
    """The steps of one further round, in order."""

    rows: Step
    scores: ReleaseStep
    choice: Step
    measure: ReleaseStep


def adaptive(request: Request) -> tuple[Step, ...]:
    """Return the steps of PrivSyn, with the further rounds between its measurement and consistency."""
    options = options_of(request)
    rounds: list[Round] = []
    stages = ["measure_marginals"]
    for number in range(2, options.rounds + 2):
        rounds.append(_round(number, tuple(stages), options))
        stages.append(rounds[-1].measure.name)
    first = up_to_measurement(options, options.exact_rounds().first)
    return (*first, *(step for each in rounds for step in each), *rows_from(stages))


def _round(n: int, stages: Sequence[str], options: Adaptive) -> Round:
    shares = options.exact_rounds()
    measure = measure_again(n, f"select_again_{n}.cliques", shares.measurement)
    rows = rows_so_far(n, stages)
    selection = options.selection
    limits = Candidates(selection.max_cells, selection.gamma if options.triples else None)
    scores = scores_of_rows(n, stages, rows, shares.scores, limits)
    return Round(rows, scores, _choice(n, stages, scores, measure), measure)


def measure_again(n: int, chosen: str, share: Fraction) -> ReleaseStep:
    """Return the measurement of round ``n``: the marginals in the table ``chosen``, with this share of the budget."""
    return measure_step(
        f"measure_again_{n}",
        f"Measure again, round {n}",
        chosen,
        share,
        Look("joint counts where these were far", lambda r: ONE_CELL, round=n),
        published(f"round_{n}_measured"),
    )


def _versions(*same: Step) -> int:
    """Return a version that is raised whenever one of the steps with the same code is."""
    return sum(step.version for step in same)


def rows_so_far(n: int, stages: Sequence[str]) -> Step:
    """Return rows from what ``stages`` measured, for the scores of round ``n``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, consistent = consistent_marginals(request, inputs, stages)
        domain = coarse_domain(recode)
        zeros = forbidden_codes(request, recode)
        core = append_attributes.core_marginals(consistent, domain, tied(zeros))
        settings = synthesis_of(request)
        settings = settings.model_copy(update={"oversample": 1, "seed": residual_scores.seed_of(settings.seed, n)})
        number = residual_scores.rows_so_far(noisy_total(recode))
        rows = synthesize.synthesize(
            core.marginals, core.domain, settings, number, request.threads, progress, zeros=zeros
        )
        codes = append_attributes.append_attributes(rows, consistent, domain, settings.seed, tied(zeros))
        return {"codes": wide_codes(codes.to_arrow().to_batches(), domain)}

    def settings(request: Request) -> dict[str, Any]:
        key = {**synthesis_key(request), "oversample": 1}
        key["seed"] = residual_scores.seed_of(key["seed"], n)
        synthesis = {name: value for name, value in key.items() if name not in ("rows", "shard_rows")}
        return {"consistency": consistency_key(request), "synthesis": synthesis, **rules_key(request)}

    return Step(
        f"rows_so_far_{n}",
        f"Rows so far, round {n}",
        Kind.POSTPROCESS,
        (RECODE, *counts_of(stages)),
        {"codes": tables.SYNTHETIC_CODES},
        settings,
        run,
        version=_versions(consistent_step(stages), synthesize_step(stages), APPEND_ATTRIBUTES),
    )


class Candidates(NamedTuple):
    """Cells at most of a pair and of a triple that may be chosen; ``gamma`` None: no triples."""

    max_cells: int
    gamma: int | None


def scores_of_rows(n: int, stages: Sequence[str], so_far: Step, share: Fraction, limits: Candidates) -> ReleaseStep:
    """Return how far the rows ``so_far`` are from the private ones: at every pair and, if asked, at as many triples."""
    codes, triples = f"{so_far.name}.codes", limits.gamma is not None

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        queries, answers = inputs.noisy("indif_scores")
        known = {(q.attributes[0], q.attributes[1]): float(y[0]) for q, y in zip(queries, answers, strict=True)}
        cells = (limits.max_cells, limits.gamma or 0)
        targets = targets_of(request)
        cliques = residual_scores.candidates(known, inputs.domain(), *cells, triples=triples, targets=targets)
        return residual_scores.plan(cliques, rho, request.records)

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        made = CodeTable.from_arrow(list(inputs.batches(codes)), inputs.domain())
        total = noisy_total(refined(request, inputs, stages))
        return residual_scores.exact(rows, made, total, queries, request.threads)

    return ReleaseStep(
        f"residual_scores_{n}",
        f"Residual scores, round {n}",
        Kind.RELEASE,
        (RECODED, RECODE, *counts_of(["indif_scores"]), *counts_of(stages), codes),
        RELEASED,
        lambda r: {
            "max_cells": limits.max_cells,
            "gamma": limits.gamma,
            **(r.spec.targets() if triples else {}),
        },
        plan=plan,
        exact=exact,
        share=lambda r: share,
        look=Look(
            "how far the rows made so far are from the private table",
            lambda r: (
                "k: against the rows made so far from what was released before, each of a person's k records "
                "changes one count by 1, so the L1 distance by at most 1; rounding down to whole records keeps it"
            ),
            noise_of="a distance",
            round=n,
        ),
        rows=RECODED,
        rows_domain=lambda r, i: i.domain(),
        padded=True,
        published=published(f"round_{n}_scores"),
    )


def _choice(n: int, stages: Sequence[str], scores: ReleaseStep, measure: ReleaseStep) -> Step:
    """Return the cliques to measure in round ``n``, by their noisy distances."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, fine = refined(request, inputs, stages), request.encoding.domain
        queries, answers = inputs.noisy(scores.name)
        how = (recode, fine, float(measure.rho(request)), request.records)
        distances = [float(y[0]) for y in answers]
        again = options_of(request).split.remeasure_one_ways
        weights = reselect_cliques.reselect_cliques(
            queries, distances, *how, remeasure_one_ways=again, targets=targets_of(request)
        )
        return {"cliques": combine_cliques.cliques_to_table(weights, inputs.domain(), fine)}

    return Step(
        f"select_again_{n}",
        f"Select again, round {n}",
        Kind.POSTPROCESS,
        (*counts_of([scores.name]), RECODE, *counts_of(stages)),
        {"cliques": tables.CLIQUES},
        lambda r: choice_key(r, measure),
        run,
        version=_versions(select_step(measure), COMBINE_CLIQUES),
        words=lambda r: "rows made from what was measured so far say where to ask again",
    )
