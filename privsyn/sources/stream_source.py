"""A private table that a reader streams: from a database, or from a file other than CSV and Parquet.

A release passes over its table several times.  Each pass is compared with the rows and the order of the first one, so
all passes see one table, even if a snapshot had to be opened again.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl, is_files_url, is_url
from privsyn.base.registry import find_parts, load_part
from privsyn.base.wording import mention
from privsyn.data_contracts.columns import Column
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.unicode import adopt_names
from privsyn.sources.databases import DuckdbReader, PostgresReader, SqliteReader
from privsyn.sources.private_table import BY_A_VALUE, Note, Source, check_types, list_columns_to_read, with_valid_text
from privsyn.sources.reader import Connector, Reader
from privsyn.sources.row_digest import KEY_BYTES, RowDigest
from privsyn.storage.table_files import FILE_ENDINGS, refuse_repeats

if TYPE_CHECKING:
    from privsyn.storage.store import Store

_DATABASES: Mapping[str, Callable[[DataUrl], Reader]] = {
    "postgresql": PostgresReader,
    "sqlite": SqliteReader,
    "duckdb": DuckdbReader,
}
"""The scheme of a database: its reader."""


def is_streamed(place: object) -> TypeGuard[str | Path]:
    """Return whether a reader reads a place: the URL of a table, or a file with an ending that a package adds."""
    if is_url(place):
        return not is_files_url(place)
    ending = Path(place).suffix.lower() if isinstance(place, str | Path) else ""
    return ending not in FILE_ENDINGS and ending in find_parts("connectors")


def open_reader(place: str | Path, columns: Mapping[str, Column] | None = None) -> Reader:
    """Return a reader of the table; its snapshot begins here.  Raises RequestError.

    ``columns``: the spec's columns, which interpret the values of statistics programs; None without a spec.
    """
    failure = None
    try:
        if is_url(place):
            url = DataUrl.parse(str(place))
            return _DATABASES[url.scheme](url) if url.scheme in _DATABASES else _open_by(url.scheme, url, columns)
        path = Path(place)
        if not path.is_file():
            another = "Check the path, or give another with " + mention("release.data")
            raise RequestError(f"there is no file {path}", another, "data")
        return _open_by(path.suffix.lower(), path, columns)
    except RequestError as error:
        failure = error
    raise _drop_context(failure)


def _open_by(name: str, place: DataUrl | Path, columns: Mapping[str, Column] | None) -> Reader:
    """Return the reader of a connector that a package adds; the name of a scheme ends before a plus sign."""
    connector: Connector = load_part("connectors", name.partition("+")[0], "data")
    return connector.open_table(place, columns)


def _drop_context(error: RequestError) -> RequestError:
    """Return the error without its cause, whose message may hold a value or a password."""
    error.__context__ = error.__cause__ = None
    return error


def read_schema(place: str | Path, columns: Mapping[str, Column] | None = None) -> pa.Schema:
    """Return the columns of the table with their types; no row is read.  Raises RequestError.

    ``columns``: as in :func:`open_reader`.
    """
    reader = open_reader(place, columns)
    reader.close()
    return reader.schema


def name_place(place: str | Path) -> str:
    """Return the table's name in errors."""
    return DataUrl.parse(str(place)).where if is_url(place) else Path(place).name


@dataclass
class _Snapshot:
    """The open reader, the digest of the first whole pass, and its key, random until a fingerprint is asked for."""

    reader: Reader | None = None
    first: RowDigest | None = None
    key: bytes = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES), repr=False)

    def close(self) -> None:
        """End the snapshot."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None


@dataclass(frozen=True, eq=False)
class StreamSource(Source):
    """A table behind a reader, whose structure fits the spec; ``place``: its place in the private run note.

    ``stored``: the stored names of the columns ``read``.
    """

    place: str
    open_reader: Callable[[], Reader] = field(repr=False)
    stored: tuple[str, ...]
    _snapshot: _Snapshot = field(default_factory=_Snapshot, repr=False)

    @classmethod
    def open(cls, place: str | Path, spec: ReleaseSpec) -> StreamSource:
        """Check that the table is readable and has exactly the spec's columns.  Raises RequestError.

        The first pass uses the snapshot that is opened here.
        """
        if spec.csv != CsvOptions():
            raise RequestError("describes CSV files, but the table is not one", "Take it out", "csv")
        where, reader = name_place(place), open_reader(place, spec.columns)
        try:
            refuse_repeats(reader.schema.names, where, spec.columns)
            columns = adopt_names(reader.schema.names, spec.columns)
            stored = dict(zip(columns, reader.schema.names, strict=True))
            read = list_columns_to_read(columns, spec, where)
            types = {name: reader.schema.field(stored[name]).type for name in read}
            check_types(types, read, spec, where)
        except BaseException:
            reader.close()
            raise
        snapshot = _Snapshot(reader)
        pinned = reader.place or str(place)
        names = tuple(stored[name] for name in read)
        source = cls(columns, read, types, pinned, lambda: open_reader(pinned, spec.columns), names, snapshot)
        weakref.finalize(source, snapshot.close)
        return source

    @property
    def names(self) -> tuple[str, ...]:
        """The path, or the URL, which holds no password."""
        return (self.place,)

    def pin(self, place: str | dict[str, str]) -> str | dict[str, str]:
        """Return the place with the version that is read."""
        return self.place

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """Return the HMAC (hex), by the private root's key, of the rows of the columns that are read.

        Every pass is checked against these rows.  Equal rows have the same fingerprint in any order and any database.
        Without the key, nobody can choose rows so that two tables share one (privsyn/sources/row_digest.py).
        """
        digest = self._measure_by(store.derive_key("rows of a table"))
        return (store.fingerprint_of_table(digest.iterate_bytes(self.read)),)

    def check_rows(self) -> int:
        """Read every row once, unless a pass did, and keep none; see :class:`Source`."""
        return self._measure().rows

    def _measure_by(self, key: bytes) -> RowDigest:
        """Return the rows' digest by the key, for later passes to match; a digest by another key is computed again."""
        snapshot = self._snapshot
        if snapshot.first is None:
            snapshot.key = key
        if snapshot.key != key:
            digest = RowDigest(key)
            for batch in self.batches():  # compared with the first pass, as every pass is
                digest.add(batch)
            snapshot.first, snapshot.key = digest, key
        return self._measure()

    def _measure(self) -> RowDigest:
        if self._snapshot.first is None:
            for _ in self.batches():
                pass
        assert self._snapshot.first is not None  # noqa: S101 - a whole pass sets it
        return self._snapshot.first

    def close(self) -> None:
        """End the snapshot; a later pass opens another one, which must have the same rows."""
        self._snapshot.close()

    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        if self._snapshot.reader is None:
            self._snapshot.reader = self.open_reader()
        digest, failure = RowDigest(self._snapshot.key), None
        try:
            for batch in self._snapshot.reader.read(self.stored, batch_rows, note):
                valid = with_valid_text(batch.rename_columns(list(self.read)), note)
                digest.add(valid)
                yield valid
            self._compare(digest)
        except RequestError as error:
            failure = error
        except (pa.ArrowException, IndexError):
            failure = RequestError(
                f"{name_place(self.place)} is damaged {BY_A_VALUE}", "Write or copy it again", "data"
            )
        if failure is not None:
            self.close()
            raise _drop_context(failure)

    def _compare(self, digest: RowDigest) -> None:
        """Compare a whole pass with the first one.  Raises RequestError."""
        first = self._snapshot.first
        if first is None:
            self._snapshot.first = digest
        elif (digest.content, digest.rows) != (first.content, first.rows):
            raise RequestError(
                "the private table changed while it was read", "Run again once it is complete", "release.data"
            )
        elif digest.order != first.order:
            raise RequestError(
                "the rows came in another order when they were read again; no budget is lost",
                "Name a table, or end the query with ORDER BY over columns that identify every row",
                "data",
            )
