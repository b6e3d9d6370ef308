"""CSV files whose records are lines: every line is read by itself, so that one record changes one row at most.

Belongs here: where lines end, which of them are records, and rows as text.  Does not belong here: the header line
(privsyn/storage/table_files.py), files whose values hold line breaks (privsyn/sources/file_source.py).

pyarrow reads a block of lines at once.  That is as good as reading each alone if every record that it found is one
line, which shows in their number; where it is not, a pattern says of each line by itself whether it is a record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from privsyn.sources.private_table import LEFT_OUT, Note, with_valid_text

MAX_LINE_BYTES = 1 << 23
"""Bytes that a line may have."""

_BLOCK = MAX_LINE_BYTES // 2
"""Bytes that are read at a time, so that only the first line of a block can be longer than MAX_LINE_BYTES."""

_PIECE = 1 << 16
"""Bytes whose lines are counted at a time, so that they stay in the processor's cache."""

_ENDS = re.compile(rb"[\r\n]+")


class LineReader:
    """The records of a CSV file with the columns ``names``, of which ``read`` are kept.

    A line ends at a line feed, a carriage return, or both; an empty one is nothing.  A line is a record if its quoting
    is closed, it has as many fields as there are names, and no more than MAX_LINE_BYTES bytes.  Others are left out.
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
        """Yield the records of a stream of bytes that begins after the header line, text that is not UTF-8 as null.

        ``note`` is told of lines that are left out and of such texts.
        """
        for block in _read_blocks(stream):
            batch = self._read_whole_block(block)
            if batch is None:
                batch = self._read_one_by_one(block, note)
            if batch.num_rows:
                yield batch

    def _read_whole_block(self, block: bytes) -> pa.RecordBatch | None:
        """Return the rows of a block; None unless each line is empty or a record, and all its text is UTF-8.

        A record that does not end with its line takes in a later one, at the latest the guard.
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
        """Return the rows of those lines of a block that are records."""
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
    """Return the columns ``read`` as text, null where a field is one of ``null_values``."""
    return pacsv.ConvertOptions(
        column_types=dict.fromkeys(read, pa.string()),
        include_columns=list(read),
        null_values=list(null_values),
        strings_can_be_null=True,
        check_utf8=check_utf8,
    )


def _read_blocks(stream: Any) -> Iterator[bytes]:
    """Yield the stream in blocks of whole lines, the last with an end added; lines beyond MAX_LINE_BYTES are cut.

    Each begins with an empty line: pyarrow takes a byte order mark off whatever begins with one.
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
    """Return how many lines of the block, which ends with one, are not empty."""
    characters, lines = np.frombuffer(block, np.uint8), 0
    for start in range(0, len(characters), _PIECE):
        piece = characters[max(0, start - 1) : start + _PIECE]
        ends = (piece == ord("\n")) | (piece == ord("\r"))
        lines += int(np.count_nonzero(ends[1:] > ends[:-1]))
    return lines


def _build_record_pattern(fields: int, delimiter: bytes, quote: bytes = b'"') -> re.Pattern[bytes]:
    """Match lines of so many fields.  A field that begins with a quotation mark is quoted up to the next single one.

    Whatever follows up to the delimiter belongs to it, further marks too, as pyarrow has it.
    """
    other = rb"[^%s]*+" % re.escape(delimiter)
    field = rb"(?:Q(?:[^Q]++|QQ)*+Q%s|(?!Q)%s)".replace(b"Q", quote) % (other, other) if quote else other
    return re.compile(rb"%s(?:%s%s){%d}" % (field, re.escape(delimiter), field, fields - 1))
