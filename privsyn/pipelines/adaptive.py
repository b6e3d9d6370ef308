"""Adaptive PrivSyn: after the paper's measurement, rounds that make rows, score them, choose, and measure again.

The first measurement is round 1; ``mechanism.rounds`` is the number of rounds after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import drop_attributes
from privsyn.data_contracts.mechanism_options import Adaptive, Aim
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, ReleaseStep, RowStream, Step
from privsyn.pipelines.common_steps import ONE_CELL, RECODE, RECODED, RELEASED, list_released_tables, publish_noisy
from privsyn.pipelines.mechanism_parts import build_measurement, read_noisy_scores
from privsyn.pipelines.named_sets import list_attributes, set_apart
from privsyn.pipelines.one_shot import CHOICE, COMBINE_CLIQUES, SELECT_PAIRS, build_looks
from privsyn.pipelines.synthesis_steps import (
    APPEND_ATTRIBUTES,
    MAKE_CONSISTENT,
    REFINE_CODES,
    SYNTHESIS,
    SYNTHESIZE,
    build_row_steps,
    read_consistent_marginals,
    read_zeros,
)
from privsyn.tasks.codecs.cells import list_roundings
from privsyn.tasks.estimation.expected_error import NO_TARGETS
from privsyn.tasks.estimation.recode import build_coarse_domain, estimate_total
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import score_columns, select_marginals, synthesize


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of PrivSyn, with further rounds between measurement and consistency."""
    rounds = (_build_round(n) for n in range(2, request.get_options(Adaptive).rounds + 2))
    return (*build_looks(), *(step for steps in rounds for step in steps), *build_row_steps(request))


def measure_again(n: int, chosen: str) -> ReleaseStep:
    """Return the step that measures the marginals in the table ``chosen`` in round ``n``."""
    return build_measurement(
        name=f"measure_again_{n}",
        title=f"Measure again, round {n}",
        chosen=chosen,
        look=LookDescription(counted="joint counts where these rows were far from the table", reason=ONE_CELL, round=n),
        files=publish_noisy(f"round_{n}_measured"),
    )


def refine_again(n: int) -> Step:
    """Return the step that refines the codes by all measurements before round ``n``."""
    return replace(REFINE_CODES, name=f"{REFINE_CODES.name}_{n}", title=f"{REFINE_CODES.title}, round {n}")


def list_refined(n: int) -> tuple[str, str]:
    """Return the tables of the refined codes of round ``n``."""
    return f"{REFINE_CODES.name}_{n}.refined", f"{REFINE_CODES.name}_{n}.empty_cells"


OF_LAST_ROWS = ("mechanism.synthesis.rows", "mechanism.synthesis.shard_rows", "mechanism.synthesis.oversample")
ROWS_SO_FAR = ("mechanism.consistency", *(name for name in SYNTHESIS if name not in OF_LAST_ROWS))


def make_rows_so_far(n: int) -> Step:
    """Return the step that makes rows from all measurements so far, for the scores of round ``n``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, measured, by_trend = read_consistent_marginals(request, inputs)
        consistent = [*measured, *by_trend]
        domain, knowledge = build_coarse_domain(recode), request.public.in_codes(recode)
        by_code, sets = set_apart(consistent)
        tied = knowledge.tied | list_attributes(sets)
        core, core_domain = synthesize.select_core_marginals(by_code, domain, tied)
        settings = request.synthesis
        settings = settings.vary(oversample=1, seed=score_columns.derive_seed(settings.seed, n))
        number = score_columns.count_rows_so_far(estimate_total(recode))
        zeros = read_zeros(request, inputs, recode)
        rows = synthesize.synthesize(
            [*core, *sets], core_domain, settings, number, request.threads, progress, zeros=zeros
        )
        codes = synthesize.append_attributes(rows, by_code, domain, settings.seed, tied)
        return {"codes": RowStream.of_codes(codes.to_arrow().to_batches(), domain)}

    return Step(
        name=f"rows_so_far_{n}",
        title=f"Rows so far, round {n}",
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE, *list_refined(n)),
        look_kinds=MAKE_CONSISTENT.look_kinds,
        outputs={"codes": tables.SYNTHETIC_CODES},
        fields=ROWS_SO_FAR,
        reads=MAKE_CONSISTENT.reads,
        run=run,
        version=MAKE_CONSISTENT.version + SYNTHESIZE.version + APPEND_ATTRIBUTES.version,
    )


def _limit_candidates(request: Request) -> dict[str, int | None]:
    """Return the most cells of a scored pair, and of a scored triple (``gamma``; None: no triples)."""
    options = request.spec.mechanism
    if isinstance(options, Aim):
        return {"max_cells": options.max_cells, "gamma": options.gamma if options.triples else None}
    options = request.get_options(Adaptive)
    return {"max_cells": options.selection.max_cells, "gamma": options.selection.gamma if options.triples else None}


def _plan_scores(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    gamma = _limit_candidates(request)["gamma"]
    cliques = score_columns.list_candidates(
        read_noisy_scores(inputs),
        inputs.domain(),
        gamma or 0,
        triples=gamma is not None,
        targets=request.public.targets if gamma is not None else NO_TARGETS,
    )
    return score_columns.plan_residuals(cliques, rho, request.records)


def score_residuals(n: int) -> ReleaseStep:
    """Return the look at the distance between the rows so far and the private rows.

    It asks the scored pairs and, if the request wants them, as many triples.
    """
    codes = f"rows_so_far_{n}.codes"

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        so_far_rows = CodeTable.from_arrow(list(inputs.batches(codes)), inputs.domain())
        total = estimate_total(inputs.read_pooled_recode())
        return score_columns.count_residuals(rows, so_far_rows, total, queries, request.threads)

    return ReleaseStep(
        name=f"residual_scores_{n}",
        title=f"Residual scores, round {n}",
        measures=LookKind.RESIDUALS,
        inputs=(RECODED, RECODE, *list_released_tables("indif_scores"), list_refined(n)[0], codes),
        outputs=RELEASED,
        settings=_limit_candidates,
        reads=(KnowledgePart.TARGETS,),
        plan=_plan_scores,
        exact=exact,
        look=LookDescription(
            counted="how far the rows made so far are from the private table",
            reason=(
                "k: the rows made so far follow from earlier releases alone. Each of a person's k records changes one "
                "count by 1, and so the L1 distance by at most 1. Rounding down to whole records keeps the bound"
            ),
            noise_of="a distance",
            round=n,
        ),
        rows=RECODED,
        padded=True,
        published=publish_noisy(f"round_{n}_scores"),
    )


def _choose(n: int, request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode = inputs.read_pooled_recode()
    fine = drop_attributes(request.encoding.domain, list_roundings(request.encoding.binning))
    weights = score_columns.reselect_cliques(
        *inputs.noisy_scores(f"residual_scores_{n}"),
        recode,
        fine,
        float(inputs.rho[f"measure_again_{n}"]),
        request.records,
        remeasure_one_ways=request.get_options(Adaptive).split.remeasure_one_ways,
        targets=request.public.targets,
    )
    return {"cliques": select_marginals.tabulate_cliques(weights, inputs.domain(), fine)}


def _choose_again(n: int) -> Step:
    """Return the step that chooses the cliques of round ``n`` by their noisy distances."""
    return Step(
        name=f"select_again_{n}",
        title=f"Select again, round {n}",
        kind=StepKind.POSTPROCESS,
        budgets=(f"measure_again_{n}",),
        inputs=(*list_released_tables(f"residual_scores_{n}"), RECODE, list_refined(n)[0]),
        outputs={"cliques": tables.CLIQUES},
        fields=CHOICE,
        reads=(KnowledgePart.TARGETS,),
        run=partial(_choose, n),
        version=SELECT_PAIRS.version + COMBINE_CLIQUES.version,
        words="rows made from what was measured so far say where to ask again",
    )


def _build_round(n: int) -> tuple[Step, ...]:
    """Return the steps of round ``n``."""
    return (
        refine_again(n),
        make_rows_so_far(n),
        score_residuals(n),
        _choose_again(n),
        measure_again(n, f"select_again_{n}.cliques"),
    )
