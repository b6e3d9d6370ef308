"""Codecs: how values of source columns become integer codes, and codes become values again.

Belongs here: one codec a kind of column, and the plan that holds them.  Does not belong here: reading
files, bins chosen from counts (tasks/compress_domain.py), or any domain that is read from data: a
codec knows nothing but the spec's column.

Codes are *fine*: an ordered column's bins are cut once more (at most FINE_CELLS cells a bin), because
the one-way marginal can be measured finely at no extra cost and lets decode place values inside a bin.
``groups`` maps each fine code to the public bin that joint marginals use.

A codec reads one *or more* source columns (``sources``) and writes one attribute, so a group of columns
recoded into one attribute is one more codec; a column that a public mapping fills from others is a
``Fill``, which encodes nothing; impossible combinations enter where counts are projected
(``support`` of tasks/make_consistent.py).  docs/architecture.md shows all three.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_contracts.columns import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
    seconds_since_epoch,
)
from data_contracts.domain import Domain, code_dtype
from data_contracts.spec import ReleaseSpec
from data_contracts.tables import ValueRange
from tasks import parsing

FINE_CELLS = 4
"""Fine cells a bin at most.  A bin's total is then the sum of at most 4 noisy cells: at most twice the
standard deviation of one, and the later joint marginals estimate the bin again (a public constant)."""

OTHER = "other"
RESOLUTION_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
Columns = Mapping[str, pa.Array]
Codes = NDArray[Any]


class Codec(ABC):
    """Source column(s) <-> one attribute of fine codes 0 .. size - 1, null (if any) the last code.

    ``groups[code]`` is the public bin of a fine code, shape (size,), ascending from 0.
    """

    attribute: str
    sources: tuple[str, ...]
    groups: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Number of fine codes."""
        return len(self.groups)

    @abstractmethod
    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """Codes of the source values, shape (rows,), and how many values each repair touched.

        Total: any value of any readable type gets a code; nothing raises on a value.
        """

    @abstractmethod
    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Values of the source column(s), in their released types; draws inside cells from ``rng``."""

    @abstractmethod
    def labels(self) -> list[str]:
        """One readable label a fine code."""

    @abstractmethod
    def ranges(self) -> dict[str, ValueRange]:
        """The public domain of each released column, for the contract of the synthetic table."""

    def inspect(self, columns: Columns) -> dict[str, int]:
        """Repair counts only (for ``spec check``, private)."""
        return dict(self.encode(columns)[1])


class CategoricalCodec(Codec):
    """A public list of values, then ``other`` (if not listed and needed), then null."""

    def __init__(self, name: str, column: CategoricalColumn) -> None:
        self.attribute, self.sources, self._column = name, (name,), column
        values = list(column.values)
        if column.goes_to == "other" and OTHER not in values:
            values.append(OTHER)
        self._values = pa.array(values)
        self._null = len(values) if column.has_null else None
        self.groups = np.arange(len(values) + int(column.has_null), dtype=np.int32)
        self._unlisted = self._null if column.goes_to == "null" else values.index(OTHER)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; unlisted values and unwanted nulls go where ``unlisted`` says."""
        keys = parsing.to_keys(columns[self.sources[0]], self._values.type)
        is_null = np.asarray(pc.is_null(keys, nan_is_null=True))
        index = pc.index_in(keys, value_set=self._values)
        unlisted = np.asarray(pc.is_null(index)) & ~is_null
        codes = np.asarray(pc.fill_null(index, 0)).astype(code_dtype(self.size))
        codes[unlisted] = self._unlisted
        codes[is_null] = self._null if self._column.nullable else self._unlisted
        repairs = Counter({"unlisted": int(unlisted.sum())})
        if not self._column.nullable:
            repairs["null"] = int(is_null.sum())
        return codes, +repairs

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """The listed value of each code; the null code becomes null."""
        mask = codes == self._null if self._null is not None else None
        return {self.attribute: self._values.take(pa.array(codes.astype(np.int64), mask=mask))}

    def labels(self) -> list[str]:
        """The values as text."""
        return [str(v) for v in self._values.to_pylist()] + ["(null)"] * int(self._null is not None)

    def ranges(self) -> dict[str, ValueRange]:
        """The value set."""
        return {self.attribute: ValueRange(self._values.type, self._column.has_null, values=self._values)}


class BooleanCodec(Codec):
    """false, true, then null if nullable."""

    def __init__(self, name: str, column: BooleanColumn) -> None:
        self.attribute, self.sources, self._nullable = name, (name,), column.nullable
        self.groups = np.arange(2 + int(column.nullable), dtype=np.int32)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; what is neither true nor false is null if nullable, else false."""
        truth, is_null = parsing.to_booleans(columns[self.sources[0]])
        missing = truth < 0
        codes = np.where(missing, 2 if self._nullable else 0, truth).astype(np.uint8)
        repairs = Counter({"unparseable": int((missing & ~is_null).sum())})
        if not self._nullable:
            repairs["null"] = int(is_null.sum())
        return codes, +repairs

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Arrow booleans."""
        return {self.attribute: pa.array(codes == 1, mask=codes == 2)}

    def labels(self) -> list[str]:
        """false, true, (null)."""
        return ["false", "true", "(null)"][: self.size]

    def ranges(self) -> dict[str, ValueRange]:
        """Any boolean."""
        return {self.attribute: ValueRange(pa.bool_(), self._nullable)}


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


class OrderedCodec(Codec):
    """Shared by integers, numbers and moments: fine cells between edges, then null if nullable."""

    def __init__(self, name: str, column: IntegerColumn | NumberColumn | DatetimeColumn) -> None:
        self.attribute, self.sources, self._nullable = name, (name,), column.nullable
        self._edges, bins = _fine_edges(column.edge_values(), isinstance(column, IntegerColumn))
        null_bin = [bins[-1] + 1] if column.nullable else []
        self.groups = np.concatenate([bins, np.array(null_bin, dtype=np.int32)]).astype(np.int32)
        self._cells = len(bins)

    @abstractmethod
    def _numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Values as float64 (NaN: null or unparseable) and the null mask."""

    @abstractmethod
    def _bounds(self) -> tuple[float, float]:
        """Smallest and largest possible value."""

    @abstractmethod
    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        """One released value in each [low, high)."""

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; values outside the bounds are clamped, missing ones are null or the minimum."""
        numbers, is_null = self._numbers(columns[self.sources[0]])
        low, high = self._bounds()
        missing = np.isnan(numbers)
        repairs = Counter(
            {
                "below min": int((numbers < low).sum()),
                "above max": int((numbers > high).sum()),
                "unparseable": int((missing & ~is_null).sum()),
            }
        )
        cells = np.searchsorted(self._edges, np.where(missing, low, numbers), side="right") - 1
        codes = np.clip(cells, 0, self._cells - 1).astype(code_dtype(self.size))
        if self._nullable:
            codes[missing] = self._cells
        else:
            repairs["null"] = int(is_null.sum())
        return codes, +repairs

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
        edges = [self._label(e) for e in self._edges]
        cells = [f"[{a}, {b})" for a, b in pairwise(edges)]
        return cells + ["(null)"] * int(self._nullable)

    def _label(self, edge: float) -> str:
        return f"{edge:.12g}"


class IntegerCodec(OrderedCodec):
    """Whole numbers; a number with a fraction is rounded down."""

    def __init__(self, name: str, column: IntegerColumn) -> None:
        self._column = column
        super().__init__(name, column)

    def _numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        numbers, is_null = parsing.to_numbers(array)
        return np.floor(numbers), is_null

    def _bounds(self) -> tuple[float, float]:
        return float(self._column.min), float(self._column.max)

    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        whole = rng.integers(low.astype(np.int64), high.astype(np.int64))
        return pa.array(whole).cast(pa.type_for_alias(self._column.type))

    def labels(self) -> list[str]:
        """A cell of one integer is that integer."""
        pairs = pairwise(self._edges)
        cells = [f"{a:.0f}" if b - a == 1 else f"{a:.0f}..{b - 1:.0f}" for a, b in pairs]
        return cells + ["(null)"] * int(self._nullable)

    def ranges(self) -> dict[str, ValueRange]:
        """Type and bounds."""
        type_ = pa.type_for_alias(self._column.type)
        return {self.attribute: ValueRange(type_, self._nullable, self._column.min, self._column.max)}


class NumberCodec(OrderedCodec):
    """Real numbers."""

    def __init__(self, name: str, column: NumberColumn) -> None:
        self._column = column
        super().__init__(name, column)

    def _numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        return parsing.to_numbers(array)

    def _bounds(self) -> tuple[float, float]:
        return self._column.min, self._column.max

    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        values = low + (high - low) * rng.random(len(low))
        if self._column.decimals is not None:
            values = np.round(values, self._column.decimals)
        return pa.array(np.clip(values, *self._storable_bounds()).astype(self._column.type))

    def _storable_bounds(self) -> tuple[float, float]:
        """The bounds, moved inwards to values that the storage type holds exactly."""
        low, high = (np.dtype(self._column.type).type(v) for v in self._bounds())
        if low < self._column.min:
            low = np.nextafter(low, np.inf, dtype=low.dtype)
        if high > self._column.max:
            high = np.nextafter(high, -np.inf, dtype=high.dtype)
        return float(low), float(high)

    def ranges(self) -> dict[str, ValueRange]:
        """Type and bounds."""
        type_ = pa.float32() if self._column.type == "float32" else pa.float64()
        return {self.attribute: ValueRange(type_, self._nullable, *self._storable_bounds())}


class DatetimeCodec(OrderedCodec):
    """Moments, in seconds since 1970 inside."""

    def __init__(self, name: str, column: DatetimeColumn) -> None:
        self._column = column
        super().__init__(name, column)

    def _numbers(self, array: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        return parsing.to_seconds(array)

    def _bounds(self) -> tuple[float, float]:
        return seconds_since_epoch(self._column.min), seconds_since_epoch(self._column.max)

    def _place(self, low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> pa.Array:
        step = 86_400 if self._column.type == "date" else RESOLUTION_SECONDS[self._column.resolution]
        moments = np.floor((low + (high - low) * rng.random(len(low))) / step) * step
        if self._column.type == "date":
            first, last = (v // step for v in self._bounds())
            return pa.array(np.clip(moments // step, first, last).astype(np.int32)).cast(pa.date32())
        micros = np.round(np.clip(moments, *self._bounds()) * 1e6).astype(np.int64)
        return pa.array(micros).cast(pa.timestamp("us"))

    def _label(self, edge: float) -> str:
        return str(np.datetime64(round(edge), "s")).replace("T00:00:00", "")

    def ranges(self) -> dict[str, ValueRange]:
        """Type and bounds."""
        low, high = self._column.min, self._column.max
        if self._column.type == "date":
            return {self.attribute: ValueRange(pa.date32(), self._nullable, low.date(), high.date())}
        return {self.attribute: ValueRange(pa.timestamp("us"), self._nullable, low, high)}


class Fill(ABC):
    """Columns that a public mapping fills from decoded ones; they are never encoded or measured."""

    targets: tuple[str, ...]

    @abstractmethod
    def fill(self, columns: Columns) -> dict[str, pa.Array]:
        """The target columns, from the decoded ones."""

    @abstractmethod
    def ranges(self) -> dict[str, ValueRange]:
        """The public domain of each target."""


@dataclass(frozen=True)
class EncodingPlan:
    """All codecs of a release, in attribute order, and the public fills that follow decoding."""

    codecs: tuple[Codec, ...]
    fills: tuple[Fill, ...] = field(default=())

    @property
    def domain(self) -> Domain:
        """The fine domain."""
        return Domain(tuple(c.attribute for c in self.codecs), tuple(c.size for c in self.codecs))

    @property
    def groups(self) -> dict[str, NDArray[np.int32]]:
        """Fine code -> public bin, by attribute."""
        return {c.attribute: c.groups for c in self.codecs}

    def labels(self) -> dict[str, list[str]]:
        """Readable label of every fine code, by attribute."""
        return {c.attribute: c.labels() for c in self.codecs}

    def ranges(self) -> dict[str, ValueRange]:
        """Public domain of every released column."""
        found: dict[str, ValueRange] = {}
        for codec in self.codecs:
            found.update(codec.ranges())
        for fill in self.fills:
            found.update(fill.ranges())
        return found

    def decode(self, codes: Mapping[str, Codes], rng: np.random.Generator) -> dict[str, pa.Array]:
        """Fine codes of every attribute -> released columns, fills included."""
        columns: dict[str, pa.Array] = {}
        for codec in self.codecs:
            columns.update(codec.decode(codes[codec.attribute], rng))
        for fill in self.fills:
            columns.update(fill.fill(columns))
        return columns


def plan(spec: ReleaseSpec) -> EncodingPlan:
    """One codec a released column of the spec, in the spec's order."""
    made: list[Codec] = []
    for name, column in spec.released_columns.items():
        match column:
            case IntegerColumn():
                made.append(IntegerCodec(name, column))
            case NumberColumn():
                made.append(NumberCodec(name, column))
            case DatetimeColumn():
                made.append(DatetimeCodec(name, column))
            case BooleanColumn():
                made.append(BooleanCodec(name, column))
            case CategoricalColumn():
                made.append(CategoricalCodec(name, column))
    return EncodingPlan(tuple(made))
