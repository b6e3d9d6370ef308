"""Codecs of the calendar of dates, moments and times: weekday, hour, and what minutes are rounded to.

Each is a separate attribute, counted alone.  Saturdays, office hours and quarter hours are therefore kept if their
noisy counts stand out from chance.  The column's codec reads these attributes to draw values inside cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs.codec import Codes, Columns, UnreleasedCodec
from privsyn.tasks.codecs.heaping import count_heaps
from privsyn.tasks.codecs.ordered import OrderedCodec

Floats = NDArray[np.float64]

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


class CalendarCodec(UnreleasedCodec):
    """Codes: 0 for null or exact, then Monday to Sunday, the hours of a day, or the minute heaps, starting with none.

    ``codec``: the column's codec; ``unit``: its number unit in seconds; ``smallest``: its smallest step in seconds.
    """

    def __init__(self, codec: OrderedCodec, part: CalendarPart, unit: int, smallest: int) -> None:
        self.attribute, self.sources = name_calendar_attribute(codec.attribute, part), codec.sources
        self._codec, self._part, self._unit = codec, part, unit
        self._heaps = list_heaps(smallest)
        self._names = _list_names(part, self._heaps)
        shares_of_multiples = np.array(
            [1.0, *(smallest / heap for heap in self._heaps), 0.0]
        )  # the share of all values that are multiples of each heap
        shares = (
            shares_of_multiples[:-1] - shares_of_multiples[1:]
            if part is CalendarPart.MINUTE
            else np.full(len(self._names), 1 / len(self._names))
        )
        self.chances = np.append(0.0, shares)
        self.groups = np.arange(len(self.chances), dtype=np.int32)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; repairs are counted by the column's own codec."""
        numbers, stands_alone = self._codec.clamp(columns[self.sources[0]])
        codes = 1 + self._find_parts(numbers * self._unit)
        codes[stands_alone] = 0
        return codes.astype(np.uint8), Counter()

    def _find_parts(self, seconds: Floats) -> NDArray[np.int64]:
        match self._part:
            case CalendarPart.WEEKDAY:
                return ((np.floor(seconds / DAY) - MONDAY) % len(WEEKDAYS)).astype(np.int64)
            case CalendarPart.HOUR:
                return (seconds % DAY // HOUR).astype(np.int64)
        return count_heaps(seconds % DAY, self._heaps)

    def labels(self) -> list[str]:
        """Return the name of each code."""
        return ["(none)", *self._names]


def _list_names(part: CalendarPart, heaps: Sequence[float]) -> list[str]:
    match part:
        case CalendarPart.WEEKDAY:
            return [*WEEKDAYS]
        case CalendarPart.HOUR:
            return [f"{hour:02}" for hour in range(24)]
    return ["no round minute", *(f"{heap / MINUTE:g} min" for heap in heaps)]


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
