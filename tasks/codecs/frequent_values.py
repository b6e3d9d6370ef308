"""Values that many rows share, inside the cells of a numeric column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class FrequentValues(NamedTuple):
    """The frequent values of one attribute, ascending; arrays of shape (values,).

    ``cell``: the fine code; ``number``: the multiple of the column's step; ``share``: share of its cell's rows, above
    0, at most 1 in sum per cell.  ``others``: the shares of the other values by heap, shape (heaps + 1,) as in
    HeapingCodec; None if equal to the shares of all values.
    """

    cell: NDArray[np.int64]
    number: NDArray[np.int64]
    share: Floats
    others: Floats | None = None


class InsideCells:
    """Quantile functions of cells with frequent values: these have their own shares, other values equal shares.

    ``values``: the multiples of the step in every cell of the column.
    """

    def __init__(self, frequent: FrequentValues, values: Sequence[range]) -> None:
        self._numbers, self._others = frequent.number, frequent.others
        self._place = np.full(len(values) + 1, -1, dtype=np.int64)
        rows: list[tuple[int, int, float]] = []  # of each run: first number, count, share of the cell
        first = []
        for place, cell in enumerate(np.unique(frequent.cell)):
            inside, in_cell = values[cell], frequent.cell == cell
            self._place[cell] = place
            first.append(len(rows))
            rows += _list_runs(inside, frequent.number[in_cell].tolist(), frequent.share[in_cell])
        self._start, self._many, self._share = (np.array(part, dtype=np.float64) for part in zip(*rows, strict=True))
        self._first = np.array(first, dtype=np.int64)
        self._last = np.array([*first[1:], len(rows)], dtype=np.int64) - 1
        self._end = np.cumsum(self._share)  # a cell's shares sum to 1, so its runs end in (place, place + 1]

    def has(self, cells: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which cells have frequent values, shape (rows,)."""
        return np.asarray(self._place[cells] >= 0)

    def find(self, cells: NDArray[np.integer], places: Floats) -> Floats:
        """Return the multiple of the step at a place of each cell, ascending with the place.

        ``places``: in [0, 1), shape (rows,); uniform places give values their shares.
        """
        place = self._place[cells]
        wanted = place + places * (1 - 1e-9)
        run = np.searchsorted(self._end, wanted, side="right").clip(self._first[place], self._last[place])
        begin = self._end[run] - self._share[run]
        inside = np.clip((wanted - begin) / self._share[run], 0.0, 1 - 1e-9)
        return np.asarray(self._start[run] + np.floor(inside * self._many[run]))

    def are_frequent(self, numbers: Floats) -> NDArray[np.bool_]:
        """Return which multiples of the step are frequent values, shape (rows,)."""
        return np.isin(numbers, self._numbers)

    def draw_heaps(self, wanted: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
        """Return drawn heaps for values that are not frequent; ``wanted``: the heaps by the shares of all values."""
        if self._others is None:
            return wanted
        return rng.choice(len(self._others), size=len(wanted), p=self._others)


def _list_runs(values: range, frequent: Sequence[int], shares: Floats) -> list[tuple[int, int, float]]:
    """Return the runs of a cell's values, ascending: first multiple, count, and share of the cell.

    A frequent value is a run of its own; other values share the rest equally.  Shares sum to 1.
    """
    free = len(values) - len(frequent)
    other_share = max(1.0 - float(shares.sum()), 0.0) if free else 0.0
    runs, start = [], values.start
    for number, share in zip(frequent, shares / (shares.sum() + other_share), strict=True):
        runs += [(start, number - start, other_share * (number - start) / max(free, 1)), (number, 1, float(share))]
        start = number + 1
    runs.append((start, values.stop - start, other_share * (values.stop - start) / max(free, 1)))
    return [run for run in runs if run[2] > 0]
