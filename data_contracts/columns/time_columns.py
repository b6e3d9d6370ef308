"""Columns of time (moments, days, times of day), time zones, and how texts of dates are written by ``format``."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.columns.number_columns import MAX_EXACT_INTEGERS
from privsyn.data_contracts.columns.shared_fields import DEFAULT_BINS, EXACT, Binned, Grid
from privsyn.data_contracts.frozen_model import FieldError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""Prefixes of the English month names."""

_PARTS = {
    "Y": r"(?P<year>[0-9]{4})",
    "y": r"(?P<short_year>[0-9]{2})",
    "m": r"(?P<month>[0-9]{1,2})",
    "d": r"(?P<day>[0-9]{1,2})",
    "b": r"(?P<month_name>[A-Za-z]{3})[A-Za-z]*\.?",
    "B": r"(?P<month_name>[A-Za-z]{3})[A-Za-z]*\.?",
    "H": r"(?P<hour>[0-9]{1,2})",
    "I": r"(?P<half_hour>[0-9]{1,2})",
    "p": r"(?P<half>[AaPp])\.?[Mm]\.?",
    "M": r"(?P<minute>[0-9]{2})",
    "S": r"(?P<second>[0-9]{2})",
    "f": r"(?P<fraction>[0-9]+)",
    "%": "%",
}

FORMAT = (
    "How texts, and numbers such as 20230623, are written: `%m/%d/%Y`. Parts: %Y %y %m %d %b %B %H %I %p %M %S %f; "
    "%y is 1969 to 2068, months are English. Empty: ISO 8601."
)
ZONE = "Time zone, such as Europe/Berlin, to which stored zones are converted. Required if the source has a zone."


def translate_to_pattern(format_: str) -> str:
    """Return the regular expression (RE2) for texts in this format, with groups named after the parts of a moment.

    Raises FieldError for unknown or repeated parts, or without a complete date.
    """
    pattern, seen = "", set()
    for literal, part in re.findall(r"([^%]+)|%(.?)", format_, flags=re.DOTALL):
        if literal:
            pattern += re.sub(r"\s+", r"\\s+", re.escape(literal).replace("\\ ", " "))
            continue
        if part not in _PARTS:
            raise FieldError(f"`format` has %{part}, which is not known", "Use " + " ".join(f"%{p}" for p in _PARTS))
        if part in seen:
            raise FieldError(f"`format` has %{part} twice", "Remove one")
        seen.add(part)
        pattern += _PARTS[part]
    for one, other in (("Y", "y"), ("m", "b"), ("m", "B"), ("b", "B"), ("H", "I")):
        if {one, other} <= seen:
            raise FieldError(f"`format` has both %{one} and %{other}", "Keep one")
    if not (seen & {"Y", "y"} and seen & {"m", "b", "B"} and "d" in seen):
        raise FieldError("`format` names no whole date", "Write one such as %m/%d/%Y")
    if ("I" in seen) != ("p" in seen):
        raise FieldError("`format` has %I or %p without the other", "Use %H for 24 hours")
    return f"^{pattern}$"


def count_digits(pattern: str) -> int:
    """Return the most digits of texts of a pattern; 0 if they may have other characters, or any number of digits."""
    parts = re.findall(r"\(\?P<\w+>\[0-9\]\{(?:\d+,)?(\d+)\}\)|(.)", pattern.removeprefix("^").removesuffix("$"))
    return 0 if any(other for _, other in parts) else sum(int(most) for most, _ in parts)


def find_finest_part(format_: str) -> Literal["", "day", "hour", "minute", "second"]:
    """Return the smallest part of a moment in texts of this format; empty without a format."""
    parts = set(re.findall(r"%(.)", format_, flags=re.DOTALL))
    if not parts:
        return ""
    if parts & {"S", "f"}:
        return "second"
    return "minute" if "M" in parts else "hour" if parts & {"H", "I"} else "day"


def check_zone(name: str) -> str:
    """Return the zone's name.  Raises FieldError if there is no such zone."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        raise _make_zone_error(name) from None
    except KeyError:
        raise _make_zone_error(name) from None
    return name


def _make_zone_error(name: str) -> FieldError:
    return FieldError(f"`zone` ({name[:80]!r}) is not a time zone", "Write one such as Europe/Berlin or UTC")


_DATE = re.compile(r"\d{4}-\d\d-\d\d")


EPOCH = dt.date(1970, 1, 1)


class Zoned(Binned):
    """Shared by the kinds that read moments."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = Binned.OMITTED_AT_DEFAULT | {"format", "zone"}

    zone: str | None = Field(default=None, description=ZONE)

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        return None if value is None else check_zone(value)


RESOLUTION_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
"""Seconds of each resolution of moments."""


class Written(Zoned):
    """Shared by the kinds with a ``format`` for their texts."""

    format: str = Field(default="", max_length=100, description=FORMAT)

    @field_validator("format")
    @classmethod
    def _check_format(cls, value: str) -> str:
        if value:
            translate_to_pattern(value)
        return value


class DatetimeColumn(Written):
    """Moments in [min, max], without a zone.  Values outside are clamped; nulls become ``min`` unless ``nullable``."""

    kind: Literal["datetime"]
    min: dt.datetime = Field(description="Earliest possible moment; a date means its midnight.")
    max: dt.datetime = Field(description="Latest possible moment.")
    exact: tuple[dt.datetime, ...] = Field(default=(), description=EXACT)
    resolution: Literal["day", "hour", "minute", "second"] = Field(
        default="second",
        description="Released values are multiples of this, if the range has any. Default with a `format`: its "
        "smallest part.",
    )
    type: Literal["timestamp", "date"] = Field(
        default="timestamp", description="`timestamp` (microseconds) or `date` (whole days)."
    )

    @model_validator(mode="before")
    @classmethod
    def _resolve_by_format(cls, content: Any) -> Any:
        """Fill in a missing resolution from the format, so that no part is released that the source lacks."""
        if not isinstance(content, Mapping) or "resolution" in content or not isinstance(content.get("format"), str):
            return content
        finest = find_finest_part(content["format"])
        return {**content, "resolution": finest} if finest else content

    @field_validator("min", "max", mode="before")
    @classmethod
    def _from_date(cls, value: Any) -> Any:
        return _check_moment(value)

    @field_validator("exact", mode="before")
    @classmethod
    def _from_dates(cls, values: Any) -> Any:
        return [_check_moment(value) for value in values] if isinstance(values, list | tuple) else values

    @field_validator("min", "max", "exact", mode="after")
    @classmethod
    def _refuse_zones(cls, value: Any) -> Any:
        if any(moment.tzinfo is not None for moment in (value if isinstance(value, tuple) else (value,))):
            raise FieldError("must be without a time zone", "Convert it to the data's own zone")
        return value

    @model_validator(mode="after")
    def _check_bounds(self) -> DatetimeColumn:
        if self.type == "date" and any(moment.time() != dt.time() for moment in self.exact):
            raise FieldError("`exact` of a column of dates must be dates", "Leave the time of day out")
        return self

    def edge_values(self) -> tuple[float, ...]:
        """Return the bin edges in seconds since 1970-01-01T00:00:00."""
        low, high = (count_seconds_since_epoch(v) for v in (self.min, self.max))
        bins = self.bins or DEFAULT_BINS
        step = (high - low) / bins
        return (*(low + step * i for i in range(bins)), high)

    def exact_values(self) -> tuple[float, ...]:
        """Return the moments with their own bin, in seconds since 1970, ascending."""
        return tuple(sorted(map(count_seconds_since_epoch, self.exact)))


def _check_moment(value: Any) -> Any:
    """Return a date as its midnight; FieldError for anything but a date or moment."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime) and not (isinstance(value, str) and _DATE.match(value)):
        raise FieldError(
            "is not a date or moment", "Write one such as 2010-01-31 or 2010-01-31 08:30:00; a number is neither"
        )
    return value


def count_seconds_since_epoch(moment: dt.datetime) -> float:
    """Return seconds from 1970-01-01T00:00:00 to ``moment``, both without a time zone."""
    return (moment - dt.datetime(1970, 1, 1)) / dt.timedelta(seconds=1)


class DateColumn(Written):
    """Days in [min, max].  Values outside are clamped; nulls become ``min`` unless ``nullable``."""

    kind: Literal["date"]
    min: dt.date = Field(description="Earliest possible day.")
    max: dt.date = Field(description="Latest possible day.")
    edges: tuple[dt.date, ...] | None = Field(
        default=None, description="First days of the bins, from `min` to `max`; `max` belongs to the last bin."
    )
    exact: tuple[dt.date, ...] = Field(default=(), description=EXACT)

    @field_validator("min", "max", mode="before")
    @classmethod
    def _is_day(cls, value: Any) -> Any:
        return _check_day(value)

    @field_validator("edges", "exact", mode="before")
    @classmethod
    def _are_days(cls, values: Any) -> Any:
        return [_check_day(value) for value in values] if isinstance(values, list | tuple) else values

    def edge_values(self) -> tuple[float, ...]:
        """Return the first days of the bins, in days since 1970-01-01; the last edge is the day after ``max``."""
        end = count_days_since_epoch(self.max) + 1
        if self.edges is not None:
            return (*map(count_days_since_epoch, self.edges[:-1]), end)
        return _compute_even_whole_step(count_days_since_epoch(self.min), end, self.bins, DEFAULT_BINS)

    def exact_values(self) -> tuple[float, ...]:
        """Return the days with their own bin, in days since 1970, ascending."""
        return tuple(sorted(map(count_days_since_epoch, self.exact)))

    def grid(self) -> Grid:
        """Return the grid of days."""
        return Grid.of(1)

    @property
    def closed(self) -> bool:
        """The last edge is the day after ``max``."""
        return False


HOURS = 24
"""Bins of a column of times if the spec names none."""


class TimeColumn(Zoned):
    """Times of day, to the minute or second.  Invalid times, and nulls unless ``nullable``, become midnight."""

    kind: Literal["time"]
    format: Literal["HH:MM", "HH:MM:SS", "hhmm", "seconds"] = Field(
        default="HH:MM",
        description="How times are written and released: `HH:MM`, `HH:MM:SS`, `hhmm` (a number such as 1435; "
        "2400 is midnight), or `seconds` since midnight.",
    )
    bins: int | None = Field(default=None, ge=1, le=1_440, description="Number of equal-width bins; 24 if not given.")

    @property
    def per_day(self) -> int:
        """Minutes or seconds per day, depending on the format."""
        return 1_440 if self.format in ("HH:MM", "hhmm") else 86_400

    def edge_values(self) -> tuple[float, ...]:
        """Return the bin edges, in minutes or seconds since midnight."""
        return _compute_even_whole_step(0.0, float(self.per_day), self.bins or HOURS, HOURS)

    def grid(self) -> Grid:
        """Return the grid of minutes or seconds."""
        return Grid.of(1)

    @property
    def closed(self) -> bool:
        """The day ends before its last edge."""
        return False


def _compute_even_whole_step(low: float, end: float, bins: int | None, default: int) -> tuple[float, ...]:
    """Return integer edges of bins with equally many values."""
    span = int(end - low)
    if span < 1:
        return ()  # the bounds are refused later
    bins = min(bins or (span if span <= MAX_EXACT_INTEGERS else default), span)
    return tuple(float(low + (span * i) // bins) for i in range(bins + 1))


def count_days_since_epoch(day: dt.date) -> float:
    """Return days from 1970-01-01."""
    return float((day - EPOCH).days)


def _check_day(value: Any) -> Any:
    """Return a day; FieldError for anything else."""
    if isinstance(value, dt.datetime) and value.time() == dt.time() and value.tzinfo is None:
        return value.date()
    if (
        isinstance(value, dt.datetime)
        or not isinstance(value, dt.date | str)
        or (isinstance(value, str) and not _DATE.fullmatch(value))
    ):
        raise FieldError("is not a day", "Write one such as 2010-01-31")
    return value
