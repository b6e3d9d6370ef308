"""Full cells: fine cells of numbers that hold most rows, found by a rough look, and cut into parts before all others.

Not in the paper.  Where bounds are far from the data, one of a column's equal cells has nearly all rows: whatever is
counted in such cells says nothing of the column's relations.  A rough count of them is enough to see it.  The cell is
then cut into parts of equal width, and codes, one-ways and pairs are of these finer cells: a tree of cells whose second
level is there where rows are (the first two levels of PrivTree: Zhang, Xiao and Xie, SIGMOD 2016).

All here is post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import CUT_CELLS
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import CutCell, compute_width
from privsyn.tasks.codecs.numbers import SteppedCodec
from privsyn.tasks.estimation.frequent_values import compute_least_count

AnyStepped = SteppedCodec[Any]

FULL = 0.6
"""Share of the rows above which a cell is full."""

LEAST_VALUES = 8
"""Values of a cell that is looked at: fewer are told apart by their own counts (frequent_values.py)."""

MOST_PARTS = 16
"""Parts of a cell at most: with more its total, the sum of noisy parts, is less sure."""

NOISE_A_PART = 12.0
"""Rows of a part in standard deviations of its noise in the one-way, if all parts had as many."""


def list_looked_at(plan: EncodingPlan) -> list[AnyStepped]:
    """Return the codecs of the columns whose cells are looked at: open bins, and cells of LEAST_VALUES on a grid."""
    compared = {name for codec in plan.differences for name in codec.sources}
    return [
        codec
        for codec in plan.wide_celled
        if codec.attribute not in compared and any(width >= LEAST_VALUES for width in _count_values(codec))
    ]


def _count_values(codec: AnyStepped) -> list[float]:
    """Return how many values each cell has that may be cut, 0 of others."""
    one_value_cells = set(codec.cells.points)
    return [
        0.0 if cell.exact or i in one_value_cells or codec.step_grid is None else compute_width(cell, codec.step_grid)
        for i, cell in enumerate(codec.cells.fine)
    ]


def find_full_cells(
    codecs: Sequence[AnyStepped], looks: Mapping[str, tuple[Query, NDArray[Any]]], sigmas: Mapping[str, float]
) -> list[CutCell]:
    """Return the full cells, one of a column at most, each with its parts; none that noise alone may have made.

    looks: attribute -> the rough look at its fine codes; sigmas: attribute -> noise of its one-way, still to be asked.
    """
    rows = float(np.mean([looks[codec.attribute][1].sum() for codec in codecs]))
    cuts = []
    for codec in codecs:
        (query, noisy), values = looks[codec.attribute], _count_values(codec)
        code = int(np.argmax(np.where(np.array(values) >= LEAST_VALUES, noisy[: len(values)], -np.inf)))
        parts = int(min(values[code], MOST_PARTS, noisy[code] / (NOISE_A_PART * sigmas[codec.attribute])))
        least = max(FULL * rows, compute_least_count(query.sigma, query.cells))
        if noisy[code] > least and parts > 1:
            cuts.append(CutCell(codec.attribute, code, parts))
    return cuts


def tabulate_cuts(cuts: Sequence[CutCell]) -> pa.Table:
    """Return the contract CUT_CELLS."""
    return pa.Table.from_pylist([cut._asdict() for cut in cuts], schema=CUT_CELLS.schema)


def read_cuts(table: pa.Table) -> tuple[CutCell, ...]:
    """Return the cut cells of a CUT_CELLS table."""
    return tuple(CutCell(**row) for row in table.to_pylist())
