"""Statistics of the synthetic rows: the estimate for columns that were not measured together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.answers.cell_weights import ColumnCells
from privsyn.answers.conditions import Condition, name_codes_attribute
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.data_contracts.domain import Clique
from privsyn.tasks.codecs.person_figures import SummaryCodec

Floats = NDArray[np.float64]


def read_row_codes(released: ReleasedCounts, column: str) -> NDArray[np.int64]:
    """Return the fine code of every synthetic row."""
    key = ("codes", column)
    if key not in released.cache:
        codec = released.codecs[column]
        if isinstance(codec, SummaryCodec):
            rows, first = released.persons
            table = {name: rows[name].combine_chunks() for name in rows.column_names}
            codes = codec.compute(codec.book.read_table(table), first)
            values = {column: pa.array(codes, mask=codes < 0)}
        else:
            values = {name: released.table[name].combine_chunks() for name in codec.sources}
        released.cache[key] = codec.encode(values)[0].astype(np.int64)
    row_codes: NDArray[np.int64] = released.cache[key]
    return row_codes


def select_rows(released: ReleasedCounts, condition: Condition | None) -> NDArray[np.bool_]:
    """Return the synthetic rows that a condition holds for."""
    if condition is None:
        return np.ones(released.table.num_rows, dtype=bool)
    values: dict[str, Any] = {}
    for a in condition.columns:
        if isinstance(released.codecs[a], SummaryCodec):
            values[name_codes_attribute(a)] = pa.array(read_row_codes(released, a))
        else:
            values |= {name: released.table[name] for name in released.codecs[a].sources}
    return condition.holds(values)


def group_rows(released: ReleasedCounts, columns: Clique, by: Sequence[str]) -> tuple[NDArray[np.int64], int]:
    """Return the answer that each synthetic row belongs to (-1: none), and the number of answers."""
    cells = ColumnCells(released, columns)
    group, answers = np.zeros(released.table.num_rows, dtype=np.int64), 1
    outside = np.zeros(len(group), dtype=bool)
    for column in by:
        level, codes = cells.levels(column), read_row_codes(released, column)
        coarse = codes if cells.fine else released.recode[column].coarse[codes]
        inside = coarse < len(level.level_by_cell)
        level_of_row = level.level_by_cell[np.where(inside, coarse, 0)]
        outside |= ~inside | (level_of_row < 0)
        group, answers = group * len(level.labels) + level_of_row, answers * len(level.labels)
    return np.where(outside, -1, group), answers


def sum_rows(
    released: ReleasedCounts,
    columns: Clique,
    by: Sequence[str],
    condition: Condition | None,
    figures: Floats | None = None,
) -> Floats:
    """Return sums over the synthetic rows of each answer: of ``figures``, or of ones (a count) without them."""
    group, answers = group_rows(released, columns, by)
    chosen = select_rows(released, condition) & (group >= 0)
    return np.bincount(group[chosen], weights=None if figures is None else figures[chosen], minlength=answers).astype(
        np.float64
    )
