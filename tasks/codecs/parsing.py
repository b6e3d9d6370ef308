"""Total parsers: any Arrow array of a readable type to numbers, moments, booleans or category keys.

Belongs here: value-by-value conversion that never raises on a value, whatever it is (an error that
depends on private values is a leak).  Does not belong here: domains and codes (tasks/codecs/).
Text is what CSV gives; Parquet gives typed arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_TRUE = ["true", "t", "yes", "y", "1", "1.0"]
_FALSE = ["false", "f", "no", "n", "0", "0.0"]


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One chunk, without dictionary encoding; large and view strings become strings."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def _is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type))


def _null_mask(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(pc.is_null(array, nan_is_null=True))


def to_numbers(source: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Float64 values (NaN where null or not a number) and the mask of nulls, both of shape (rows,).

    Text is read as a decimal number; booleans are 0 and 1; moments and other types are not numbers.
    """
    array = plain(source)
    is_null = _null_mask(array)
    kind = array.type
    if _is_text(array):
        numbers = pd.to_numeric(pd.Series(array.to_numpy(zero_copy_only=False), dtype=object), errors="coerce")
        return numbers.to_numpy(dtype=np.float64, na_value=np.nan), is_null
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return np.full(len(array), np.nan), is_null
    as_float = array.cast(pa.float64(), safe=False)
    return np.array(as_float.to_numpy(zero_copy_only=False), dtype=np.float64), is_null


def to_seconds(source: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Seconds since 1970 (NaN where null or not a moment) and the mask of nulls, both of shape (rows,).

    Text is read as ISO 8601; a time zone is dropped after conversion to UTC.
    """
    array = plain(source)
    is_null = _null_mask(array)
    if _is_text(array):
        text = pd.Series(array.to_numpy(zero_copy_only=False), dtype=object)
        moments = pd.to_datetime(text, errors="coerce", format="ISO8601", utc=True).dt.tz_localize(None)
        micros = moments.to_numpy(dtype="datetime64[us]")
    elif pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        micros = array.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
    else:
        return np.full(len(array), np.nan), is_null
    seconds = micros.astype(np.int64) / 1e6
    return np.where(np.isnat(micros), np.nan, seconds), is_null


def to_booleans(source: Any) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """1, 0, or -1 (null or neither), and the mask of nulls, both of shape (rows,)."""
    array = plain(source)
    is_null = _null_mask(array)
    if pa.types.is_boolean(array.type):
        return np.asarray(pc.fill_null(array.cast(pa.int8()), -1)), is_null
    if not _is_text(array):
        numbers, is_null = to_numbers(array)
        return np.where(numbers == 1, 1, np.where(numbers == 0, 0, -1)).astype(np.int8), is_null
    text = pc.utf8_lower(pc.utf8_trim_whitespace(array))
    truth = np.full(len(array), -1, dtype=np.int8)
    truth[np.asarray(pc.is_in(text, value_set=pa.array(_FALSE)))] = 0
    truth[np.asarray(pc.is_in(text, value_set=pa.array(_TRUE)))] = 1
    return truth, is_null


def to_keys(source: Any, wanted: pa.DataType) -> pa.Array:
    """The array as keys comparable with a list of values of type ``wanted``; null where it cannot be one.

    Text values match the text of numbers (a whole float is written without its point), number values
    match numbers written as text.
    """
    array = plain(source)
    if pa.types.is_string(wanted):
        return _to_text(array)
    if pa.types.is_boolean(wanted):
        truth, _ = to_booleans(array)
        return pa.array(truth == 1, mask=truth < 0)
    numbers, _ = to_numbers(array)
    if pa.types.is_integer(wanted):
        whole = np.isfinite(numbers) & (np.floor(numbers) == numbers) & (np.abs(numbers) <= 2.0**53)
        # A fraction is not null but unlisted: give it a key that no listed integer has.
        keys = np.where(whole, numbers, np.iinfo(np.int64).min).astype(np.int64)
        return pa.array(keys, mask=np.isnan(numbers) & _null_mask(array))
    return pa.array(numbers, mask=_null_mask(array))


def _to_text(array: pa.Array) -> pa.Array:
    if _is_text(array):
        return array
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        numbers, is_null = to_numbers(array)
        text = [None if null else _number_text(v) for v, null in zip(numbers, is_null, strict=True)]
        return pa.array(text, type=pa.string())
    if pa.types.is_binary(array.type) or pa.types.is_nested(array.type):
        return pa.nulls(len(array), pa.string())
    return array.cast(pa.string())


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(float(value))
