"""A keyed digest of a table's rows as they stream by, and a fingerprint of whole tables in files of any format.

Equal rows have the same digest, wherever they are stored.  Integers are equal in any width, float or decimal type;
days, moments and texts are equal in any layout.  Columns are identified by name.

The digest is MSet-Add-Hash (Clarke, Devadas, van Dijk, Gassend and Suh, "Incremental Multiset Hash Functions and
Their Application to Memory Integrity Checking", ASIACRYPT 2003).  It is the sum modulo 2^256 of a keyed hash of each
row, beside the number of rows.  The hash is BLAKE2b of 256 bits.  The hashed bytes of a row can be decoded, so
different rows have different bytes.

The key matters: sums of public hashes can be steered, even wide ones (Wagner, "A Generalized Birthday Problem", CRYPTO
2002).  Without the key, the hashes of rows are as good as random.  Two different tables chosen without the key, of
fewer than 2^40 rows each, have equal sums with probability at most 2^-216.  For some row occurs m more times in one of
them, with 0 < m < 2^40, and m times a random number must equal one value modulo 2^256.  No digest leaves the process.
The store records an HMAC of it, so comparing fingerprints reveals only whether two tables are equal.

The fingerprint is independent of the rows' order and of the file format.  It tells only whether two tables are equal,
not which rows they share.  Equal numbers, moments and truth values count as equal in any spelling: 1, 1.0 and "1";
2024-01-05, 05/01/2024 and 5 Jan 2024; true, TRUE and 1.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns.ordered_columns import MONTHS
from privsyn.tasks.codecs.parsing import split_union

KEY_BYTES = 32
"""Bytes of a digest's key, and of the hash of a row."""

_BLOCK_ROWS = 1 << 14
"""Rows whose bytes are in memory at one time."""

_INT64 = float(1 << 63)

_CELL = np.dtype([("word", "<u8"), ("tag", "<u4")])
"""The bytes of a cell: a number, or the length of a text in bytes, and a tag for its meaning."""

_NULL, _INTEGER, _LARGE, _FLOAT, _TIME, _TEXT = (np.uint32(0xFFFFFFFF - i) for i in range(6))
"""Tags of cells; the tag of a moment is its nanoseconds, which are smaller."""

RowsFingerprint = tuple[int, int]
"""The number of rows, and their digest by a key of this process (privsyn/sources/row_digest.py); never stored."""

_KEY = secrets.token_bytes(KEY_BYTES)
_STRING = pa.large_string()

_NOTHING = "\0"
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
_TIME_OF_DAY = re.compile(rf"(?=\d+:){_CLOCK}")
_TRUTH = {**dict.fromkeys(("true", "t", "yes", "y"), "1"), **dict.fromkeys(("false", "f", "no", "n"), "0")}


class RowDigest:
    """The digest of the rows so far: ``content``, which ignores their order, and ``order``, which does not."""

    def __init__(self, key: bytes) -> None:
        """Start the digest without rows; ``key``: KEY_BYTES secret bytes."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self.key, self.rows, self.content = key, 0, 0
        self._of_row = hashlib.blake2b(key=key, digest_size=KEY_BYTES, person=b"row")
        self._of_order = hashlib.blake2b(key=key, digest_size=KEY_BYTES, person=b"order")

    @property
    def order(self) -> bytes:
        """The digest of the rows in their order."""
        return self._of_order.digest()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch; the digest does not depend on batch sizes."""
        names = batch.schema.names
        columns = [batch.column(number) for number in sorted(range(len(names)), key=names.__getitem__)]
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            hashes = b"".join(self._hash_rows([column.slice(start, _BLOCK_ROWS) for column in columns]))
            self._of_order.update(hashes)
            self.content = (self.content + _sum_hashes(hashes)) % (1 << 8 * KEY_BYTES)
        self.rows += batch.num_rows

    def _hash_rows(self, columns: Sequence[pa.Array]) -> Iterator[bytes]:
        """Yield the keyed hash of each row, over all bytes of the row."""
        offsets, content = _lay_out_rows(columns)
        begin = self._of_row.copy
        for start, end in pairwise(offsets):
            hashed = begin()
            hashed.update(content[start:end])
            yield hashed.digest()

    def iterate_bytes(self, names: tuple[str, ...]) -> Iterator[bytes]:
        """Yield the bytes for a fingerprint of the rows with the columns ``names``."""
        yield f"keyed rows {self.rows} {self.content:x} {sorted(names)}".encode()


def _sum_hashes(hashes: bytes) -> int:
    """Return the sum of hashes of KEY_BYTES bytes each, as little-endian numbers."""
    words = np.frombuffer(hashes, "<u4").reshape(-1, KEY_BYTES // 4).sum(axis=0, dtype=np.uint64)
    return sum(int(word) << 32 * place for place, word in enumerate(words))


@dataclass(frozen=True)
class _Cells:
    """The cells of a column; ``words`` and ``tags``, shape (rows,); ``texts``: the texts of a text column."""

    words: NDArray[np.uint64]
    tags: NDArray[np.uint32] | np.uint32
    texts: pa.Array | None = None


def _lay_out_rows(columns: Sequence[pa.Array]) -> tuple[list[int], memoryview]:
    """Return the offsets of the rows, and their bytes: a fixed number for each cell, then the texts."""
    rows = len(columns[0])
    cells, texts = np.empty((rows, len(columns)), _CELL), []
    for number, column in enumerate(columns):
        found = _read_cells(column)
        cells["word"][:, number], cells["tag"][:, number] = found.words, found.tags
        texts += [] if found.texts is None else [found.texts]
    width, fixed = cells.dtype.itemsize * len(columns), cells.tobytes()
    if not texts:
        return list(range(0, rows * width + 1, width)), memoryview(fixed)
    parts = pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(fixed)]).cast(pa.large_binary())
    joined = pc.binary_join_element_wise(parts, *texts, pa.scalar(b"", pa.large_binary()))
    _, offsets, content = joined.buffers()
    return np.frombuffer(offsets, np.int64, rows + 1, joined.offset * 8).tolist(), memoryview(content)


def _read_cells(array: pa.Array) -> _Cells:
    """Return the content of the cells, the same for equal values of any stored type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind, valid = array.type, np.asarray(array.is_valid())
    if pa.types.is_null(kind):
        return _Cells(np.zeros(len(array), np.uint64), _NULL)
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        cells = _Cells(_read_integers(array.cast(pa.int64())), _INTEGER)
    elif pa.types.is_integer(kind):
        cells = _read_unsigned(array)
    elif pa.types.is_decimal(kind):
        cells = _read_decimals(array)
    elif pa.types.is_floating(kind):
        numbers = _to_floats(array)
        valid = valid & ~np.isnan(numbers)
        cells = _read_floats(np.where(valid, numbers, 0))
    elif pa.types.is_time(kind):
        cells = _Cells(_read_integers(array.cast(pa.time64("ns"), safe=False).cast(pa.int64())), _TIME)
    elif pa.types.is_temporal(kind):
        cells = _read_moments(array)
    else:
        texts = pc.fill_null(array.cast(pa.large_binary()), b"")
        cells = _Cells(pc.binary_length(texts).to_numpy().view(np.uint64), _TEXT, texts)
    if valid.all():
        return cells
    return _Cells(np.where(valid, cells.words, np.uint64(0)), np.where(valid, cells.tags, _NULL), cells.texts)


def _read_integers(array: pa.Array) -> NDArray[np.uint64]:
    return pc.fill_null(array, 0).to_numpy(zero_copy_only=False).view(np.uint64)


def _to_floats(array: pa.Array) -> NDArray[np.float64]:
    return pc.fill_null(array.cast(pa.float64(), safe=False), 0).to_numpy(zero_copy_only=False)


def _read_unsigned(array: pa.Array) -> _Cells:
    """Return numbers up to 2^64; beyond 63 bits as exact floats, if there are any."""
    values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    floats, small = values.astype(np.float64), values < 1 << 63
    exact = ~small & (floats.astype(np.longdouble) == values.astype(np.longdouble))
    words = np.where(exact, floats.view(np.uint64), values)
    return _Cells(words, np.where(small, _INTEGER, np.where(exact, _FLOAT, _LARGE)))


def _read_decimals(array: pa.Array) -> _Cells:
    """Return decimals: whole numbers as integers, others as floats."""
    floats, zero = _to_floats(array), pa.scalar(Decimal(0), array.type)
    values = pc.fill_null(array, zero)
    whole = np.asarray(pc.equal(pc.trunc(values), values)) & (np.abs(floats) < _INT64)
    integers = pc.if_else(pa.array(whole), pc.trunc(values), zero).cast(pa.int64())
    cells = _read_floats(floats)
    return _Cells(np.where(whole, _read_integers(integers), cells.words), np.where(whole, _INTEGER, cells.tags))


def _read_floats(numbers: NDArray[np.float64]) -> _Cells:
    """Return numbers; whole ones as integers."""
    whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < _INT64)
    integers = np.where(whole, numbers, 0).astype(np.int64).view(np.uint64)
    words = np.where(whole, integers, np.ascontiguousarray(numbers).view(np.uint64))
    return _Cells(words, np.where(whole, _INTEGER, _FLOAT))


def _read_moments(array: pa.Array) -> _Cells:
    """Return days and moments as seconds and the rest, since nanoseconds reach only until 2262."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    if not pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("s" if pa.types.is_date32(array.type) else "ms"))
    ticks = per_second[array.type.unit]
    seconds, rest = np.divmod(pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), ticks)
    return _Cells(seconds.view(np.uint64), (rest * (10**9 // ticks)).astype(np.uint32))


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
            rows, parts = [np.empty(0, np.int64)], [pa.array([], _STRING)]
            for some, part in split_union(column):
                cells = pc.dictionary_encode(part, null_encoding="encode")
                values = pa.array(_format_cells(cells.dictionary, moment=name in moments), _STRING)
                rows.append(some)
                parts.append(values.take(cells.indices))
            texts.append(pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows)))))
        digest.add(pa.RecordBatch.from_arrays(texts, names=list(names)))
    return digest.rows, digest.content


def compute_lines_fingerprint(files: Iterable[Path]) -> RowsFingerprint:
    """Return the fingerprint of the lines of text files, stripped of spaces, without empty lines."""
    digest = RowDigest(_KEY)
    for file in files:
        with file.open(encoding="utf-8-sig", errors="replace") as stream:
            while lines := stream.readlines(1 << 24):
                stripped = [line.strip() for line in lines if line.strip()]
                digest.add(pa.RecordBatch.from_arrays([pa.array(stripped, _STRING)], names=["line"]))
    return digest.rows, digest.content


def _format_cells(values: pa.Array, *, moment: bool) -> list[str]:
    """Return each value as text, independent of its file's format."""
    if pa.types.is_integer(values.type) and not moment:
        return [_NOTHING if text is None else text for text in values.cast(pa.string()).to_pylist()]
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
        return _NOTHING
    if isinstance(value, float | Decimal):
        return _format_number(Decimal(repr(value)) if isinstance(value, float) else value)
    text = str(value).strip().casefold()
    if not text:
        return _NOTHING
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
        return _NOTHING if value.is_nan() else str(value)
    if value and abs(value.adjusted()) > _LARGEST_POWER:
        return str(value)
    if value == int(value):
        return str(int(value))
    with np.errstate(over="ignore", under="ignore"):
        short = np.float32(value)
    return str(short) if np.isfinite(short) and short else repr(float(value))


def _format_moment(text: str, *, compact: bool) -> str | None:
    """Return a date, moment or time of day in any common spelling, its parts sorted; None for other text."""
    match = _MOMENT.fullmatch(text) or (_COMPACT.fullmatch(text) if compact else None)
    if match is None:
        clock = _TIME_OF_DAY.fullmatch(text)
        return None if clock is None else f"time {_count_seconds(clock.groupdict())}"
    parts = match.groupdict()
    numbers = [_read_part(parts[name] or "") for name in ("first", "second", "third")]
    if None in numbers:
        return None
    year, month, day = (int(number or 0) for number in numbers)
    seconds = _count_seconds(parts)
    if parts["zone_hour"] and year > 31:  # convert to UTC, possibly another day
        away = dt.timedelta(hours=int(parts["zone_hour"] or 0), minutes=int(parts["zone_minute"] or 0))
        away = -away if parts["sign"] == "-" else away
        try:
            moment = dt.datetime(year, month, day) + dt.timedelta(seconds=seconds) - away
        except (ValueError, OverflowError):
            return None
        year, month, day = moment.year, moment.month, moment.day
        seconds = 3600 * moment.hour + 60 * moment.minute + moment.second
    return f"day {sorted((year % 100, month % 100, day % 100))} {seconds}"


def _read_part(text: str) -> int | None:
    """Return the number of a date's part, which may be a month's name; None for other words."""
    return int(text) if text.isdecimal() else 1 + MONTHS.index(text[:3]) if text[:3] in MONTHS else None


def _count_seconds(parts: dict[str, str | None]) -> int:
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second_of"))
    if parts["half"]:
        hour = hour % 12 + (12 if parts["half"] == "p" else 0)
    return 3600 * hour + 60 * minute + second
