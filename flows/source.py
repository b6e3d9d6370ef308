"""The private table: checks its structure against the spec and streams its rows.

Belongs here: the only reading of private rows, in bounded memory, as Arrow batches.  Does not belong
here: meaning (tasks/codecs/ decides what a value is) and writing.  What can fail a release is
structure only (a missing column, an unreadable file), and no message holds anything from a row: a
parser's own words can contain the row, so they are never passed on.

CSV columns are always text, because a type guessed from private values would depend on them; fields
equal to one of the spec's ``null_values`` are null; wholly empty lines are left out.  Parquet columns
keep their stored types, which may differ from file to file; a moment with a time zone is its UTC clock
time once it is encoded (tasks/codecs/parsing.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from data_contracts.columns import DropColumn
from data_contracts.spec import ReleaseSpec
from flows.errors import RequestError
from flows.storage.table_files import (
    Layout,
    Place,
    delimiter,
    name_list,
    open_parquet,
    open_stream,
    parquet_columns,
    read_layout,
)

BATCH_ROWS = 131_072
_CSV_BLOCK = 1 << 23
"""Bytes of CSV parsed at a time; also the most that one row may have."""

_BROKEN = (OSError, EOFError, ValueError, KeyError, pa.ArrowException)
"""What pyarrow raises on a file that is not what its name says."""

_WHOLE: set[tuple[Any, ...]] = set()
"""Files, as they were when every row of theirs could be read."""


@dataclass(frozen=True)
class Source:
    """A private table whose structure fits the spec.

    ``columns``: every column of the table, in the (first) file's order.  ``read``: those that are
    streamed: all but the dropped ones, and ``unit.person_id`` if the spec names one.
    """

    layout: Layout
    read: tuple[str, ...]
    null_values: tuple[str, ...]

    @classmethod
    def open(cls, path: Place, spec: ReleaseSpec) -> Source:
        """Check that the table at ``path`` is readable and has exactly the spec's columns.

        Looks at headers and schemas only.  Raises RequestError that names the column or file.
        """
        layout = read_layout(path, spec.columns)
        _check_columns(layout, spec)
        dropped = {name for name, c in spec.columns.items() if isinstance(c, DropColumn)} - {spec.unit.person_id}
        read = tuple(name for name in layout.columns if name not in dropped)
        _check_types(layout, read)
        return cls(layout, read, spec.null_values)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column of the table, in the source's order."""
        return self.layout.columns

    @property
    def files(self) -> tuple[Path, ...]:
        """The table's files, in the order in which they are read."""
        return self.layout.files

    def check_rows(self) -> None:
        """Read every row once and keep none; RequestError as of :meth:`batches`.

        So a file that breaks off half way is refused before its release reserves anything.  Files that were read whole
        are not read again in this process unless one was written since.
        """
        stamps = tuple((str(f), (s := f.stat()).st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for f in self.files)
        key = (stamps, self.read, self.null_values)
        if key not in _WHOLE:
            for _ in self.batches():
                pass
            _WHOLE.add(key)

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows as batches of at most ``batch_rows`` rows with the columns ``read``, in their order.

        Streams: memory depends on the width of the table, not on its length.  Raises RequestError that
        names the file when it breaks off, is not UTF-8, or a CSV row has a wrong number of fields.
        """
        if batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1, not {batch_rows}")
        for file in self.files:
            stream = self._csv(file) if self.layout.format == "csv" else self._parquet(file, batch_rows)
            for batch in stream:
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)

    def _csv(self, file: Path) -> Iterator[pa.RecordBatch]:
        convert = pacsv.ConvertOptions(
            column_types=dict.fromkeys(self.columns, pa.string()),
            include_columns=list(self.read),
            null_values=list(self.null_values),
            strings_can_be_null=True,
            check_utf8=True,
        )
        parse = pacsv.ParseOptions(delimiter=delimiter(file) or ",", newlines_in_values=True)
        failure: RequestError | None = None
        try:
            with open_stream(file) as stream:
                options = pacsv.ReadOptions(block_size=_CSV_BLOCK)
                yield from pacsv.open_csv(stream, read_options=options, parse_options=parse, convert_options=convert)
        except _BROKEN as error:
            if "Empty CSV file" not in str(error)[:60]:  # that is a header line without an end: no rows
                failure = _csv_error(file, str(error), len(self.columns))
        if failure is not None:  # raised here, so that the parser's error is not even its context
            raise failure

    def _parquet(self, file: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
        whole = False
        try:
            with open_parquet(file) as table:
                for batch in table.iter_batches(batch_size=batch_rows, columns=list(self.read)):
                    batch.validate(full=True)  # text that is not UTF-8 would stop a step later on
                    yield batch.select(list(self.read))
            whole = True
        except _BROKEN:
            pass
        if not whole:
            raise RequestError(f"{file} breaks off or is damaged", "Write or copy the Parquet file again", "data")


def _csv_error(file: Path, words: str, fields: int) -> RequestError:
    """Which of the known failures the parser's words mean; the words themselves may hold a row."""
    if "columns, got" in words[:60]:
        return RequestError(
            f"{file} has a row with more or fewer fields than the {fields} of its header",
            "Put quotation marks around fields with commas or line breaks, and mend other rows",
            "data",
        )
    if words.endswith("invalid UTF8 data"):
        return RequestError(f"{file} is not UTF-8 text", "Save it as UTF-8", "data")
    if words.startswith("straddling"):
        return RequestError(
            f"{file} has a row longer than {_CSV_BLOCK >> 20} MiB, or an open quotation mark",
            "Close every quotation mark",
            "data",
        )
    return RequestError(f"{file} breaks off or is not a whole CSV file", "Write or copy it again", "data")


def _check_columns(layout: Layout, spec: ReleaseSpec) -> None:
    """Same names on both sides; names that only the file has are shown once all of the spec's are there,
    because without a header line they would be the first row."""
    missing = [name for name in spec.columns if name not in set(layout.columns)]
    unlisted = [name for name in layout.columns if name not in spec.columns]
    where = layout.files[0].name
    if missing:
        alike = {name.strip().casefold() for name in unlisted}
        hint = "Mind capital letters and spaces. " if missing[0].strip().casefold() in alike else ""
        raise RequestError(
            f"the spec lists {name_list(missing)}, which {where} does not have",
            f"{hint}Correct the name in the spec, or take the column out of it",
            "columns",
        )
    if unlisted:
        raise RequestError(
            f"{where} has {name_list(unlisted)}, which the spec does not list",
            "List every column of the table; `{kind: drop}` leaves one out of the release",
            "columns",
        )


def _check_types(layout: Layout, read: tuple[str, ...]) -> None:
    if layout.types is None:
        return
    for file in layout.files:
        types = layout.types if file == layout.files[0] else parquet_columns(file)[1]
        for name in read:
            if not readable(types[name]):
                raise RequestError(
                    f"its type in {file.name} is {str(types[name])[:60]}, which cannot be encoded",
                    "Store it as numbers, text, booleans or moments, or list it as `{kind: drop}`",
                    f"columns.{name}",
                )


def readable(type_: Any) -> bool:
    """Whether columns of this Arrow type can be encoded: numbers, text, booleans, dates, moments, times."""
    if pa.types.is_dictionary(type_):
        return readable(type_.value_type)
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_time,
        pa.types.is_null,
    )
    return any(test(type_) for test in tests)
