"""Columns of time: moments."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.columns.shared_fields import DEFAULT_BINS, EXACT, Binned
from privsyn.data_contracts.field_error import FieldError

_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class DatetimeColumn(Binned):
    """Moments in [min, max], without a time zone.  Outside: clamped.  Null where not nullable: ``min``."""

    kind: Literal["datetime"]
    min: dt.datetime = Field(description="Earliest possible moment (a date means its midnight).")
    max: dt.datetime = Field(description="Latest possible moment.")
    exact: tuple[dt.datetime, ...] = Field(default=(), description=EXACT)
    resolution: Literal["day", "hour", "minute", "second"] = Field(
        default="second", description="Released values are whole multiples of this, where the column's range has any."
    )
    type: Literal["timestamp", "date"] = Field(
        default="timestamp", description="`timestamp` (microseconds) or `date` (whole days)."
    )

    @field_validator("min", "max", mode="before")
    @classmethod
    def _from_date(cls, value: Any) -> Any:
        return _moment(value)

    @field_validator("exact", mode="before")
    @classmethod
    def _from_dates(cls, values: Any) -> Any:
        return [_moment(value) for value in values] if isinstance(values, list | tuple) else values

    @field_validator("min", "max", "exact", mode="after")
    @classmethod
    def _without_zone(cls, value: Any) -> Any:
        if any(moment.tzinfo is not None for moment in (value if isinstance(value, tuple) else (value,))):
            raise FieldError("must be without a time zone", "Convert it to the data's own zone")
        return value

    @model_validator(mode="after")
    def _check_bounds(self) -> DatetimeColumn:
        if not self.min < self.max:
            raise FieldError(f"`min` ({self.min}) must be before `max` ({self.max})")
        if self.type == "date" and any(moment.time() != dt.time() for moment in self.exact):
            raise FieldError("`exact` of a column of dates must be dates", "Leave the time of day out")
        return self

    def edge_values(self) -> tuple[float, ...]:
        """Bin edges in seconds since 1970-01-01T00:00:00."""
        low, high = (seconds_since_epoch(v) for v in (self.min, self.max))
        bins = self.bins or DEFAULT_BINS
        step = (high - low) / bins
        return (*(low + step * i for i in range(bins)), high)

    def exact_values(self) -> tuple[float, ...]:
        """Moments with a bin of their own, in seconds since 1970, ascending."""
        return tuple(sorted(map(seconds_since_epoch, self.exact)))


def _moment(value: Any) -> Any:
    """A date as its midnight; FieldError for what is neither a date nor a moment."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime) and not (isinstance(value, str) and _DATE.match(value)):
        raise FieldError(
            "is not a date or moment", "Write one such as 2010-01-31 or 2010-01-31 08:30:00; a number is neither"
        )
    return value


def seconds_since_epoch(moment: dt.datetime) -> float:
    """Seconds from 1970-01-01T00:00:00 to ``moment``, both without a time zone."""
    return (moment - dt.datetime(1970, 1, 1)) / dt.timedelta(seconds=1)
