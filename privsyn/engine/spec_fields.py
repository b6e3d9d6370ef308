"""The spec's fields in cache keys: a step declares which fields it reads, and its key holds their values.

Belongs here: reading a declared field from a public request.  A step declares the public knowledge about the rows that
it reads separately (``Step.reads``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from pydantic import BaseModel

from privsyn.data_contracts.columns import DatetimeColumn
from privsyn.data_contracts.publication import COLUMN_WORDS, COLUMN_WRITING
from privsyn.engine.request import Request

ENCODED_COLUMNS, DECODED_COLUMNS = "columns as they are encoded", "columns as they are decoded"
COLUMN_ORDER, ENCODED_ORDER = "the order of columns", "the order of columns that are read"
CODES, RECORD = "codes", "what makes a record of a person"


def _describe_columns(request: Request, unused: AbstractSet[str]) -> dict[str, Any]:
    """Return the released columns without the fields ``unused``; a moment's zone only if it is not UTC."""
    described = {}
    for name, column in request.spec.released_columns.items():
        utc = {"zone"} if isinstance(column, DatetimeColumn) and column.zone == "UTC" else set()
        described[name] = column.model_dump(mode="json", exclude={*unused, *utc})
    return described


def _describe_encoded(request: Request) -> dict[str, Any]:
    """Return the measured columns, since unread columns change no code."""
    unmeasured = request.spec.unmeasured_columns
    columns = _describe_columns(request, COLUMN_WORDS | COLUMN_WRITING)
    return {name: column for name, column in columns.items() if name not in unmeasured}


def _describe_record(request: Request) -> dict[str, Any] | None:
    """Return the columns that turn a person's rows into one record; None if each row is a record."""
    panel = request.spec.panel
    return None if panel is None else {"by": panel.order, "above": panel.constant if panel.above else None}


def _describe_codes(request: Request) -> dict[str, Any]:
    """Return the public facts about the codes, with the cells of an earlier release if the spec takes them."""
    cells = request.spec.cells
    taken = {} if cells is None else {"cells": cells.model_dump(mode="json", include={"columns"})["columns"]}
    return {**request.encoding.describe_codes(), **taken}


VIEWS: dict[str, Callable[[Request], Any]] = {
    ENCODED_COLUMNS: _describe_encoded,
    DECODED_COLUMNS: lambda request: _describe_columns(request, COLUMN_WORDS),
    COLUMN_ORDER: lambda request: request.column_order,
    ENCODED_ORDER: lambda request: [n for n in request.column_order if n not in request.spec.unmeasured_columns],
    CODES: _describe_codes,
    RECORD: _describe_record,
}
"""Parts of fields, and values derived from several fields."""


def read_fields(request: Request, names: Iterable[str]) -> dict[str, Any]:
    """Return the value of every declared field, JSON-ready, without fields that the request's mechanism lacks.

    ``names``: a view, or a dotted path in the spec.
    """
    values = {name: VIEWS[name](request) if name in VIEWS else _read_path(request, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _read_path(request: Request, path: str) -> Any:
    value: Any = request.spec
    for name in path.split("."):
        value = getattr(value, name, None)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
