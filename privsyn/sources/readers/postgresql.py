"""Tables of PostgreSQL by ADBC, read in one read-only transaction that sees one state of the database.

User and password come from the environment or from libpq's password file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.base.places import DataUrl
from privsyn.base.registry import need_package
from privsyn.sources.private_table import Note
from privsyn.sources.readers.reader import (
    Reader,
    build_select,
    get_query,
    is_moment,
    name_rows,
    quote_name,
    translate_errors,
)
from privsyn.tasks.codecs.parsing import to_numbers

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


class PostgresReader(Reader):
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
                    with closing(self._connection.cursor()) as cursor:
                        cursor.execute(statement)
                if url.query is not None:
                    self._prepare(get_query(url))
                stored = self._fetch(build_select("*", f"{name_rows(url)} LIMIT 0")).schema
                texts = self._find_texts(stored)
        except BaseException:
            self.close()
            raise
        fields = [pa.field(f.name, pa.string() if f.name in texts else _choose_type(f)) for f in stored]
        self._texts, self.schema = texts, pa.schema(fields)
        self._money = {f.name for f in stored if _name_type(f) == "money"}
        self._moments = {f.name for f in self.schema if is_moment(f.type)}

    def _prepare(self, sql: str) -> None:
        """Let the server parse one statement without running it."""
        with closing(self._connection.cursor()) as cursor:
            cursor.adbc_execute_schema(sql)

    def _fetch(self, sql: str) -> pa.Table:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()

    def _find_texts(self, stored: pa.Schema) -> frozenset[str]:
        """Return the columns to read as text: enumerations, identifiers and text types of extensions.

        Also ``char(n)`` columns: as text they lose their meaningless padding.
        """
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
        return f"CASE WHEN isfinite({quoted}) THEN {self._limit(quoted, name)} END AS {quoted}"

    def _limit(self, quoted: str, name: str) -> str:
        """Return the SQL of a moment clipped to Arrow's range; the driver would wrap the last moments around."""
        type_ = self.schema.field(name).type
        if not pa.types.is_timestamp(type_):
            return quoted
        return f"LEAST({quoted}, '{_LAST_MOMENT}'::{'timestamp' if type_.tz is None else 'timestamptz'})"

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

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()


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
