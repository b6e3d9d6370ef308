"""A private table in files: CSV or Parquet, one file or a folder of them, streamed.

CSV columns are always text, because a type guessed from private values would depend on them; csv_fields.py interprets
the fields.  Empty lines are left out.  A record is a line (csv_lines.py), unless ``csv.line_breaks`` is set.  Parquet
columns keep their stored types, which may differ from file to file.  Moments with a time zone are converted to the
clock time of the column's ``zone`` (tasks/codecs/parsing.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from privsyn.base.errors import RequestError
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.unicode import adopt_names
from privsyn.sources.csv_lines import LineReader, as_written, build_text_options
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
        layout = _adopt_names_of(layout, spec)
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

    def fingerprint(self, store: Store) -> str:
        """Return the HMAC (hex) by the root's key of the files' bytes, or of the store's digests of its objects."""
        return store.fingerprint_of_macs([_mark(file, store) for file in self.files])

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """Return the table's fingerprint; with several files, also the fingerprint of each as a table of its own."""
        macs = [_mark(file, store) for file in self.files]
        single = [store.fingerprint_of_macs([mac]) for mac in macs] if len(macs) > 1 else []
        return (store.fingerprint_of_macs(macs), *single)

    def check_rows(self) -> int:
        """Read every row once and keep none; see :class:`Source`.

        Files read to the end once in this process are read again only if they were written since.
        """
        key = (tuple(_stamp(file) for file in self.files), self.read, self.spec.csv)
        if key not in _WHOLE:
            _WHOLE[key] = sum(batch.num_rows for batch in self.batches())
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
        damaged = RequestError(
            f"{file} breaks off or is damaged {BY_A_VALUE}", "Write or copy the Parquet file again", "data"
        )
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


def _adopt_names_of(layout: TableLayout, spec: ReleaseSpec) -> TableLayout:
    """Return the layout with the columns' names in the spec's spelling."""
    columns = adopt_names(layout.columns, spec.columns)
    types = layout.types
    if types is not None:
        types = {name: types[stored] for name, stored in zip(columns, layout.columns, strict=True)}
    return replace(layout, columns=columns, types=types)


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
