"""Ordered columns: numbers, and time (moments, days, times of day).

Time zones, and how texts of dates are written by ``format``, are here too.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

import numpy as np
from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.columns.shared_fields import DEFAULT_BINS, EXACT, Binned, Grid
from privsyn.data_contracts.frozen_model import FieldError

MAX_EXACT_INTEGERS = 64
"""An integer column with at most this many values gets one bin per value by default."""

INTEGER_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


STEP = "Values are rounded down to a multiple of it."

HEAPS = "Numbers that people round to, such as 100 and 1000: the share of their multiples is kept."


ROUND_NUMBERS = (10, 100, 1000)
"""Round numbers that are tried without being named, in steps of the column."""

LEAST_MULTIPLES = 128
"""The least number of a round number's multiples between the bounds, so that every cell has some (public constant)."""

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

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


def name_heap_attribute(column: str) -> str:
    """Return the attribute name for what a column's values are rounded to; the released table has no such column."""
    return f"{column} (rounded to)"


class Stepped(Binned):
    """Shared by the kinds of numbers."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = Binned.OMITTED_AT_DEFAULT | {"step", "heaps"}

    def exact_values(self) -> tuple[float, ...]:
        """Return the values with their own bin, ascending."""
        values: Any = self.exact  # type: ignore[attr-defined]
        return tuple(sorted(float(value) for value in values))

    def heap_values(self) -> tuple[float, ...]:
        """Return the named numbers that people round to, ascending."""
        heaps: Any = self.heaps  # type: ignore[attr-defined]
        return tuple(sorted(float(value) for value in heaps))

    def round_numbers(self) -> tuple[float, ...]:
        """Return the possible round numbers, ascending: ROUND_NUMBERS with at least LEAST_MULTIPLES."""
        low, high = float(self.min), float(self.max)  # type: ignore[attr-defined]
        grid, decimals = self.grid(), getattr(self, "decimals", None)
        step = grid.step if grid is not None else None if decimals is None else Grid.of(10.0**-decimals).step
        heaps = () if step is None or self.heap_values() else tuple(float(step * n) for n in ROUND_NUMBERS)
        many = [Grid.of(h).first(high, above=True) - Grid.of(h).first(low) for h in heaps]
        return tuple(heap for heap, multiples in zip(heaps, many, strict=True) if multiples >= LEAST_MULTIPLES)

    def point_values(self) -> tuple[float, ...]:
        """Return 0 and the bounds, ascending, if they are possible and not exact, and the column has many values."""
        low, high = float(self.min), float(self.max)  # type: ignore[attr-defined]
        grid, decimals = self.grid(), getattr(self, "decimals", None)
        if grid is not None and grid.first(high, above=True) - grid.first(low) <= MAX_EXACT_INTEGERS:
            return ()
        if grid is None and decimals is not None:
            grid = Grid.of(10.0**-decimals)
        free = {0.0, low, high} - set(self.exact_values())
        return tuple(sorted(v for v in free if low <= v <= high and (grid is None or grid.divides(np.array([v]))[0])))

    @model_validator(mode="after")
    def _check_grid(self) -> Stepped:
        grid, edges, heaps = self.grid(), self.edge_values(), self.heap_values()
        for place, (low, high) in enumerate(pairwise(edges)):
            last = self.closed and place == len(edges) - 2
            if grid is not None and grid.first(low) >= grid.first(high, above=last):
                raise FieldError(
                    f"the bin from {low:g} to {high:g} holds no multiple of `step`", "Move its edges or change the step"
                )
        stepped = self.step is not None  # type: ignore[attr-defined]
        if grid and stepped and edges and grid.first(edges[-1], above=self.closed) - grid.first(edges[0]) < 2:
            raise FieldError(f"only one value from {edges[0]:g} on is a multiple of `step`", "Choose a smaller step")
        if any(low <= 0 for low in heaps) or len(set(heaps)) < len(heaps):
            raise FieldError("`heaps` must be different numbers above 0")
        if any(not Grid.of(low).divides(np.array([high]))[0] for low, high in pairwise(heaps)):
            raise FieldError("each of `heaps` must divide the next larger one", "Write some such as [10, 100, 1000]")
        for heap in heaps if edges else ():
            first, end = Grid.of(heap).first(edges[0]), Grid.of(heap).first(edges[-1], above=self.closed)
            if not set(range(first, min(end, first + 2))) - {0}:
                raise FieldError(f"no value but 0 is a multiple of {heap:g}, one of `heaps`", "Leave it out")
        if grid is not None and heaps and not grid.divides(np.array(heaps)).all():
            raise FieldError("each of `heaps` must be a multiple of `step`, or of 1 for integers")
        return self


class IntegerColumn(Stepped):
    """Whole numbers in [min, max].  Values outside are clamped; nulls become ``min`` unless ``nullable``."""

    kind: Literal["integer"]
    min: int = Field(description="Smallest possible value, from a public source.", ge=-(2**53), le=2**53)
    max: int = Field(description="Largest possible value, from a public source.", ge=-(2**53), le=2**53)
    edges: tuple[int, ...] | None = Field(
        default=None,
        description="Bin edges from `min` to `max`. A bin includes its lower edge; the last one includes both.",
    )
    exact: tuple[int, ...] = Field(default=(), description=EXACT)
    step: int | None = Field(default=None, ge=1, le=2**53, description=STEP)
    heaps: tuple[int, ...] = Field(default=(), description=HEAPS)
    type: Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"] = Field(
        default="int64", description="Storage type of the released column."
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> IntegerColumn:
        bits = int(self.type.lstrip("uint"))
        low, high = (0, 2**bits - 1) if self.type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if self.min < low or self.max > high:
            raise FieldError(f"`type: {self.type}` cannot hold every value from {self.min} to {self.max}")
        for value in self.exact:
            if not max(low, -(2**53)) <= value <= min(high, 2**53):
                raise FieldError(f"`type: {self.type}` cannot hold {value} of `exact` (at most 2^53 in size)")
        if self.max - self.min < len(self.exact) and set(range(self.min, self.max + 1)) <= set(self.exact):
            raise FieldError("`exact` leaves no other value from `min` to `max`", "Use `kind: categorical`")
        return self

    def _describe_bad_edges(self, values: tuple[float, ...]) -> FieldError:
        """Return the error about 2^53: floats skip integers above it, so a single-value top bin would have no end."""
        if self.max == 2**53 and values[-2] == values[-1]:
            return FieldError(
                f"`max` ({self.max}) is too large for a bin of its own", f"Write at most {2**53 - 1}, or fewer bins"
            )
        return super()._describe_bad_edges(values)

    def edge_values(self) -> tuple[float, ...]:
        """Return edges such that bin i has the integers in [edge_i, edge_{i+1}); the last edge is max + 1."""
        if self.edges is not None:
            return tuple(float(e) for e in (*self.edges[:-1], self.max + 1))
        if self.step is not None and self.min <= self.max:
            return (*_on_grid(Grid.of(self.step), self.min, self.max, self.bins), float(self.max + 1))
        return _compute_even_whole_step(self.min, self.max + 1, self.bins, DEFAULT_BINS)

    def grid(self) -> Grid:
        """Return the grid of ``step``, else of whole numbers."""
        return Grid.of(self.step or 1)


def _on_grid(grid: Grid, low: float, high: float, bins: int | None) -> tuple[float, ...]:
    """Return the lower edges of bins with equally many multiples, the first at ``low``; single-value bins if few."""
    first, end = grid.first(low), grid.first(high, above=True)
    span = max(end - first, 1)
    bins = min(bins or (span if span <= MAX_EXACT_INTEGERS else DEFAULT_BINS), span)
    return (float(low), *(grid.value(first + (span * i) // bins) for i in range(1, bins)))


class NumberColumn(Stepped):
    """Real numbers in [min, max].  Values outside are clamped; null and NaN become ``min`` unless ``nullable``."""

    kind: Literal["number"]
    min: float = Field(description="Smallest possible value, from a public source.")
    max: float = Field(description="Largest possible value, from a public source.")
    edges: tuple[float, ...] | None = Field(
        default=None,
        description="Bin edges from `min` to `max`. A bin includes its lower edge; the last one includes both.",
    )
    exact: tuple[float, ...] = Field(default=(), description=EXACT)
    step: float | None = Field(default=None, gt=0, description=STEP)
    heaps: tuple[float, ...] = Field(default=(), description=HEAPS)
    decimals: int | None = Field(
        default=None, ge=0, le=15, description="Decimals of released values; null: values are not rounded."
    )
    type: Literal["float32", "float64"] = Field(default="float64", description="Storage type of the released column.")

    @model_validator(mode="after")
    def _check_bounds(self) -> NumberColumn:
        if self.step is not None and self.decimals is not None and round(self.step, self.decimals) != self.step:
            raise FieldError(f"`step` ({self.step:g}) has more decimals than `decimals`", "Leave `decimals` out")
        if self.type == "float32" and any(abs(value) > float(np.finfo(np.float32).max) for value in self.exact):
            raise FieldError(f"`type: {self.type}` cannot hold every value of `exact`")
        low, high = self.storable_bounds()
        if not -inf < low < high < inf:
            raise FieldError(
                f"`type: {self.type}` cannot hold the numbers from {self.min} to {self.max}",
                "Correct the bounds or write `type: float64`",
            )
        return self

    def storable_bounds(self) -> tuple[float, float]:
        """Return the bounds, moved inwards to values that ``type`` holds exactly; infinite if outside its range."""
        if self.type == "float64":
            return self.min, self.max
        with np.errstate(over="ignore"):
            low, high = np.float32(self.min), np.float32(self.max)
        if np.isfinite(low) and float(low) < self.min:  # as float64: numpy would compare them as float32
            low = np.nextafter(low, np.float32(inf))
        if np.isfinite(high) and float(high) > self.max:
            high = np.nextafter(high, np.float32(-inf))
        return float(low), float(high)

    def edge_values(self) -> tuple[float, ...]:
        """Return the bin edges, ascending; bins are closed below, open above, the last closed unless stepped."""
        if self.step is not None:
            grid = Grid.of(self.step)
            lower = self.edges[:-1] if self.edges else _on_grid(grid, self.min, self.max, self.bins)
            return (*lower, float(grid.value(grid.first(self.max, above=True))))
        if self.edges is not None:
            return self.edges
        bins = self.bins or DEFAULT_BINS
        step = (self.max - self.min) / bins
        return (*(self.min + step * i for i in range(bins)), self.max)

    def list_value_edges(self) -> tuple[float, ...]:
        """Return edges at the possible released values, one bin each; empty if they are many or have a step."""
        if self.decimals is None or self.step is not None:
            return ()
        grid = Grid.of(10.0**-self.decimals)
        first, end = grid.first(self.min), grid.first(self.max, above=True)
        if not 2 <= end - first <= MAX_EXACT_INTEGERS:
            return ()
        inside = (grid.value(step) for step in range(first + 1, end))
        return (self.min, *(value for value in inside if value < self.max), self.max)

    def grid(self) -> Grid | None:
        """Return the grid of ``step``, None without one."""
        return None if self.step is None else Grid.of(self.step)


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


_DATE = re.compile(r"\d{4}-\d\d-\d\d")


EPOCH = dt.date(1970, 1, 1)


class Zoned(Binned):
    """Shared by the kinds that read moments."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = Binned.OMITTED_AT_DEFAULT | {"format", "zone"}

    zone: str | None = Field(default=None, description=ZONE)

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        try:
            return None if value is None else ZoneInfo(value).key
        except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            problem, cure = f"`zone` ({str(value)[:80]!r}) is not a time zone", "Write one such as Europe/Berlin or UTC"
            raise FieldError(problem, cure) from None


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
        parts = set(re.findall(r"%(.)", content["format"], flags=re.DOTALL))
        if not parts:
            return content
        finest = (
            "second" if parts & {"S", "f"} else "minute" if "M" in parts else "hour" if parts & {"H", "I"} else "day"
        )
        return {**content, "resolution": finest}

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
    if isinstance(value, dt.datetime) and value.time() == dt.time() and value.tzinfo is None:
        return value.date()
    if (
        isinstance(value, dt.datetime)
        or not isinstance(value, dt.date | str)
        or (isinstance(value, str) and not _DATE.fullmatch(value))
    ):
        raise FieldError("is not a day", "Write one such as 2010-01-31")
    return value
