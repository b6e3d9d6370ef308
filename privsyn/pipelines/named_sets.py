"""The steps that measure sets of columns whole: which the spec names, in every mechanism that knows targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, PublishedFile, ReleaseStep, Step
from privsyn.pipelines.common_steps import (
    ONE_CELL,
    RECODE,
    RECODED,
    RELEASED,
    list_released_tables,
    publish_noisy,
    stream_codes,
)
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import Part
from privsyn.tasks.steps import named_sets

MEASURE_SETS = "measure_sets"
"""The name that every step that measures sets begins with."""

MERGES = "plan_sets.merges"
MERGES_FILE = "marginals/merges.parquet"
ROWS = "merge_rows.merged_rows"
COUNTS_OF_SETS = "joint counts of the named sets of columns"


def compute_share(request: Request) -> Fraction:
    """Return the share of a measurement's budget that is for named sets; 0 without any.  Public."""
    sizes = [(len(m.columns), m.weight) for m in request.spec.measured_sets]
    return named_sets.compute_share(sizes, len(request.spec.measured_columns))


def build_set_steps(request: Request, share: Fraction) -> tuple[Step, ...]:
    """Return the steps that plan the named sets and measure them with this share of the budget; none without sets."""
    if not share:
        return ()
    measure = build_set_measurement(share)
    return (_build_plan(measure), MERGE_ROWS, measure)


def _build_plan(measure: ReleaseStep) -> Step:
    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, encoding = inputs.recode(), request.encoding
        ordered = {a for a, sections in encoding.in_order.items() if sections}
        sets = named_sets.plan_sets(
            request.public.measured_sets, recode, ordered, measure.rho(request), request.records
        )
        return {"merges": named_sets.tabulate_merges(sets)}

    return Step(
        name="plan_sets",
        title="Plan sets",
        kind=Kind.POSTPROCESS,
        inputs=(RECODE,),
        outputs={"merges": tables.MERGES},
        settings=measure.priced,
        reads=(Part.TARGETS,),
        run=run,
        published={
            "merges": PublishedFile(
                MERGES_FILE,
                "says which codes (`coarse`) are one (`merged`) in the joint counts of each named set",
            )
        },
        words=lambda r: "the named sets are counted in cells of about equal noisy counts, as many as the noise allows",
    )


def _merge(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    sets = named_sets.read_merges(inputs.table(MERGES))
    rows = named_sets.merge_rows(inputs.batches(RECODED), sets)
    return {"merged_rows": stream_codes(rows, named_sets.build_set_domain(sets), padded=True)}


MERGE_ROWS = Step(
    name="merge_rows",
    title="Merge rows",
    kind=Kind.TRANSFORM,
    inputs=(RECODED, MERGES),
    outputs={"merged_rows": tables.RECODED_ROWS},
    settings=lambda r: None,
    run=_merge,
)


def build_set_measurement(share: Fraction, n: int | None = None) -> ReleaseStep:
    """Return the noisy joint tables of the planned sets, with this share of the budget, of release ``n`` of several."""

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        return named_sets.plan_queries(named_sets.read_merges(inputs.table(MERGES)), rho, request.records)

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        return named_sets.count_exactly(rows, named_sets.read_merges(inputs.table(MERGES)), request.threads)

    return ReleaseStep(
        name=MEASURE_SETS if n is None else f"{MEASURE_SETS}_{n}",
        title="Measure sets" if n is None else f"Measure sets, release {n}",
        inputs=(ROWS, MERGES),
        outputs=RELEASED,
        plan=plan,
        exact=exact,
        share=lambda r: share,
        look=Look(COUNTS_OF_SETS, lambda r: ONE_CELL, round=n),
        rows=ROWS,
        rows_domain=lambda r, inputs: named_sets.build_set_domain(named_sets.read_merges(inputs.table(MERGES))),
        padded=True,
        published=publish_noisy(
            "sets" if n is None else f"sets_{n}", "has the joint counts of the named sets in merged codes"
        ),
    )


def list_set_stages(request: Request) -> list[str]:
    """Return the names of the steps that measure the request's named sets; none without sets."""
    return [MEASURE_SETS] if compute_share(request) else []


def list_measured_tables(stages: Sequence[str]) -> tuple[str, ...]:
    """Return the tables that tell what ``stages`` measured: noisy counts, receipts and, of sets, the merges."""
    return (*list_released_tables(stages), *((MERGES,) if has_sets(stages) else ()))


def list_whole_stages(stages: Sequence[str]) -> list[str]:
    """Return those of ``stages`` that measured in the codes of the recoding."""
    return [stage for stage in stages if not stage.startswith(MEASURE_SETS)]


def has_sets(stages: Sequence[str]) -> bool:
    """Return whether one of ``stages`` measured sets."""
    return bool(_keep_set_stages(stages))


def _keep_set_stages(stages: Sequence[str]) -> list[str]:
    return [stage for stage in stages if stage.startswith(MEASURE_SETS)]


def read_sets(inputs: Inputs, stages: Sequence[str]) -> list[named_sets.PlannedSet]:
    """Return the sets that ``stages`` measured; none where no stage did."""
    return named_sets.read_merges(inputs.table(MERGES)) if has_sets(stages) else []


def read_set_marginals(inputs: Inputs, stages: Sequence[str]) -> list[Marginal]:
    """Return the noisy joint tables of the sets that ``stages`` measured."""
    sets = read_sets(inputs, stages)
    if not sets:
        return []
    queries, answers = inputs.measured(_keep_set_stages(stages))
    told = {q.attributes: (y, q.sigma) for q, y in zip(queries, answers, strict=True)}
    return named_sets.build_set_marginals(sets, told)
