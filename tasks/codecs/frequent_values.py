"""Values that many rows share, inside the cells of a column of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class FrequentValues(NamedTuple):
    """Values of one attribute that many rows share, ascending; arrays of shape (values,).

    ``cell``: the fine code; ``number``: which multiple of the column's step; ``share``: of the rows of its cell, above
    0 and at most 1 together in a cell.  ``others``: the share of other values that are rounded to each heap, shape
    (heaps + 1,) as of HeapingCodec; None: as of all values.
    """

    cell: NDArray[np.int64]
    number: NDArray[np.int64]
    share: Floats
    others: Floats | None = None


class InsideCells:
    """The quantile functions of cells with frequent values: these have shares of their own, other values even ones.

    ``values``: the multiples of the step in every cell of the column.
    """

    def __init__(self, frequent: FrequentValues, values: Sequence[range]) -> None:
        self._numbers, self._others = frequent.number, frequent.others
        self._place = np.full(len(values) + 1, -1, dtype=np.int64)
        rows: list[tuple[int, int, float]] = []  # first number, how many, share of the cell: of every run of values
        first = []
        for place, cell in enumerate(np.unique(frequent.cell)):
            inside, in_cell = values[cell], frequent.cell == cell
            self._place[cell] = place
            first.append(len(rows))
            rows += _list_runs(inside, frequent.number[in_cell].tolist(), frequent.share[in_cell])
        self._start, self._many, self._share = (np.array(part, dtype=np.float64) for part in zip(*rows, strict=True))
        self._first = np.array(first, dtype=np.int64)
        self._last = np.array([*first[1:], len(rows)], dtype=np.int64) - 1
        self._end = np.cumsum(self._share)  # the shares of a cell sum to 1, so its runs end in (place, place + 1]

    def has(self, cells: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which of the cells have frequent values, shape (rows,)."""
        return np.asarray(self._place[cells] >= 0)

    def find(self, cells: NDArray[np.integer], places: Floats) -> Floats:
        """Return the multiple of the step at a place of each of these cells, which rises with the place.

        ``places``: from 0 to below 1, shape (rows,); even ones give values their shares.
        """
        place = self._place[cells]
        wanted = place + places * (1 - 1e-9)
        run = np.searchsorted(self._end, wanted, side="right").clip(self._first[place], self._last[place])
        begin = self._end[run] - self._share[run]
        inside = np.clip((wanted - begin) / self._share[run], 0.0, 1 - 1e-9)
        return np.asarray(self._start[run] + np.floor(inside * self._many[run]))

    def are_frequent(self, numbers: Floats) -> NDArray[np.bool_]:
        """Return which of these multiples of the step are frequent values, shape (rows,)."""
        return np.isin(numbers, self._numbers)

    def draw_heaps(self, wanted: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
        """Return what values that are not frequent are rounded to, of rows of which it is ``wanted`` of all values."""
        if self._others is None:
            return wanted
        return rng.choice(len(self._others), size=len(wanted), p=self._others)


def _list_runs(values: range, frequent: Sequence[int], shares: Floats) -> list[tuple[int, int, float]]:
    """Return the runs of a cell's values, ascending: first multiple, how many, and their share of the cell.

    A frequent value is a run by itself; others have what is left in even parts.  Shares sum to 1.
    """
    free = len(values) - len(frequent)
    other_share = max(1.0 - float(shares.sum()), 0.0) if free else 0.0
    runs, start = [], values.start
    for number, share in zip(frequent, shares / (shares.sum() + other_share), strict=True):
        runs += [(start, number - start, other_share * (number - start) / max(free, 1)), (number, 1, float(share))]
        start = number + 1
    runs.append((start, values.stop - start, other_share * (values.stop - start) / max(free, 1)))
    return [run for run in runs if run[2] > 0]
