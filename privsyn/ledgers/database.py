"""The ledger's database: its address, transactions, what is made where it is missing, and what went wrong in words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.pool import NullPool

from privsyn.base.errors import LedgerError, LedgerMissingError, RequestError
from privsyn.base.paths import expand_path, refuse_undecodable
from privsyn.base.wording import Text, mention
from privsyn.ledgers.schema import (
    CHAINED_TABLES,
    FIRST_TABLES,
    GUARD_COUNT,
    POSTGRES_GUARDS,
    REPLACE_REFUSED_VERSION,
    SCHEMA_VERSION,
    SQLITE_GUARDS,
    ledger_table,
    list_postgres_guards,
    list_sqlite_guards,
    make_sqlite_replace_guard,
    metadata,
)

_PROBLEMS = (
    (
        r"no password supplied",
        "asks for a password, and none was given",
        "Write it into a file that only this user reads, and name that in "
        + mention("settings.database_password_file")
        + " (or use PostgreSQL's own .pgpass)",
    ),
    (
        r"password authentication failed",
        "refuses the user or the password",
        "Correct them in " + mention("settings.ledger") + " or " + mention("settings.database_password_file"),
    ),
    (
        r"locked|lock timeout|LockNotAvailable",
        "has been locked by another process for too long",
        "Wait for the other run, or end it, and start again",
    ),
    (
        r"readonly|read-only|permission denied|unable to open|is a directory",
        "cannot be opened for writing",
        "Give this user the right to write the file and its folder, or name another ledger in "
        + mention("settings.ledger"),
    ),
    (
        r"not a database|malformed|UnicodeDecodeError|could not decode|no such (column|table)|Undefined(Table|Column)",
        "is damaged or not a ledger",
        "Restore it from a backup; do not start a new one for data that has been released before",
    ),
    (
        r"disk is full|disk I/O|No space",
        "cannot be written: the disk is full or failing",
        "Free some space and start again",
    ),
    (r"append-only", "refused a change of its history", "Entries are only ever added"),
    (r"No module named", "needs the PostgreSQL driver", "Install privsyn-flows[postgres]"),
)


def describe_database_error(error: BaseException) -> tuple[str, Text]:
    """Return the end of a sentence about the ledger, and the cure; the error's own text is not in it."""
    text = f"{type(error).__name__} {type(getattr(error, 'orig', None)).__name__} {error}"
    for pattern, what, cure in _PROBLEMS:
        if re.search(pattern, text, re.IGNORECASE):
            return what, cure
    kind = type(getattr(error, "orig", None) or error).__name__
    return f"cannot be used ({kind})", "Check that the database is running and the address is right"


_SQLITE_ROOM = (
    "PRAGMA cache_size = 2",  # pages: what is inserted goes to the disk at once
    "SAVEPOINT room",
    "CREATE TABLE room (filling BLOB)",
    "INSERT INTO room VALUES (zeroblob(65536))",
    "ROLLBACK TO room",
    "RELEASE room",
)
"""Whether there is room for many entries: 64 KiB are written and taken back."""
TIMEOUT = 30.0
"""Seconds to wait for other writers, unless told otherwise."""
_CREATION_LOCK = 7_096_531_844  # any number; two processes that create the tables at once take turns


def hide_password(address: str | Path) -> str:
    """Return a ledger's address for people: a path, or a URL without its password.

    Raises LedgerError if it is neither.
    """
    return _hide_password(_make_url(address))


def _hide_password(url: sa.URL) -> str:
    sqlite = url.get_backend_name() == "sqlite"
    return str(url.database) if sqlite else url.render_as_string(hide_password=True)


class Database:
    """One ledger's database; every transaction opens and closes its own connection."""

    def __init__(self, address: str | Path, timeout: float | None = None, *, create: bool = True) -> None:
        """``address``: a PostgreSQL or SQLite URL, or the path of an SQLite file; ``timeout`` in seconds.

        Without ``create`` a ledger that is not there is a LedgerMissingError.
        """
        self.url = _make_url(address)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self._timeout = TIMEOUT if timeout is None else timeout
        with self._in_words():
            if self.sqlite:
                path = Path(str(self.url.database))
                if not create and (not path.exists() or (path.is_file() and path.stat().st_size == 0)):
                    raise LedgerMissingError(self.name)
                if path.exists() and not (path.is_file() or path.is_dir()):
                    raise LedgerError(f"the ledger {self.name} is not a regular file", "Name a file that lasts")
                _make_private_file(path)
            self._engine = sa.create_engine(self.url, poolclass=NullPool, connect_args=self._connect_args())
            if self.sqlite:
                sa.event.listen(self._engine, "connect", _set_manual_transactions)
                sa.event.listen(self._engine, "begin", _begin)
            self._create(create=create)

    @property
    def name(self) -> str:
        """The address for people, without a password."""
        return _hide_password(self.url)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a consistent read; LedgerError in place of database errors."""
        with self._in_words(), self._engine.connect() as connection:
            if not self.sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open one serialized writing transaction: all or nothing, and nobody else writes meanwhile."""
        with self._in_words(), self._engine.connect() as connection:
            connection.execution_options(immediate=True)
            with connection.begin():
                if not self.sqlite:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(self._timeout * 1000)}")
                    connection.execute(sa.select(ledger_table.c.id).with_for_update()).one()
                yield connection

    def guards_missing(self, connection: Connection) -> bool:
        """Return whether a trigger that keeps the tables append-only has been taken away."""
        guarded = (*FIRST_TABLES, *(table for table in CHAINED_TABLES if self.has(connection, table)))
        count = GUARD_COUNT[self.url.get_backend_name()]
        needed = POSTGRES_GUARDS
        if self.sqlite:
            needed = SQLITE_GUARDS if _is_replacing_refused(connection) else SQLITE_GUARDS - 1
        return any(connection.exec_driver_sql(count.format(table=t)).scalar_one() < needed for t in guarded)

    def has(self, connection: Connection, table: str) -> bool:
        """Return whether the ledger has this one of the later tables."""
        return bool(sa.inspect(connection).has_table(table))

    def make(self, connection: Connection, table: str) -> None:
        """Make this one of the later tables, with its chain, where it is missing; in a writing transaction."""
        if not self.has(connection, table):
            metadata.create_all(connection, [metadata.tables[table], CHAINED_TABLES[table]])
            self._guard(connection, table)
            connection.execute(CHAINED_TABLES[table].insert().values(id=1, rows=0, head="0" * 64))

    def _guard(self, connection: Connection, *names: str) -> None:
        """Let these tables only grow."""
        for statement in (list_sqlite_guards if self.sqlite else list_postgres_guards)(names):
            connection.exec_driver_sql(statement)

    def _connect_args(self) -> dict[str, Any]:
        return {"timeout": self._timeout} if self.sqlite else {"connect_timeout": max(2, int(self._timeout))}

    def check_writable(self) -> None:
        """Write, but change nothing: LedgerError where the database is read-only, full or locked for too long."""
        with self.write() as connection:
            for statement in _SQLITE_ROOM if self.sqlite else ():
                connection.exec_driver_sql(statement)
            connection.execute(ledger_table.update().values(entries=ledger_table.c.entries))

    def _create(self, *, create: bool) -> None:
        """Create what is missing, or refuse a schema from another version."""
        with self._engine.connect() as connection:
            if sa.inspect(connection).has_table("ledger"):
                version = connection.execute(sa.select(ledger_table.c.version)).scalar_one_or_none()
                if version == SCHEMA_VERSION:
                    self._guard_against_replacing(connection)
                    return
                raise LedgerError(
                    f"the ledger {self.name} has schema version {version}, and this program knows {SCHEMA_VERSION}",
                    "Use the version of privsyn-flows that wrote it",
                )
        if not create:
            raise LedgerMissingError(self.name)
        with self._engine.connect() as connection:
            connection.execution_options(immediate=True)
            with connection.begin():
                if not self.sqlite:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
                self._create_tables(connection)

    def _guard_against_replacing(self, connection: Connection) -> None:
        """Give an SQLite ledger of earlier versions its third guard; one that cannot be written needs none."""
        if not self.sqlite or _is_replacing_refused(connection):
            return
        connection.rollback()
        with suppress(sa.exc.OperationalError), self._engine.connect() as writing:
            writing.execution_options(immediate=True)
            with writing.begin():
                for table in (*FIRST_TABLES, *(table for table in CHAINED_TABLES if self.has(writing, table))):
                    writing.exec_driver_sql(make_sqlite_replace_guard(table))
                writing.exec_driver_sql(f"PRAGMA user_version = {REPLACE_REFUSED_VERSION}")

    def make_all(self) -> None:
        """Make every table that a release may need, so that releases need no right to make any."""
        with self.write() as connection:
            for table in CHAINED_TABLES:
                self.make(connection, table)

    def _create_tables(self, connection: Connection) -> None:
        if sa.inspect(connection).has_table("ledger"):
            return  # another process was quicker
        metadata.create_all(connection, [ledger_table, *(metadata.tables[name] for name in FIRST_TABLES)])
        self._guard(connection, *FIRST_TABLES)
        connection.execute(ledger_table.insert().values(id=1, version=SCHEMA_VERSION, entries=0, head="0" * 64))
        for table in CHAINED_TABLES:
            self.make(connection, table)
        if self.sqlite:
            connection.exec_driver_sql(f"PRAGMA user_version = {REPLACE_REFUSED_VERSION}")

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, OSError, ImportError, UnicodeDecodeError) as error:
            problem, cure = describe_database_error(error)
            raise LedgerError(f"the ledger {self.name} {problem}", cure) from error


def _make_url(address: str | Path) -> URL:
    text = str(address)
    if "://" not in text:
        path = expand_path(text, "settings.ledger").absolute()
        refuse_undecodable(path, "settings.ledger")
        return URL.create("sqlite", database=str(path))
    try:
        url = make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # a port that is not a number
        cure = "Write postgresql://USER@HOST/DATABASE or a path"
        raise RequestError("this is not a database URL", cure, "settings.ledger") from None
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        return url.set(drivername="sqlite", database=str(Path(str(url.database)).absolute()))
    raise RequestError(
        "the ledger is a PostgreSQL database or an SQLite file that lasts",
        "Write postgresql://USER@HOST/DATABASE, sqlite:///FILE or a path",
        "settings.ledger",
    )


def _make_private_file(path: Path) -> None:
    """Make the file (0600), and its folder (0700) where missing; an existing folder is left as it is."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _set_manual_transactions(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin on its own; _begin does
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")


def _is_replacing_refused(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql("PRAGMA user_version").scalar_one() >= REPLACE_REFUSED_VERSION)


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
