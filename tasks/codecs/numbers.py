"""Codecs of integers and real numbers, with or without a grid; values inside cells that many rows share; tails.

The last cells of a column hold few rows but much of its sum and variance.  A noisy count is useless there, and its
noise would dominate the mean and the slopes.  Counts are assumed to follow a generalized Pareto tail (Pickands,
*Statistical inference using extreme order statistics*, Annals of Statistics 1975), up to departures that are a share of
each expected count.  So full cells keep their counts, and nearly empty cells get the fitted tail.  This is
post-processing of noisy counts and public edges alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, Self, TypeVar, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns import IntegerColumn, NumberColumn
from privsyn.data_contracts.columns.ordered_columns import name_heap_attribute
from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs import parsing
from privsyn.tasks.codecs.cells import Bin, Floats, find_points, holds_one_value
from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.derived import HeapSampler, count_heaps
from privsyn.tasks.codecs.ordered import CellOptions, OrderedCodec, draw_steps_inside, fix_draws


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


NO_NUMBER = np.iinfo(np.int64).min
"""Marks a null or exact value, and every value of a column without a step."""

_WHOLE = 1 << 53
_EXACT = 2.0**50  # below it, a float times a power of ten still separates integers


def _list_values(cell: Bin, grid: Grid) -> range:
    """Return the multiples of the step in a cell of several values; empty beyond 2^53, where floats are too coarse."""
    steps = range(0) if cell.exact or holds_one_value(cell, grid) else cell.steps(grid)
    return steps if steps.start >= -_WHOLE and steps.stop <= _WHOLE else range(0)


def _count_steps(grid: Grid, numbers: Floats) -> Floats:
    """Return the nearest number of steps to each number."""
    return np.rint(numbers * float(grid.step.denominator) / float(grid.step.numerator))


def get_short_float(type_: pa.DataType | None) -> type[np.floating[Any]] | None:
    """Return the float type of fewer than 64 bits, also inside a dictionary; None for any other type."""
    short: dict[Any, type[np.floating[Any]]] = {pa.float16(): np.float16, pa.float32(): np.float32}
    return None if type_ is None else short.get(parsing.get_value_type(type_))


def _read_multiples(numbers: Floats, grid: Grid, short: type[np.floating[Any]]) -> Floats:
    """Return the multiple stored as each number in a short float; numbers that are no multiple stay.

    In 32 bits, 0.7 is stored slightly below 0.7, and would miss its bin and value.
    """
    with np.errstate(all="ignore"):
        multiples = np.asarray(grid.value(_count_steps(grid, numbers)))
        return np.where(multiples.astype(short) == numbers.astype(short), multiples, numbers)


_Column = TypeVar("_Column", IntegerColumn, NumberColumn)


class SteppedCodec(OrderedCodec, Generic[_Column]):
    """Base of the codecs of numbers: values on the grid of ``step``, and heaps.

    ``rounded``: numbers that people may round to, if the spec names no heaps.
    """

    def __init__(
        self,
        name: str,
        column: _Column,
        barriers: Collection[float] = (),
        *,
        rounded: Collection[float] = (),
        **options: Unpack[CellOptions],
    ) -> None:
        self._column: _Column = column
        super().__init__(name, column, barriers, **options)
        if self.has_value_bins:
            self.points = find_points(self.cells, self.value_grid)
        self._step: float | int | None = column.step
        heaps = column.heap_values() or tuple(rounded)
        self.leaves_cell = bool(column.heaps)
        self._heaps = HeapSampler(self, heaps, by_cell=not column.heaps) if heaps else None
        self.helpers = (name_heap_attribute(name),) if heaps else ()
        steps = [range(1) if c.exact or self._grid is None else c.steps(self._grid) for c in self.cells.fine]
        self._first = np.array([s.start for s in steps], dtype=np.float64)
        self._many = np.array([len(s) for s in steps], dtype=np.float64)
        self._slopes: Floats | None = None
        self._inside: InsideCells | None = None

    @property
    def step_grid(self) -> Grid | None:
        """The multiples of the column's step, on which cells are cut; None without a step."""
        return self._grid

    @property
    def value_grid(self) -> Grid | None:
        """The grid of values: multiples of ``step`` or of the last decimal; None if numbers are not rounded."""
        decimals = getattr(self._column, "decimals", None)
        return self._grid if self._grid is not None or decimals is None else Grid.of(10.0**-decimals)

    @cached_property
    def cell_values(self) -> list[range]:
        """The multiples of the step in every fine cell of several values; empty for other cells."""
        grid = self.value_grid
        if grid is None or self.leaves_cell:
            return [range(0)] * len(self.cells.fine)
        one_value_cells = set(self.cells.points)
        return [
            range(0) if i in one_value_cells else _list_values(cell, grid) for i, cell in enumerate(self.cells.fine)
        ]

    def _find_resolution(self) -> Grid | None:
        return self.value_grid

    def find_multiples(self, numbers: pa.Array) -> NDArray[np.int64]:
        """Return the step multiple of each lattice number, NO_NUMBER for null and exact values."""
        multiples, is_multiple = self.lattice.find_multiples(numbers)
        return np.where(is_multiple & (self.value_grid is not None), multiples, NO_NUMBER)

    def count_heaps(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many heaps divide each multiple of the step, shape (numbers,)."""
        grid = self.value_grid
        if grid is None or self._heaps is None:
            return np.zeros(len(numbers), dtype=np.int64)
        return count_heaps(np.asarray(grid.value(numbers.astype(np.float64))), self._heaps.heaps)

    def with_frequent(self, frequent: FrequentValues) -> Self:
        """Return a codec that draws these values with their shares."""
        codec = copy(self)
        codec._inside = InsideCells(frequent, self.cell_values)
        return codec

    def _keep_frequent(self, values: pa.Array, cells: NDArray[np.int64], places: Floats) -> pa.Array:
        """Return the values; in cells with frequent values, the quantile at ``places`` replaces them."""
        grid = self.value_grid
        rows = np.flatnonzero(self._inside.has(cells)) if self._inside is not None else np.empty(0, dtype=np.int64)
        if self._inside is None or grid is None or not rows.size:
            return values
        numbers = parsing.to_numbers(values)[0].copy()
        numbers[rows] = grid.value(self._inside.find(cells[rows], places[rows]))
        return self._convert_to_released(numbers)

    def stored_numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the numbers with their fractions, and the null mask."""
        return parsing.to_numbers(array)

    def with_slopes(self, slopes: Floats) -> Self:
        """See :class:`Codec`."""
        codec = copy(self)
        codec._slopes = slopes
        return codec

    def _draw_values(
        self, cells: NDArray[np.int64], rng: np.random.Generator, helpers: Mapping[str, Codes]
    ) -> pa.Array:
        values = self._draw_evenly(cells, rng)
        if self._inside is not None:
            values = self._keep_frequent(values, cells, rng.random(len(cells)))
        if self._heaps is None or (not self.leaves_cell and not helpers):  # the spec names no heaps
            return values
        draw = lambda cells, rng: parsing.to_numbers(self._draw_evenly(cells, rng))[0]  # noqa: E731
        wanted, numbers = helpers[name_heap_attribute(self.attribute)], parsing.to_numbers(values)[0].copy()
        free: Any = slice(None)
        if self._inside is not None and self.value_grid is not None:
            free = np.flatnonzero(~self._inside.are_frequent(_count_steps(self.value_grid, numbers)))
            wanted = self._inside.draw_heaps(wanted[free], rng)
        numbers[free] = self._heaps.move_to_heaps(numbers[free], cells[free], wanted, draw, self._draw_parts, rng)
        return self._convert_to_released(numbers)

    @property
    def rounds_at_places(self) -> bool:
        """See :class:`Codec`."""
        return self._grid is not None and self._heaps is not None and not self.leaves_cell

    def decode_rounded_at(
        self, codes: Codes, places: Floats, rng: np.random.Generator, helpers: Mapping[str, Codes]
    ) -> dict[str, pa.Array]:
        """See :class:`Codec`."""
        return self._decode_with(codes, lambda cells: self._round_at(cells, places, rng, helpers))

    def _round_at(
        self, cells: NDArray[np.int64], places: Floats, rng: np.random.Generator, helpers: Mapping[str, Codes]
    ) -> pa.Array:
        values, wanted = self._place_values(cells, places), helpers[name_heap_attribute(self.attribute)]
        assert self._grid is not None and self._heaps is not None  # noqa: S101 - see rounds_at_places
        numbers = parsing.to_numbers(values)[0].copy()
        free, steps = np.flatnonzero(self._many[cells] > 1), _count_steps(self._grid, numbers)
        if self._inside is not None:
            free = free[~self._inside.are_frequent(steps[free])]
            wanted = self._inside.draw_heaps(wanted[free], rng)
        else:
            wanted = wanted[free]
        free_cells = cells[free]
        # the value's position among all values of its cell: slopes and frequent values have moved it from its place
        part = (steps[free] - self._first[free_cells] + rng.random(len(free))) / self._many[free_cells]
        part = np.clip(part, 0.0, 1 - 1e-12)  # rounding to the type may leave the cell
        multiples = self._heaps.find_on_heaps(part, free_cells, wanted, (self._grid, self._first, self._many), rng)
        numbers[free] = multiples
        return self._convert_to_released(numbers)

    def _place_values(self, cells: NDArray[np.int64], places: Floats) -> pa.Array:
        if self._grid is not None:
            values = self._convert_to_released(self._on_grid(cells, fix_draws(places)))
        elif self._slopes is not None:
            values = self._convert_to_released(self._draw_by_slope(cells, fix_draws(places)))
        else:
            values = super()._place_values(cells, places)
        return self._keep_frequent(values, cells, places)

    def _draw_evenly(self, cells: NDArray[np.int64], rng: np.random.Generator) -> pa.Array:
        """Return a value drawn inside each cell, ignoring frequent values: uniformly, or by its slope."""
        if self._grid is None or self._step is None:
            values = super()._draw_values(cells, rng, {})
        else:
            values = self._convert_to_released(self._on_grid(cells, rng))
        sloping = np.flatnonzero(self._slopes[cells]) if self._slopes is not None else np.empty(0, dtype=np.int64)
        if not sloping.size:
            return values
        numbers = parsing.to_numbers(values)[0].copy()
        numbers[sloping] = self._draw_by_slope(cells[sloping], rng)
        return self._convert_to_released(numbers)

    def draw_anywhere(self, rows: int, rng: np.random.Generator) -> pa.Array:
        """See :class:`OrderedCodec`; with a step, its multiples are equally likely."""
        if self._grid is None or self._step is None:
            return super().draw_anywhere(rows, rng)
        many = self._first[-1] + self._many[-1] - self._first[0]
        return self._convert_to_released(
            np.asarray(self._grid.value(self._first[0] + np.floor(rng.random(rows) * many)))
        )

    def _on_grid(self, cells: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        steps = self._first[cells] + np.floor(self._draw_parts(cells, rng) * self._many[cells])
        return np.asarray(self._grid.value(steps) if self._grid is not None else steps)

    def _draw_by_slope(self, cells: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Return values drawn inside cells by their slopes."""
        return self._on_grid(cells, rng)

    def _draw_parts(self, cells: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Return the position of a drawn value in each cell, in [0, 1], shape (cells,)."""
        parts = rng.random(len(cells))
        if self._slopes is None:
            return parts
        slope = self._slopes[cells]
        return np.where(slope < 0, 1 - draw_falling(1 - parts, -slope), draw_falling(parts, np.maximum(slope, 0.0)))


class IntegerCodec(SteppedCodec[IntegerColumn]):
    """Codec of integers; fractions are rounded down, which counts as a repair."""

    def _cut(self, stored: Floats) -> Floats:
        return np.floor(stored)

    def _find_bounds(self) -> tuple[float, float]:
        return float(self._column.min), float(self._column.max)

    def _place(self, low: Floats, high: Floats, rng: np.random.Generator) -> pa.Array:
        first, end = np.ceil(low).astype(np.int64), np.ceil(high).astype(np.int64)
        wide = np.flatnonzero(end - first > 1)  # single-number cells draw nothing
        if wide.size:
            first[wide] = rng.integers(first[wide], end[wide])
        return pa.array(first).cast(pa.type_for_alias(self._column.type))

    def _convert_to_released(self, numbers: Floats) -> pa.Array:
        return pa.array(numbers.astype(np.int64)).cast(pa.type_for_alias(self._column.type))

    def _label(self, edge: float) -> str:
        return f"{edge:.0f}"

    def ranges(self) -> dict[str, ValueRange]:
        """Return the type and the bounds."""
        type_ = pa.type_for_alias(self._column.type)
        values = (self._column.min, self._column.max, *self._column.exact)
        return {self.attribute: ValueRange(type_, self._nullable, min(values), max(values))}


class NumberCodec(SteppedCodec[NumberColumn]):
    """Codec of real numbers."""

    def _find_bounds(self) -> tuple[float, float]:
        return self._column.min, self._column.max

    def stored_numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the numbers and the null mask; short floats become the multiple that they store."""
        numbers, is_null = super().stored_numbers(array)
        grid, short = self.value_grid, get_short_float(array.type)
        return numbers if grid is None or short is None else _read_multiples(numbers, grid, short), is_null

    def _place(self, low: Floats, high: Floats, rng: np.random.Generator) -> pa.Array:
        values = np.where(high <= np.nextafter(low, np.inf), low, low + (high - low) * rng.random(len(low)))
        if self._column.decimals is not None:
            values = self._draw_multiples(low, high, values, 10.0**self._column.decimals, rng)
        return pa.array(np.clip(values, *self._column.storable_bounds()).astype(self._column.type))

    def _draw_by_slope(self, cells: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        if self._grid is not None:
            return self._on_grid(cells, rng)
        low, high = self._least[cells], self._high[cells]
        values = np.clip(low + (high - low) * self._draw_parts(cells, rng), low, np.nextafter(high, -np.inf))
        unit = 0.0 if self._column.decimals is None else 10.0**-self._column.decimals
        first, after = (np.maximum(low, values - unit), np.nextafter(values, np.inf)) if unit else (values, values)
        return parsing.to_numbers(self._place(first, after, rng))[0]

    def _find_least_released(self, low: float) -> float:
        """Return ``low``, or the last rounded value below it if the cell holds no rounded value."""
        if self._column.decimals is None:
            return low
        steps = low * 10.0**self._column.decimals
        is_whole = abs(steps - round(steps)) < 1e-6
        return low if is_whole else float(np.floor(steps) / 10.0**self._column.decimals)

    def _draw_multiples(
        self, low: Floats, high: Floats, values: Floats, per_unit: float, rng: np.random.Generator
    ) -> Floats:
        """Return multiples of 1 / ``per_unit`` in the cells; ``values`` too large for decimals stay as they are."""
        with np.errstate(over="ignore"):
            small = np.maximum(np.abs(low), np.abs(high)) * per_unit < _EXACT
        first, last = np.where(small, low, 0.0) * per_unit, np.where(small, high, 0.0) * per_unit

        def value(step: Floats) -> Floats:
            return np.round(step / per_unit, self._column.decimals or 0)

        steps = draw_steps_inside(low, high, self._top, np.floor(first), np.floor(last) + 1, value, rng)
        return np.where(small, value(steps), values)

    def _convert_to_released(self, numbers: Floats) -> pa.Array:
        return pa.array(numbers.astype(self._column.type))

    def ranges(self) -> dict[str, ValueRange]:
        """Return the type and the bounds."""
        type_ = pa.float32() if self._column.type == "float32" else pa.float64()
        values = (*self._column.storable_bounds(), *self._exact.astype(self._column.type).tolist())
        return {self.attribute: ValueRange(type_, self._nullable, min(values), max(values))}


@dataclass(frozen=True, eq=False)
class TailPrior:
    """The prior of a tail.

    Attributes:
        indices: The mixed tail indices.  0 is an exponential tail, and 1/2 the first without a variance.  Tails with a
            negative index end (-1 is uniform).
        mean: The mean of the index.
        sd: The standard deviation of the index.
        scales: How many scales are mixed, evenly in the logarithm, from a quarter of the narrowest cell to four times
            the tail.
        apart: The probability that a cell's count is independent of the tail, such as at a value that many rows share.
    """

    indices: Floats
    mean: float
    sd: float
    scales: int
    apart: float = 0.0


WIDE_BIN = TailPrior(np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9]), 0.25, 0.2, 28)
"""For a wide bin that the spec's author left at the end: incomes have indices of 0.2 to 0.5."""

ANY_COLUMN = TailPrior(np.append([-1.0, -0.5, -0.25], WIDE_BIN.indices), 0.0, 0.3, 14, 0.01)
"""For a column with known bounds only, which may cut it anywhere."""

APART_SPREAD = 8.0
"""Noise standard deviations by which such counts depart from the tail."""

SCALE_LOG_SD = 1.0
"""Prior standard deviation of the log scale around the edges' scale: the edges' author knew the column."""

DEPARTURES = np.array([0.03, 0.1, 0.3, 1.0])
"""Mixed departures of a cell from the tail, as shares of its expected count."""

MAX_SLOPE = 6.0
"""The most that the log density falls inside one cell."""

DIGITS = 9
"""Decimals of shares and slopes, because the last bits of a power differ between CPUs."""


def fit_tail_shares(
    noisy: Floats, variance: Floats, widths: Floats, usual: float, density_before: tuple[float, float] = (0.0, 0.0)
) -> Floats:
    """Return the share of each cell of a wide bin, shape (cells,), at least 0, summing to 1.

    Arguments as in :func:`fit_tail_counts`.
    """
    least = float(np.sqrt(variance.sum())) / 4
    counts = fit_tail_counts(noisy, variance, widths, WIDE_BIN, least, density_before, usual)
    shares = counts / counts.sum() if counts.sum() > 0 else widths / widths.sum()
    return np.asarray(np.round(shares, DIGITS))


def fit_tail_counts(
    noisy: Floats,
    variance: Floats,
    widths: Floats,
    prior: TailPrior,
    least: float,
    density_before: tuple[float, float] = (0.0, 0.0),
    usual: float = 0.0,
) -> Floats:
    """Return the count of each cell of a tail, shape (cells,), at least 0, from the tail's beginning on.

    The ``noisy`` counts have noise of ``variance``.  ``least``: the least number of rows in the fit.  ``usual``: the
    prior scale from public edges, 0 if unknown.  ``density_before``: the noisy count per unit of width before the tail,
    0 if unknown, and its noise standard deviation.  Returns the posterior mean over tail indices, scales and
    departures.
    """
    rows = max(float(noisy.sum()), float(np.sqrt(variance.sum())))
    scale = np.geomspace(widths.min() / 4, widths.sum() * 4, prior.scales)
    expected = _compute_tails(scale, prior.indices, np.append(0.0, np.cumsum(widths)))[:, :, None, :]
    total_variance = variance + (DEPARTURES[:, None] * expected * rows) ** 2
    fitted = (noisy * expected / total_variance).sum(-1) / (expected**2 / total_variance).sum(-1)
    centre = np.maximum(fitted, least)[..., None] * expected
    likelihood = -0.5 * ((noisy - centre) ** 2 / total_variance + np.log(total_variance))
    follows = 1 - variance / total_variance  # how much a cell follows its own noisy count
    if prior.apart:
        free = variance * (1 + APART_SPREAD**2)
        log_alone = -0.5 * ((noisy - centre) ** 2 / free + np.log(free)) + np.log(prior.apart)
        likelihood += np.log1p(-prior.apart)
        both = np.logaddexp(likelihood, log_alone)
        follows += np.exp(log_alone - both) * (1 - variance / free - follows)
        likelihood = both
    fit = likelihood.sum(-1)
    fit -= 0.5 * ((prior.indices[None, :, None] - prior.mean) / prior.sd) ** 2
    if usual:
        fit -= 0.5 * (np.log(scale / usual) / SCALE_LOG_SD)[:, None, None] ** 2
    if density_before[0] > 2 * density_before[1]:
        fit -= 0.5 * np.log(scale * density_before[0] / rows)[:, None, None] ** 2
    weight = np.exp(fit - fit.max())[..., None]
    mean = (weight * (centre + follows * (noisy - centre))).sum((0, 1, 2)) / weight.sum()
    return np.maximum(np.asarray(mean), 0.0)


def _compute_tails(scales: Floats, indices: Floats, ends: Floats) -> Floats:
    """Return the cells' shares under truncated generalized Pareto tails, shape (scales, indices, cells)."""
    reach = ends / scales[:, None, None]
    index = indices[None, :, None]
    power = -1 / np.where(index == 0, 1.0, index)
    survival = np.where(index == 0, np.exp(-reach), np.maximum(1 + index * reach, 0.0) ** power)
    mass = np.maximum(-np.diff(survival, axis=-1), 1e-12)
    return np.asarray(mass / mass.sum(-1, keepdims=True))


def fit_slopes(shares: Floats, widths: Floats, density_before: float = 0.0) -> Floats:
    """Return how much the log density falls from each cell's beginning to its end, shape (cells,).

    Computed from the neighbouring densities; ``density_before``: the density before the first cell, as shares per unit
    of width, 0 if unknown.
    """
    density = np.log(np.maximum(shares, shares.max() * 1e-9) / widths)
    middle = np.cumsum(widths) - widths / 2
    falls = -np.diff(density) / np.diff(middle)
    first, last = (falls[0], falls[-1]) if falls.size else (0.0, 0.0)
    before = (np.log(density_before) - density[0]) / widths[0] if density_before > 0 else first
    inwards, outwards = np.append(before, falls), np.append(falls, last)
    return np.asarray(np.round(np.clip((inwards + outwards) / 2 * widths, 0.0, MAX_SLOPE), DIGITS))


def draw_falling(parts: Floats, slope: Floats) -> Floats:
    """Map uniform draws ``parts`` from [0, 1) to draws from a density whose logarithm falls by ``slope``."""
    steep = np.where(slope == 0, 1.0, slope)
    return np.where(slope == 0, parts, np.minimum(-np.log1p(parts * np.expm1(-steep)) / steep, np.nextafter(1.0, 0.0)))
