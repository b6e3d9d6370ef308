"""Codecs of columns with an order: integers, numbers and moments, in bins cut into fine cells."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns import DatetimeColumn, IntegerColumn, NumberColumn, seconds_since_epoch
from privsyn.data_contracts.domain import code_dtype
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs import parsing
from privsyn.tasks.codecs.codec import Bounds, Codec, Codes, Columns

FINE_CELLS = 2
"""Fine cells per bin at most.  A bin's total is then the sum of at most 2 noisy cells: at most 1.4 times the
standard deviation of one, and the later joint marginals estimate the bin again (a public constant)."""

Floats = NDArray[np.float64]

_EXACT = 2.0**50  # below it, a float times a power of ten still tells whole numbers apart

RESOLUTION_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


def _fine_edges(edges: tuple[float, ...], whole: bool) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Cut each bin into at most FINE_CELLS cells (whole numbers stay whole); edges and bin of each cell."""
    fine: list[float] = []
    groups: list[int] = []
    for i, (low, high) in enumerate(pairwise(edges)):
        cells = min(FINE_CELLS, int(high - low)) if whole else FINE_CELLS
        for j in range(cells):
            fine.append(low + (high - low) * j // cells if whole else low + (high - low) * j / cells)
            groups.append(i)
    return np.array([*fine, edges[-1]], dtype=np.float64), np.array(groups, dtype=np.int32)


def _steps_inside(
    low: Floats,
    high: Floats,
    top: float,
    first: Floats,
    last: Floats,
    value: Callable[[Floats], Floats],
    rng: np.random.Generator,
) -> Floats:
    """A whole step k of each cell, evenly drawn among those with low <= value(k) < high, or <= high where that is
    ``top``, the column's largest value.  A cell that holds none gets the last step before it.

    ``first`` and ``last``: whole numbers within two steps of the true ones, first from below and last from above.
    """
    for _ in range(2):
        first = first + (value(first) < low)
        last = last - np.where(high == top, value(last) > high, value(last) >= high)
    choices = last - first + 1
    return np.where(choices > 0, first + np.floor(rng.random(len(low)) * choices), first - 1)


class OrderedCodec(Codec):
    """What the codecs of integers, numbers and moments share: fine cells between edges, then null if nullable."""

    def __init__(
        self, name: str, column: IntegerColumn | NumberColumn | DatetimeColumn, thresholds: Sequence[float] = ()
    ) -> None:
        self.attribute, self.sources, self._nullable = name, (name,), column.nullable
        self._whole = isinstance(column, IntegerColumn)
        edges = column.edge_values()
        edges = tuple(sorted({*edges, *(t for t in thresholds if edges[0] < t < edges[-1])}))
        self._edges, bins = _fine_edges(edges, self._whole)
        self._bin_edges = np.array(edges, dtype=np.float64)
        null_bin = [bins[-1] + 1] if column.nullable else []
        self.groups = np.concatenate([bins, np.array(null_bin, dtype=np.int32)]).astype(np.int32)
        self._cells = len(bins)
        self._one_each = self._whole and bool((np.diff(self._edges) == 1).all())
        self.in_order = int(bins[-1]) + 1

    @abstractmethod
    def numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Values as float64 (NaN: null or unparseable) and the null mask."""

    @abstractmethod
    def _bounds(self) -> tuple[float, float]:
        """Smallest and largest possible value."""

    @abstractmethod
    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        """One released value in each [low, high); of rounded values the nearest below where none lies there."""

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; values outside the bounds are clamped, missing ones are null or the minimum."""
        numbers, is_null = self.numbers(columns[self.sources[0]])
        low, high = self._bounds()
        missing = np.isnan(numbers)
        repairs = Counter(
            {
                "below min": int((numbers < low).sum()),
                "above max": int((numbers > high).sum()),
                "unparseable": int((missing & ~is_null).sum()),
            }
        )
        codes = self._cells_of(np.where(missing, low, numbers)).astype(code_dtype(self.size))
        if self._nullable:
            codes[missing] = self._cells
        else:
            repairs["null"] = int(is_null.sum())
        return codes, +repairs

    def _cells_of(self, numbers: NDArray[np.float64]) -> NDArray[np.generic]:
        """The cell of every number, the first or last one of those outside."""
        if self._one_each:
            return np.clip(numbers - self._edges[0], 0, self._cells - 1)
        return np.clip(np.searchsorted(self._edges, numbers, side="right") - 1, 0, self._cells - 1)

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """A value drawn evenly inside each code's cell; the null code becomes null."""
        is_null = codes == self._cells
        cells = np.where(is_null, 0, codes).astype(np.int64)
        values = self._place(self._edges[cells], self._edges[cells + 1], rng)
        if is_null.any():
            values = pc.if_else(pa.array(is_null), pa.scalar(None, values.type), values)
        return {self.attribute: values}

    def labels(self) -> list[str]:
        """Cells as intervals."""
        return self._intervals(self._edges) + ["(null)"] * int(self._nullable)

    def bin_labels(self) -> list[str]:
        """Public bins as intervals."""
        return self._intervals(self._bin_edges) + ["(null)"] * int(self._nullable)

    def values(self, *, fine: bool) -> NDArray[np.float64]:
        """Middles of the fine cells or of the public bins (of the whole numbers inside), NaN for null."""
        edges = self._edges if fine else self._bin_edges
        middles = (edges[:-1] + edges[1:] - int(self._whole)) / 2
        return np.append(middles, [np.nan] * int(self._nullable))

    def cells(self) -> dict[str, pa.Array | Bounds]:
        """See :class:`Codec`: from the smallest to the largest released value of each fine cell."""
        low, high = self._edges[:-1].copy(), self._edges[1:] - 1.0
        if not self._whole:
            low, high = self._released_from(low), np.nextafter(self._edges[1:], -np.inf)
            high[-1] = self._bounds()[1]
        nulls = [np.nan] * int(self._nullable)
        return {self.attribute: (np.append(low, nulls), np.append(high, nulls))}

    def _released_from(self, low: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest value that may be released for cells that begin at ``low``."""
        return low

    def read(self, columns: Columns) -> dict[str, pa.Array]:
        """See :class:`Codec`: numbers, or moments in seconds, within the bounds."""
        numbers, _ = self.numbers(columns[self.sources[0]])
        low, high = self._bounds()
        missing = np.isnan(numbers)
        return {
            self.attribute: pa.array(
                np.clip(np.where(missing, low, numbers), low, high), mask=missing if self._nullable else None
            )
        }

    def _intervals(self, edges: NDArray[np.float64]) -> list[str]:
        return [f"[{a}, {b})" for a, b in pairwise([self._label(e) for e in edges])]

    def _label(self, edge: float) -> str:
        return f"{edge:.12g}"


class IntegerCodec(OrderedCodec):
    """Whole numbers; a number with a fraction is rounded down."""

    def __init__(self, name: str, column: IntegerColumn, thresholds: Sequence[float] = ()) -> None:
        self._column = column
        super().__init__(name, column, thresholds)

    def numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Rounded down."""
        numbers, is_null = parsing.to_numbers(array)
        return np.floor(numbers), is_null

    def _bounds(self) -> tuple[float, float]:
        return float(self._column.min), float(self._column.max)

    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        whole, above = low.astype(np.int64), high.astype(np.int64)
        wide = np.flatnonzero(above - whole > 1)  # the others hold one number, for which nothing is drawn
        if wide.size:
            whole[wide] = rng.integers(whole[wide], above[wide])
        return pa.array(whole).cast(pa.type_for_alias(self._column.type))

    def _intervals(self, edges: NDArray[np.float64]) -> list[str]:
        """A cell of one integer is that integer."""
        return [f"{a:.0f}" if b - a == 1 else f"{a:.0f}..{b - 1:.0f}" for a, b in pairwise(edges)]

    def ranges(self) -> dict[str, ValueRange]:
        """Type and bounds."""
        type_ = pa.type_for_alias(self._column.type)
        return {self.attribute: ValueRange(type_, self._nullable, self._column.min, self._column.max)}


class NumberCodec(OrderedCodec):
    """Real numbers."""

    def __init__(self, name: str, column: NumberColumn, thresholds: Sequence[float] = ()) -> None:
        self._column = column
        super().__init__(name, column, thresholds)

    def numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """As written."""
        return parsing.to_numbers(array)

    def _bounds(self) -> tuple[float, float]:
        return self._column.min, self._column.max

    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        values = low + (high - low) * rng.random(len(low))
        if self._column.decimals is not None:
            values = self._rounded(low, high, values, 10.0**self._column.decimals, rng)
        return pa.array(np.clip(values, *self._column.storable_bounds()).astype(self._column.type))

    def _released_from(self, low: NDArray[np.float64]) -> NDArray[np.float64]:
        """A cell that holds no multiple of the last decimal gets the one before."""
        if self._column.decimals is None:
            return low
        steps = low * 10.0**self._column.decimals
        whole = np.abs(steps - np.round(steps)) < 1e-6
        return np.where(whole, low, np.floor(steps) / 10.0**self._column.decimals)

    def _rounded(
        self, low: Floats, high: Floats, values: Floats, per_unit: float, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Multiples of 1 / ``per_unit`` in the cells; of ``values`` those that are too large to have decimals stay."""
        with np.errstate(over="ignore"):
            small = np.maximum(np.abs(low), np.abs(high)) * per_unit < _EXACT
        first, last = np.where(small, low, 0.0) * per_unit, np.where(small, high, 0.0) * per_unit

        def value(step: Floats) -> Floats:
            return np.round(step / per_unit, self._column.decimals or 0)

        steps = _steps_inside(low, high, self._bounds()[1], np.floor(first), np.floor(last) + 1, value, rng)
        return np.where(small, value(steps), values)

    def ranges(self) -> dict[str, ValueRange]:
        """Type and bounds."""
        type_ = pa.float32() if self._column.type == "float32" else pa.float64()
        return {self.attribute: ValueRange(type_, self._nullable, *self._column.storable_bounds())}


class DatetimeCodec(OrderedCodec):
    """Moments; inside the codec they are seconds since 1970."""

    def __init__(self, name: str, column: DatetimeColumn, thresholds: Sequence[float] = ()) -> None:
        self._column = column
        super().__init__(name, column, thresholds)

    def numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Seconds since 1970."""
        return parsing.to_seconds(array)

    def _bounds(self) -> tuple[float, float]:
        return seconds_since_epoch(self._column.min), seconds_since_epoch(self._column.max)

    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        step = 86_400 if self._column.type == "date" else RESOLUTION_SECONDS[self._column.resolution]
        least, most = self._bounds()
        first, last = np.floor(low / step), np.floor(high / step) + 1
        steps = _steps_inside(low, high, most, first, last, lambda steps: steps * step, rng)
        steps = np.clip(steps, np.ceil(least / step), max(np.ceil(least / step), most // step))
        if self._column.type == "date":
            return pa.array(np.clip(steps, least // step, most // step).astype(np.int32)).cast(pa.date32())
        micros = np.round(np.clip(steps * step, least, most) * 1e6).astype(np.int64)
        return pa.array(micros).cast(pa.timestamp("us"))

    def _released_from(self, low: NDArray[np.float64]) -> NDArray[np.float64]:
        """A cell that holds no whole step gets the one before."""
        step = 86_400 if self._column.type == "date" else RESOLUTION_SECONDS[self._column.resolution]
        return np.floor(low / step) * step

    def _label(self, edge: float) -> str:
        return str(np.datetime64(round(edge), "s")).replace("T00:00:00", "")

    def ranges(self) -> dict[str, ValueRange]:
        """Type and bounds."""
        low, high = self._column.min, self._column.max
        if self._column.type == "date":
            return {self.attribute: ValueRange(pa.date32(), self._nullable, low.date(), high.date())}
        return {self.attribute: ValueRange(pa.timestamp("us"), self._nullable, low, high)}
