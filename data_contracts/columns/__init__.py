"""The columns of a release spec: public knowledge about each column of the private table.

Every bound, value and bin comes from these models and never from the data, because a domain read from the private table
is itself a function of it.  Related kinds share a module; import all of them from here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from privsyn.data_contracts.columns.category_columns import MAX_CODES, MAX_TEXT, BooleanColumn, CategoricalColumn
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
from privsyn.data_contracts.columns.shared_fields import Binned, Described

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
