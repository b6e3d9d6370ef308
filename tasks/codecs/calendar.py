"""The calendar of dates, moments and times: weekday, hour, and what minutes are rounded to.

Each is a separate attribute, counted alone.  Saturdays, office hours and quarter hours are therefore kept if their
noisy counts stand out from chance.  The column's codec reads these attributes to draw values inside cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.heaping import PartCodec, count_heaps, share_by_chance
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
    attribute, find = (
        name_calendar_attribute(codec.attribute, part),
        partial(_find_parts, part=part, unit=unit, heaps=heaps),
    )
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
