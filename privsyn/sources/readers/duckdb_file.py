"""Tables and views of a DuckDB file, in one transaction of a connection that reads nothing else.

The database has its core only: no extension is loaded or installed, no other file is opened, and no query can allow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from privsyn.base.data_url import DataUrl
from privsyn.sources.private_table import Note
from privsyn.sources.readers.reader import (
    Reader,
    build_select,
    check_file,
    get_query,
    is_moment,
    name_rows,
    need_package,
    quote_name,
    quote_text,
    refuse_further_statements,
    translate_errors,
)

CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # no name means a variable of this process
    "preserve_insertion_order": "true",
    "threads": "1",  # each pass has the rows in one order
}
_CLOSE = ("SET enable_external_access = false", "SET lock_configuration = true", "BEGIN TRANSACTION")


class DuckdbReader(Reader):
    """A table, a view or a query of a DuckDB file, in one snapshot."""

    def __init__(self, url: DataUrl) -> None:
        with need_package("duckdb", "reading DuckDB"):
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
            stored = self._open(build_select("*", f"{name_rows(url)} LIMIT 0"), 1).schema
        self.schema = pa.schema([(f.name, _plain_type(f.type)) for f in stored])

    def _open(self, sql: str, batch_rows: int) -> pa.RecordBatchReader:
        return self._connection.sql(sql).to_arrow_reader(batch_rows)

    def _select(self, name: str) -> str:
        """Return the SQL of a column; null in the place of a day or moment that is infinite."""
        quoted = quote_name(name)
        if not is_moment(self.schema.field(name).type):
            return quoted
        # compared in the column's own type: `isfinite` fails where that holds more than microseconds do, and a file may
        # have a macro of that name
        return f"CASE WHEN {quoted} <> 'infinity' AND {quoted} <> '-infinity' THEN {quoted} END AS {quoted}"

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the table."""
        with translate_errors(self._url):
            wanted = [self._select(name) for name in columns]
            for batch in self._open(build_select(wanted, name_rows(self._url)), batch_rows):
                arrays = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in batch.columns]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values: those of an enumeration are text."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_
