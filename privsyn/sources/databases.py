"""Tables of databases: PostgreSQL and SQLite by ADBC, and DuckDB, each in one transaction that only reads.

**PostgreSQL**: the transaction sees one state of the database.
User and password come from the environment or from libpq's password file.

**SQLite**: each cell has its own type, whatever its column declares, and the driver guesses a column's type from its
first cells.  Here the declared type decides: every cell is converted by itself, and a dummy first row shows the types
to the driver.

**DuckDB**: only the database's core is available: no extension is loaded or installed, no other file is opened, and no
query can change that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.base.places import DataUrl
from privsyn.base.registry import need_package
from privsyn.sources.private_table import Note, ignore_repairs
from privsyn.sources.reader import (
    NOT_OF_TYPE,
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
from privsyn.tasks.codecs.parsing import get_value_type, to_numbers

_BEGIN = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL synchronize_seqscans = off",  # each pass starts at the same row
    "SET LOCAL max_parallel_workers_per_gather = 0",  # and keeps the same order
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    "SET LOCAL statement_timeout = 0",
)
_BATCH_BYTES = 1 << 22
_MOST_DIGITS = 38
_LAST_MOMENT = "294247-01-01"
"""Arrow's range (microseconds since 1970) ends a few days later; PostgreSQL's (since 2000) ends 30 years later."""

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


class _DatabaseReader(Reader):
    """A reader that holds a connection open."""

    _connection: Any

    def _fetch(self, sql: str) -> pa.Table:
        """Return the rows of a statement, by ADBC."""
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()

    def _run(self, sql: str) -> None:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()


class PostgresReader(_DatabaseReader):
    """A table, a view or a query of a PostgreSQL database, in one snapshot."""

    def __init__(self, url: DataUrl) -> None:
        with need_package("adbc-driver-postgresql", "reading PostgreSQL", "databases"):
            from adbc_driver_postgresql import dbapi
        self._url = url
        with translate_errors(url):
            self._connection = dbapi.connect(format_address(url))
        try:
            with translate_errors(url):
                for statement in _BEGIN:
                    self._run(statement)
                if url.query is not None:
                    with closing(self._connection.cursor()) as cursor:
                        cursor.adbc_execute_schema(get_query(url))  # parsed, not run
                stored = self._fetch(build_select("*", f"{name_rows(url)} LIMIT 0")).schema
                texts = self._find_texts(stored)
        except BaseException:
            self.close()
            raise
        fields = [pa.field(f.name, pa.string() if f.name in texts else _choose_type(f)) for f in stored]
        self._texts, self.schema = texts, pa.schema(fields)
        self._money = {f.name for f in stored if _name_type(f) == "money"}
        self._moments = {f.name for f in self.schema if is_moment(f.type)}

    def _find_texts(self, stored: pa.Schema) -> frozenset[str]:
        """Return the columns to read as text, such as enumerations; padded ``char(n)`` columns lose their padding."""
        sql = "SELECT typname::text, oid::text FROM pg_type WHERE typcategory IN ('E', 'S') OR typname = 'uuid'"
        names = self._fetch(sql)
        wanted = {*names.column(0).to_pylist(), *(f"unnamed<oid:{oid}>" for oid in names.column(1).to_pylist())}
        return frozenset(
            f.name
            for f in stored
            if _name_type(f) in wanted and (not pa.types.is_string(f.type) or _name_type(f) == "bpchar")
        )

    def _select(self, quoted: str, name: str) -> str:
        """Return the SQL of a column, with null for infinite days and moments."""
        if name in self._texts:
            return f"{quoted}::text AS {quoted}"
        if name in self._money:
            return f"{quoted}::numeric AS {quoted}"  # the driver would return integers of cents
        if name not in self._moments:
            return quoted
        type_, limited = self.schema.field(name).type, quoted
        if pa.types.is_timestamp(type_):  # the driver would wrap moments beyond Arrow's range around
            limited = f"LEAST({quoted}, '{_LAST_MOMENT}'::{'timestamp' if type_.tz is None else 'timestamptz'})"
        return f"CASE WHEN isfinite({quoted}) THEN {limited} END AS {quoted}"

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the server's order."""
        wanted = [self._select(quote_name(name), name) for name in columns]
        with translate_errors(self._url), closing(self._connection.cursor()) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            cursor.execute(build_select(wanted, name_rows(self._url)))
            for batch in cursor.fetch_record_batch():
                yield pa.RecordBatch.from_arrays(
                    [
                        _read_numeric(array, self.schema.field(name).type)
                        if _name_type(batch.schema.field(name)) == "numeric"
                        else array
                        for name, array in zip(columns, batch.columns, strict=True)
                    ],
                    names=list(columns),
                )


def format_address(url: DataUrl) -> str:
    """Return the address for libpq: the URL without the table."""
    options = {name: value for name, value in url.options.items() if name not in ("table", "query")}
    return str(DataUrl(url.scheme, url.user, url.host, url.path, options))


def _name_type(field: Any) -> str:
    return (field.metadata or {}).get(b"POSTGRESQL:type", b"").decode()


def _choose_type(field: Any) -> pa.DataType:
    """Return the type to read a column as: for ``numeric``, its decimals, or floats if it declares none."""
    if _name_type(field) == "money":
        return pa.float64()
    if _name_type(field) != "numeric":
        return field.type
    limits = int((field.metadata or {}).get(b"POSTGRESQL:typmod", b"-1")) - 4
    digits, decimals = limits >> 16, limits & 0x7FF
    return pa.decimal128(digits, decimals) if 0 < digits <= _MOST_DIGITS and decimals <= digits else pa.float64()


def _read_numeric(array: Any, type_: pa.DataType) -> pa.Array:
    """Return numbers that PostgreSQL sends as text; null for NaN, infinite beyond floats."""
    texts = array.storage if isinstance(array, pa.ExtensionArray) else array
    numbers, _ = to_numbers(texts)
    if not pa.types.is_decimal(type_):
        return pa.array(numbers, mask=np.isnan(numbers))
    return pc.if_else(pa.array(np.isfinite(numbers)), texts, pa.scalar(None, texts.type)).cast(type_)


class SqliteReader(_DatabaseReader):
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
        self.schema = pa.schema([(name, _choose_affinity(type_)) for name, type_ in zip(names, declared, strict=True)])

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
        return [quote_name(self._in_view[self.schema.get_field_index(name)]) for name in columns]

    def _count_repairs(self, columns: Sequence[str], cells: Sequence[str], note: Note) -> None:
        lost = [
            f"coalesce(sum({name} IS NOT NULL AND ({cell}) IS NULL), 0)"
            for name, cell in zip(self._quote(columns), cells, strict=True)
        ]
        for name, (number,) in zip(columns, self._fetch(build_select(lost, _VIEW)).to_pydict().values(), strict=True):
            note(name, +Counter({NOT_OF_TYPE: int(number)}))


def _choose_affinity(declared: str) -> pa.DataType:
    return next((type_ for pattern, type_ in _AFFINITIES if re.search(pattern, declared.upper())), pa.string())


class DuckdbReader(_DatabaseReader):
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
        self.schema = pa.schema([(f.name, _WIDE if f.name in self._signed else get_value_type(f.type)) for f in stored])

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
            rows = self._connection.sql(build_select(wanted, name_rows(self._url)))
            for batch in rows.to_arrow_reader(batch_rows):
                arrays = [self._convert(name, array) for name, array in zip(columns, batch.columns, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _convert(self, name: str, array: pa.Array) -> pa.Array:
        if name in self._signed:
            return _widen(array, signed=self._signed[name])
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _widen(array: pa.Array, *, signed: bool) -> pa.Array:
    """Return integers of 128 bits, which DuckDB exports as decimals with 38 digits, too few for them."""
    if not len(array):
        return pa.array([], _WIDE)
    halves = np.frombuffer(array.buffers()[1], "<i8", 2 * len(array), 16 * array.offset).reshape(-1, 2)
    above = np.where(halves[:, 1:] < 0, -1, 0) if signed else np.zeros_like(halves[:, 1:])
    words = np.ascontiguousarray(np.hstack([halves, above, above]), "<i8")
    wide = pa.Array.from_buffers(_WIDE, len(array), [None, pa.py_buffer(words)])
    return pc.if_else(array.is_valid(), wide, pa.scalar(None, _WIDE))
