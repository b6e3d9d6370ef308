"""Periods of a schedule: their labels, and the period of a moment.

A label is public: it is part of the run's name and of the ledger. 2026-11-21 is a day, 2026-W47 a week (ISO 8601: it
begins on Monday, and its year is the year of its Thursday), 2026-11 a month, 2026-Q4 a quarter, 2026 a year.
2026-11-21T13Z is an hour and 2026-11-21T1315Z a quarter of an hour.  Both are in UTC on every calendar: when clocks are
put back, a local hour occurs twice, and two periods would share a label.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo

from privsyn.base.errors import RequestError
from privsyn.data_contracts.promise import Every

_LABEL = re.compile(
    r"(?P<year>[12]\d{3})"
    r"(-((?P<month>\d\d)(-(?P<day>\d\d)(T(?P<hour>\d\d)(?P<minute>00|15|30|45)?Z)?)?|W(?P<week>\d\d)|Q(?P<quarter>[1-4])))?",
    re.ASCII,
)

UTC_LENGTHS: tuple[Every, ...] = ("quarter-hour", "hour")
"""Lengths of periods that are in UTC on every calendar."""


def name_period(moment: dt.datetime, every: Every, zone: str) -> str:
    """Return the label of the period of an aware ``moment``, on the calendar of the IANA time zone ``zone``.

    Hours and quarter-hours are in UTC.  Raises RequestError for an unknown zone, ValueError for a moment without one.
    """
    if moment.tzinfo is None:
        raise ValueError("a moment without a time zone has no period")
    day = moment.astimezone(_get_zone(zone)).date()
    universal = moment.astimezone(dt.UTC)
    iso = day.isocalendar()
    return {
        "quarter-hour": f"{universal:%Y-%m-%dT%H}{universal.minute // 15 * 15:02d}Z",
        "hour": f"{universal:%Y-%m-%dT%H}Z",
        "day": day.isoformat(),
        "week": f"{iso.year:04d}-W{iso.week:02d}",
        "month": f"{day:%Y-%m}",
        "quarter": f"{day.year:04d}-Q{(day.month + 2) // 3}",
        "year": f"{day.year:04d}",
    }[every]


def check_period(label: str) -> str:
    """Return ``label`` if it names a period of the calendar.  Raises RequestError if not."""
    parse_period(label)
    return label


def parse_period(label: str) -> tuple[Every, dt.datetime]:
    """Return the length of a label's period, and the moment at which it begins; for a day and longer, in UTC.

    Raises RequestError if the label names no period of the calendar.
    """
    match = _LABEL.fullmatch(label)
    try:
        if match is None:
            raise ValueError
        year = int(match["year"])
        if match["week"]:
            return "week", dt.datetime.fromisocalendar(year, int(match["week"]), 1).replace(tzinfo=dt.UTC)
        if match["quarter"]:
            return "quarter", dt.datetime(year, 3 * int(match["quarter"]) - 2, 1, tzinfo=dt.UTC)
        begins = dt.datetime(
            year,
            int(match["month"] or 1),
            int(match["day"] or 1),
            int(match["hour"] or 0),
            int(match["minute"] or 0),
            tzinfo=dt.UTC,
        )
        shortest_first: tuple[Every, ...] = ("quarter-hour", "hour", "day", "month")
        parts = ("minute", "hour", "day", "month")
        return next((e for e, part in zip(shortest_first, parts, strict=True) if match[part]), "year"), begins
    except ValueError:
        raise RequestError(
            f"{label[:40]!r} is not a period",
            "Write a day as 2026-11-21, a week as 2026-W47, a month as 2026-11, a quarter as 2026-Q4, a year as 2026, "
            "an hour in UTC as 2026-11-21T13Z, a quarter-hour as 2026-11-21T1315Z",
            "release.period",
        ) from None


_DAYS: dict[Every, float] = {
    "quarter-hour": 1 / 96,
    "hour": 1 / 24,
    "day": 1,
    "week": 7,
    "month": 32,
    "quarter": 93,
    "year": 367,
}
"""Days from the beginning of a period to a moment inside the next one."""

MOST_PERIODS = 1000
"""Most periods of a range."""


def name_next_period(label: str) -> str:
    """Return the label of the next period.  Raises RequestError as :func:`parse_period` does."""
    every, begins = parse_period(label)
    return name_period(begins + dt.timedelta(days=_DAYS[every]), every, "UTC")


def list_periods(first: str, last: str) -> list[str]:
    """Return the labels from the first period to the last one, in order.

    Raises RequestError as :func:`parse_period` does, for periods of different lengths, for a last period before the
    first, and for more than MOST_PERIODS.
    """
    try:
        every, begins = parse_period(first)
    except RequestError as error:
        raise error.about("backfill.from") from None
    try:
        last_every, ends = parse_period(last)
    except RequestError as error:
        raise error.about("backfill.to") from None
    if every != last_every:
        raise RequestError(
            f"{first} is a {every} and {last} a {last_every}", "Write two of equal length", "backfill.to"
        )
    if ends < begins:
        raise RequestError(f"{last} is before {first}", "Write the earlier one first", "backfill.to")
    labels = [first]
    while labels[-1] != last:
        labels.append(name_next_period(labels[-1]))
        if len(labels) > MOST_PERIODS:
            raise RequestError(
                f"{first} to {last} are more than {MOST_PERIODS} periods", "Ask for fewer", "backfill.to"
            )
    return labels


def find_beginning(label: str, zone: str | None) -> dt.datetime:
    """Return the moment at which a label's period begins on the calendar of the IANA time zone ``zone``.

    None: on this computer's calendar, as a shell and cron name days.  Hours and quarter-hours are in UTC.  Raises
    RequestError as :func:`parse_period` does, and for an unknown zone.
    """
    every, begins = parse_period(label)
    if every in UTC_LENGTHS:
        return begins
    midnight = begins.replace(tzinfo=None)
    return midnight.astimezone() if zone is None else midnight.replace(tzinfo=_get_zone(zone))


def format_moment(moment: dt.datetime) -> str:
    """Return an aware moment to the minute, for people: ``2031-01-01 00:00 UTC``."""
    return moment.isoformat(" ", "minutes") if moment.utcoffset() else f"{moment:%Y-%m-%d %H:%M} UTC"


def _get_zone(name: str) -> dt.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass
    raise RequestError(
        f"{name[:60]!r} is not a time zone", "Write an IANA name such as UTC or Europe/Berlin", "release.time_zone"
    )
