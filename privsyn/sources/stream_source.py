"""A private table that a reader streams: of a database, or of whatever else has no files of CSV or Parquet.

A release passes over its table several times.  Each pass is held to the rows of the first one, and to their order, so
that all of them see one table, also where a snapshot had to be opened again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from privsyn.base.data_url import DataUrl
from privsyn.base.errors import RequestError
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.private_table import Note, Source, check_types, list_columns_to_read, with_valid_text
from privsyn.sources.readers.reader import Reader
from privsyn.sources.row_digest import RowDigest
from privsyn.storage.table_files import refuse_repeats

if TYPE_CHECKING:
    from privsyn.storage.store import Store


def open_reader(url: DataUrl) -> Reader:
    """Return a reader of the table; its snapshot begins here.  Raises RequestError."""
    if url.scheme == "postgresql":
        from privsyn.sources.readers.postgresql import PostgresReader

        return PostgresReader(url)
    if url.scheme == "duckdb":
        from privsyn.sources.readers.duckdb_file import DuckdbReader

        return DuckdbReader(url)
    from privsyn.sources.readers.sqlite import SqliteReader

    return SqliteReader(url)


def read_schema(url: DataUrl) -> pa.Schema:
    """Return the columns of the table with their types; no row is read.  Raises RequestError."""
    reader = open_reader(url)
    reader.close()
    return reader.schema


@dataclass
class _Snapshot:
    """The reader that is open now, and the digest of the first whole pass."""

    reader: Reader | None = None
    first: RowDigest | None = None

    def close(self) -> None:
        """End the snapshot."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None


@dataclass(frozen=True, eq=False)
class StreamSource(Source):
    """A table behind a reader whose structure fits the spec; ``place`` is where it is, as it is noted privately."""

    place: str
    open_reader: Callable[[], Reader] = field(repr=False)
    _snapshot: _Snapshot = field(default_factory=_Snapshot, repr=False)

    @classmethod
    def open(cls, url: DataUrl, spec: ReleaseSpec) -> StreamSource:
        """Check that the table is readable and has exactly the spec's columns.  Raises RequestError.

        The first pass begins in the snapshot that is opened here.
        """
        if spec.csv != CsvOptions():
            raise RequestError("says how CSV files are written, and the table is in a database", "Take it out", "csv")
        reader = open_reader(url)
        try:
            columns = tuple(reader.schema.names)
            refuse_repeats(columns, url.where, spec.columns)
            read = list_columns_to_read(columns, spec, url.where)
            types = {name: reader.schema.field(name).type for name in read}
            check_types(types, read, spec, url.where)
        except BaseException:
            reader.close()
            raise
        snapshot = _Snapshot(reader)
        source = cls(columns, read, types, str(url), lambda: open_reader(url), snapshot)
        weakref.finalize(source, snapshot.close)
        return source

    @property
    def names(self) -> tuple[str, ...]:
        """The URL, which holds no password."""
        return (self.place,)

    def fingerprint(self, store: Store) -> str:
        """HMAC (hex) of the columns that are read, by the private root's key, of the rows that every pass is held to.

        Equal rows have the same in any order, and in whatever database they are.
        """
        return store.fingerprint_of_table(self._measure().iterate_bytes(self.read))

    def check_rows(self) -> None:
        """Read every row once, unless a pass did, and keep none; RequestError as of :meth:`batches`."""
        self._measure()

    def _measure(self) -> RowDigest:
        if self._snapshot.first is None:
            for _ in self.batches():
                pass
        assert self._snapshot.first is not None  # noqa: S101 - a whole pass sets it
        return self._snapshot.first

    def close(self) -> None:
        """End the snapshot; a later pass opens another one, which has to have the same rows."""
        self._snapshot.close()

    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        if self._snapshot.reader is None:
            self._snapshot.reader = self.open_reader()
        digest = RowDigest()
        try:
            for batch in self._snapshot.reader.read(self.read, batch_rows, note):
                valid = with_valid_text(batch, note)
                digest.add(valid)
                yield valid
            self._compare(digest)
        except RequestError:
            self.close()
            raise

    def _compare(self, digest: RowDigest) -> None:
        """Hold a whole pass to the first one.  Raises RequestError."""
        first = self._snapshot.first
        if first is None:
            self._snapshot.first = digest
        elif (digest.content, digest.rows) != (first.content, first.rows):
            raise RequestError(
                "the private table changed while it was read", "Run again once it is complete", "release.data"
            )
        elif digest.order != first.order:
            raise RequestError(
                "the rows came in another order when they were read again; nothing was spent",
                "Name a table, or end the query with ORDER BY over columns that tell every row apart",
                "data",
            )
