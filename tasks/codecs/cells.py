"""Cells and the binning: ordered columns' bins cut into fine cells, and the public facts about all fine codes.

Everything here follows from the public spec.  Exact values have bins of their own.
:class:`privsyn.tasks.codecs.EncodingPlan` builds the binning once; the steps from compression to decoding share it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.columns.shared_fields import Grid, find_next_value

FINE_CELLS = 2
"""The most fine cells per bin, except wide bins (a public constant).  A bin's total is then the sum of at most 2 noisy
cells.  The sum has at most 1.4 times the standard deviation of one cell.  Later joint marginals estimate the bin
again."""

WIDE_RATIO = 3.0
"""A bin more than this many times as wide as a neighbouring interval is wide: its cells double in width."""

MAX_WIDE_CELLS = 24
"""The most cells of a wide bin: they double from the neighbour's width; beyond 2^24 widths they are even in the
logarithm."""

_MAX_DOUBLINGS = 40.0
"""The most doublings: floats cannot tell narrower first cells apart."""

Floats = NDArray[np.float64]

Sections = tuple[tuple[int, int], ...]
"""First bin of each section of intervals and the first bin after it; low bins are combined within a section."""


class Bin(NamedTuple):
    """The values from ``low`` to ``high``, or one exact value, equal to both.

    ``above``: excludes ``low``; ``closed``: includes ``high``; ``first``: begins a section of intervals.
    """

    low: float
    high: float
    exact: bool = False
    above: bool = False
    closed: bool = False
    first: bool = False

    def steps(self, grid: Grid) -> range:
        """Return the numbers of the grid's multiples inside."""
        return range(grid.first(self.low, above=self.above), grid.first(self.high, above=self.closed))


class CutCell(NamedTuple):
    """A cell of an attribute, from ``low`` to the attribute's next cell, as a first look made it.

    ``doubtful``: whether the look showed no rows in it or nearby.
    """

    attribute: str
    low: float
    doubtful: bool


class Points(NamedTuple):
    """The single-value cells of an attribute; every array has shape (points,).

    ``cell``: the fine code; ``neighbour``: the fine code of the adjacent interval in its section; ``share``: the
    point's share of the possible values of both, in [0, 1).
    """

    cell: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    share: Floats

    def select(self, chosen: NDArray[np.bool_]) -> Points:
        """Return the chosen points; ``chosen``: shape (points,)."""
        return Points(self.cell[chosen], self.neighbour[chosen], self.share[chosen])


@dataclass(frozen=True)
class Cells:
    """The bins, their fine cells, both ascending, and the bin of each cell, shape (cells,).

    ``wide``: (wide bin, 1 if its cells grow upwards or -1 if downwards).  ``points``: single-value cells that many rows
    may have, such as 0.
    """

    bins: tuple[Bin, ...]
    fine: tuple[Bin, ...]
    bin_of: NDArray[np.int32]
    wide: tuple[tuple[int, int], ...] = ()
    points: tuple[int, ...] = ()

    @property
    def sections(self) -> tuple[tuple[int, int], ...]:
        """The runs of bins inside which low bins may be combined: first bin, and first bin after the run."""
        ends = [i for i, bin_ in enumerate(self.bins) if bin_.exact or bin_.first] + [len(self.bins)]
        return tuple((start, end) for start, end in pairwise(ends) if not self.bins[start].exact)


def build_cells(
    edges: Sequence[float],
    exact: Sequence[float] = (),
    barriers: Collection[float] = (),
    grid: Grid | None = None,
    *,
    closed: bool = True,
    two_celled: bool = False,
    points: Collection[float] = (),
    split: bool = True,
) -> Cells:
    """Return bins between the edges, cut at exact values and barriers, with at most FINE_CELLS cells (wide bins more).

    ``points``: values inside the edges, on the grid if there is one, that get a bin of their own in their section.
    ``split``: whether other bins may have several cells.  ``two_celled``: no bin counts as wide, as in releases made
    before wide bins had more cells.  ``barriers``: values inside the edges at which a bin ends and a section begins.
    ``closed``: whether the last bin includes its upper edge.  With a grid, every bin and cell contains a multiple of
    it.
    """
    points = set(points)
    bins = tuple(_iterate_bins(edges, sorted(exact), set(barriers), grid, closed, points))
    narrow = {} if two_celled or not split else _find_wide_bins(bins, edges, grid)
    fine = [
        [bin_] if not split else _double_widths(bin_, grid, narrow[i]) if i in narrow else _split_finely(bin_, grid)
        for i, bin_ in enumerate(bins)
    ]
    bin_of = np.repeat(np.arange(len(bins)), [len(parts) for parts in fine]).astype(np.int32)
    bin_of.flags.writeable = False
    wide = tuple((i, 1 if width > 0 else -1) for i, width in narrow.items())
    cells = tuple(cell for parts in fine for cell in parts)
    single = tuple(i for i, c in enumerate(cells) if not c.exact and c.low in points and holds_one_value(c, grid))
    return Cells(bins, cells, bin_of, wide, single)


Frame = tuple[float, float]
"""Start and width of a column's equal bins; cells end at bins, halves of bins, quarters, and so on."""

LEAST_RUNGS = 16
"""The least number of rungs of a column with as many values; the widest rungs are halved to reach it."""

REALS_FROM = 2.0**-24
"""The first rung of real numbers without a resolution, as a share of the larger bound."""


def list_rungs(edges: Sequence[float], unit: float, origin: float) -> tuple[float, ...]:
    """Return edges of cells that double in width outwards from ``origin``, between the first and last of ``edges``.

    ``unit``: the width of the cell at the origin, and of its neighbours.  If these are few, as in columns far from the
    origin, the widest are halved.
    """
    low, high = edges[0], edges[-1]
    marks = {low, high, *(m for m in (origin, origin + unit) if low < m < high)}
    for way in (1, -1):
        width = unit
        while width <= max(abs(low - origin), abs(high - origin)):
            if low < origin + way * width < high:
                marks.add(origin + way * width)
            width *= 2
    rungs = sorted(marks)
    while len(rungs) <= LEAST_RUNGS:
        widths = [b - a for a, b in pairwise(rungs)]
        widest = widths.index(max(widths))
        middle = rungs[widest] + unit * (widths[widest] / unit // 2)
        if not rungs[widest] < middle < rungs[widest + 1]:
            break
        rungs.insert(widest + 1, middle)
    return tuple(rungs)


def find_points(cells: Cells, grid: Grid | None) -> Points | None:
    """Return the single-value cells with a neighbouring interval in their section, or None."""
    rows = []
    sections = np.full(len(cells.bins), -1)
    for number, (start, end) in enumerate(cells.sections):
        sections[start:end] = number
    section = sections[cells.bin_of]
    for cell in cells.points:
        neighbours = [i for i in (cell + 1, cell - 1) if 0 <= i < len(section) and i not in cells.points]
        neighbour = next((i for i in neighbours if section[i] == section[cell]), None)
        if neighbour is not None:
            rows.append((cell, neighbour, 0.0 if grid is None else 1 / (1 + len(cells.fine[neighbour].steps(grid)))))
    if not rows:
        return None
    point_cells, beside_of, share = zip(*rows, strict=True)
    return Points(np.array(point_cells), np.array(beside_of), np.array(share))


def holds_one_value(bin_: Bin, grid: Grid | None) -> bool:
    """Return whether the bin or cell holds one value: a multiple of the grid, or its lower end."""
    if grid is not None:
        return len(bin_.steps(grid)) == 1
    return not bin_.above and bin_.high <= np.nextafter(bin_.low, np.inf)


def _find_wide_bins(bins: Sequence[Bin], edges: Sequence[float], grid: Grid | None) -> dict[int, float]:
    """Map each wide bin to the width of its narrower neighbour, negative if the neighbour lies above it.

    Neighbours are the intervals between edges, so parts cut off by exact values or barriers make no bin wide.  Widths
    are in multiples of the grid, if there is one.
    """
    widths = [compute_width(Bin(low, high), grid) for low, high in pairwise(edges)]
    wide = {}
    for i, bin_ in enumerate(bins):
        if not bin_.exact:
            place = min(bisect_right(edges, bin_.low), len(widths)) - 1
            sides = [(widths[j], place - j) for j in (place - 1, place + 1) if 0 <= j < len(widths)]
            width, side = min(sides, default=(0.0, 1))
            if 0 < WIDE_RATIO * width < compute_width(bin_, grid):
                wide[i] = width * side
    return wide


def compute_width(bin_: Bin, grid: Grid | None) -> float:
    """Return the width of a bin or cell, in multiples of the grid if there is one."""
    return bin_.high - bin_.low if grid is None else float(len(bin_.steps(grid)))


def _double_widths(bin_: Bin, grid: Grid | None, narrow: float) -> list[Bin]:
    """Return the cells of a wide bin, doubling away from the narrow side, the first about as wide as ``narrow``."""
    doublings = min(log2(compute_width(bin_, grid)) - log2(abs(narrow)), _MAX_DOUBLINGS)
    cells = min(max(ceil(log2(2.0**doublings + 1)), FINE_CELLS), MAX_WIDE_CELLS)
    growth = 2.0 if doublings < MAX_WIDE_CELLS else 2.0 ** (doublings / (cells - 1))
    ends = [(growth**j - 1) / (growth**cells - 1) for j in range(cells)]
    shares = ends if narrow > 0 else [0.0, *(1 - e for e in reversed(ends[1:]))]
    return _cut_at_shares(bin_, grid, shares)


def _iterate_bins(
    edges: Sequence[float],
    exact: Sequence[float],
    barriers: set[float],
    grid: Grid | None,
    closed: bool,
    points: set[float],
) -> Iterator[Bin]:
    ends = points | {find_next_value(value, grid) for value in points}
    outside = [v > edges[-1] or (v == edges[-1] and not closed) for v in exact]
    yield from (Bin(v, v, exact=True) for v in exact if v < edges[0])
    first = True
    for place, (low, high) in enumerate(pairwise(edges)):
        last = closed and place == len(edges) - 2
        begin, above = low, False
        inside = [v for v in exact if low <= v < high or (last and v == high)]
        cuts = {b for b in barriers | ends if low <= b < high} | ({high} & points if last else set())
        for cut in sorted({*inside, *cuts}):
            bin_ = Bin(begin, cut, above=above, first=first)
            if _holds_values(bin_, grid):
                yield bin_
                first = False
            if cut in inside:
                yield Bin(cut, cut, exact=True)
            first, begin, above = first or cut in inside or cut in barriers, cut, cut in inside
        bin_ = Bin(begin, high, above=above, closed=last and high not in inside, first=first)
        if _holds_values(bin_, grid):
            yield bin_
            first = False
    yield from (Bin(v, v, exact=True) for v, beyond in zip(exact, outside, strict=True) if beyond)


def _holds_values(bin_: Bin, grid: Grid | None) -> bool:
    if grid is not None:
        return len(bin_.steps(grid)) > 0
    low = float(np.nextafter(bin_.low, np.inf)) if bin_.above else bin_.low
    return low < bin_.high or (bin_.closed and low == bin_.high)


def _split_finely(bin_: Bin, grid: Grid | None) -> list[Bin]:
    """Return the cells of a bin, at most FINE_CELLS; a single value is one cell."""
    if bin_.exact or (grid is None and holds_one_value(bin_, grid)):
        return [bin_]
    if grid is None:
        return _build_cells_from(
            bin_, grid, [bin_.low + (bin_.high - bin_.low) * j / FINE_CELLS for j in range(FINE_CELLS)]
        )
    steps = bin_.steps(grid)
    cells = min(FINE_CELLS, len(steps))
    return _build_cells_from(bin_, grid, [float(grid.value(steps[0] + len(steps) * j // cells)) for j in range(cells)])


def _cut_at_shares(bin_: Bin, grid: Grid | None, shares: Sequence[float]) -> list[Bin]:
    """Return cells that begin at ``shares`` of a bin's width, ascending from 0, each with a multiple of the grid."""
    if grid is None:
        bounds = [bin_.low + (bin_.high - bin_.low) * share for share in shares]
    else:
        steps = bin_.steps(grid)
        starts = [steps[0] + int(len(steps) * share) for share in shares]
        bounds = [float(grid.value(start)) for start in starts]
    ascending = [a for a, b in pairwise([*bounds, bin_.high]) if a < b]
    return _build_cells_from(bin_, grid, ascending)


def _build_cells_from(bin_: Bin, grid: Grid | None, starts: Sequence[float]) -> list[Bin]:
    """Return the cells of a bin whose lower ends are ``starts``."""
    bounds = [*starts, bin_.high]
    if grid is not None and not bin_.above:
        bounds[0] = bin_.low
    last = len(bounds) - 2
    return [
        Bin(low, high, above=bin_.above and grid is None and i == 0, closed=bin_.closed and i == last)
        for i, (low, high) in enumerate(pairwise(bounds))
    ]


@dataclass(frozen=True, eq=False)
class Level:
    """One level above the fine codes of an attribute.

    Attributes:
        attribute: The attribute whose codes are the groups.
        groups: The group of every fine code, shape (fine size,).  Every group has at least one code.  All codes of a
            group share one group of the level above.
    """

    attribute: str
    groups: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AttributeBins:
    """The public bins of one attribute.

    ``groups[code]``: the bin of a fine code, shape (fine size,), ascending from 0.  ``in_order``: the sections of bins
    that are intervals.  ``is_open``: whether the spec gives neither bins nor edges for an ordered attribute; then
    ``widths`` has the width of every fine code, shape (fine size,), 0 if it is no interval.  ``added``: the bin of
    unlisted values, if there is one.  ``levels``: the levels of an attribute with very many values, top level first.
    ``points``: the single-value cells.  ``chances``: for an attribute counted alone and related to no other, each fine
    code's share by chance, shape (fine size,), 0 for null and exact values.  ``doubtful``: the fine codes where a first
    look showed no rows, shape (fine size,); None without such a look.
    """

    groups: NDArray[np.int32]
    in_order: Sections = ()
    is_open: bool = False
    widths: NDArray[np.float64] | None = None
    added: int | None = None
    levels: tuple[Level, ...] = ()
    points: Points | None = None
    chances: NDArray[np.float64] | None = None
    doubtful: NDArray[np.bool_] | None = None

    @property
    def size(self) -> int:
        """Number of bins."""
        return int(self.groups.max()) + 1


Binning = Mapping[str, AttributeBins]
"""Attribute -> its public bins, in the domain's order."""


def get_ordered(binning: Binning) -> frozenset[str]:
    """Return the attributes that have ordered bins."""
    return frozenset(a for a, bins in binning.items() if bins.in_order)


def list_level_attributes(binning: Binning) -> list[str]:
    """Return the attributes that are levels of others."""
    return [level.attribute for bins in binning.values() for level in bins.levels]


def list_roundings(binning: Binning) -> list[str]:
    """Return the attributes with shares by chance, such as the round number that a value was rounded to."""
    return [a for a, bins in binning.items() if bins.chances is not None]


def list_counted_alone(binning: Binning) -> list[str]:
    """Return the attributes that are counted but related to no other: levels and roundings."""
    return [*list_level_attributes(binning), *list_roundings(binning)]
