"""The columns of a release spec: what is publicly known about each column of the private table.

Every bound, value and bin comes from these models and never from the data: a domain read from the private table is
itself a function of the private table.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, pairwise
from math import inf
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.form import Schema, explain
from privsyn.data_contracts.unicode import is_unicode

MAX_CODES = 1_000_000
"""Most codes one column may have; keeps a typing error in the spec from asking for gigabytes."""

MAX_TEXT = 10_000
"""Most characters of a category's text."""

MAX_EXACT_INTEGERS = 64
"""An integer column with at most this many values gets one bin per value unless the spec says more."""

DEFAULT_BINS = 32
"""Bins of a numeric column whose spec names neither ``bins`` nor ``edges``."""

INTEGER_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@cache
def _numeric(model: type[BaseModel]) -> frozenset[str]:
    """The fields that hold numbers, or lists or mappings of them, and no booleans."""
    parts_of = {name: set(_types(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, parts in parts_of.items() if parts & {int, float} and bool not in parts)


def _types(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of; choices of a ``Literal`` are not types."""
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    yield from chain.from_iterable(map(_types, parts)) if parts else (annotation,)


def _booleans_as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return [_booleans_as_text(item) for item in value]
    return {k: _booleans_as_text(v) for k, v in value.items()} if isinstance(value, dict) else value


class FrozenModel(BaseModel):
    """Base of every model of the spec: immutable, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_boolean_is_a_number(cls, content: Any) -> Any:
        """Turn a boolean in a number's place into text, which is refused there: otherwise true would become 1."""
        if not isinstance(content, Mapping):
            return content
        numeric = _numeric(cls)
        return {name: _booleans_as_text(value) if name in numeric else value for name, value in content.items()}

    @field_validator("*", mode="after")
    @classmethod
    def _whole_characters(cls, value: Any) -> Any:
        if not is_unicode(value):
            raise FieldError(
                "holds half a character (a lone surrogate), which no file can hold", "Write the whole character"
            )
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """The JSON schema, with every limit in words: the run form is made from it (form.py)."""
        schema = handler(core_schema)
        explain(handler.resolve_ref_schema(schema).get("properties", {}))
        return schema


class _Described(FrozenModel):
    description: str = Field(default="", description="Free text for the data-release note.")


class _Nullable(_Described):
    nullable: bool = Field(
        default=False,
        description="Whether null is a value of its own. A null in a column that is not nullable "
        "is repaired as this kind's documentation says, and counted in the private zone only.",
    )


class _Binned(_Nullable):
    """Shared by the kinds with an order: integer, number, datetime."""

    unit: str = Field(default="", description="Unit of measurement, for the data-release note.")
    bins: int | None = Field(
        default=None, ge=1, le=10_000, description="Number of equal-width bins used in joint marginals."
    )

    def edge_values(self) -> tuple[float, ...]:
        """Bin edges as numbers, ascending, length ``number of bins + 1`` (closed at the top)."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_edges(self) -> _Binned:
        edges = getattr(self, "edges", None)
        if edges is not None and self.bins is not None:
            raise FieldError("give either `bins` or `edges`, not both")
        values = self.edge_values()
        if edges is not None and len(values) < 2:
            raise FieldError("`edges` must name both ends, `min` first and `max` last")
        if not all(0 < b - a < inf for a, b in pairwise(values)):  # so that NaN, from bounds too far apart, is refused
            raise self._bad_edges(values)
        return self

    def _bad_edges(self, values: tuple[float, ...]) -> FieldError:
        return FieldError("`edges` must be strictly ascending, `min` less than `max`, and no bin empty or endless")


class IntegerColumn(_Binned):
    """Whole numbers in [min, max].  Outside: clamped.  Null where not nullable: set to ``min``."""

    kind: Literal["integer"]
    min: int = Field(description="Smallest possible value, from a public source.", ge=-(2**53), le=2**53)
    max: int = Field(description="Largest possible value, from a public source.", ge=-(2**53), le=2**53)
    edges: tuple[int, ...] | None = Field(
        default=None,
        description="Bin edges: first = min, last = max, each bin closed below and open above, the last closed.",
    )
    type: Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"] = Field(
        default="int64", description="Storage type of the released column."
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> IntegerColumn:
        if self.min > self.max:
            raise FieldError(f"`min` ({self.min}) is greater than `max` ({self.max})", "Swap them")
        if self.edges is not None and (self.edges[:1] != (self.min,) or self.edges[-1:] != (self.max,)):
            raise FieldError("`edges` must start at `min` and end at `max`")
        bits = int(self.type.lstrip("uint"))
        low, high = (0, 2**bits - 1) if self.type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if self.min < low or self.max > high:
            raise FieldError(f"`type: {self.type}` cannot hold every value from {self.min} to {self.max}")
        return self

    def _bad_edges(self, values: tuple[float, ...]) -> FieldError:
        """Above 2^53 a float is no longer every integer: a top bin of this one integer would have no end."""
        if self.max == 2**53 and values[-2] == values[-1]:
            return FieldError(
                f"`max` ({self.max}) is too large for a bin of its own", f"Write at most {2**53 - 1}, or fewer bins"
            )
        return super()._bad_edges(values)

    def edge_values(self) -> tuple[float, ...]:
        """Edges such that bin i holds the integers in [edge_i, edge_{i+1}); the last edge is max + 1."""
        if self.edges is not None:
            return tuple(float(e) for e in (*self.edges[:-1], self.max + 1))
        span = self.max - self.min + 1
        if span < 1:
            return ()  # refused for its bounds
        bins = self.bins or (span if span <= MAX_EXACT_INTEGERS else DEFAULT_BINS)
        bins = min(bins, span)
        return tuple(float(self.min + (span * i) // bins) for i in range(bins + 1))


class NumberColumn(_Binned):
    """Real numbers in [min, max].  Outside: clamped.  Null or NaN where not nullable: set to ``min``."""

    kind: Literal["number"]
    min: float = Field(description="Smallest possible value, from a public source.")
    max: float = Field(description="Largest possible value, from a public source.")
    edges: tuple[float, ...] | None = Field(
        default=None,
        description="Bin edges: first = min, last = max, each bin closed below and open above, the last closed.",
    )
    decimals: int | None = Field(
        default=None, ge=0, le=15, description="Released values are rounded to this many decimals; null: not rounded."
    )
    type: Literal["float32", "float64"] = Field(default="float64", description="Storage type of the released column.")

    @model_validator(mode="after")
    def _check_bounds(self) -> NumberColumn:
        if not self.min < self.max:
            raise FieldError(f"`min` ({self.min}) must be less than `max` ({self.max})")
        if self.edges is not None and (self.edges[:1] != (self.min,) or self.edges[-1:] != (self.max,)):
            raise FieldError("`edges` must start at `min` and end at `max`")
        low, high = self.storable_bounds()
        if not -inf < low < high < inf:
            raise FieldError(
                f"`type: {self.type}` cannot hold the numbers from {self.min} to {self.max}",
                "Correct the bounds or write `type: float64`",
            )
        return self

    def storable_bounds(self) -> tuple[float, float]:
        """The bounds, moved inwards to values that ``type`` holds exactly; infinite beyond what it holds."""
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
        """Bin edges, ascending; bins are closed below and open above, the last closed."""
        if self.edges is not None:
            return self.edges
        bins = self.bins or DEFAULT_BINS
        step = (self.max - self.min) / bins
        return (*(self.min + step * i for i in range(bins)), self.max)


_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class DatetimeColumn(_Binned):
    """Moments in [min, max], without a time zone.  Outside: clamped.  Null where not nullable: ``min``."""

    kind: Literal["datetime"]
    min: dt.datetime = Field(description="Earliest possible moment (a date means its midnight).")
    max: dt.datetime = Field(description="Latest possible moment.")
    resolution: Literal["day", "hour", "minute", "second"] = Field(
        default="second", description="Released values are whole multiples of this, where the column's range has any."
    )
    type: Literal["timestamp", "date"] = Field(
        default="timestamp", description="`timestamp` (microseconds) or `date` (whole days)."
    )

    @field_validator("min", "max", mode="before")
    @classmethod
    def _from_date(cls, value: Any) -> Any:
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return dt.datetime(value.year, value.month, value.day)
        if not isinstance(value, dt.datetime) and not (isinstance(value, str) and _DATE.match(value)):
            raise FieldError(
                "is not a date or moment", "Write one such as 2010-01-31 or 2010-01-31 08:30:00; a number is neither"
            )
        return value

    @field_validator("min", "max", mode="after")
    @classmethod
    def _without_zone(cls, value: dt.datetime) -> dt.datetime:
        if value.tzinfo is not None:
            raise FieldError("must be without a time zone", "Convert it to the data's own zone")
        return value

    @model_validator(mode="after")
    def _check_bounds(self) -> DatetimeColumn:
        if not self.min < self.max:
            raise FieldError(f"`min` ({self.min}) must be before `max` ({self.max})")
        return self

    def edge_values(self) -> tuple[float, ...]:
        """Bin edges in seconds since 1970-01-01T00:00:00."""
        low, high = (seconds_since_epoch(v) for v in (self.min, self.max))
        bins = self.bins or DEFAULT_BINS
        step = (high - low) / bins
        return (*(low + step * i for i in range(bins)), high)


CategoryValue = bool | int | float | str


class CategoricalColumn(_Nullable):
    """One of a public list of values.  Anything else goes where ``unlisted`` says; so does null
    where the column is not nullable."""

    kind: Literal["categorical"]
    values: tuple[CategoryValue, ...] = Field(
        min_length=1, max_length=MAX_CODES, description="Every possible value, from a public source."
    )
    unlisted: Literal["other", "null", "auto"] = Field(
        default="auto",
        description="Where values outside `values` go: `other` (the text value 'other'), `null`, or `auto`: "
        "`null` for a nullable column or one whose values are not text, else `other`.",
    )

    @field_validator("unlisted", mode="before")
    @classmethod
    def _yaml_null(cls, value: Any) -> Any:
        return "null" if value is None else value

    @field_validator("values", mode="after")
    @classmethod
    def _check_values(cls, values: tuple[CategoryValue, ...]) -> tuple[CategoryValue, ...]:
        kinds = {type(v) for v in values}
        if len(kinds) > 1 and kinds != {int, float}:
            raise FieldError("`values` must all be of one type", "Put quotation marks around those meant as text")
        if any(isinstance(v, str) and len(v) > MAX_TEXT for v in values):
            raise FieldError(
                f"texts in `values` have at most {MAX_TEXT:,} characters", "Shorten or drop the longer ones"
            )
        if any(type(v) is int and abs(v) > 2**53 for v in values):
            raise FieldError("numbers in `values` must lie within 2**53 of zero", "Put quotation marks around codes")
        if kinds == {int, float}:
            values = tuple(float(v) for v in values)
        if len(set(values)) != len(values):
            twice = next(v for i, v in enumerate(values) if v in values[:i])
            raise FieldError(f"`values` names {twice!r} twice", "Remove one")
        return values

    @model_validator(mode="after")
    def _check_other(self) -> CategoricalColumn:
        if self.unlisted == "other" and not isinstance(self.values[0], str):
            raise FieldError("`unlisted: other` needs text values", "Use `unlisted: null`")
        return self

    @property
    def goes_to(self) -> Literal["other", "null"]:
        """Where unlisted values go, with ``auto`` resolved."""
        if self.unlisted != "auto":
            return self.unlisted
        return "null" if self.nullable or not isinstance(self.values[0], str) else "other"

    @property
    def has_null(self) -> bool:
        """Whether null is one of the column's codes."""
        return self.nullable or self.goes_to == "null"


class BooleanColumn(_Nullable):
    """True or false.  Anything else, and null where not nullable, becomes false."""

    kind: Literal["boolean"]


class DropColumn(_Described):
    """A column that is never read into the release (identifiers, free text, derived columns)."""

    kind: Literal["drop"]


Column = Annotated[
    IntegerColumn | NumberColumn | DatetimeColumn | CategoricalColumn | BooleanColumn | DropColumn,
    Field(discriminator="kind"),
]


def seconds_since_epoch(moment: dt.datetime) -> float:
    """Seconds from 1970-01-01T00:00:00 to ``moment``, both without a time zone."""
    return (moment - dt.datetime(1970, 1, 1)) / dt.timedelta(seconds=1)
