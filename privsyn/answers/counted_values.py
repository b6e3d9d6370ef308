"""The cells of one number column, with heavy cells split into counted single values and the rest.

A release counts the single values of heavy cells (tasks/estimation/frequent_values.py).  That look has little budget,
so its noise is high, and answers about whole cells gain nothing from it.  But a question about one value inside a cell,
such as ``wages == 1500``, needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from privsyn.answers.best_linear import Linear, Observations, list_observations
from privsyn.answers.cell_weights import BESIDE, AnswerLevels, ColumnCells, as_released, compute_fine_fractions
from privsyn.answers.conditions import Condition
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.pipelines.value_steps import COUNTED_FILE
from privsyn.tasks.codecs.numbers import SteppedCodec
from privsyn.tasks.estimation.frequent_values import read_counted

Floats = NDArray[np.float64]

UNMEASURED = 1e8
"""Variance of the rest of a split cell, relative to its values: only the cell's sum determines it."""

MOST_LISTED = 1_000_000
"""Most values in a column's split cells; beyond it, the single counts are ignored."""


class SplitCells(NamedTuple):
    """The cells of a column, ascending: fine codes, with heavy ones split into their counted values and the rest.

    Arrays of shape (cells,).  ``fine``: the fine code; ``number``: a ``single`` value as a multiple of the column's
    step.  ``counts``: the noisy count of a single value, and ``variance`` of it; both are 0 for other cells.
    """

    codec: SteppedCodec[Any]
    fine: NDArray[np.int64]
    number: NDArray[np.int64]
    single: NDArray[np.bool_]
    counts: Floats
    variance: Floats

    @property
    def values(self) -> Floats:
        """The single values."""
        grid = self.codec.value_grid
        assert grid is not None  # noqa: S101 - single values are multiples
        return np.asarray(grid.value(self.number[self.single].astype(np.float64)))

    @property
    def rest(self) -> NDArray[np.int64]:
        """The cells for the other values of split fine codes."""
        return np.flatnonzero(~self.single & np.isin(self.fine, self.fine[self.single]))


def _find_split(released: ReleasedCounts, column: str) -> SplitCells | None:
    """Return the cells of a column, heavy ones split; None if none of its values were counted singly."""
    key = ("split cells", column)
    if key not in released.cache:
        released.cache[key] = _split_cells(released, column)
    cells: SplitCells | None = released.cache[key]
    return cells


def _split_cells(released: ReleasedCounts, column: str) -> SplitCells | None:
    listed = {c.attribute: c for c in read_counted(released.read(COUNTED_FILE))} if released.value_files else {}
    codec = released.codecs[column]
    if column not in listed or not isinstance(codec, SteppedCodec):
        return None
    _, cell, number = listed[column]
    sizes = np.append([len(inside) for inside in codec.cell_values], np.zeros(codec.size - len(codec.cell_values)))
    counted = np.bincount(cell, minlength=codec.size)
    if sizes[counted > 0].sum() > MOST_LISTED:
        return None
    looks = [released.find_noisy(look, column) for look in released.value_files]
    precision = sum(1 / sigma**2 for _, sigma in looks)
    counts = np.sum([answers[:-1] / sigma**2 for answers, sigma in looks], axis=0) / precision
    others = np.flatnonzero((counted < sizes) | (counted == 0) | (codec.step_grid is None))
    nothing = np.zeros(len(others))
    fine = np.concatenate([cell, others])
    order = np.argsort(fine, kind="stable")
    parts = (
        (number, np.zeros(len(others), dtype=np.int64)),
        (np.ones(len(cell), dtype=bool), nothing > 0),
        (counts, nothing),
        (np.full(len(cell), 1 / precision), nothing),
    )
    return SplitCells(codec, fine[order], *(np.concatenate(part)[order] for part in parts))


@dataclass(frozen=True)
class ValueCells(ColumnCells):
    """The cells of one column, with heavy ones split as in ``split``."""

    split: SplitCells | None = None

    @property
    def _split(self) -> SplitCells:
        assert self.split is not None  # noqa: S101 - made with one
        return self.split

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of the column."""
        return (len(self._split.fine),)

    def levels(self, column: str) -> AnswerLevels:
        """Return the levels of the column, from its fine codes."""
        levels = super().levels(column)
        return AnswerLevels(levels.labels, levels.level_by_cell[self._split.fine])

    def fractions(self, condition: Condition | None) -> Floats:
        """See :class:`ColumnCells`; a single value is selected wholly or not at all."""
        if condition is None or not condition.columns:
            return np.ones(self.shape)
        split = self._split
        part = compute_fine_fractions(self.released, condition)[split.fine]
        part[split.single] = self._hold(condition, split.values)
        if split.codec.step_grid is None and not condition.compares_with_constants_only:
            return part  # numbers between the multiples stay uncertain
        for cell in split.rest.tolist():
            part[cell] = self._hold(condition, self._list_others(int(split.fine[cell]), condition)).mean()
        return part

    def linear(self) -> Linear:
        """Return the best linear estimate of the cells, from the one-ways, the counted values and all sums."""
        split, (column,) = self._split, self.columns
        every = list_observations(self.released, (column,))
        assert every is not None  # noqa: S101 - every release measures single columns
        cells, rest = len(split.fine), split.rest
        inside = sp.csr_matrix((np.ones(cells), (split.fine, np.arange(cells))), shape=(every.cells.size, cells))
        fully_counted = np.unique(split.fine[split.single])
        counts = np.where(split.single, split.counts, every.cells[split.fine])
        variance = np.where(split.single, split.variance, every.variance[split.fine])
        counts[rest], variance[rest] = 0.0, UNMEASURED * (split.variance.max() + variance[rest])
        sums = [inside[fully_counted], *([] if every.sums is None else [every.sums @ inside])]
        return Observations(
            counts,
            variance,
            sp.vstack(sums, format="csr"),
            np.append(every.cells[fully_counted], every.sum_values),
            np.append(every.variance[fully_counted], every.sum_variance),
        ).combine()

    def _hold(self, condition: Condition, numbers: Floats) -> NDArray[np.bool_]:
        """Return which of these numbers of the column the condition selects."""
        (column,) = self.columns
        return condition.holds({column: as_released(numbers, self._split.codec.ranges()[column].type)})

    def _list_others(self, code: int, condition: Condition) -> Floats:
        """Return representatives of the uncounted values of a split fine code.

        These are its other multiples of the step.  If values may lie between multiples, also the midpoints, and the
        values that the condition names, with their neighbours.
        """
        split, (column,) = self._split, self.columns
        grid, steps = split.codec.value_grid, split.codec.cell_values[code]
        assert grid is not None  # noqa: S101 - cells without multiples are not split
        every = np.arange(steps.start, steps.stop, dtype=np.float64)
        values = np.asarray(grid.value(every))
        if split.codec.step_grid is None:
            named = np.array(condition.list_thresholds())
            away = np.maximum(np.abs(named), 1.0) * BESIDE
            low, high = (side[code] for side in self.released.reach[column] or ())
            between = np.concatenate([grid.value(every + 0.5), named - away, named, named + away])
            values = np.append(values, between[(low <= between) & (between <= high)])
        return np.setdiff1d(values, split.values)


def find_split_cells(cells: ColumnCells, part: Floats) -> ValueCells | None:
    """Return the cells of one column, heavy ones split; None for several columns, or if no heavy cell is cut.

    ``part``: the part of each cell that the condition selects.
    """
    split = _find_split(cells.released, cells.columns[0]) if cells.fine else None
    if split is None or not ((part > 0) & (part < 1))[split.fine[split.single]].any():
        return None
    return ValueCells(cells.released, cells.columns, cells.coarse, split)
