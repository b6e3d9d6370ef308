"""The columns of a release spec: public knowledge about each column of the private table.

Every bound, value and bin comes from these models and never from the data, because a domain read from the private table
is itself a function of it.  Unordered columns (public lists of values, and booleans) are here, ordered ones in a module
of their own; import all of them from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.columns.ordered_columns import (
    INTEGER_TYPES,
    DateColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
    TimeColumn,
    Zoned,
    count_seconds_since_epoch,
)
from privsyn.data_contracts.columns.shared_fields import Binned, Described, Nullable
from privsyn.data_contracts.frozen_model import FieldError

__all__ = [
    "INTEGER_TYPES",
    "MAX_CODES",
    "MAX_TEXT",
    "Binned",
    "BooleanColumn",
    "CategoricalColumn",
    "Column",
    "DateColumn",
    "DatetimeColumn",
    "DropColumn",
    "IntegerColumn",
    "NumberColumn",
    "TimeColumn",
    "Zoned",
    "count_seconds_since_epoch",
    "holds",
    "is_dummy",
    "is_nullable",
]

MAX_CODES = 1_000_000
"""The most codes of one column; keeps a typing error in the spec from asking for gigabytes."""

MAX_TEXT = 10_000
"""The most characters of a category's text."""

CategoryValue = bool | int | float | str


def name_one_of_attribute(columns: Sequence[str]) -> str:
    """Return the attribute name under which the columns of one ``one_of`` are counted."""
    return f"one of {', '.join(columns)}"


def name_level_attribute(column: str, level: str) -> str:
    """Return the attribute name that counts a level's groups; the released table has no such column."""
    return f"{column} (in {level})"


class CategoricalColumn(Nullable):
    """One of a public list of values.

    Any other value goes where ``unlisted`` says, and so does null if the column is not nullable.
    """

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = Nullable.OMITTED_AT_DEFAULT | {"levels"}

    kind: Literal["categorical"]
    values: tuple[CategoryValue, ...] = Field(
        min_length=1, max_length=MAX_CODES, description="Every possible value, from a public source."
    )
    unlisted: Literal["other", "null", "auto"] | CategoryValue = Field(
        default="auto",
        description="Where other values go: one of `values`, `other` (the text), `null`, or `auto`: `null` if "
        "nullable or not text, else `other`.",
    )
    levels: tuple[str, ...] = Field(
        default=(),
        max_length=8,
        description="For very many values: columns that rules compute from this one alone, coarsest first, such as "
        "`[state, county]` of a street.",
    )

    @field_validator("unlisted", mode="before")
    @classmethod
    def _read_yaml_null(cls, value: Any) -> Any:
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
        if self.unlisted not in ("other", "null", "auto") and self._place_of_unlisted is None:
            raise FieldError(
                f"`unlisted` ({str(self.unlisted)[:80]!r}) is not one of `values`",
                "Name one of them, `other`, `null` or `auto`",
                ("unlisted",),
            )
        return self

    @property
    def _place_of_unlisted(self) -> int | None:
        """The position of the value that ``unlisted`` names; true is not the number 1."""
        named = isinstance(self.unlisted, bool)
        places = (i for i, v in enumerate(self.values) if v == self.unlisted and isinstance(v, bool) == named)
        return next(places, None)

    @property
    def goes_to(self) -> Literal["other", "null"] | int:
        """Where unlisted values go, with ``auto`` resolved; a listed value is given by its position in ``values``."""
        if self.unlisted not in ("other", "null", "auto"):
            return self._place_of_unlisted or 0
        if self.unlisted != "auto":
            return "other" if self.unlisted == "other" else "null"
        return "null" if self.nullable or not isinstance(self.values[0], str) else "other"

    @property
    def has_null(self) -> bool:
        """Whether null is one of the column's codes."""
        return self.nullable or self.goes_to == "null"


class BooleanColumn(Nullable):
    """True or false.  Anything else, and null where not nullable, becomes false."""

    kind: Literal["boolean"]


class DropColumn(Described):
    """A column that is never read into the release (identifiers, free text, derived columns)."""

    kind: Literal["drop"]


Column = Annotated[
    IntegerColumn
    | NumberColumn
    | DatetimeColumn
    | DateColumn
    | TimeColumn
    | CategoricalColumn
    | BooleanColumn
    | DropColumn,
    Field(discriminator="kind"),
]


def is_nullable(column: Any) -> bool:
    """Return whether null is a value of the column."""
    return bool(column.has_null if isinstance(column, CategoricalColumn) else column.nullable)


def holds(column: Any, value: Any) -> bool:
    """Return whether ``value`` is in the column's domain."""
    if value is None:
        return is_nullable(column)
    match column:
        case CategoricalColumn():
            return value in column.values or (column.goes_to == "other" and value == "other")
        case BooleanColumn():
            return value in (0, 1)
        case IntegerColumn() | NumberColumn():
            return not isinstance(value, str) and (column.min <= value <= column.max or value in column.exact)
    return False


def is_dummy(column: Any) -> bool:
    """Return whether a column has exactly the values 0 and 1."""
    if getattr(column, "nullable", False):
        return False
    if isinstance(column, IntegerColumn):
        return (column.min, column.max) == (0, 1)
    if isinstance(column, CategoricalColumn):
        return not isinstance(column.values[0], str) and set(column.values) <= {0, 1} and len(column.values) == 2
    return isinstance(column, BooleanColumn)
