"""Pairs of columns that are compared in every row: allowed pairs, and the attribute of their difference."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from privsyn.data_contracts.columns.number_columns import IntegerColumn, NumberColumn
from privsyn.data_contracts.columns.shared_fields import Binned
from privsyn.data_contracts.columns.time_columns import RESOLUTION_SECONDS, DatetimeColumn
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.spec_checks import check_drawn_column, check_same_kind

NUMBERS = (IntegerColumn, NumberColumn)


def name_difference_attribute(first: str, second: str) -> str:
    """Return the attribute name of the difference of two columns; the released table has no such column."""
    return f"{first} minus {second}"


def get_step(column: Binned) -> float | None:
    """Return the smallest difference between values of a column, in the numbers of its edges; None if there is none."""
    match column:
        case IntegerColumn():
            return float(column.step or 1)
        case NumberColumn():
            return column.step or (None if column.decimals is None else 10.0**-column.decimals)
        case DatetimeColumn():
            return 86_400.0 if column.type == "date" else float(RESOLUTION_SECONDS[column.resolution])
    return 1.0


def check_compared(pairs: Sequence[Sequence[str]], columns: Mapping[str, Any], computed: Collection[str]) -> None:
    """Raise FieldError, with its place, for a pair in ``compare`` whose values cannot be subtracted.

    columns: the measured released columns; computed: the columns that rules compute or tie to others.
    """
    seen: set[str] = set()
    for i, pair in enumerate(pairs):
        place = ("compare", i)
        if len(pair) != 2 or pair[0] == pair[1]:
            raise FieldError("must name two different columns", "Name the two columns to compare", place)
        for name in pair:
            check_drawn_column(name, columns, computed, place, does="measures")
            if name in seen:
                raise FieldError(f"names the column {name!r} a second time", "Compare it with one column", place)
            seen.add(name)
        _check_alike(pair[0], columns[pair[0]], pair[1], columns[pair[1]], place)
        attribute = name_difference_attribute(*pair)
        if attribute in columns:
            raise FieldError(
                f"the column {attribute!r} has the name that the comparison needs", "Rename that column", place
            )


def _check_alike(first: str, column: Any, second: str, other: Any, place: tuple[str | int, ...]) -> None:
    """Raise FieldError unless the columns' values can be subtracted and have equal steps."""
    numbers = isinstance(column, NUMBERS) and isinstance(other, NUMBERS)
    check_same_kind(first, column, second, other, place, numbers=numbers)
    if get_step(column) != get_step(other) or getattr(column, "per_day", 0) != getattr(other, "per_day", 0):
        raise FieldError(
            f"values of {first!r} and {second!r} have different steps",
            "Give both the same `step`, `decimals`, `resolution` or `format`",
            place,
        )
