"""A private table in files: CSV or Parquet, one file or a folder of them, streamed.

CSV columns are always text, because a type guessed from private values would depend on them; fields
equal to one of the spec's ``null_values`` are null; wholly empty lines are left out.  Parquet columns
keep their stored types, which may differ from file to file; a moment with a time zone is its UTC clock
time once it is encoded (tasks/codecs/parsing.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.errors import RequestError
from privsyn.source.private_table import Source, check_types, columns_to_read, without_views
from privsyn.storage.table_files import (
    Layout,
    Place,
    delimiter,
    open_parquet,
    open_stream,
    parquet_columns,
    read_layout,
)

if TYPE_CHECKING:
    from privsyn.storage.store import Store

_CSV_BLOCK = 1 << 23
"""Bytes of CSV parsed at a time; also the most that one row may have."""

_BROKEN = (OSError, EOFError, ValueError, KeyError, pa.ArrowException)
"""What pyarrow raises on a file that is not what its name says."""

_WHOLE: set[tuple[Any, ...]] = set()
"""Files, as they were when every row of theirs could be read."""


@dataclass(frozen=True, eq=False)
class FileSource(Source):
    """A table in files whose structure fits the spec; ``columns`` are in the first file's order."""

    layout: Layout
    null_values: tuple[str, ...]

    @classmethod
    def open(cls, path: Place, spec: ReleaseSpec) -> FileSource:
        """Check that the table at ``path`` is readable and has exactly the spec's columns.

        Looks at headers and schemas only.  Raises RequestError that names the column or file.
        """
        if not path:
            raise RequestError("names no table", "Give a path, or hand over a table in memory", "data")
        layout = read_layout(path, spec.columns)
        read = columns_to_read(layout.columns, spec, layout.files[0].name)
        _check_types(layout, read)
        return cls(layout.columns, read, {name: layout.type_of(name) for name in read}, layout, spec.null_values)

    @property
    def files(self) -> tuple[Path, ...]:
        """The table's files, in the order in which they are read."""
        return self.layout.files

    @property
    def names(self) -> tuple[str, ...]:
        """The files' paths."""
        return tuple(str(file) for file in self.files)

    def fingerprint(self, store: Store) -> str:
        """HMAC (hex) of the files' bytes, by the private root's key."""
        return store.fingerprint(self.files)

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """The table's fingerprint, and those of its files, each as a table of its own, where it has several."""
        macs = [store.mac(file) for file in self.files]
        single = [store.fingerprint_of_macs([mac]) for mac in macs] if len(macs) > 1 else []
        return (store.fingerprint_of_macs(macs), *single)

    def check_rows(self) -> None:
        """Read every row once and keep none; RequestError as of :meth:`batches`.

        Files that were read whole are not read again in this process unless one was written since.
        """
        stamps = tuple((str(f), (s := f.stat()).st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for f in self.files)
        key = (stamps, self.read, self.null_values)
        if key not in _WHOLE:
            for _ in self.batches():
                pass
            _WHOLE.add(key)

    def _stream(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            yield from self._csv(file) if self.layout.format == "csv" else self._parquet(file, batch_rows)

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
                    arrays = [without_views(batch.column(name)) for name in self.read]
                    yield pa.RecordBatch.from_arrays(arrays, names=list(self.read))
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


def _check_types(layout: Layout, read: tuple[str, ...]) -> None:
    if layout.types is None:
        return
    for file in layout.files:
        types = layout.types if file == layout.files[0] else parquet_columns(file)[1]
        check_types(types, read, file.name)
