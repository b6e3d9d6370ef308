"""Public facts about columns, as readers of data dictionaries return them."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.data_contracts.columns import MAX_CODES

Scalar = bool | int | float | str | dt.datetime


@dataclass
class Facts:
    """Public facts about one column; None if the dictionary does not say.

    ``labels``: labels of ``values``, in order.  ``decimals``: the number of decimals of a number.
    ``universe``: who was asked, as a condition in the language of rules or in words.
    ``unique``: whether the column identifies a row of its table.
    """

    kind: str | None = None
    type: str | None = None
    min: Scalar | None = None
    max: Scalar | None = None
    values: list[Scalar] | None = None
    labels: list[str] | None = None
    decimals: int | None = None
    nullable: bool | None = None
    unit: str = ""
    description: str = ""
    universe: str = ""
    unique: bool = False
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dictionary:
    """The facts by column name, texts that mean null in CSV (None: not said), and rules between columns.

    ``rules``: entries for the spec's ``rules``; ``headings``: headings of a dictionary that is a table.
    """

    name: str
    columns: dict[str, Facts]
    null_values: list[str] | None = None
    rules: list[dict[str, Any]] = field(default_factory=list)
    headings: tuple[str, ...] = ()


def pick(tables: Mapping[str, Any], table: str, name: str) -> Mapping[str, Any]:
    """Return the table ``table``, or the only table."""
    chosen = tables.get(table) or (next(iter(tables.values())) if len(tables) == 1 else None)
    if not isinstance(chosen, dict):
        raise RequestError(
            f"{name} describes {len(tables)} tables, none of them called {table}",
            "Give a dictionary of this one table, or name its table like the data file",
            "draft_spec.dictionary",
        )
    return chosen


def format_value(value: Any) -> str:
    """Return the value as text; empty for None."""
    return "" if value is None else str(value).strip()


_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,14})")


def parse_whole_number(text: str) -> int | None:
    """Return a whole number of at most 15 digits without leading zeros; None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def bound_of(value: Any, kind: str | None) -> Scalar | None:
    """Return a bound in the kind's type, moments as UTC without a zone; None if it is not valid."""
    if kind == "datetime" and isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
            return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or kind not in ("integer", "number"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if kind == "integer":
        return (value if isinstance(value, int) else int(number)) if number.is_integer() else None
    return number if math.isfinite(number) else None


def list_values(listed: Any, facts: Facts) -> list[Scalar] | None:
    """Return the distinct listed values as scalars of one type; None if there are none, or too many."""
    if not isinstance(listed, list) or len(listed) > MAX_CODES:
        return None
    if None in listed:
        facts.nullable = True
    scalars = [v for v in listed if isinstance(v, bool | int | float | str) and v == v]
    kinds = {type(v) for v in scalars}
    if len(kinds) > 1 and kinds != {int, float}:
        scalars = [str(v) for v in scalars]
    return list(dict.fromkeys(scalars)) or None


_RANGE = re.compile(r"[(\[]\s*(-?\d+(?:\.\d+)?)\s*(?:-|–|to|\.\.)\s*(-?\d+(?:\.\d+)?)\s*(?:[A-Za-z]+\s*)?[)\]]\s*$")


def parse_range(label: str) -> tuple[str, str] | None:
    """Return the two numbers of a label that ends in a range, such as ``Age in years (18-99)``."""
    match = _RANGE.search(label)
    return None if match is None else (match[1], match[2])


def make_unreadable_error(name: str, form: str) -> RequestError:
    """Return the error for a file that cannot be read as the form of its name."""
    return RequestError(
        f"{name} is not a readable {form}",
        "Check the file, or give another form of dictionary",
        "draft_spec.dictionary",
    )
