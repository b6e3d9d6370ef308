"""Further rounds of measuring, declared: make rows so far, score them, choose, measure again.

Belongs here: the four steps of a round, the later steps' further inputs, and the released names of a round's tables.
Does not belong here: the other steps (flows/steps.py), the order of all (flows/wiring.py), and any algorithm.

Round 1 is the paper's one measurement; ``adaptive.rounds`` of the spec says how many follow it.  Without any, the steps
of a release are ``STEPS`` as they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_contracts import tables
from data_contracts.artifacts import Kind
from data_contracts.receipts import Query
from data_contracts.spec import ReleaseSpec
from flows import steps
from flows.step import MEASURE_AGAIN, SCORE_AGAIN, Inputs, Output, Progress, ReleaseStep, Request, Step
from tasks import (
    append_attributes,
    combine_cliques,
    compress_domain,
    residual_scores,
    select_again,
    synthesize,
)
from tasks.kernels.counting import CodeTable, Countable


class Round(NamedTuple):
    """The steps of one further round, in order."""

    rows: Step
    scores: ReleaseStep
    choice: Step
    measure: ReleaseStep


def rounds(number: int) -> tuple[Round, ...]:
    """The first ``number`` further rounds: rounds 2, 3 and so on."""
    return tuple(_round(n) for n in range(2, number + 2))


def steps_of(spec: ReleaseSpec) -> tuple[Step, ...]:
    """Every step of a release of ``spec``, in order: STEPS, with the rounds after the measurement."""
    further = rounds(spec.adaptive.rounds)
    if not further:
        return steps.STEPS
    after = steps.STEPS.index(steps.MEASURE_MARGINALS) + 1
    later = tuple(after_rounds(step, spec.adaptive.rounds) for step in steps.STEPS[after:])
    return (*steps.STEPS[:after], *(step for r in further for step in r), *later)


def after_rounds(step: Step, number: int) -> Step:
    """``step`` as it stands after so many further rounds: what reads the measurement reads all of them."""
    if not number or steps.MEASURED[0] not in step.inputs:
        return step
    return replace(step, inputs=(*step.inputs, *_measured_after(number)[len(steps.MEASURED) :]))


def released_tables(number: int) -> dict[str, str]:
    """Released file -> table of the run, of so many further rounds."""
    found = {}
    for n in range(2, number + 2):
        for file, stage in (("scores", SCORE_AGAIN), ("measured", MEASURE_AGAIN)):
            found[f"marginals/round_{n}_{file}.parquet"] = f"{stage}{n}.noisy"
            found[f"marginals/round_{n}_{file}_receipts.parquet"] = f"{stage}{n}.receipts"
    return found


def _measured_after(number: int) -> tuple[str, ...]:
    """The tables of all measurements up to so many further rounds."""
    later = [f"{MEASURE_AGAIN}{n}.{table}" for n in range(2, number + 2) for table in ("noisy", "receipts")]
    return (*steps.MEASURED, *later)


def _round(n: int) -> Round:
    rows, scores, choice = f"rows_so_far_{n}", f"{SCORE_AGAIN}{n}", f"select_again_{n}"
    measured = _measured_after(n - 2)
    codes, coarse = f"{rows}.codes", "recode_rows.recoded_rows"
    return Round(
        Step(
            rows,
            f"Rows so far, round {n}",
            Kind.POSTPROCESS,
            (steps.RECODE, *measured),
            {"codes": tables.SYNTHETIC_CODES},
            lambda r: {"consistency": r.spec.consistency.model_dump(), "synthesis": _synthesis(r, n)},
            lambda r, i, p: _rows_so_far(r, i, p, n),
            version=_versions(steps.MAKE_CONSISTENT, steps.SYNTHESIZE, steps.APPEND_ATTRIBUTES),
        ),
        ReleaseStep(
            scores,
            f"Residual scores, round {n}",
            Kind.RELEASE,
            (coarse, steps.RECODE, "indif_scores.noisy", "indif_scores.receipts", *measured, codes),
            steps.RELEASED,
            lambda r: {**steps.stage(r, scores), **_candidates_settings(r)},
            plan=lambda r, i: _plan_scores(r, i, scores),
            exact=lambda r, i, rows, queries: _exact_scores(r, i, rows, queries, codes),
            rows=coarse,
            rows_domain=lambda r, i: i.domain(),
            padded=True,
        ),
        Step(
            choice,
            f"Select again, round {n}",
            Kind.POSTPROCESS,
            (f"{scores}.noisy", f"{scores}.receipts", steps.RECODE, *measured),
            {"cliques": tables.CLIQUES},
            lambda r: {**steps.stage(r, f"{MEASURE_AGAIN}{n}"), "again": r.spec.split.again},
            lambda r, i, p: _select(r, i, scores, f"{MEASURE_AGAIN}{n}"),
            version=_versions(steps.SELECT_PAIRS, steps.COMBINE_CLIQUES),
        ),
        replace(
            steps.MEASURE_MARGINALS,
            name=f"{MEASURE_AGAIN}{n}",
            title=f"Measure again, round {n}",
            inputs=(coarse, steps.ENCODED, steps.RECODE, f"{choice}.cliques"),
            settings=lambda r: steps.stage(r, f"{MEASURE_AGAIN}{n}"),
            plan=lambda r, i: steps.plan_measure(r, i, f"{MEASURE_AGAIN}{n}", f"{choice}.cliques"),
        ),
    )


def _versions(*same: Step) -> int:
    """A version that is raised whenever one of the steps with the same code is."""
    return sum(step.version for step in same)


def _synthesis(request: Request, n: int) -> dict[str, Any]:
    """The settings of the rows so far: not how many are released, and of a seed of the round's own."""
    settings = request.spec.synthesis
    return {
        **settings.model_dump(exclude={"rows", "shard_rows"}),
        "oversample": 1,
        "seed": residual_scores.seed_of(settings.seed, n),
    }


def _rows_so_far(request: Request, inputs: Inputs, progress: Progress, n: int) -> Mapping[str, Output]:
    recode, found = steps.consistent(request, inputs)
    domain = compress_domain.coarse_domain(recode)
    core = append_attributes.core_marginals(found, domain)
    settings = request.spec.synthesis.model_copy(update=_synthesis(request, n))
    number = residual_scores.rows_so_far(compress_domain.noisy_total(recode))
    rows = synthesize.synthesize(core.marginals, core.domain, settings, number, request.threads, progress)
    codes = append_attributes.append_attributes(rows, found, domain, settings.seed)
    return {"codes": steps.wide_codes(codes.to_arrow().to_batches(), domain)}


def _candidates_settings(request: Request) -> dict[str, Any]:
    triples = request.spec.adaptive.triples
    return {
        "max_cells": request.spec.selection.max_cells,
        "gamma": request.spec.selection.gamma if triples else None,
    }


def _plan_scores(request: Request, inputs: Inputs, stage: str) -> list[Query]:
    queries, answers = inputs.noisy("indif_scores")
    known = {(q.attributes[0], q.attributes[1]): float(y[0]) for q, y in zip(queries, answers, strict=True)}
    selection, triples = request.spec.selection, request.spec.adaptive.triples
    cliques = residual_scores.candidates(known, inputs.domain(), selection.max_cells, selection.gamma, triples=triples)
    return residual_scores.plan(cliques, request.stage_rho(stage), request.records)


def _exact_scores(
    request: Request, inputs: Inputs, rows: Countable, queries: list[Query], codes: str
) -> Iterator[NDArray[np.int64]]:
    made = CodeTable.from_arrow(list(inputs.batches(codes)), inputs.domain())
    total = compress_domain.noisy_total(inputs.refined(request.encoding))
    return residual_scores.exact(rows, made, total, queries, request.threads)


def _select(request: Request, inputs: Inputs, scored: str, measured: str) -> Mapping[str, Output]:
    recode, fine = inputs.refined(request.encoding), request.encoding.domain
    queries, answers = inputs.noisy(scored)
    rho, again = float(request.stage_rho(measured)), request.spec.split.again
    scores = [float(y[0]) for y in answers]
    weights = select_again.select_again(queries, scores, recode, fine, rho, request.records, again=again)
    return {"cliques": combine_cliques.cliques_to_table(weights, inputs.domain(), fine)}
