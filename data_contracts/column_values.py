"""The values that a column's domain holds, by its description."""

from __future__ import annotations

from typing import Any

from privsyn.data_contracts.columns import BooleanColumn, CategoricalColumn, IntegerColumn, NumberColumn


def is_nullable(column: Any) -> bool:
    """Return whether null is a value of the column."""
    return bool(column.has_null if isinstance(column, CategoricalColumn) else column.nullable)


def holds(column: Any, value: Any) -> bool:
    """Return whether ``value`` lies in the column's domain."""
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
    """Return whether a column holds 0 and 1 and nothing else."""
    if getattr(column, "nullable", False):
        return False
    if isinstance(column, IntegerColumn):
        return (column.min, column.max) == (0, 1)
    if isinstance(column, CategoricalColumn):
        return not isinstance(column.values[0], str) and set(column.values) <= {0, 1} and len(column.values) == 2
    return isinstance(column, BooleanColumn)
