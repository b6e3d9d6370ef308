"""Tables of SQLite files by ADBC, in one transaction of a read-only connection.

Each cell of SQLite has its own type, whatever its column declares, and the driver guesses a column's type from its
first cells.  Here the declared type decides: every cell is converted by itself, and a dummy first row shows the types
to the driver.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from urllib.parse import quote

import pyarrow as pa

from privsyn.base.places import DataUrl
from privsyn.base.registry import need_package
from privsyn.sources.private_table import Note, ignore_repairs
from privsyn.sources.readers.reader import (
    NOT_OF_TYPE,
    Reader,
    build_select,
    check_file,
    get_query,
    name_rows,
    quote_name,
    translate_errors,
)

_TEXT = (
    "CASE typeof({0}) WHEN 'text' THEN {0} WHEN 'blob' THEN NULL WHEN 'real' THEN printf('%!.17g', {0}) "
    "ELSE CAST({0} AS TEXT) END"
)
_READ: dict[pa.DataType, tuple[str, str]] = {
    pa.int64(): ("CASE WHEN typeof({0}) = 'integer' THEN {0} END", "0"),
    pa.float64(): ("CASE WHEN typeof({0}) IN ('integer', 'real') THEN CAST({0} AS REAL) END", "0.5"),
    pa.bool_(): ("CASE WHEN {0} IN (0, 1) THEN CAST({0} AS INTEGER) END", "0"),
    pa.string(): (_TEXT, "''"),
}
"""Type of a column -> the SQL of a cell, null for a cell of another type, and a dummy value for the driver."""

_AFFINITIES = (
    (r"BOOL", pa.bool_()),
    (r"INT", pa.int64()),
    (r"CHAR|CLOB|TEXT|DATE|TIME", pa.string()),
    (r"REAL|FLOA|DOUB|NUM|DEC", pa.float64()),
)
"""Pattern of a declared type -> the type to read the column as; any other is text, and blobs are null."""

_VIEW = "privsyn_rows"
_NAMED_BY_SQLITE = r"column[0-9]+(:[0-9]+)?"
"""Pattern of the names that views give to columns called ``true`` or ``false``."""


_DESCRIBE = f"SELECT '' AS name, '' AS type UNION ALL SELECT name, type FROM pragma_table_info('{_VIEW}')"  # noqa: S608


class SqliteReader(Reader):
    """A table, a view or a query of an SQLite file, in one snapshot."""

    def __init__(self, url: DataUrl) -> None:
        with need_package("adbc-driver-sqlite", "reading SQLite", "databases"):
            from adbc_driver_sqlite import dbapi
        check_file(url)
        self._url = url
        with translate_errors(url):
            self._connection = dbapi.connect(f"file:{quote(str(url.file.absolute()))}?mode=ro")
        with translate_errors(url):
            if url.query is not None:
                self._fetch(f"EXPLAIN {get_query(url)}")  # parsed, not run; the driver ignores anything after a `;`
            self._run(f"CREATE TEMP VIEW {_VIEW} AS {build_select('*', name_rows(url))}")
            described = self._fetch(_DESCRIBE)
            self._in_view, declared = (column.to_pylist()[1:] for column in described.columns)
            names = self._name_columns()
        self.schema = pa.schema([(name, _choose_type(type_)) for name, type_ in zip(names, declared, strict=True)])

    def _name_columns(self) -> list[str]:
        """Return the columns' names: the view's names, except those that SQLite may have made up."""
        named = [bool(re.fullmatch(_NAMED_BY_SQLITE, name)) for name in self._in_view]
        if not any(named):
            return self._in_view
        return [own if n else name for own, name, n in zip(self._read_names(), self._in_view, named, strict=True)]

    def _read_names(self) -> list[str]:
        """Return the column names of the table or query itself, since a view has no column ``true``."""
        url = self._url
        alone = f"{build_select('*', name_rows(url))} LIMIT 0" if url.query is None else get_query(url)
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(alone)
            return [column[0] for column in cursor.description or ()]

    def _run(self, sql: str) -> None:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)

    def _fetch(self, sql: str) -> pa.Table:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the table."""
        types, quoted = [self.schema.field(name).type for name in columns], self._quote(columns)
        cells = [_READ[type_][0].format(name) for name, type_ in zip(quoted, types, strict=True)]
        named = [f"{_READ[type_][1]} AS {quote_name(name)}" for name, type_ in zip(columns, types, strict=True)]
        sql = f"SELECT {', '.join(named)} UNION ALL {build_select(cells, _VIEW)}"
        first = True
        with translate_errors(self._url), closing(self._connection.cursor()) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch_rows)})
            cursor.execute(sql)
            for batch in cursor.fetch_record_batch():
                arrays = [array.cast(type_) for array, type_ in zip(batch.columns, types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns)).slice(1 if first else 0)
                first = False
            if note is not ignore_repairs:
                self._count_repairs(columns, cells, note)

    def _quote(self, columns: Sequence[str]) -> list[str]:
        """Return the columns' names in the view, quoted."""
        return [quote_name(self._in_view[self.schema.get_field_index(name)]) for name in columns]

    def _count_repairs(self, columns: Sequence[str], cells: Sequence[str], note: Note) -> None:
        lost = [
            f"coalesce(sum({name} IS NOT NULL AND ({cell}) IS NULL), 0)"
            for name, cell in zip(self._quote(columns), cells, strict=True)
        ]
        for name, (number,) in zip(columns, self._fetch(build_select(lost, _VIEW)).to_pydict().values(), strict=True):
            note(name, +Counter({NOT_OF_TYPE: int(number)}))

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()


def _choose_type(declared: str) -> pa.DataType:
    return next((type_ for pattern, type_ in _AFFINITIES if re.search(pattern, declared.upper())), pa.string())
