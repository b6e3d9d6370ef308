"""A fingerprint of a whole table's rows, independent of their order and file format.

It tells only whether two tables are equal, not which rows they share.  Equal numbers, moments and truth values count as
equal in any spelling: 1, 1.0 and "1"; 2024-01-05, 05/01/2024 and 5 Jan 2024; true, TRUE and 1.
"""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.data_contracts.columns.ordered_columns import MONTHS
from privsyn.sources.row_digest import KEY_BYTES, RowDigest
from privsyn.tasks.codecs.parsing import split_union

RowsFingerprint = tuple[int, int]
"""The number of rows, and their digest by a key of this process (privsyn/sources/row_digest.py); never stored."""

_KEY = secrets.token_bytes(KEY_BYTES)
_TEXT = pa.large_string()

_NULL = "\0"
_LARGEST_POWER = 400
"""Numbers with more digits are compared as written."""

_DAY = (
    r"(?:[a-z]{3,9}\.?,? +)?(?P<first>\d{1,4}|[a-z]{3,9})[-/., ]+(?P<second>\d{1,2}|[a-z]{3,9})[-/., ]+"
    r"(?P<third>\d{1,4})"
)
_CLOCK = r"(?P<hour>\d{1,2})(?::?(?P<minute>\d{2})(?::?(?P<second_of>\d{2})(?:[.,]\d+)?)?)? *(?:(?P<half>[ap])\.?m\.?)?"
_ZONE = r" *(?:z|utc|(?P<sign>[+-])(?P<zone_hour>\d{2})(?::?(?P<zone_minute>\d{2}))?)?"
_MOMENT = re.compile(rf"{_DAY}(?:(?:t|,? +){_CLOCK}{_ZONE})?")
_COMPACT = re.compile(rf"(?P<first>\d{{4}})(?P<second>\d{{2}})(?P<third>\d{{2}})(?:[t ]{_CLOCK}{_ZONE})?")
_TIME = re.compile(rf"(?=\d+:){_CLOCK}")
_TRUTH = {**dict.fromkeys(("true", "t", "yes", "y"), "1"), **dict.fromkeys(("false", "f", "no", "n"), "0")}


def compute_rows_fingerprint(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], moments: Collection[str] = ()
) -> RowsFingerprint:
    """Return the fingerprint of the columns ``names``; ``moments``: date and time columns, where 20240105 is a date."""
    digest = RowDigest(_KEY)
    for batch in batches:
        texts = []
        for name in names:
            column = batch.column(batch.schema.get_field_index(name))
            if pa.types.is_dictionary(column.type):  # dictionary_encode would leave its nulls without a code
                column = column.dictionary_decode()
            if pa.types.is_decimal(column.type):  # Arrow cannot encode decimals of 32 or 64 bits
                column = column.cast(pa.decimal256(column.type.precision, column.type.scale))
            rows, parts = [np.empty(0, np.int64)], [pa.array([], _TEXT)]
            for some, part in split_union(column):
                cells = pc.dictionary_encode(part, null_encoding="encode")
                values = pa.array(_format_cells(cells.dictionary, moment=name in moments), _TEXT)
                rows.append(some)
                parts.append(values.take(cells.indices))
            texts.append(pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows)))))
        digest.add(pa.RecordBatch.from_arrays(texts, names=list(names)))
    return digest.rows, digest.content


def compute_lines_fingerprint(files: Iterable[Path]) -> RowsFingerprint:
    """Return the fingerprint of the lines of text files, stripped of spaces, without empty lines."""
    digest = RowDigest(_KEY)
    for lines in _iterate_lines(files):
        digest.add(pa.RecordBatch.from_arrays([pa.array(lines, _TEXT)], names=["line"]))
    return digest.rows, digest.content


def _iterate_lines(files: Iterable[Path], size: int = 1 << 24) -> Iterator[list[str]]:
    for file in files:
        with file.open(encoding="utf-8-sig", errors="replace") as stream:
            while lines := stream.readlines(size):
                if stripped := [line.strip() for line in lines if line.strip()]:
                    yield stripped


def _format_cells(values: pa.Array, *, moment: bool) -> list[str]:
    """Return each value as text, independent of its file's format."""
    if pa.types.is_integer(values.type) and not moment:
        return [_NULL if text is None else text for text in values.cast(pa.string()).to_pylist()]
    if pa.types.is_timestamp(values.type):
        zone = None if values.type.tz is None else "UTC"  # the stored zone's name may be unknown here
        values = values.cast(pa.timestamp("us", zone), safe=False)
    return [_format_cell(value, moment=moment) for value in _list_values(values)]


def _list_values(values: pa.Array) -> list[Any]:
    """Return the values in Python; values beyond Python's dates and times as text with their number."""
    with suppress(OverflowError, ValueError):
        return values.to_pylist()
    return [_get_value(value) for value in values]


def _get_value(value: pa.Scalar) -> Any:
    with suppress(OverflowError, ValueError):
        return value.as_py()
    return f"beyond {value.value}"


def _format_cell(value: Any, *, moment: bool = False) -> str:
    if value is None:
        return _NULL
    if isinstance(value, float | Decimal):
        return _format_number(Decimal(repr(value)) if isinstance(value, float) else value)
    text = str(value).strip().casefold()
    if not text:
        return _NULL
    moment_text = _format_moment(text, compact=moment)
    if moment_text is not None:
        return moment_text
    try:
        return _format_number(Decimal(text))
    except InvalidOperation:
        return _TRUTH.get(text, text)


def _format_number(value: Decimal) -> str:
    """Return a whole number exactly, and another to the digits that every format keeps: 32-bit precision."""
    if not value.is_finite():
        return _NULL if value.is_nan() else str(value)
    if value and abs(value.adjusted()) > _LARGEST_POWER:
        return str(value)
    if value == int(value):
        return str(int(value))
    with np.errstate(over="ignore", under="ignore"):
        short = np.float32(value)
    return str(short) if np.isfinite(short) and short else repr(float(value))


def _format_moment(text: str, *, compact: bool) -> str | None:
    """Return a date, moment or time of day in any common spelling; None for other text.

    Day, month and the year's last two digits are sorted, since spellings differ in their order.
    """
    match = _MOMENT.fullmatch(text) or (_COMPACT.fullmatch(text) if compact else None)
    if match is None:
        clock = _TIME.fullmatch(text)
        return None if clock is None else f"time {_count_seconds(clock.groupdict())}"
    parts = match.groupdict()
    numbers = [_read_part(parts[name] or "") for name in ("first", "second", "third")]
    if None in numbers:
        return None
    year, month, day = (int(number or 0) for number in numbers)
    seconds = _count_seconds(parts)
    if parts["zone_hour"] and year > 31:  # convert to UTC, possibly another day
        try:
            moment = dt.datetime(year, month, day) + dt.timedelta(seconds=seconds) - _read_zone(parts)
        except (ValueError, OverflowError):
            return None
        year, month, day = moment.year, moment.month, moment.day
        seconds = 3600 * moment.hour + 60 * moment.minute + moment.second
    return f"day {sorted((year % 100, month % 100, day % 100))} {seconds}"


def _read_part(text: str) -> int | None:
    """Return the number of a date's part, which may be a month's name; None for other words."""
    return int(text) if text.isdecimal() else 1 + MONTHS.index(text[:3]) if text[:3] in MONTHS else None


def _count_seconds(parts: dict[str, str | None]) -> int:
    """Return the seconds since midnight."""
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second_of"))
    if parts["half"]:
        hour = hour % 12 + (12 if parts["half"] == "p" else 0)
    return 3600 * hour + 60 * minute + second


def _read_zone(parts: dict[str, str | None]) -> dt.timedelta:
    away = dt.timedelta(hours=int(parts["zone_hour"] or 0), minutes=int(parts["zone_minute"] or 0))
    return -away if parts["sign"] == "-" else away
