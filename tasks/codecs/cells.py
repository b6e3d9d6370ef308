"""Cells: the bins of an ordered column cut into fine cells, and the values that have a bin of their own.

Everything here follows from the public spec.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.columns.grid import Grid

FINE_CELLS = 2
"""Fine cells per bin at most.  A bin's total is then the sum of at most 2 noisy cells: at most 1.4 times the
standard deviation of one, and the later joint marginals estimate the bin again (a public constant)."""

Floats = NDArray[np.float64]


class Bin(NamedTuple):
    """The values from ``low`` to ``high``, or one exact value, which is both.

    ``above``: without ``low``; ``closed``: with ``high``; ``first``: a section of intervals begins with it.
    """

    low: float
    high: float
    exact: bool = False
    above: bool = False
    closed: bool = False
    first: bool = False

    def steps(self, grid: Grid) -> range:
        """The numbers of the multiples inside."""
        return range(grid.first(self.low, above=self.above), grid.first(self.high, above=self.closed))


@dataclass(frozen=True)
class Cells:
    """The bins, their fine cells, both ascending, and the bin of each cell, shape (cells,)."""

    bins: tuple[Bin, ...]
    fine: tuple[Bin, ...]
    bin_of: NDArray[np.int32]

    @property
    def sections(self) -> tuple[tuple[int, int], ...]:
        """The runs of bins inside which low ones may be combined: first bin, and first bin after them."""
        starts = [i for i, part in enumerate(self.bins) if not part.exact and part.first]
        ends = [_end(self.bins, start) for start in starts]
        return tuple(zip(starts, ends, strict=True))


def _end(bins: Sequence[Bin], start: int) -> int:
    after = (i for i in range(start + 1, len(bins)) if bins[i].exact or bins[i].first)
    return next(after, len(bins))


def cells_of(
    edges: Sequence[float],
    exact: Sequence[float] = (),
    barriers: Collection[float] = (),
    grid: Grid | None = None,
    *,
    closed: bool = True,
) -> Cells:
    """Bins between the edges, cut at exact values and barriers, each with at most FINE_CELLS cells.

    ``barriers``: values inside the edges at which a bin ends and a section begins; ``closed``: whether the last bin
    holds its upper edge.  With a grid no bin and no cell is without a multiple of it.
    """
    bins = tuple(_bins(edges, sorted(exact), set(barriers), grid, closed))
    fine = [_fine(part, grid) for part in bins]
    bin_of = np.repeat(np.arange(len(bins)), [len(parts) for parts in fine]).astype(np.int32)
    return Cells(bins, tuple(cell for parts in fine for cell in parts), bin_of)


def _bins(
    edges: Sequence[float], exact: Sequence[float], barriers: set[float], grid: Grid | None, closed: bool
) -> Iterator[Bin]:
    outside = [v > edges[-1] or (v == edges[-1] and not closed) for v in exact]
    yield from (Bin(v, v, exact=True) for v in exact if v < edges[0])
    first = True
    for place, (low, high) in enumerate(pairwise(edges)):
        last = closed and place == len(edges) - 2
        begin, above = low, False
        inside = [v for v in exact if low <= v < high or (last and v == high)]
        for cut in sorted({*inside, *(b for b in barriers if low <= b < high)}):
            part = Bin(begin, cut, above=above, first=first)
            if _holds_any(part, grid):
                yield part
                first = False
            if cut in inside:
                yield Bin(cut, cut, exact=True)
            first, begin, above = True, cut, cut in inside
        part = Bin(begin, high, above=above, closed=last and high not in inside, first=first)
        if _holds_any(part, grid):
            yield part
            first = False
    yield from (Bin(v, v, exact=True) for v, beyond in zip(exact, outside, strict=True) if beyond)


def _holds_any(part: Bin, grid: Grid | None) -> bool:
    if grid is not None:
        return len(part.steps(grid)) > 0
    low = float(np.nextafter(part.low, np.inf)) if part.above else part.low
    return low < part.high or (part.closed and low == part.high)


def _fine(part: Bin, grid: Grid | None) -> list[Bin]:
    """A bin's cells; of an exact value, itself."""
    if part.exact:
        return [part]
    if grid is None:
        bounds = [part.low + (part.high - part.low) * j / FINE_CELLS for j in range(FINE_CELLS)]
    else:
        steps = part.steps(grid)
        cells = min(FINE_CELLS, len(steps))
        bounds = [float(grid.value(steps[0] + len(steps) * j // cells)) for j in range(cells)]
        bounds[0] = bounds[0] if part.above else part.low
    bounds.append(part.high)
    last = len(bounds) - 2
    return [
        Bin(low, high, above=part.above and grid is None and i == 0, closed=part.closed and i == last)
        for i, (low, high) in enumerate(pairwise(bounds))
    ]
