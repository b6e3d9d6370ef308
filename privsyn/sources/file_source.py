"""A private table in files: CSV or Parquet, one file or a folder of them, streamed.

CSV columns are always text, because a type guessed from private values would depend on them.  Empty lines are left
out.  A record is a line, unless ``csv.line_breaks`` is set.  Parquet columns keep their stored types, which may differ
from file to file.  Moments with a time zone are converted to the clock time of the column's ``zone``
(tasks/codecs/parsing.py).

In a CSV file with one record a line, each line is read by itself.  So one record changes at most one row.
pyarrow reads a block of lines at once.  That equals reading each line alone if every record is one line, which their
number shows.  Otherwise, a pattern decides for each line whether it is a record.
A field (null texts, decimal marks) is read by itself, too.  The header line is read by
privsyn/storage/table_files.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from privsyn.base.errors import RequestError
from privsyn.data_contracts.columns import CategoricalColumn, IntegerColumn, NumberColumn
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.unicode import adopt_names
from privsyn.sources.private_table import (
    BY_A_VALUE,
    LEFT_OUT,
    Note,
    Source,
    check_types,
    list_columns_to_read,
    with_valid_text,
)
from privsyn.storage.stores import StoredFile
from privsyn.storage.table_files import (
    File,
    Place,
    TableLayout,
    detect_delimiter,
    list_parquet_columns,
    open_parquet,
    open_stream,
    read_csv_header,
    read_layout,
    refuse_store_error,
    skip_bytes,
)
from privsyn.tasks.codecs.numbers import get_short_float

if TYPE_CHECKING:
    from privsyn.storage.store import Store


_RECORDS_BLOCK = 1 << 23
"""Bytes of CSV parsed at a time if records may span lines; also the most bytes of one record."""

_BROKEN = (OSError, EOFError, ValueError, KeyError, pa.ArrowException)
"""The exceptions of pyarrow for a damaged file, or a file of another format."""

_WHOLE: dict[tuple[Any, ...], int] = {}
"""Stamps of files that were read to the end -> their number of rows."""

MAX_LINE_BYTES = 1 << 23
"""Most bytes of a line."""

_BLOCK = MAX_LINE_BYTES // 2
"""Bytes read at a time; only the first line of a block can then exceed MAX_LINE_BYTES."""

_PIECE = 1 << 16
"""Bytes scanned for line ends at a time, small enough for the processor's cache."""

_ENDS = re.compile(rb"[\r\n]+")


@dataclass(frozen=True, eq=False)
class FileSource(Source):
    """A table in files whose structure fits the spec; ``columns`` are in the first file's order."""

    layout: TableLayout
    spec: ReleaseSpec

    @classmethod
    def open(cls, path: Place, spec: ReleaseSpec) -> FileSource:
        """Check that the table at ``path`` is readable and has exactly the spec's columns.

        Reads only headers and schemas.  Raises RequestError that names the column or file.
        """
        if not path:
            raise RequestError("names no table", "Give a path, or hand over a table in memory", "data")
        layout = read_layout(path, spec.columns, spec.csv)
        if layout.format == "parquet" and spec.csv != CsvOptions():
            raise RequestError("describes CSV files, but the table is Parquet", "Take it out", "csv")
        columns, stored = adopt_names(layout.columns, spec.columns), layout.types
        named_types = None if stored is None else {n: stored[s] for n, s in zip(columns, layout.columns, strict=True)}
        layout = replace(layout, columns=columns, types=named_types)
        read = list_columns_to_read(layout.columns, spec, layout.files[0].name)
        types = {name: layout.type_of(name) for name in read} | _check_types(layout, read, spec)
        return cls(layout.columns, read, types, layout, spec)

    @property
    def files(self) -> tuple[File, ...]:
        """The table's files, in reading order."""
        return self.layout.files

    @property
    def names(self) -> tuple[str, ...]:
        """The files' paths."""
        return tuple(str(file) for file in self.files)

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """See :class:`Source`: of the files' bytes, or of the store's digests of its objects."""
        macs = [_mark(file, store) for file in self.files]
        single = [store.fingerprint_of_macs([mac]) for mac in macs] if len(macs) > 1 else []
        return (store.fingerprint_of_macs(macs), *single)

    def check_rows(self) -> int:
        """Read every row once and keep none; see :class:`Source`.

        Files read to the end once in this process are read again only if they were written since.
        """
        key = (tuple(_stamp(file) for file in self.files), self.read, self.spec.csv)
        if key not in _WHOLE:
            _WHOLE[key] = super().check_rows()
        return _WHOLE[key]

    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            if self.layout.format == "csv":
                yield from self._iterate_csv(file, note)
            else:
                yield from read_parquet(file, self.read, batch_rows, note)
            if isinstance(file, StoredFile):
                file.refuse_changed()

    def _iterate_csv(self, file: File, note: Note) -> Iterator[pa.RecordBatch]:
        options = self.spec.csv
        header, mark = read_csv_header(file, options), options.delimiter or detect_delimiter(file) or ","
        names = adopt_names(header.names, self.spec.columns)
        failure = None
        try:
            with open_stream(file, options.encoding) as stream:
                skip_bytes(stream, header.size)
                if options.line_breaks:
                    batches = self._iterate_records(names, mark, stream, note)
                else:
                    batches = LineReader(names, self.read, mark, (), options.quote).batches(stream, note)
                for batch in batches:
                    yield as_written(batch, self.spec)
        except _BROKEN as error:
            failure = _find_store_error(file, error) or _make_csv_error(file, str(error))
        if failure is not None:  # raised here, so that the parser's error is not its context
            raise failure

    def _iterate_records(self, names: Sequence[str], mark: str, stream: Any, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield records that may span several lines, if they have as many fields as there are names.

        The end of a record depends on every quotation mark before it.
        """

        def left_out(row: pacsv.InvalidRow) -> str:
            note("", Counter({LEFT_OUT: 1}))
            return "skip"

        options = pacsv.ReadOptions(column_names=list(names), block_size=_RECORDS_BLOCK)
        parse = pacsv.ParseOptions(delimiter=mark, newlines_in_values=True, invalid_row_handler=left_out)
        parse.quote_char = self.spec.csv.quote or False
        convert = build_text_options(self.read, (), check_utf8=False)
        try:
            for batch in pacsv.open_csv(stream, options, parse, convert):
                yield with_valid_text(batch, note)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error)[:60]:  # a header line without records
                raise


def read_parquet(
    file: File | str, read: Sequence[str], batch_rows: int, note: Note, row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the columns ``read`` of a Parquet file's rows, or of some row groups.

    Raises RequestError that names the file if it cannot be read.
    """
    failure = None
    try:
        with open_parquet(file) as table:
            groups = None if row_groups is None else list(row_groups)
            names = table.schema_arrow.names
            stored = dict(zip(adopt_names(names, read), names, strict=True))
            wanted = [stored.get(name, name) for name in read]
            for batch in table.iter_batches(batch_size=batch_rows, row_groups=groups, columns=wanted):
                yield with_valid_text(batch.select(wanted).rename_columns(list(read)), note)
    except _BROKEN as error:
        problem = f"{file} breaks off or is damaged {BY_A_VALUE}"
        damaged = RequestError(problem, "Write or copy the Parquet file again", "data")
        failure = (None if isinstance(file, str) else _find_store_error(file, error)) or damaged
    if failure is not None:
        raise failure


def _mark(file: File, store: Store) -> str:
    """Return the HMAC that identifies a file: of its bytes, or of the store's digest of an object.

    Objects with equal Azure ETags, or equal size and time, may differ; then noise drawn for one would be reused for the
    other.  So only real digests are trusted.
    """
    if not isinstance(file, StoredFile):
        return store.mac(file)
    if file.is_digest:
        file.refuse_changed()
        return store.mark("object", file.mark)
    mac = store.mac_stream(file.iterate_bytes())
    file.refuse_changed()
    return mac


def _stamp(file: File) -> tuple[Any, ...]:
    if isinstance(file, StoredFile):
        return (str(file), file.mark)
    stat = file.stat()
    return (str(file), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _find_store_error(file: File, error: Exception) -> RequestError | None:
    """Return the error of a store, or of an object that changed; None if the object itself is damaged."""
    try:
        refuse_store_error(file, error)
    except RequestError as failure:
        failure.__context__ = failure.__cause__ = None  # the original messages may hold a row or a key
        return failure
    return None


def _make_csv_error(file: File, words: str) -> RequestError:
    """Return the known failure behind the parser's message; the message itself may hold a row."""
    if words.startswith("straddling"):
        return RequestError(
            f"{file} has a record longer than {_RECORDS_BLOCK >> 20} MiB, or an open quotation mark {BY_A_VALUE}",
            "Close every quotation mark, or leave `line_breaks` out",
            "csv.line_breaks",
        )
    return RequestError(f"{file} breaks off or is not a whole CSV file {BY_A_VALUE}", "Write or copy it again", "data")


def _check_types(layout: TableLayout, read: tuple[str, ...], spec: ReleaseSpec) -> dict[str, pa.DataType]:
    """Check the types of all files; return the types of columns stored as short floats in some file."""
    short: dict[str, pa.DataType] = {}
    if layout.types is None:
        return short
    for file in layout.files:
        types = layout.types
        if file != layout.files[0]:
            stored = list_parquet_columns(file)[1]
            types = dict(zip(adopt_names(list(stored), read), stored.values(), strict=True))
        check_types(types, read, spec, file.name)
        short |= {name: types[name] for name in read if get_short_float(types[name]) is not None}
    return short


class LineReader:
    """The records of a CSV file with the columns ``names``; only the columns ``read`` are kept.

    A line ends at a line feed, a carriage return, or both; empty lines are ignored.  A line is a record if its quotes
    are closed, it has as many fields as ``names``, and at most MAX_LINE_BYTES bytes.  Other lines are left out.
    """

    def __init__(
        self, names: Sequence[str], read: Sequence[str], delimiter: str, null_values: Sequence[str], quote: str = '"'
    ) -> None:
        self._names, self._quote = list(names), quote.encode()
        self._is_record = _build_record_pattern(len(names), delimiter.encode(), self._quote).fullmatch
        self._guard = delimiter.encode() * (len(names) - 1) + b"\n" if len(names) > 1 else b"0\n"
        self._parse = pacsv.ParseOptions(delimiter=delimiter, quote_char=quote or False)
        self._checked = build_text_options(read, null_values, check_utf8=True)
        self._unchecked = build_text_options(read, null_values, check_utf8=False)

    def batches(self, stream: Any, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the records of a byte stream that begins after the header line; text that is not UTF-8 becomes null.

        ``note`` counts the lines left out and the invalid texts.
        """
        for block in _read_blocks(stream):
            batch = self._read_whole_block(block)
            if batch is None:
                batch = self._read_one_by_one(block, note)
            if batch.num_rows:
                yield batch

    def _read_whole_block(self, block: bytes) -> pa.RecordBatch | None:
        """Return the rows of a block; None unless each line is empty or a record, and all its text is UTF-8.

        A record with an open quote takes in a later line, at the latest the guard, so the number of rows falls short.
        """
        if len(block) > MAX_LINE_BYTES:
            return None
        quoted = bool(self._quote) and self._quote in block
        try:
            batch = self._parse_lines(block + self._guard if quoted else block, self._checked)
        except pa.ArrowInvalid:
            return None
        if not quoted:
            return batch
        rows = batch.num_rows - 1
        return batch.slice(0, rows) if rows == _count_lines(block) else None

    def _read_one_by_one(self, block: bytes, note: Note) -> pa.RecordBatch:
        """Return the rows of the records among a block's lines."""
        lines = [line for line in _ENDS.split(block) if line]
        records = [line for line in lines if len(line) <= MAX_LINE_BYTES and self._is_record(line)]
        note("", +Counter({LEFT_OUT: len(lines) - len(records)}))
        batch = self._parse_lines(b"\n".join([b"", *records, self._guard]), self._unchecked).slice(0, len(records))
        return with_valid_text(batch, note)

    def _parse_lines(self, lines: bytes, convert: pacsv.ConvertOptions) -> pa.RecordBatch:
        options = pacsv.ReadOptions(column_names=self._names, block_size=len(lines) + 1)
        table = pacsv.read_csv(pa.BufferReader(lines), options, self._parse, convert)
        columns = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, names=table.column_names)


def build_text_options(read: Sequence[str], null_values: Sequence[str], *, check_utf8: bool) -> pacsv.ConvertOptions:
    """Return options that read the columns ``read`` as text, null where a field is one of ``null_values``."""
    return pacsv.ConvertOptions(
        column_types=dict.fromkeys(read, pa.string()),
        include_columns=list(read),
        null_values=list(null_values),
        strings_can_be_null=True,
        check_utf8=check_utf8,
    )


def _read_blocks(stream: Any) -> Iterator[bytes]:
    """Yield the stream in blocks of whole lines, with a final line end added; lines are cut above MAX_LINE_BYTES.

    Each block begins with an empty line, because pyarrow strips a byte order mark from the start of its input.
    """
    rest = b""
    while chunk := stream.read(_BLOCK):
        end = 1 + max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        if end:
            yield b"".join((b"\n", rest, memoryview(chunk)[:end]))
            rest = chunk[end:]
        else:
            rest = (rest + chunk)[: MAX_LINE_BYTES + 1]
    if rest:
        yield b"\n" + rest + b"\n"


def _count_lines(block: bytes) -> int:
    """Return the number of non-empty lines of the block, which ends with a line end."""
    characters, lines = np.frombuffer(block, np.uint8), 0
    for start in range(0, len(characters), _PIECE):
        piece = characters[max(0, start - 1) : start + _PIECE]
        ends = (piece == ord("\n")) | (piece == ord("\r"))
        lines += int(np.count_nonzero(ends[1:] > ends[:-1]))
    return lines


def _build_record_pattern(fields: int, delimiter: bytes, quote: bytes = b'"') -> re.Pattern[bytes]:
    """Match lines with ``fields`` fields.  A field that begins with a quote ends at the next single quote.

    As in pyarrow, anything after it up to the delimiter belongs to the field, including more quotes.
    """
    other = rb"[^%s]*+" % re.escape(delimiter)
    field = rb"(?:Q(?:[^Q]++|QQ)*+Q%s|(?!Q)%s)".replace(b"Q", quote) % (other, other) if quote else other
    return re.compile(rb"%s(?:%s%s){%d}" % (field, re.escape(delimiter), field, fields - 1))


NOT_A_NUMBER = "not a number: "
"""Prefix of a text with other marks than the spec's, so that 1.5 is not read as fifteen."""


def as_written(batch: pa.RecordBatch, spec: ReleaseSpec) -> pa.RecordBatch:
    """Return a batch of texts with nulls and numbers parsed as the spec says."""
    columns = []
    for name, texts in zip(batch.schema.names, batch.columns, strict=True):
        texts = drop_null_texts(texts, spec.nulls_of(name))
        column = spec.columns[name]
        numeric = isinstance(column, IntegerColumn | NumberColumn) or (
            isinstance(column, CategoricalColumn) and any(isinstance(value, float) for value in column.values)
        )
        columns.append(parse_numbers(texts, spec.csv) if numeric and not spec.csv.plain_numbers else texts)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def drop_null_texts(texts: pa.Array, null_values: Sequence[str]) -> pa.Array:
    """Return the texts, with those in ``null_values`` as null."""
    if not null_values:
        return texts
    is_null = pc.is_in(texts, value_set=pa.array(null_values, texts.type))
    return pc.if_else(is_null, pa.scalar(None, texts.type), texts)


def parse_numbers(texts: pa.Array, options: CsvOptions) -> pa.Array:
    """Return numbers with the options' marks as numbers with a point; other texts get the prefix NOT_A_NUMBER."""
    decimal, thousands = re.escape(options.decimal), re.escape(options.thousands)
    groups = f"|[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+" if thousands else ""
    whole = f"(?:[0-9]+{groups})"
    pattern = rf"^\s*[+-]?(?:{whole}(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"
    is_number = pc.match_substring_regex(texts, pattern)
    plain = texts
    if options.thousands:
        plain = pc.replace_substring(plain, options.thousands, "")
    plain = pc.replace_substring(plain, options.decimal, ".")
    marked = pc.binary_join_element_wise(pa.scalar(NOT_A_NUMBER), texts, "")
    return pc.if_else(is_number, plain, marked)
