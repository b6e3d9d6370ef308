"""Changing a ledger's history behind its back, as whoever holds the database can."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa


@contextlib.contextmanager
def raw(url: str) -> Iterator[Any]:
    """The database behind the ledger's back."""
    engine = sa.create_engine(sa.make_url(url).set(drivername="sqlite" if "sqlite" in url else "postgresql+psycopg"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def tamper(url: str, statement: str, table: str = "entries") -> None:
    """Change history as a determined editor would: triggers off, change, triggers on again."""
    with raw(url) as connection:
        if "sqlite" in url:
            guards = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").all()
            for name, _ in guards:
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
            connection.exec_driver_sql(statement)
            for _, sql in guards:
                connection.exec_driver_sql(sql)
        else:
            connection.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            connection.exec_driver_sql(statement)
            connection.exec_driver_sql(f"ALTER TABLE {table} ENABLE TRIGGER USER")
