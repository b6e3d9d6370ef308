"""Tables and views of a DuckDB file, in one transaction of a connection that reads nothing else.

Only the database's core is available: no extension is loaded or installed, no other file is opened, and no query can
change that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.base.places import DataUrl
from privsyn.base.registry import need_package
from privsyn.sources.private_table import Note
from privsyn.sources.readers.reader import (
    Reader,
    build_select,
    check_file,
    get_query,
    is_moment,
    name_rows,
    quote_name,
    quote_text,
    refuse_further_statements,
    translate_errors,
)

CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # names cannot refer to variables of this process
    "preserve_insertion_order": "true",
    "threads": "1",  # each pass has the same order
}
_LARGE = {"HUGEINT": True, "UHUGEINT": False}
"""DuckDB's integers of 128 bits, and whether they are signed."""
_WIDE = pa.decimal256(39, 0)

_CLOSE = ("SET enable_external_access = false", "SET lock_configuration = true", "BEGIN TRANSACTION")


class DuckdbReader(Reader):
    """A table, a view or a query of a DuckDB file, in one snapshot."""

    def __init__(self, url: DataUrl) -> None:
        with need_package("duckdb", "reading DuckDB", "databases"):
            import duckdb
        check_file(url)
        self._url = url
        with translate_errors(url):
            self._connection = duckdb.connect(":memory:", config=CONFIGURATION)
            file = quote_text(str(url.file.absolute()))
            for statement in (f"ATTACH {file} AS private (READ_ONLY, TYPE duckdb)", "USE private", *_CLOSE):
                self._connection.execute(statement)
            if url.query is not None:
                refuse_further_statements(len(self._connection.extract_statements(get_query(url))))
            described = self._connection.sql(build_select("*", f"{name_rows(url)} LIMIT 0"))
            large = [_LARGE.get(str(type_)) for type_ in described.types]
            stored = described.to_arrow_reader(1).schema
        self._signed = {field.name: signed for field, signed in zip(stored, large, strict=True) if signed is not None}
        self.schema = pa.schema([(f.name, _WIDE if f.name in self._signed else _plain_type(f.type)) for f in stored])

    def _open(self, sql: str, batch_rows: int) -> pa.RecordBatchReader:
        return self._connection.sql(sql).to_arrow_reader(batch_rows)

    def _select(self, name: str) -> str:
        """Return the SQL of a column, with null for infinite days and moments."""
        quoted = quote_name(name)
        if not is_moment(self.schema.field(name).type):
            return quoted
        # compared in the column's own type: `isfinite` fails beyond the range of microseconds, and a file may define a
        # macro of that name
        return f"CASE WHEN {quoted} <> 'infinity' AND {quoted} <> '-infinity' THEN {quoted} END AS {quoted}"

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the table."""
        with translate_errors(self._url):
            wanted = [self._select(name) for name in columns]
            for batch in self._open(build_select(wanted, name_rows(self._url)), batch_rows):
                arrays = [self._convert(name, array) for name, array in zip(columns, batch.columns, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _convert(self, name: str, array: pa.Array) -> pa.Array:
        if name in self._signed:
            return _widen(array, signed=self._signed[name])
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()


def _widen(array: pa.Array, *, signed: bool) -> pa.Array:
    """Return integers of 128 bits, which DuckDB exports as decimals with 38 digits, too few for them."""
    if not len(array):
        return pa.array([], _WIDE)
    halves = np.frombuffer(array.buffers()[1], "<i8", 2 * len(array), 16 * array.offset).reshape(-1, 2)
    above = np.where(halves[:, 1:] < 0, -1, 0) if signed else np.zeros_like(halves[:, 1:])
    words = np.ascontiguousarray(np.hstack([halves, above, above]), "<i8")
    wide = pa.Array.from_buffers(_WIDE, len(array), [None, pa.py_buffer(words)])
    return pc.if_else(array.is_valid(), wide, pa.scalar(None, _WIDE))


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values: text for an enumeration."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_
