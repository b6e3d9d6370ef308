"""Columns of Python objects: each cell is read by itself, so a column may hold cells of several types.

Belongs here: the Arrow type of one object.  The parsers (tasks/codecs/parsing.py) interpret each cell of a union as a
column of the cell's type.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

_FIELDS = {
    "null": pa.null(),
    "text": pa.large_string(),
    "truth": pa.bool_(),
    "whole": pa.int64(),
    "large": pa.uint64(),
    "number": pa.float64(),
    "day": pa.date32(),
    "moment": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
    "time": pa.time64("us"),
    "other": pa.binary(),
}
"""The types of cells; other: an object that no column can hold, such as a list, without its content."""

OBJECTS = pa.dense_union([pa.field(name, type_) for name, type_ in _FIELDS.items()])
"""The type of every column of objects, whatever its cells are."""

NULL, TEXT, TRUTH, WHOLE, LARGE, NUMBER, DAY, MOMENT, ZONED, TIME, OTHER = range(len(_FIELDS))

Cell = tuple[int, Any]
"""The index of a cell's type, and its value; days and times as a count of days or microseconds."""

_NULL: Cell = (NULL, None)
_OTHER: Cell = (OTHER, b"")
_EPOCH, _MICROSECOND = dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)
_PER_SECOND = {unit: 1000**power for power, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as"))}
_MOST_SECONDS = {"m": 60, "h": 3_600, "D": 86_400, "W": 604_800, "M": 31 * 86_400, "Y": 366 * 86_400}
"""Most seconds in each of NumPy's larger units."""
_MOST_TICKS = 2**63 - 1
_MOST_DIGITS = 400
"""Most powers of ten that a decimal is written with instead of an exponent; beyond, every float is infinite."""


def read_objects(cells: Iterable[object]) -> pa.Array:
    """Return the objects as an array of the type OBJECTS; no object raises an error or changes another's cell."""
    codes, offsets = list[int](), list[int]()
    values: list[list[Any]] = [[] for _ in _FIELDS]
    for cell in cells:
        code, value = _read_cell(cell)
        codes.append(code)
        offsets.append(len(values[code]))
        values[code].append(value)
    children = [_build_child(part, type_) for part, type_ in zip(values, _FIELDS.values(), strict=True)]
    return pa.UnionArray.from_dense(pa.array(codes, pa.int8()), pa.array(offsets, pa.int32()), children, list(_FIELDS))


def _build_child(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_date(type_):
        return pa.array(values, pa.int32()).view(type_)
    if pa.types.is_temporal(type_):
        return pa.array(values, pa.int64()).view(type_)
    return pa.array(values, type_)


def _read_cell(cell: object) -> Cell:
    """Return an object's type and value; an object whose own code fails is OTHER."""
    read = _READERS.get(type(cell))
    try:
        if read is None:
            read = next((read for class_, read in _BASES if isinstance(cell, class_)), None)
        return _OTHER if read is None else read(cell)
    except Exception:  # another library's code may raise anything
        return _OTHER


def _read_null(cell: Any) -> Cell:
    return _NULL


def _read_text(cell: Any) -> Cell:
    text = str.__str__(cell)
    if not text.isascii():
        text.encode()  # raises for a lone surrogate
    return TEXT, text


def _read_truth(cell: Any) -> Cell:
    return TRUTH, bool(cell)


def _read_whole(cell: Any) -> Cell:
    number = int(cell)
    if -(2**63) <= number < 2**63:
        return WHOLE, number
    return (LARGE, number) if 0 < number < 2**64 else (TEXT, format(Decimal(number), "f"))


def _read_float(cell: Any) -> Cell:
    number = float(cell)
    return _NULL if number != number else (NUMBER, number)


def _read_short_float(cell: Any) -> Cell:
    """Read a float of 16 or 32 bits as its shortest decimal."""
    return _read_float(str(cell))


def _read_decimal(cell: Decimal) -> Cell:
    """Read a decimal as an equal number of another type if there is one, so that equal values have one text."""
    if cell.is_nan():
        return _NULL
    if not cell.is_finite():
        return NUMBER, float(cell)
    if abs(cell.adjusted()) > _MOST_DIGITS:
        return (WHOLE, 0) if not cell else (TEXT, str(cell))
    if cell == cell.to_integral_value():
        return _read_whole(int(cell))
    number = float(cell)
    return (NUMBER, number) if Decimal(repr(number)) == cell else (TEXT, format(cell, "f").rstrip("0"))


def _read_day(cell: dt.date) -> Cell:
    return DAY, cell.toordinal() - _EPOCH.toordinal()


def _read_moment(cell: dt.datetime) -> Cell:
    offset = cell.utcoffset()
    if isinstance(cell, pd.Timestamp):
        return MOMENT if offset is None else ZONED, _count_microseconds(cell.to_datetime64())
    microseconds = (cell.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return (MOMENT, microseconds) if offset is None else (ZONED, microseconds - offset // _MICROSECOND)


def _read_numpy_moment(cell: np.datetime64) -> Cell:
    return _NULL if np.isnat(cell) else (MOMENT, _count_microseconds(cell))


def _count_microseconds(cell: np.datetime64) -> int:
    """Return the microseconds since 1970, clipped to 64 bits."""
    unit, step = np.datetime_data(cell.dtype)
    ticks = int(cell.astype(np.int64)) * step
    if unit in _PER_SECOND:
        microseconds = ticks * 10**6 // _PER_SECOND[unit]
    elif abs(ticks) * _MOST_SECONDS[unit] > _MOST_TICKS:  # NumPy's conversion would overflow
        microseconds = ticks * 10**6
    else:
        microseconds = int(cell.astype("datetime64[s]").astype(np.int64)) * 10**6
    return min(max(microseconds, -_MOST_TICKS), _MOST_TICKS)


def _read_numpy_duration(cell: np.timedelta64) -> Cell:
    return _NULL if np.isnat(cell) else _OTHER


def _read_time(cell: dt.time) -> Cell:
    return TIME, ((cell.hour * 60 + cell.minute) * 60 + cell.second) * 10**6 + cell.microsecond


_BASES: tuple[tuple[type, Callable[[Any], Cell]], ...] = (
    (type(None), _read_null),
    (type(pd.NA), _read_null),
    (type(pd.NaT), _read_null),
    (str, _read_text),
    (bool, _read_truth),
    (np.bool_, _read_truth),
    (int, _read_whole),
    (np.timedelta64, _read_numpy_duration),  # a subclass of NumPy's integers
    (np.integer, _read_whole),
    (float, _read_float),
    (np.float16, _read_short_float),
    (np.float32, _read_short_float),
    (np.floating, _read_float),
    (Decimal, _read_decimal),
    (dt.datetime, _read_moment),
    (dt.date, _read_day),
    (dt.time, _read_time),
    (np.datetime64, _read_numpy_moment),
    (uuid.UUID, lambda cell: (TEXT, str(cell))),
)
"""Classes of objects that a column can hold, and their readers; a subclass stands before its base."""

_READERS = dict(_BASES)
