"""Total parsers: turn any Arrow array of a readable type into numbers, moments, booleans or category keys.

CSV gives text; Parquet gives typed arrays.  A table in memory may have columns of Python objects, which are dense
unions: each cell has its own type and is read like a column of that type.

Every result depends on its own value and the column's type alone, never on other rows: the sensitivity of every query
rests on it (tests/privacy/test_row_locality.py).  So nothing here may infer a type, a format or a resolution from a
batch, as the pandas parsers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns.ordered_columns import MONTHS, count_digits

_TRUE = ["true", "t", "yes", "y", "1", "1.0"]
_FALSE = ["false", "f", "no", "n", "0", "0.0"]

_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"
_COMPACT_DATE = r"^([0-9]{4})([0-9]{2})([0-9]{2})($|[Tt ])"
_MOMENT = (
    r"^(?P<year>[0-9]{4})(?:[-/.](?P<month>[0-9]{1,2})(?:[-/.](?P<day>[0-9]{1,2})"
    r"(?:(?:[Tt]| +)(?P<hour>[0-9]{1,2})(?::?(?P<minute>[0-9]{2})(?::?(?P<second>[0-9]{2})"
    r"(?:[.,](?P<fraction>[0-9]+))?)?)?"
    r" *(?:[Zz]|UTC|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-9]{2}))?)?)?)?)?$"
)
_NAMES_ZONE = r"(?:[Zz]|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_TIME = r"^(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?$"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def get_value_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, or the type itself."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def decode_dictionary(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one chunk, without dictionary encoding; large and view strings become strings."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def split_union(array: pa.Array) -> Iterator[tuple[NDArray[np.int64], pa.Array]]:
    """Yield each cell type of a dense union: its rows, and their cells as an array of that type.

    Any other array is one part.
    """
    if not pa.types.is_union(array.type):
        yield np.arange(len(array)), array
        return
    codes, offsets = get_type_codes(array), _read_buffer(array, 2, np.int32)
    for code in range(array.type.num_fields):
        rows = np.flatnonzero(codes == code)
        if rows.size:
            yield rows, array.field(code).take(pa.array(offsets[rows]))


def get_type_codes(array: pa.Array) -> NDArray[np.int8]:
    """Return the type code of each cell of a dense union, shape (rows,)."""
    return _read_buffer(array, 1, np.int8)


def _read_buffer(array: pa.Array, number: int, type_: Any) -> NDArray[Any]:
    """Return a buffer's values for the array's rows; unlike pyarrow's properties, respects the offset of a slice."""
    values = np.frombuffer(array.buffers()[number], type_) if len(array) else np.empty(0, type_)
    return values[array.offset : array.offset + len(array)]


_Settings = ParamSpec("_Settings")
_Parser = Callable[Concatenate[Any, _Settings], tuple[NDArray[Any], NDArray[np.bool_]]]


def _parse_unions(parse: _Parser[_Settings]) -> _Parser[_Settings]:
    """Extend a parser of typed arrays to unions, parsing the cells of each type separately."""

    @wraps(parse)
    def parse_any(source: Any, *args: _Settings.args, **kwargs: _Settings.kwargs) -> Any:
        array = decode_dictionary(source)
        if not pa.types.is_union(array.type):
            return parse(array, *args, **kwargs)
        rows, parts = zip(*split_union(array), strict=True) if len(array) else ([np.arange(0)], [pa.nulls(0)])
        values, is_null = zip(*(parse(part, *args, **kwargs) for part in parts), strict=True)
        order = np.argsort(np.concatenate(rows))
        return np.concatenate(values)[order], np.concatenate(is_null)[order]

    return parse_any


def _is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type))


def find_nulls(array: pa.Array) -> NDArray[np.bool_]:
    """Return the mask of nulls and NaN, shape (rows,)."""
    return np.asarray(pc.is_null(array, nan_is_null=True))


@_parse_unions
def to_numbers(source: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return float64 values (NaN if null or not a number) and the mask of nulls, both of shape (rows,).

    Text is read as a decimal number; booleans are 0 and 1; moments and other types are not numbers.
    """
    array = decode_dictionary(source)
    is_null = find_nulls(array)
    kind = array.type
    if _is_text(array):
        return _parse_numbers(array), is_null
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif not is_number(kind):
        return np.full(len(array), np.nan), is_null
    as_float = array.cast(pa.float64(), safe=False)
    return np.array(as_float.to_numpy(zero_copy_only=False), dtype=np.float64), is_null


@_parse_unions
def to_seconds(
    source: Any, pattern: str = "", zone: str | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return seconds since 1970 (NaN if null or not a moment) and the mask of nulls, both of shape (rows,).

    Text is read as ISO 8601, or by the regular expression ``pattern`` (time_formats.py); fractions of a second are cut
    to six digits.  A moment with a time zone, stored or written, becomes clock time in ``zone``, else in UTC.  A number
    is a moment only under a ``pattern``, which reads its digits.
    """
    array = decode_dictionary(source)
    is_null = find_nulls(array)
    if pattern and is_number(array.type):
        array = _to_text(array)
        array = pc.utf8_lpad(array, count_digits(pattern), "0") if count_digits(pattern) else array  # leading zeros
    kind = array.type
    seconds: NDArray[np.float64]
    if _is_text(array):
        seconds, zoned = _parse_seconds(array, pattern)
        seconds = np.where(zoned, _convert_to_clock_time(seconds, zone), seconds)
    elif pa.types.is_date32(kind):
        seconds = _to_integers(array.view(pa.int32())).astype(np.float64) * 86_400
    elif pa.types.is_date64(kind):
        seconds = _split_seconds(_to_integers(array.view(pa.int64())), _PER_SECOND["ms"])
    elif pa.types.is_timestamp(kind):
        seconds = _split_seconds(_to_integers(array.view(pa.int64())), _PER_SECOND[kind.unit])
        seconds = _convert_to_clock_time(seconds, zone) if kind.tz is not None else seconds
    else:
        return np.full(len(array), np.nan), is_null
    return np.where(is_null, np.nan, seconds), is_null


def is_number(type_: Any) -> bool:
    """Return whether an Arrow type is numeric: integer, float or decimal."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _to_integers(array: pa.Array) -> NDArray[np.int64]:
    """Return an integer array as int64, 0 for null."""
    return np.asarray(pc.fill_null(array, 0)).astype(np.int64)


def _split_seconds(ticks: NDArray[np.int64], per_second: int) -> NDArray[np.float64]:
    """Return ticks as seconds, exact for whole seconds, without overflow."""
    micros = (ticks % per_second) * 10**6 // per_second
    return (ticks // per_second) + micros / 1e6


def _parse_numbers(array: pa.Array) -> NDArray[np.float64]:
    """Return the decimal numbers in texts, NaN elsewhere; one text at a time."""
    text = pc.utf8_trim_whitespace(array)
    text = pc.if_else(pc.match_substring_regex(text, _NUMBER), text, pa.scalar(None, pa.string()))
    return np.array([np.nan if t is None else float(t) for t in text.to_pylist()], dtype=np.float64)


def _parse_seconds(array: pa.Array, pattern: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return seconds since 1970 of texts, by their digits, NaN elsewhere, and which texts name their zone."""
    text = pc.utf8_trim_whitespace(array)
    text = text if pattern else pc.replace_substring_regex(text, _COMPACT_DATE, r"\1-\2-\3\4")
    parts = pc.extract_regex(text, pattern or _MOMENT)
    named_parts = {field.name for field in parts.type}

    def part(name: str, default: str = "0") -> NDArray[np.int64]:
        if name not in named_parts:
            return np.full(len(array), int(default))
        digits = pc.fill_null(pc.struct_field(parts, name), "")
        if name == "fraction":
            digits = pc.utf8_rpad(pc.utf8_slice_codeunits(digits, 0, 6), 6, "0")
        return np.asarray(pc.if_else(pc.equal(digits, ""), default, digits).cast(pa.int64()))

    year, month, day = part("year"), part("month", "1"), part("day", "1")
    if "short_year" in named_parts:
        year = part("short_year") + np.where(part("short_year") < 69, 2_000, 1_900)
    if "month_name" in named_parts:
        names = pc.utf8_lower(pc.struct_field(parts, "month_name"))
        month = 1 + np.asarray(pc.fill_null(pc.index_in(names, value_set=pa.array(MONTHS)), -1)).astype(np.int64)
    hour, minute, second, zone_hour, zone_minute = (
        part(name) for name in ("hour", "minute", "second", "zone_hour", "zone_minute")
    )
    valid = np.asarray(pc.is_valid(parts)) & (month >= 1) & (month <= 12)
    if "half_hour" in named_parts:
        hour = part("half_hour")
        valid &= (hour >= 1) & (hour <= 12)
        after = pc.equal(pc.utf8_lower(pc.struct_field(parts, "half")), "p")
        hour = hour % 12 + 12 * np.asarray(pc.fill_null(after, False))
    months = ((year - 1970) * 12 + np.clip(month, 1, 12) - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    following = (months + 1).astype("datetime64[D]").astype(np.int64)
    valid &= (day >= 1) & (first + day <= following)
    valid &= (hour < 24) & (minute < 60) & (second < 60) & (zone_hour < 24) & (zone_minute < 60)
    zoned, west = np.zeros(len(array), dtype=bool), np.zeros(len(array), dtype=bool)
    if "sign" in named_parts:
        west = np.asarray(pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), False))
        zoned = np.asarray(pc.fill_null(pc.match_substring_regex(text, _NAMES_ZONE), False))
    offset = (zone_hour * 3_600 + zone_minute * 60) * np.where(west, -1, 1)
    whole = (first + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second - offset
    return np.where(valid, whole + part("fraction") / 1e6, np.nan), zoned


def _convert_to_clock_time(seconds: NDArray[np.float64], zone: str | None) -> NDArray[np.float64]:
    """Return UTC moments as clock time in a zone, one by one; those outside the years 1 to 9999 keep their order."""
    if zone is None or zone == "UTC":
        return seconds
    import pandas as pd  # it has the zone rules on every system

    whole_seconds = np.floor(np.clip(np.nan_to_num(seconds), -62_135_510_400, 253_402_214_400)).astype("datetime64[s]")
    clock_time = pd.DatetimeIndex(whole_seconds).tz_localize("UTC").tz_convert(zone).tz_localize(None).to_numpy()
    return seconds + (clock_time.astype("datetime64[s]") - whole_seconds).astype(np.float64)


@_parse_unions
def to_times(source: Any, format_: str, zone: str | None = None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return minutes (``HH:MM``, ``hhmm``) or seconds since midnight, NaN if null or not a time, and the null mask.

    Moments and stored times give their time of day; numbers and texts are read by ``format_``.
    """
    array = decode_dictionary(source)
    is_null, per_minute = find_nulls(array), format_ in ("HH:MM", "hhmm")
    if pa.types.is_timestamp(array.type):
        seconds = to_seconds(array, zone=zone)[0] % 86_400
    elif pa.types.is_time(array.type):
        integer = pa.int32() if pa.types.is_time32(array.type) else pa.int64()
        ticks = _to_integers(array.view(integer))
        seconds = np.where(is_null, np.nan, _split_seconds(ticks, _PER_SECOND[array.type.unit]))
    elif format_ in ("HH:MM", "HH:MM:SS"):
        seconds = _parse_times(array) if _is_text(array) else np.full(len(array), np.nan)
    else:
        numbers = to_numbers(array)[0]
        with np.errstate(invalid="ignore", over="ignore"):
            if format_ == "seconds":
                seconds = np.where((numbers >= 0) & (numbers < 86_400), numbers, np.nan)
            else:
                numbers = np.where(numbers == 2_400, 0, numbers)
                right = (numbers >= 0) & (numbers < 2_400) & (numbers % 100 < 60)
                seconds = np.where(right, np.floor(numbers / 100) * 3_600 + np.floor(numbers % 100) * 60, np.nan)
    return np.floor(seconds / 60 if per_minute else seconds), is_null


def _parse_times(array: pa.Array) -> NDArray[np.float64]:
    """Return seconds since midnight of texts such as 9:05, 14:35:20.5 and 24:00, NaN elsewhere."""
    parts = pc.extract_regex(pc.utf8_trim_whitespace(array), _TIME)

    def part(name: str) -> NDArray[np.int64]:
        digits = pc.fill_null(pc.struct_field(parts, name), "")
        return np.asarray(pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64()))

    hour, minute, second = part("hour"), part("minute"), part("second")
    valid = np.asarray(pc.is_valid(parts)) & (minute < 60) & (second < 60)
    valid &= (hour < 24) | ((hour == 24) & (minute == 0) & (second == 0))
    return np.where(valid, (hour % 24) * 3_600.0 + minute * 60 + second, np.nan)


@_parse_unions
def to_booleans(source: Any) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Return 1, 0, or -1 (null or neither), and the mask of nulls, both of shape (rows,)."""
    array = decode_dictionary(source)
    is_null = find_nulls(array)
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
    """Return the array as keys comparable with a list of values of type ``wanted``; null if a value cannot be one.

    Text values match the text of numbers (a whole float is written without its point); number values match numbers
    written as text.
    """
    array = decode_dictionary(source)
    if pa.types.is_union(array.type):
        rows, parts = zip(*split_union(array), strict=True) if len(array) else ([np.arange(0)], [pa.nulls(0)])
        keys = pa.concat_arrays([to_keys(part, wanted) for part in parts])
        return keys.take(pa.array(np.argsort(np.concatenate(rows))))
    if pa.types.is_string(wanted):
        return _to_text(array)
    if pa.types.is_boolean(wanted):
        truth, _ = to_booleans(array)
        return pa.array(truth == 1, mask=truth < 0)
    unlisted = np.iinfo(np.int64).min
    if pa.types.is_integer(wanted) and pa.types.is_integer(array.type):
        if pa.types.is_uint64(array.type):
            wrap = pa.scalar(2**63, pa.uint64())
            array = pc.if_else(pc.greater_equal(array, wrap), wrap, array)
        return array.cast(pa.int64(), safe=False)  # 2**63 wraps to a key that no listed integer has
    numbers, _ = to_numbers(array)
    if pa.types.is_integer(wanted):
        is_whole = np.isfinite(numbers) & (np.floor(numbers) == numbers) & (np.abs(numbers) < 2.0**53)
        # a fraction is unlisted, not null: use a key that no listed integer has
        keys = np.full(len(numbers), unlisted)
        keys[is_whole] = numbers[is_whole].astype(np.int64)
        return pa.array(keys, mask=np.isnan(numbers) & find_nulls(array))
    return pa.array(numbers, mask=find_nulls(array))


def _to_text(array: pa.Array) -> pa.Array:
    """Return each value as text: equal values of any type get equal text, different values different text."""
    kind = array.type
    if _is_text(array):
        return array
    if pa.types.is_floating(kind):
        numbers, is_null = to_numbers(array)
        text = [None if null else _format_number(v) for v, null in zip(numbers, is_null, strict=True)]
        return pa.array(text, type=pa.string())
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else _format_decimal(v) for v in array.to_pylist()], type=pa.string())
    if pa.types.is_timestamp(kind):  # drop the time zone's name, which may be unknown here
        array = array.view(pa.int64()).view(pa.timestamp(kind.unit))
    if pa.types.is_binary(kind) or pa.types.is_nested(kind):
        return pa.nulls(len(array), pa.string())
    return array.cast(pa.string())


def _format_number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(float(value))


def _format_decimal(value: Decimal) -> str:
    """Return all digits, without an exponent, trailing zeros or a negative zero, and without using floats."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
