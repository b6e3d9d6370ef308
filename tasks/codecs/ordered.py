"""Base of the codecs of ordered columns: fine cells between edges, exact values, then null if nullable.

The lattice of a column is its values as integers, in units of the column's resolution.  *Encode* stores these numbers
next to the codes, so that looks inside codes need not read the private table again.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import frexp
from typing import Any, TypedDict, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns import Binned
from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.tasks.codecs.cells import (
    Bin,
    Cells,
    CutCell,
    Floats,
    Frame,
    build_cells,
    compute_width,
    find_points,
    holds_one_value,
)
from privsyn.tasks.codecs.codec import Bounds, Codec, Codes, Columns

Integers = NDArray[np.int64]

BITS_OF_REALS = 40
"""Reals without a resolution get 2^-40 of the larger bound."""

_LARGEST, _WIDEST = 1 << 52, 900
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Lattice:
    """The numbers 0 .. ``last - first`` of the multiples inside the bounds, then one for each exact value.

    ``grid``: the multiples; None if floats cannot tell them apart, so that every float has a number.  ``first`` and
    ``last``: the multiples, or floats, at the bounds.
    """

    grid: Grid | None
    first: int
    last: int
    exact: tuple[float, ...] = ()

    @classmethod
    def of(cls, low: float, high: float, grid: Grid | None, exact: Sequence[float] = ()) -> Lattice:
        """Return the lattice between two bounds; ``grid``: the column's resolution, None for reals without one."""
        exponent = frexp(max(abs(low), abs(high)))[1]
        if grid is None and abs(exponent) < _WIDEST:
            grid = Grid(Fraction(2) ** (exponent - BITS_OF_REALS))
        if grid is not None:
            first, last = (grid.first(bound, above=True) - 1 for bound in (low, high))  # at or below each bound
            if max(abs(first), abs(last)) < _LARGEST:
                return cls(grid, first, last, tuple(exact))
        return cls.of_floats(low, high, exact)

    @classmethod
    def of_floats(cls, low: float, high: float, exact: Sequence[float] = ()) -> Lattice:
        """Return the lattice of all floats between two bounds, which reads values back exactly."""
        first, last = (int(number) for number in _number_floats(np.array([low, high])))
        return cls(None, first, last, tuple(exact))

    @property
    def size(self) -> int:
        """Number of lattice numbers."""
        return self.last - self.first + 1 + len(self.exact)

    def number(self, values: Floats, exact: Integers) -> pa.Array:
        """Return the number of each value inside the bounds, null for NaN, in the smallest type; shape (rows,).

        A value between two multiples gets the lower one's number.  ``exact``: the index of each value's exact value, -1
        for other values.
        """
        missing = np.isnan(values) & (exact < 0)
        inside = np.where(np.isnan(values), 0.0, values)
        if self.grid is None:
            offset = _number_floats(inside) - np.uint64(self.first)
        else:
            step = self.grid.step
            steps = np.rint(self.grid.below(inside) * float(step.denominator) / float(step.numerator))
            offset = (np.clip(steps, self.first, self.last) - self.first).astype(np.uint64)
        after = np.maximum(exact, 0).astype(np.uint64) + np.uint64(self.last - self.first + 1)
        numbers = np.where(exact >= 0, after, offset)
        return pa.array(np.where(missing, np.uint64(0), numbers).astype(choose_code_dtype(self.size)), mask=missing)

    def find_multiples(self, numbers: pa.Array) -> tuple[Integers, NDArray[np.bool_]]:
        """Return the multiple of each number, and which numbers are multiples: neither null nor exact."""
        offset = np.asarray(numbers.fill_null(0)).astype(np.uint64)
        is_multiple = np.asarray(numbers.is_valid()) & (offset <= np.uint64(self.last - self.first))
        if self.grid is None:
            return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), bool)
        return np.where(is_multiple, offset, np.uint64(0)).astype(np.int64) + self.first, is_multiple

    def read(self, numbers: pa.Array) -> pa.Array:
        """Return the values of the numbers as floats, null for null; shape (rows,)."""
        offset = np.asarray(numbers.fill_null(0)).astype(np.uint64)
        is_exact = offset > np.uint64(self.last - self.first)
        inside = np.where(is_exact, np.uint64(0), offset)
        if self.grid is None:
            values = _read_floats(inside + np.uint64(self.first))
        else:
            values = np.asarray(self.grid.value(inside.astype(np.float64) + self.first))
        if self.exact:
            place = (offset - np.uint64(self.last - self.first + 1)).astype(np.int64)
            values = np.where(is_exact, np.array(self.exact)[np.where(is_exact, place, 0)], values)
        return pa.array(values, mask=~np.asarray(numbers.is_valid()))


def _number_floats(values: Floats) -> NDArray[np.uint64]:
    """Return integers that sort like the floats; -0.0 equals 0.0."""
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _read_floats(numbers: NDArray[np.uint64]) -> Floats:
    """Return the floats with these numbers."""
    return np.where(numbers & _SIGN, numbers ^ _SIGN, ~numbers).view(np.float64)


FRACTIONS = "fractions rounded"
"""Repair: a fraction in an integer column is rounded down."""


def _find_doubtful(cells: Cells, cuts: Sequence[CutCell]) -> NDArray[np.bool_]:
    """Return the cells where a first look showed no rows, shape (cells,)."""
    lows = [cut.low for cut in cuts]
    flags = [cuts[max(bisect_right(lows, cell.low) - 1, 0)].doubtful and not cell.exact for cell in cells.fine]
    return np.array(flags, bool)


class CellOptions(TypedDict, total=False):
    """The options of :class:`OrderedCodec`, as its subclasses hand them on."""

    two_celled: bool
    points: Collection[float]
    cuts: Sequence[CutCell]
    edges: tuple[float, ...]
    rungs: tuple[float, ...]


class _FixedDraws:
    """Stands in for a random generator; every draw returns the same numbers, one per row."""

    def __init__(self, places: Floats) -> None:
        self._places = places

    def random(self, size: int) -> Floats:
        """Return the places, shape (size,)."""
        if size != len(self._places):
            raise ValueError(f"{len(self._places)} places for {size} rows")
        return self._places


def fix_draws(places: Floats) -> np.random.Generator:
    """Return a generator whose every draw is ``places``, in [0, 1), shape (rows,); it draws whole rows only."""
    return cast(np.random.Generator, _FixedDraws(places))


def draw_steps_inside(
    low: Floats,
    high: Floats,
    top: float,
    first: Floats,
    last: Floats,
    value: Callable[[Floats], Floats],
    rng: np.random.Generator,
) -> Floats:
    """Return an integer step k for each cell, drawn uniformly with low <= value(k) < high, shape (cells,).

    value(k) = high also counts in a cell that ends at ``top``, the column's largest value, and in a single-value cell.
    A cell without a step gets the last step before it.  ``first`` and ``last``: integers within two steps of the true
    limits, first from below and last from above.
    """
    for _ in range(2):
        first = first + (value(first) < low)
        last = last - np.where((high == top) | (low == high), value(last) > high, value(last) >= high)
    choices = last - first + 1
    return np.where(choices > 0, first + np.floor(rng.random(len(low)) * choices), first - 1)


class OrderedCodec(Codec):
    """A column's bins in fine cells and its exact values, in ascending order, then null if nullable.

    ``rungs``: cell edges on a ladder (cells.list_rungs) that replace the column's edges; empty for none.  ``cuts``: the
    cells that a first look made from the rungs.  ``barriers``: values, in the numbers of ``edge_values``, at which a
    bin ends and across which low bins are never combined, such as rule thresholds.  ``two_celled``: cells as in
    releases made before wide bins had more (:func:`build_cells`).  ``points``: values with a cell of their own in their
    section.  ``edges``: edges of single-cell bins that replace the column's edges; empty for none.
    """

    least_part = 0.0
    """Least width of a cell on a ladder if rows span many such widths; 0 for no limit."""

    def __init__(
        self,
        name: str,
        column: Binned,
        barriers: Collection[float] = (),
        *,
        two_celled: bool = False,
        points: Collection[float] = (),
        cuts: Sequence[CutCell] = (),
        edges: tuple[float, ...] = (),
        rungs: tuple[float, ...] = (),
    ) -> None:
        self.attribute, self.sources, self._nullable = name, (name,), column.nullable
        self._grid: Grid | None = column.grid()
        self._exact = np.array(column.exact_values(), dtype=np.float64)
        if rungs and cuts:
            rungs = (rungs[0], *(cut.low for cut in cuts if rungs[0] < cut.low < rungs[-1]), rungs[-1])
        self._edges = edges or rungs or column.edge_values()
        self.has_value_bins = bool(edges)
        self.cells = build_cells(
            self._edges,
            column.exact_values(),
            barriers,
            self._grid,
            closed=column.closed,
            two_celled=two_celled,
            points=points,
            split=not edges and not rungs,
        )
        self.on_ladder = bool(rungs)
        own = column.edge_values()
        self.frame: Frame = (own[0], (own[-1] - own[0]) / (len(own) - 1)) if rungs else (0.0, 1.0)
        self.ladder_origin = 0.0
        self.doubtful = _find_doubtful(self.cells, cuts) if cuts else None
        self.points = find_points(self.cells, self._grid)
        null_bin = [len(self.cells.bins)] if column.nullable else []
        self.groups = np.concatenate([self.cells.bin_of, np.array(null_bin, dtype=np.int32)]).astype(np.int32)
        self.leaves_cell = False  # whether a drawn value may lie in another cell of its bin
        self.in_order = self.cells.sections
        intervals = [0.0 if cell.exact else compute_width(cell, self._grid) for cell in self.cells.fine]
        self.widths = np.array([*intervals, *(0.0 for _ in null_bin)]) if column.leaves_bins_open else None
        self._is_exact = np.array([cell.exact for cell in self.cells.fine])
        self._low, self._high = (
            np.array([getattr(cell, side) for cell in self.cells.fine], dtype=np.float64) for side in ("low", "high")
        )
        self._slots = np.flatnonzero(~self._is_exact)  # the cells that are intervals
        self._starts = self._low[self._slots]
        above = np.array([cell.above for cell in self.cells.fine])
        self._least = np.where(above, np.nextafter(self._low, np.inf), self._low)
        steps_by_one = self._grid is not None and self._grid.step == 1
        self._whole = steps_by_one and not len(self._exact)
        width = np.diff(np.append(self._starts, self._edges[-1]))
        self._one_each = self._whole and bool((width == 1).all())

    @property
    def _null(self) -> int:
        """The code of null, if there is one."""
        return len(self.cells.fine)

    @abstractmethod
    def stored_numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the stored values as float64 (NaN: null or unparseable), and the null mask."""

    def _cut(self, stored: Floats) -> Floats:
        """Return stored numbers as the column can hold them."""
        return stored

    def numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the values as the column holds them, float64 (NaN: null or unparseable), and the null mask."""
        stored, is_null = self.stored_numbers(array)
        return self._cut(stored), is_null

    @abstractmethod
    def _find_bounds(self) -> tuple[float, float]:
        """Return the smallest and largest possible value, without exact values."""

    @abstractmethod
    def _place(self, low: Floats, high: Floats, rng: np.random.Generator) -> pa.Array:
        """Return one released value in each [low, high), or the nearest rounded value below if there is none."""

    @abstractmethod
    def _convert_to_released(self, numbers: Floats) -> pa.Array:
        """Return the numbers as released values."""

    def release_numbers(self, numbers: Floats) -> pa.Array:
        """Return the numbers as column values, clamped to the bounds; NaN becomes the least value."""
        low, high = self._find_bounds()
        return self._convert_to_released(np.clip(np.where(np.isnan(numbers), low, numbers), low, high))

    def holds_one_value(self, cell: Bin) -> bool:
        """Return whether a cell holds one value of the column."""
        return holds_one_value(cell, self._grid)

    def count_values(self) -> Floats:
        """See :class:`Codec`."""
        several = np.array([not cell.exact and not self.holds_one_value(cell) for cell in self.cells.fine])
        numbers = [np.inf if self._grid is None else len(cell.steps(self._grid)) for cell in self.cells.fine]
        return np.append(np.where(several, numbers, 1.0), np.ones(self.size - len(several)))

    def settle_edge(self, edge: float) -> float:
        """Return the first grid value at or above an edge; the edge itself without a grid."""
        return edge if self._grid is None else float(self._grid.value(self._grid.first(edge)))

    @property
    def stands_alone(self) -> NDArray[np.bool_]:
        """Which fine codes are an exact value or null instead of an interval, shape (size,)."""
        return np.append(self._is_exact, np.ones(int(self._nullable), dtype=bool))

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and largest possible value in the codec's numbers, without exact values."""
        return self._find_bounds()

    @property
    def has_top_cell(self) -> bool:
        """Whether the largest value has its own cell."""
        last = self.cells.fine[-1]
        return last.closed and last.low == last.high

    @property
    def _top(self) -> float:
        """The upper edge of the last interval if it includes it, else infinity."""
        return self._find_bounds()[1] if self.cells.fine[-1].closed and not self.has_top_cell else np.inf

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; values outside the bounds are clamped, missing values become null or the minimum."""
        codes, _, repairs = self._encode(*self.stored_numbers(columns[self.sources[0]]))
        return codes, repairs

    def encode_with_numbers(self, columns: Columns) -> tuple[Codes, Counter[str], pa.Array]:
        """Return codes and repairs like :meth:`encode`, and each value's lattice number, in one pass."""
        codes, numbers, repairs = self._encode(*self.stored_numbers(columns[self.sources[0]]))
        return codes, repairs, self._number(numbers)

    @cached_property
    def lattice(self) -> Lattice:
        """The column's values as integers in units of its resolution."""
        if self._keeps_floats():
            return Lattice.of_floats(*self._find_bounds(), self._exact.tolist())
        return Lattice.of(*self._find_bounds(), self._find_resolution(), self._exact.tolist())

    def read_numbers(self, numbers: pa.Array) -> pa.Array:
        """Return values for lattice numbers, stored such that the codec reads the same numbers."""
        return self.lattice.read(numbers)

    def _keeps_floats(self) -> bool:
        """Return whether the lattice keeps floats, because cells still to be chosen may end between multiples."""
        return self.on_ladder and self._find_resolution() is None

    def _find_resolution(self) -> Grid | None:
        """Return the grid of values; None for reals without a step or decimals."""
        return self._grid

    def _number(self, numbers: Floats) -> pa.Array:
        """Return the lattice number of every value, clamped to the bounds; null if missing."""
        low, high = self._find_bounds()
        cells = self._find_exact_cells(numbers)
        exact = np.where(cells >= 0, np.searchsorted(np.flatnonzero(self._is_exact), cells), -1)
        if not self._nullable:
            numbers = np.where(np.isnan(numbers), low, numbers)
        return self.lattice.number(np.clip(numbers, low, high), exact)

    def _encode(self, stored: Floats, is_null: NDArray[np.bool_]) -> tuple[Codes, Floats, Counter[str]]:
        """Return the codes, the numbers as the column holds them, and the repairs of stored numbers."""
        numbers = self._cut(stored)
        low, high = self._find_bounds()
        missing = np.isnan(numbers)
        listed = self._find_exact_cells(numbers)
        repairs = Counter(
            {
                "below min": int(((numbers < low) & (listed < 0)).sum()),
                "above max": int(((numbers > high) & (listed < 0)).sum()),
                "unparseable": int((missing & ~is_null).sum()),
                FRACTIONS: int(((numbers != stored) & (numbers >= low) & (numbers <= high)).sum()),
            }
        )
        codes = self._find_cells(np.where(missing, low, numbers), listed).astype(choose_code_dtype(self.size))
        if self._nullable:
            codes[missing] = self._null
        else:
            repairs["null"] = int(is_null.sum())
        return codes, numbers, +repairs

    def clamp(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return values clamped to the bounds, and which of them are null or exact instead of in an interval."""
        numbers, _ = self.numbers(array)
        low, high = self._find_bounds()
        clamped = np.clip(np.where(np.isnan(numbers), low, numbers), low, high)
        not_in_interval = (self._find_exact_cells(numbers) >= 0) | (self._find_exact_cells(clamped) >= 0)
        not_in_interval |= np.isin(clamped, [self.cells.fine[i].low for i in self.cells.points])
        return clamped, not_in_interval | (np.isnan(numbers) if self._nullable else False)

    def _find_exact_cells(self, numbers: Floats) -> NDArray[np.int64]:
        """Return the cell of every exact value, also as a 32-bit float; -1 for other numbers."""
        cells = np.full(len(numbers), -1, dtype=np.int64)
        for value, slot in zip(self._exact, np.flatnonzero(self._is_exact), strict=True):
            cells[(numbers == value) | (numbers == float(np.float32(value)))] = slot
        return cells

    def _find_cells(self, numbers: Floats, listed: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return the cell of every number; numbers out of bounds get the first or last cell."""
        if self._one_each:
            return np.clip(numbers - self._edges[0], 0, len(self._slots) - 1)
        if not len(self._exact) and (self._grid is None or self._grid.step == 1):
            return np.clip(np.searchsorted(self._starts, numbers, side="right") - 1, 0, len(self._slots) - 1)
        inside = np.clip(numbers, *self._find_bounds())
        inside = inside if self._grid is None else self._grid.below(inside)
        place = np.clip(np.searchsorted(self._starts, inside, side="right") - 1, 0, len(self._slots) - 1)
        clamped = self._find_exact_cells(inside)
        return np.where(listed >= 0, listed, np.where(clamped >= 0, clamped, self._slots[place]))

    def decode(
        self, codes: Codes, rng: np.random.Generator, helpers: Mapping[str, Codes] | None = None
    ) -> dict[str, pa.Array]:
        """Return a value in each code's cell, drawn uniformly or by its slope; exact values and null stay."""
        return self._decode_with(codes, lambda cells: self._draw_values(cells, rng, helpers or {}))

    def draw_anywhere(self, rows: int, rng: np.random.Generator) -> pa.Array:
        """Return values drawn uniformly from the column's whole range, shape (rows,), without exact values."""
        low, high = (np.full(rows, edge) for edge in (self._edges[0], self._edges[-1]))
        return self._place(low, high, rng)

    def decode_at(self, codes: Codes, places: Floats) -> dict[str, pa.Array]:
        """See :class:`Codec`; exact values and null stay."""
        return self._decode_with(codes, lambda cells: self._place_values(cells, places))

    def _decode_with(self, codes: Codes, draw: Callable[[NDArray[np.int64]], pa.Array]) -> dict[str, pa.Array]:
        """Return drawn values, exact values and null, by column."""
        is_null = codes == self._null
        cells = np.where(is_null, 0, codes).astype(np.int64)
        values = draw(cells)
        if len(self._exact):
            values = pc.if_else(pa.array(self._is_exact[cells]), self._convert_to_released(self._low[cells]), values)
        if is_null.any():
            values = pc.if_else(pa.array(is_null), pa.scalar(None, values.type), values)
        return {self.attribute: values}

    def _draw_values(
        self, cells: NDArray[np.int64], rng: np.random.Generator, helpers: Mapping[str, Codes]
    ) -> pa.Array:
        """Return one value drawn inside each cell; values for exact cells are replaced later."""
        return self._place(self._least[cells], self._high[cells], rng)

    def _place_values(self, cells: NDArray[np.int64], places: Floats) -> pa.Array:
        """Return the value at a place of each cell; values for exact cells are replaced later."""
        return self._place(self._least[cells], self._high[cells], fix_draws(places))

    def labels(self) -> list[str]:
        """Return cells as intervals."""
        return [self._name(cell) for cell in self.cells.fine] + ["(null)"] * int(self._nullable)

    def bin_labels(self) -> list[str]:
        """Return public bins as intervals."""
        return [self._name(bin_) for bin_ in self.cells.bins] + ["(null)"] * int(self._nullable)

    def values(self, *, fine: bool) -> Floats:
        """Return the middles of the fine cells or public bins (of the grid's values inside), NaN for null."""
        middles = [self._find_middle(bin_) for bin_ in (self.cells.fine if fine else self.cells.bins)]
        return np.array(middles + [np.nan] * int(self._nullable), dtype=np.float64)

    def value_bounds(self) -> dict[str, pa.Array | Bounds]:
        """See :class:`Codec`: the smallest and largest released value of each fine cell.

        A value that is moved to a heap stays in its bin, but may leave its cell.
        """
        parts = [self.cells.bins[b] for b in self.cells.bin_of] if self.leaves_cell else self.cells.fine
        return self._list_bounds([self._find_bin_bounds(bin_) for bin_ in parts])

    def counted_bounds(self) -> dict[str, pa.Array | Bounds]:
        """See :class:`Codec`; without a step, every number of a cell counts."""
        if self._grid is not None or self.leaves_cell:
            return self.value_bounds()
        bounds = np.array([self._find_bin_bounds(bin_) for bin_ in self.cells.fine]).reshape(-1, 2)
        return self._list_bounds(np.column_stack([self._least, bounds[:, 1]]))

    def _list_bounds(self, bounds: Any) -> dict[str, pa.Array | Bounds]:
        """Return cell bounds, shape (cells, 2), in the numbers of rules, then null; by column."""
        low, high = (self._convert_for_rules(side) for side in np.asarray(bounds, np.float64).reshape(-1, 2).T)
        nulls = [np.nan] * int(self._nullable)
        return {self.attribute: (np.append(low, nulls), np.append(high, nulls))}

    def _find_bin_bounds(self, bin_: Bin) -> tuple[float, float]:
        if bin_.exact:
            return bin_.low, bin_.low
        if self._grid is not None:
            steps = bin_.steps(self._grid)
            return float(self._grid.value(steps[0])), float(self._grid.value(steps[-1]))
        return self._find_least_released(bin_.low), bin_.high if bin_.closed else float(
            np.nextafter(bin_.high, -np.inf)
        )

    def _find_least_released(self, low: float) -> float:
        """Return the smallest value that may be released for a cell that begins at ``low``."""
        return low

    def _convert_for_rules(self, numbers: Floats) -> Floats:
        """Return the codec's numbers in the numbers of rules: released numbers, or seconds."""
        return numbers

    def read(self, columns: Columns, codes: Codes | None = None) -> dict[str, pa.Array]:
        """See :class:`Codec`: numbers, or moments in seconds, within the bounds or exact."""
        numbers = self.count_numbers(columns[self.sources[0]])
        return {self.attribute: pa.array(self._convert_for_rules(numbers), mask=np.isnan(numbers))}

    def count_numbers(self, array: pa.Array) -> Floats:
        """Return the values as counted, in the codec's numbers: within the bounds or exact, NaN for null."""
        numbers, _ = self.numbers(array)
        low, high = self._find_bounds()
        missing = np.isnan(numbers)
        inside = np.clip(np.where(missing, low, numbers), low, high)
        counted = np.where(self._find_exact_cells(numbers) >= 0, numbers, inside)
        return np.where(missing, np.nan, counted) if self._nullable else counted

    def _find_middle(self, bin_: Bin) -> float:
        if self._grid is None or bin_.exact:
            return (bin_.low + bin_.high) / 2
        steps = bin_.steps(self._grid)
        return float(self._grid.value(steps[0]) + self._grid.value(steps[-1])) / 2

    def label_further_edges(self, edges: Collection[float]) -> tuple[str, ...]:
        """Return the labels of ``edges`` inside the bounds that are no public bin edge, without duplicates."""
        inside = (e for e in edges if self._edges[0] < e < self._edges[-1] and e not in {*self._edges, *self._exact})
        return tuple(dict.fromkeys(map(self._label, inside)))

    def _name(self, bin_: Bin) -> str:
        """Return the readable label of a bin or cell."""
        if bin_.exact or (self._grid is None and holds_one_value(bin_, None)):
            return self._label(bin_.low)
        if self._grid is not None:
            steps = bin_.steps(self._grid)
            ends = [self._label(float(self._grid.value(step))) for step in (steps[0], steps[-1])]
            return ends[0] if len(steps) == 1 else "..".join(ends)
        before = float(np.nextafter(bin_.low, -np.inf))
        if not bin_.above and before in self._alone:  # a single-value cell ends there
            return f"({self._label(before)}, {self._label(bin_.high)})"
        return f"{'(' if bin_.above else '['}{self._label(bin_.low)}, {self._label(bin_.high)})"

    @cached_property
    def _alone(self) -> frozenset[float]:
        """The values with their own cell, for a column without a grid."""
        return frozenset(cell.low for cell in self.cells.fine if self._grid is None and holds_one_value(cell, None))

    def _label(self, edge: float) -> str:
        return f"{edge:.12g}"
