"""The steps that count single values inside heavy cells of numbers, and the frequent values for decoding."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, PublishedFile, ReleaseStep, RowStream, Step, repeat
from privsyn.pipelines.common_steps import (
    NUMBERS,
    RELEASED,
    count_cells,
    explain_one_cell,
    list_released_tables,
    publish_noisy,
)
from privsyn.tasks.codecs.numbers import FrequentValues
from privsyn.tasks.estimation.frequent_values import (
    find_frequent_values,
    list_values_to_count,
    read_counted,
    tabulate_counted,
)
from privsyn.tasks.estimation.noisy import pool_answers, tabulate_answers, tabulate_receipts
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import measure_marginals

VALUE_COUNTS, LOCATE = "value_counts", "locate_values"
COUNTED, LOCATED = "find_heavy_cells.counted", f"{LOCATE}.located_rows"
COUNTED_FILE = "marginals/counted_values.parquet"

WORDS = "has the counts of the values in `counted_values`, and last the count of all other values"

NO_VALUE_COUNTS = {
    "find_heavy_cells": {"counted": tabulate_counted([], [])},
    LOCATE: {"located_rows": pa.table({})},
    VALUE_COUNTS: {"noisy": tabulate_answers([]), "receipts": tabulate_receipts([])},
}
"""Step -> its empty tables, for a run in memory that has only codes, not values."""


def _find(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    queries, answers = inputs.noisy("one_way_marginals")
    noisy = {q.attributes[0]: y for q, y in zip(queries, answers, strict=True)}
    codecs = [codec for codec in request.encoding.wide_celled if codec.attribute in noisy]
    values = list_values_to_count(codecs, noisy, inputs.rho[VALUE_COUNTS], request.records)
    return {"counted": tabulate_counted(values, codecs)}


FIND_HEAVY_CELLS = Step(
    name="find_heavy_cells",
    title="Find heavy cells",
    about="cells in which one value may have most of the rows",
    when="before value counts",
    kind=StepKind.POSTPROCESS,
    only_with_look=VALUE_COUNTS,
    budgets=(VALUE_COUNTS,),
    inputs=list_released_tables("one_way_marginals"),
    outputs={"counted": tables.COUNTED},
    fields=("together",),  # these columns are not asked
    run=_find,
    published={"counted": PublishedFile(COUNTED_FILE, "lists the values whose counts were asked one by one")},
)


def _locate(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    counted = read_counted(inputs.table(COUNTED))
    domain = measure_marginals.build_located_domain(counted)
    if not counted:  # no pass over the rows
        return {"located_rows": RowStream.of_codes((), domain)}
    rows = measure_marginals.locate_rows(inputs.batches(NUMBERS), request.encoding, counted)
    return {"located_rows": RowStream.of_codes(rows, domain)}


LOCATE_VALUES = Step(
    name=LOCATE,
    title="Locate values",
    about="which of these values each row has",
    when="before value counts",
    kind=StepKind.TRANSFORM,
    only_with_look=VALUE_COUNTS,
    inputs=(COUNTED, NUMBERS),
    outputs={"located_rows": tables.LOCATED_ROWS},
    inherits=(KnowledgePart.CODES,),
    run=_locate,
    version=2,
)


def _plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    return measure_marginals.plan_values(read_counted(inputs.table(COUNTED)), rho, request.records)


COUNT_VALUES = ReleaseStep(
    name=VALUE_COUNTS,
    title="Value counts",
    about="how many rows have each of these values",
    when="columns of numbers with wide cells",
    measures=LookKind.VALUES,
    read_with=(COUNTED,),
    inputs=(LOCATED, COUNTED),
    outputs=RELEASED,
    plan=_plan,
    exact=count_cells,
    look=LookDescription(
        counted="counts of single values of numbers in intervals that have many rows",
        reason=explain_one_cell,
        noise_of="a count of a value",
    ),
    rows=LOCATED,
    rows_domain=lambda r, inputs: measure_marginals.build_located_domain(read_counted(inputs.table(COUNTED))),
    published=publish_noisy(VALUE_COUNTS, WORDS),
)

VALUE_STEPS = (FIND_HEAVY_CELLS, LOCATE_VALUES, COUNT_VALUES)
"""The steps that count single values inside heavy cells."""


def count_values_again(n: int) -> ReleaseStep:
    """Return the look of a further release ``n`` at the same values."""
    return repeat(COUNT_VALUES, n, publish_noisy(f"{VALUE_COUNTS}_{n}", WORDS))


def read_frequent_values(request: Request, inputs: Inputs, recode: Recode) -> dict[str, FrequentValues]:
    """Return column -> its frequent values, by all looks; ``recode``: with all one-ways."""
    queries, answers = pool_answers(*inputs.all_noisy(LookKind.VALUES))
    looks: dict[str, tuple[Query, NDArray[Any]]] = {
        q.attributes[0]: (q, y) for q, y in zip(queries, answers, strict=True)
    }
    return find_frequent_values(read_counted(inputs.table(COUNTED)), looks, recode, request.encoding)
