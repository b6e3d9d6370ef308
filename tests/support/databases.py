"""Private tables in databases of the tests' own: one table of rows, written into each kind."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa

SQLITE_TYPES = {"int64": "INTEGER", "double": "REAL", "string": "TEXT", "bool": "BOOLEAN", "timestamp[us]": "TIMESTAMP"}


def write_sqlite(table: pa.Table, file: Path, name: str = "people") -> str:
    """Write the rows into a new table of an SQLite file; its URL."""
    columns = ", ".join(f'"{f.name}" {SQLITE_TYPES[str(f.type)]}' for f in table.schema)
    rows = [tuple(str(v) if hasattr(v, "year") else v for v in row.values()) for row in table.to_pylist()]
    with sqlite3.connect(file) as connection:
        connection.execute(f'CREATE TABLE "{name}" ({columns})')
        connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * table.num_columns)})', rows)
    connection.close()
    return f"sqlite:///{file}?table={name}"


def write_duckdb(table: pa.Table, file: Path, name: str = "people") -> str:
    """Write the rows into a new table of a DuckDB file; its URL."""
    import duckdb

    with duckdb.connect(str(file)) as connection:
        connection.register("rows", table)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM rows')
    return f"duckdb:///{file}?table={name}"


def write_postgres(table: pa.Table, url: str, name: str = "people") -> str:
    """Write the rows into a new table of a PostgreSQL database; its URL as a spec has it."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(name, table, mode="create")
        connection.commit()
    return f"{url}{'&' if '?' in url else '?'}table={name}"
