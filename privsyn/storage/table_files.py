"""Table files on disk: the files of a path, the columns in their headers, and writing: equal rows give equal bytes.

Errors name files and columns, never anything read from a row.
"""

from __future__ import annotations

import csv
import io
import os
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import RequestError
from privsyn.base.places import is_files_url
from privsyn.base.wording import mention
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.tables import choose_batch_rows
from privsyn.data_contracts.unicode import is_unicode
from privsyn.storage.stores import StoredFile, find_store
from privsyn.tasks.kernels.blocks import cut_batches

DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET = (".parquet", ".pq")
FILE_ENDINGS = (".csv", ".tsv", ".gz", ".parquet")
"""Endings of the files that this module reads; no package can take them."""

FORMATS = "CSV (.csv, .tsv, also with .gz) or Parquet (.parquet)"
_HEADER_BYTES = 1 << 22
_DEFAULTS = CsvOptions()

Place: TypeAlias = str | Path | tuple[Path, ...]
"""The place of a table: a file, a folder of files, an object store's URL, or the files (one or more) of one table."""

File: TypeAlias = Path | StoredFile
"""A file here, or an object of a store."""

_CSV_CURE = "Save the table as CSV in UTF-8 with one header line, or as Parquet"
_LINE = re.compile(rb"[^\r\n]*+(?:\r\n|[\r\n]|\Z)")
_NAMES_SHOWN = 5
_LONGEST_NAME = 1 << 17
"""Most characters of a name; this is the csv module's limit, unless another package in the process changed it."""

_BUFFER = 1 << 20
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class TableLayout:
    """The layout of one table's files: column names in the first file's order, and stored types.

    ``types``: column -> its Arrow type in the first Parquet file; None for CSV, which is all text.
    """

    files: tuple[File, ...]
    format: Literal["csv", "parquet"]
    columns: tuple[str, ...]
    types: dict[str, pa.DataType] | None

    def type_of(self, column: str) -> pa.DataType | None:
        """Return the stored type of a column in the first file; None: text."""
        return None if self.types is None else self.types[column]


@dataclass(frozen=True)
class StoredTable:
    """A whole table in Parquet files: a stream of batches, and its files for an engine."""

    files: tuple[Path, ...]
    batches: Callable[[], Iterator[pa.RecordBatch]]

    @property
    def num_rows(self) -> int:
        """The number of rows, from the files' metadata."""
        return sum(self.list_rows())

    def list_rows(self) -> list[int]:
        """Return the number of rows of each file, from its metadata."""
        return [pq.read_metadata(file).num_rows for file in self.files]


def read_layout(path: Place, known: Collection[str], csv: CsvOptions = _DEFAULTS) -> TableLayout:
    """Return the layout of a file, of a folder of files, or of listed files.

    ``known``: the column names that errors may show; without a header line, the first row of the data is in the names'
    place.  ``csv``: how CSV files are written.

    A folder's files are read in the order of their names.  Names that start with ``.`` or ``_`` are left out.  All
    files must have one format and the same columns, in any order.  Raises RequestError; reads only headers and schemas.
    """
    files = path if isinstance(path, tuple) else _list_files(path)
    parquet = {is_parquet(f) for f in files}
    if len(parquet) > 1:
        raise RequestError(f"{path} mixes CSV and Parquet files", "Keep one format in the folder", "data")
    first: TableLayout | None = None
    for file in files:
        columns, types = list_parquet_columns(file) if parquet == {True} else (read_csv_header(file, csv).names, None)
        refuse_repeats(columns, str(file), known)
        if first is None:
            first = TableLayout(files, "parquet" if types is not None else "csv", columns, types)
        elif set(columns) != set(first.columns):
            odd = sorted((set(columns) ^ set(first.columns)) & set(known))
            which = f": {join_names(odd)} is in only one of them" if odd else ""
            problem = f"{file.name} and {first.files[0].name} do not have the same columns{which}"
            raise RequestError(problem, "Give every file of the folder the same columns", "data")
    assert first is not None  # noqa: S101 - _files returns at least one file
    return first


def is_parquet(file: File) -> bool:
    """Return whether the file's name is a Parquet name."""
    return file.name.lower().endswith(PARQUET)


def detect_delimiter(file: File) -> str | None:
    """Return the field delimiter that the file's name implies; None if it is not a CSV name."""
    name = file.name.lower()
    return next((d for ending, d in DELIMITERS.items() if name.endswith(ending)), None)


def open_stream(file: File, encoding: str = "utf-8") -> Any:
    """Return a stream of the file's bytes as UTF-8, decompressed if its name ends in .gz.

    ``encoding``: UTF-8, or an encoding with one byte per character; an unassigned byte becomes U+FFFD.
    """
    compression: Any = "gzip" if file.name.lower().endswith(".gz") else None
    opened = file.open_stream() if isinstance(file, StoredFile) else str(file)
    stream = pa.input_stream(opened, compression=compression)
    return stream if encoding == "utf-8" else io.BufferedReader(_Utf8Stream(stream, encoding), _BUFFER)


def skip_bytes(stream: Any, size: int) -> None:
    """Skip ``size`` bytes of a stream, or as many as are left."""
    while size and (skipped := stream.read(size)):
        size -= len(skipped)


class _Utf8Stream(io.RawIOBase):
    """A UTF-8 stream of a stream with one byte per character; each byte is decoded by itself."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream, self._encoding, self._rest = stream, encoding, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = self._stream.read(_BUFFER).decode(self._encoding, "replace").encode()
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_parquet(file: str | File) -> Any:
    """Open a Parquet file for streaming, without Arrow's read-ahead, which would hold the whole file.

    Moments of 96 bits, as Spark writes them, are read as microseconds: as nanoseconds, the year 9999 would overflow.
    """
    opened = file.open_file() if isinstance(file, StoredFile) else file
    return pq.ParquetFile(opened, pre_buffer=False, buffer_size=_BUFFER, coerce_int96_timestamp_unit="us")


def iterate_batches(file: str | Path, row_groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, or of some row groups, in batches of bounded size, for columns of few bytes."""
    with open_parquet(file) as opened:
        rows = min(_ROWS_AT_ONCE, choose_batch_rows(opened.metadata.num_columns))
        yield from opened.iter_batches(rows, row_groups=None if row_groups is None else list(row_groups))


def join_names(names: Sequence[str]) -> str:
    """Return the first few names in quotation marks, and the number of further names."""
    shown = ", ".join(f"'{n[:80]}'" for n in names[:_NAMES_SHOWN])
    return shown + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")


@dataclass(frozen=True)
class CsvHeader:
    """The column names of a CSV file, and the number of its bytes, decompressed, before its first record."""

    names: tuple[str, ...]
    size: int


def read_csv_header(file: File, csv_options: CsvOptions = _DEFAULTS) -> CsvHeader:
    """Return the header of a CSV file: its first non-empty line.  Raises RequestError."""
    separator = csv_options.delimiter or detect_delimiter(file) or ","
    quoting: dict[str, Any] = {"quotechar": csv_options.quote} if csv_options.quote else {"quoting": csv.QUOTE_NONE}
    try:
        with open_stream(file, csv_options.encoding) as stream:
            head = stream.read(_HEADER_BYTES)
    except (OSError, EOFError, pa.ArrowException) as error:
        refuse_store_error(file, error)
        cure = "Check its permissions, and that it was copied whole"
        raise RequestError(f"{file} cannot be read", cure, "data") from None
    size = len(BOM_UTF8) if head.startswith(BOM_UTF8) else 0

    def lines() -> Iterator[str]:
        nonlocal size
        for line in _LINE.finditer(head, size):
            size = line.end()
            yield line.group().decode(errors="replace")

    try:
        names = next((tuple(row) for row in csv.reader(lines(), delimiter=separator, **quoting) if row), ())
        if any(len(name) > _LONGEST_NAME for name in names):
            raise csv.Error("a name is too long")
    except csv.Error:
        raise RequestError(f"{file} does not start with a header line", _CSV_CURE, "data") from None
    if not names:
        raise RequestError(f"{file} is empty: it has no header line", _CSV_CURE, "data")
    if any("\ufffd" in n or "\0" in n for n in names):
        cure = "Save it as UTF-8, or name its encoding, such as `csv: {encoding: cp1252}`"
        raise RequestError(f"{file} is not UTF-8 text", cure, "data")
    if len(names) == 1 and any(mark in names[0] for mark in (";", "\t", ",", "|")):
        kind = {"\t": "tabs", ",": "commas"}.get(separator, repr(separator))
        cure = 'Name the mark that separates them, such as `csv: {delimiter: ";"}`'
        raise RequestError(f"{file}: the fields of the header line are not separated by {kind}", cure, "data")
    return CsvHeader(names, size)


def list_parquet_columns(file: File) -> tuple[tuple[str, ...], dict[str, pa.DataType]]:
    """Return column names and stored types of a Parquet file.  Raises RequestError."""
    try:
        with open_parquet(file) as opened:
            schema = opened.schema_arrow
    except (OSError, EOFError, ValueError, KeyError, pa.ArrowException) as error:
        refuse_store_error(file, error)
        cure = "Check its permissions, and write or copy it again"
        raise RequestError(f"{file} is not a whole, readable Parquet file", cure, "data") from None
    return tuple(schema.names), dict(zip(schema.names, schema.types, strict=True))


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
"""The scheme of a path that was a URL; the rest may hold a password and is not shown."""


def refuse_url(path: Path, field: str) -> None:
    """Raise RequestError for a path that was a URL, unless such a path exists."""
    scheme = next((part for part in path.parts if _SCHEME.fullmatch(part)), None)
    if scheme and not os.path.exists(path):  # noqa: PTH110 - Path.exists raises for a long name
        cure = "Copy the table to a file or folder here, and name its path"
        raise RequestError(f"is a URL ({scheme}//), and URLs are not read", cure, field)


def refuse_store_error(file: File, error: Exception) -> None:
    """Raise RequestError if an object could not be read because of its store, or is another one by now."""
    if isinstance(file, StoredFile):
        file.refuse_failed(error)


def _list_files(place: str | Path) -> tuple[File, ...]:
    if is_files_url(place):
        stored = find_store(str(place), "data").list_files(str(place), "data")
        _refuse_other_names(stored)
        return stored
    path = Path(place)
    try:
        if path.is_dir():
            files = list_folder_entries(path)
            if not files:
                raise RequestError(f"the folder {path} holds no table", f"Put the table there as {FORMATS}", "data")
            _refuse_other_formats(files, path)
            return tuple(files)
        if not path.exists():
            refuse_url(path, "data")
            another = "Check the path, or give another with " + mention("release.data")
            raise RequestError(f"there is no file or folder {path}", another, "data")
        if not path.is_file():
            raise RequestError(f"{path} is neither a file nor a folder", f"Name a table as {FORMATS}", "data")
    except (OSError, ValueError):
        cure = "Check the path and its permissions"
        raise RequestError(f"{str(path)[:200]!r} cannot be read", cure, "data") from None
    _refuse_other_formats([path], path)
    return (path,)


def list_folder_entries(folder: Path) -> list[Path]:
    """Return the entries of a table's folder by name, without names that start with ``.`` or ``_``."""
    return sorted((p for p in folder.iterdir() if not p.name.startswith((".", "_"))), key=lambda p: p.name)


def _refuse_other_formats(files: Sequence[Path], where: Path) -> None:
    for file in files:
        if not is_unicode(file.name):
            raise RequestError(f"{where} holds {file.name!r}, whose name is not UTF-8 text", "Rename the file", "data")
        if not file.is_file():
            raise RequestError(f"{where} holds {file.name}, which is not a file", "Put all files in one folder", "data")
    _refuse_other_names(files)


def _refuse_other_names(files: Sequence[File]) -> None:
    for file in files:
        if not is_parquet(file) and detect_delimiter(file) is None:
            raise RequestError(f"{file} is of no known format", f"Save it as {FORMATS}, or move it elsewhere", "data")


def refuse_repeats(columns: Sequence[str], where: str, known: Collection[str] | None) -> None:
    """Raise RequestError unless the table has columns with distinct, non-empty names; ``where``: the table's name.

    ``known``: the names that the error may show; None: all.
    """
    if not columns:
        raise RequestError(f"{where} has no columns", "Name a table with at least one column", "data")
    if "" in columns:
        raise RequestError(
            f"{where} has a column without a name (number {columns.index('') + 1})",
            "Give every column a name; a saved row index often has none",
            "data",
        )
    for name, times in Counter(columns).items():
        if times > 1:
            shown = f"'{name}'" if known is None or name in known else f"number {columns.index(name) + 1}'s name"
            raise RequestError(f"{where} has {times} columns called {shown}", "Give every column its own name", "data")


PANDAS = b"pandas"
"""The schema metadata with the types that pandas reads a table as."""


def name_part(number: int) -> str:
    """Return the name of one file of a table in several parts."""
    return f"part-{number:05}.parquet"


def write_parts(
    folder: Path, table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, rows: Sequence[int]
) -> None:
    """Write a table into a folder, as files with ``rows`` rows each."""
    batches = table.to_batches() if isinstance(table, pa.Table) else table
    for number, part in groupby(cut_batches(batches, rows), key=lambda numbered: numbered[0]):
        write_parquet(folder / name_part(number), (batch for _, batch in part), schema)


def write_parquet(path: Path, table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write a table or a stream of batches of ``schema``; the file keeps the metadata of ``schema``.

    Raises ValueError for other columns.
    """
    batches = table.combine_chunks().to_batches() if isinstance(table, pa.Table) else table
    with TableWriter(path, schema) as writer:
        for batch in batches:
            writer.write(batch)


class TableWriter:
    """Writes one Parquet file, batch by batch; a context manager."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Create the file."""
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", store_schema=bool(schema.metadata))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the file."""
        self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch.  Raises ValueError for other columns than the schema's."""
        if not batch.schema.equals(self._schema, check_metadata=False):
            names = f"{batch.schema.names} and {self._schema.names}"
            raise ValueError(f"the table's columns are not the schema's: {names}")
        self._writer.write_batch(batch.replace_schema_metadata(None))


def strip_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with only pandas' types in its metadata, if there are any."""
    pandas_types = (schema.metadata or {}).get(PANDAS)
    return schema.remove_metadata() if pandas_types is None else schema.with_metadata({PANDAS: pandas_types})
