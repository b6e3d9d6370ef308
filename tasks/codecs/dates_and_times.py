"""Codecs of datetimes, dates and times of day, and of their calendar: weekday, hour, and what minutes are rounded to.

Each part of the calendar is a separate attribute, counted alone.  Saturdays, office hours and quarter hours are
therefore kept if their noisy counts stand out from chance.  The column's codec reads these attributes to draw values
inside cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns import DateColumn, DatetimeColumn, TimeColumn, count_seconds_since_epoch
from privsyn.data_contracts.columns.ordered_columns import RESOLUTION_SECONDS, translate_to_pattern
from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs import parsing
from privsyn.tasks.codecs.cells import Floats
from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.derived import PartCodec, count_heaps, share_by_chance
from privsyn.tasks.codecs.ordered import CellOptions, OrderedCodec, draw_steps_inside

DAY, HOUR, MINUTE = 86_400, 3_600, 60
MONDAY = 4
"""The first Monday after 1970-01-01, a Thursday, in days."""

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ROUND_MINUTES = (5, 15, 30, 60)
"""Minutes are rounded to one of these; values with seconds may also be rounded to whole minutes."""


class CalendarPart(StrEnum):
    """A part of the calendar."""

    WEEKDAY = "weekday"
    HOUR = "hour"
    MINUTE = "minutes rounded to"


def name_calendar_attribute(column: str, part: CalendarPart) -> str:
    """Return the attribute name of a part of a column's calendar; the released table has no such column."""
    return f"{column} ({part})"


def list_heaps(smallest: int) -> tuple[float, ...]:
    """Return the steps that moments are rounded to; ``smallest``: the column's smallest step; both in seconds."""
    return tuple(float(m * MINUTE) for m in (1, *ROUND_MINUTES) if smallest < m * MINUTE)


def count_part(codec: OrderedCodec, part: CalendarPart, unit: int, smallest: int) -> PartCodec:
    """Return the codec of a part: 0 for null or exact, then weekdays from Monday, hours, or no heap and minute heaps.

    ``codec``: the column's codec; ``unit``: its number unit in seconds; ``smallest``: its smallest step in seconds.
    """
    heaps = list_heaps(smallest)
    match part:
        case CalendarPart.WEEKDAY:
            names = [*WEEKDAYS]
        case CalendarPart.HOUR:
            names = [f"{hour:02}" for hour in range(24)]
        case _:
            names = ["no round minute", *(f"{heap / MINUTE:g} min" for heap in heaps)]
    shares = share_by_chance(smallest, heaps) if part is CalendarPart.MINUTE else np.full(len(names), 1 / len(names))
    find = partial(_find_parts, part=part, unit=unit, heaps=heaps)
    attribute = name_calendar_attribute(codec.attribute, part)
    return PartCodec(codec, attribute, "calendar", ["(none)", *names], find, 0, np.append(0.0, shares))


def _find_parts(numbers: Floats, part: CalendarPart, unit: int, heaps: Sequence[float]) -> NDArray[np.int64]:
    seconds = numbers * unit
    match part:
        case CalendarPart.WEEKDAY:
            return 1 + ((np.floor(seconds / DAY) - MONDAY) % len(WEEKDAYS)).astype(np.int64)
        case CalendarPart.HOUR:
            return 1 + (seconds % DAY // HOUR).astype(np.int64)
    return 1 + count_heaps(seconds % DAY, heaps)


def list_parts(smallest: int) -> list[CalendarPart]:
    """Return the calendar parts of dates and moments; ``smallest``: their smallest step, in seconds."""
    parts = [CalendarPart.WEEKDAY]
    parts += [CalendarPart.HOUR] if smallest <= HOUR else []
    return parts + ([CalendarPart.MINUTE] if smallest <= MINUTE else [])


def move_in_calendar(
    drawn: Floats,
    low: Floats,
    high: Floats,
    wanted: Mapping[CalendarPart, Codes],
    smallest: int,
    rng: np.random.Generator,
) -> Floats:
    """Return moments of the wanted weekday, hour and round minute inside the cells [low, high), shape (rows,).

    All in seconds; ``smallest``: the smallest step.  A part stays as ``drawn`` if it is unknown or the cell has no such
    moment.
    """
    moments = drawn.copy()
    if CalendarPart.WEEKDAY in wanted:
        moments = _move_to_weekday(moments, low, high, np.asarray(wanted[CalendarPart.WEEKDAY]).astype(np.int64), rng)
    if CalendarPart.HOUR in wanted:
        hour = np.asarray(wanted[CalendarPart.HOUR]).astype(np.int64) - 1
        moved = np.floor(moments / DAY) * DAY + hour * HOUR + moments % HOUR
        moments = np.where((hour >= 0) & (moved >= low) & (moved < high), moved, moments)
    if CalendarPart.MINUTE in wanted:
        heaps, steps = list_heaps(smallest), np.arange(0.0, HOUR, smallest)
        level = np.asarray(wanted[CalendarPart.MINUTE]).astype(np.int64) - 1
        for number in range(len(heaps) + 1):
            rows, places = np.flatnonzero(level == number), steps[count_heaps(steps, heaps) == number]
            if places.size:
                moved = np.floor(moments[rows] / HOUR) * HOUR + places[rng.integers(len(places), size=rows.size)]
                inside = (moved >= low[rows]) & (moved < high[rows])
                moments[rows[inside]] = moved[inside]
    return moments


def _move_to_weekday(
    moments: Floats, low: Floats, high: Floats, wanted: NDArray[np.int64], rng: np.random.Generator
) -> Floats:
    """Return moments moved to the ``wanted`` weekday, 1 for Monday, 0 for any, on a day that lies fully in the cell."""
    first, last = np.ceil(low / DAY), np.floor(high / DAY)
    first = first + (wanted - 1 + MONDAY - first) % len(WEEKDAYS)
    many = np.ceil((last - first) / len(WEEKDAYS))
    day = first + len(WEEKDAYS) * np.floor(rng.random(len(moments)) * np.maximum(many, 1))
    return np.where((wanted > 0) & (many > 0), day * DAY + moments % DAY, moments)


WEEK = 7 * 86_400.0
"""In seconds."""


class CalendarColumnCodec(OrderedCodec):
    """Base of the codecs of dates, moments and times, which draw values by the calendar if it is counted.

    ``unit``: the codec's number unit in seconds; ``smallest``: the smallest step in seconds.
    """

    unit: int
    smallest: int
    parts: tuple[CalendarPart, ...] = ()

    def read_numbers(self, numbers: pa.Array) -> pa.Array:
        """See :class:`OrderedCodec`."""
        values = self.lattice.read(numbers)
        stored = self._convert_to_released(np.asarray(values.fill_null(self._find_bounds()[0])))
        return pc.if_else(values.is_valid(), stored, pa.scalar(None, stored.type))

    def _find_resolution(self) -> Grid | None:
        return Grid(Fraction(self.smallest, self.unit))

    def count_calendar(self, parts: Sequence[CalendarPart]) -> list[PartCodec]:
        """Return codecs of calendar parts, which this codec uses from now on to draw values."""
        self.parts = tuple(parts)
        self.least_part = WEEK / self.unit  # a narrower cell lacks some weekdays
        self.helpers = tuple(name_calendar_attribute(self.attribute, part) for part in parts)
        return [count_part(self, part, self.unit, self.smallest) for part in parts]

    def _draw_values(
        self, cells: NDArray[np.int64], rng: np.random.Generator, helpers: Mapping[str, Codes]
    ) -> pa.Array:
        values = super()._draw_values(cells, rng, helpers)
        if not helpers:
            return values
        wanted = {part: helpers[name] for part, name in zip(self.parts, self.helpers, strict=True)}
        drawn, low, high = (n * self.unit for n in (self.numbers(values)[0], self._least[cells], self._high[cells]))
        moved = move_in_calendar(drawn, low, high, wanted, self.smallest, rng)
        return self._convert_to_released(np.clip(moved / self.unit, *self._find_bounds()))


class DatetimeCodec(CalendarColumnCodec):
    """Codec of datetimes, as seconds since 1970."""

    unit = 1

    def __init__(
        self, name: str, column: DatetimeColumn, barriers: Collection[float] = (), **options: Unpack[CellOptions]
    ) -> None:
        self._column = column
        self._pattern = translate_to_pattern(column.format) if column.format else ""
        self.smallest = 86_400 if column.type == "date" else RESOLUTION_SECONDS[column.resolution]
        super().__init__(name, column, barriers, **options)
        self.ladder_origin = self._edges[-1]

    def read_numbers(self, numbers: pa.Array) -> pa.Array:
        """See :class:`OrderedCodec`; returns moments even if days are released."""
        values = self.lattice.read(numbers)
        micros = np.round(np.asarray(values.fill_null(0.0)) * 1e6).astype(np.int64)
        return pa.array(micros, mask=~np.asarray(values.is_valid())).cast(pa.timestamp("us"))

    def _keeps_floats(self) -> bool:
        return self.on_ladder

    def settle_edge(self, edge: float) -> float:
        """See :class:`OrderedCodec`."""
        return float(np.ceil(edge / self.smallest) * self.smallest)

    def stored_numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return seconds since 1970, and the null mask."""
        return parsing.to_seconds(array, self._pattern, self._column.zone)

    def _find_bounds(self) -> tuple[float, float]:
        return count_seconds_since_epoch(self._column.min), count_seconds_since_epoch(self._column.max)

    def _place(self, low: Floats, high: Floats, rng: np.random.Generator) -> pa.Array:
        step = self.smallest
        least, most = self._find_bounds()
        first, last = np.floor(low / step), np.floor(high / step) + 1
        steps = draw_steps_inside(low, high, self._top, first, last, lambda steps: steps * step, rng)
        steps = np.clip(steps, np.ceil(least / step), max(np.ceil(least / step), most // step))
        if self._column.type == "date":
            return pa.array(np.clip(steps, least // step, most // step).astype(np.int32)).cast(pa.date32())
        return self._convert_to_released(np.clip(steps * step, least, most))

    def _find_least_released(self, low: float) -> float:
        """Return the last full step at or below ``low``."""
        return float(np.floor(low / self.smallest) * self.smallest)

    def _convert_to_released(self, numbers: Floats) -> pa.Array:
        if self._column.type == "date":
            return pa.array((numbers // 86_400).astype(np.int32)).cast(pa.date32())
        return pa.array(np.round(numbers * 1e6).astype(np.int64)).cast(pa.timestamp("us"))

    def _label(self, edge: float) -> str:
        return str(np.datetime64(round(edge), "s")).replace("T00:00:00", "")

    def ranges(self) -> dict[str, ValueRange]:
        """Return the type and the bounds."""
        values = (self._column.min, self._column.max, *self._column.exact)
        low, high = min(values), max(values)
        if self._column.type == "date":
            return {self.attribute: ValueRange(pa.date32(), self._nullable, low.date(), high.date())}
        return {self.attribute: ValueRange(pa.timestamp("us"), self._nullable, low, high)}


class WholeCodec(CalendarColumnCodec):
    """Base of the codecs of dates and times of day: integers in their unit."""

    def _find_bounds(self) -> tuple[float, float]:
        return self._edges[0], self._edges[-1] - 1

    def _place(self, low: Floats, high: Floats, rng: np.random.Generator) -> pa.Array:
        first = np.ceil(low)
        return self._convert_to_released(first + np.floor(rng.random(len(low)) * (np.ceil(high) - first)))


class DateCodec(WholeCodec):
    """Codec of dates, as days since 1970."""

    unit = smallest = 86_400

    def __init__(
        self, name: str, column: DateColumn, barriers: Collection[float] = (), **options: Unpack[CellOptions]
    ) -> None:
        self._column = column
        self._pattern = translate_to_pattern(column.format) if column.format else ""
        super().__init__(name, column, barriers, **options)
        self.ladder_origin = self._edges[-1]

    def stored_numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return days since 1970 (by clock time for moments), and the null mask."""
        seconds, is_null = parsing.to_seconds(array, self._pattern, self._column.zone)
        return np.floor(seconds / 86_400), is_null

    def _convert_for_rules(self, numbers: Floats) -> Floats:
        return numbers * 86_400

    def _convert_to_released(self, numbers: Floats) -> pa.Array:
        return pa.array(numbers.astype(np.int32)).cast(pa.date32())

    def _label(self, edge: float) -> str:
        return str(np.datetime64(round(edge), "D"))

    def ranges(self) -> dict[str, ValueRange]:
        """Return the type and the bounds."""
        days = (self._column.min, self._column.max, *self._column.exact)
        return {self.attribute: ValueRange(pa.date32(), self._nullable, min(days), max(days))}


class TimeCodec(WholeCodec):
    """Codec of times of day, as minutes or seconds since midnight."""

    def __init__(
        self, name: str, column: TimeColumn, barriers: Collection[float] = (), **options: Unpack[CellOptions]
    ) -> None:
        self._column = column
        self.unit = self.smallest = 86_400 // column.per_day
        super().__init__(name, column, barriers, **options)

    def stored_numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Return minutes or seconds since midnight, and the null mask."""
        return parsing.to_times(array, self._column.format, self._column.zone)

    def _convert_for_rules(self, numbers: Floats) -> Floats:
        if self._column.format == "hhmm":
            return np.asarray(numbers // 60 * 100 + numbers % 60)
        return numbers if self._column.format == "seconds" else numbers * (86_400 // self._column.per_day)

    def _convert_to_released(self, numbers: Floats) -> pa.Array:
        if self._column.format == "hhmm":
            return pa.array((numbers // 60 * 100 + numbers % 60).astype(np.int64))
        if self._column.format == "seconds":
            return pa.array(numbers.astype(np.int64))
        seconds = numbers * (86_400 // self._column.per_day)
        return pa.array((seconds * 1_000).astype(np.int32)).cast(pa.time32("ms"))

    def _label(self, edge: float) -> str:
        seconds = round(edge) * (86_400 // self._column.per_day)
        text = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}"
        return text if self._column.per_day == 1_440 else f"{text}:{seconds % 60:02}"

    def ranges(self) -> dict[str, ValueRange]:
        """Return the type and the bounds."""
        ends = self._convert_to_released(np.array([0.0, self._column.per_day - 1]))
        return {self.attribute: ValueRange(ends.type, self._nullable, ends[0].as_py(), ends[1].as_py())}
