"""CSV files with one record a line: each line is read by itself, so one record changes at most one row.

Belongs here: where lines end, which of them are records, and rows as text.  Does not belong here: the header line
(privsyn/storage/table_files.py), files whose values hold line breaks (privsyn/sources/file_source.py).

pyarrow reads a block of lines at once.  That equals reading each line alone if every record is one line, which their
number shows.  Otherwise, a pattern decides for each line whether it is a record.

A field (null texts, decimal marks) is read by itself, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from privsyn.data_contracts.columns import CategoricalColumn, Column, IntegerColumn, NumberColumn
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.private_table import LEFT_OUT, Note, with_valid_text

MAX_LINE_BYTES = 1 << 23
"""Most bytes of a line."""

_BLOCK = MAX_LINE_BYTES // 2
"""Bytes read at a time; only the first line of a block can then exceed MAX_LINE_BYTES."""

_PIECE = 1 << 16
"""Bytes scanned for line ends at a time, small enough for the processor's cache."""

_ENDS = re.compile(rb"[\r\n]+")


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
        numeric = _holds_numbers(spec.columns[name])
        columns.append(parse_numbers(texts, spec.csv) if numeric and not spec.csv.plain_numbers else texts)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _holds_numbers(column: Column) -> bool:
    """Return whether a column holds numbers, or categories with decimals."""
    if isinstance(column, CategoricalColumn):
        return any(isinstance(value, float) for value in column.values)
    return isinstance(column, IntegerColumn | NumberColumn)


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
