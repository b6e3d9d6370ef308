"""The ledger's database: its address, transactions, missing tables, and messages for its errors.

A PostgreSQL ledger's tables are always named with their schema, whatever a role's search path is.  A role may set its
own search path, and may own a schema: names without a schema could lead to the role's own tables, with other caps and
another history.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.pool import NullPool

from privsyn.base.errors import LedgerError, LedgerMissingError, RequestError
from privsyn.base.places import expand_path, refuse_undecodable
from privsyn.base.settings import LEDGER_OPTION
from privsyn.base.wording import Text, mention
from privsyn.ledgers.schema import (
    ARE_PERIODS_NARROW,
    CHAINED_TABLES,
    FIRST_TABLES,
    GUARD_COUNT,
    POSTGRES_GUARDS,
    REPLACE_REFUSED_VERSION,
    SCHEMA_VERSION,
    SQLITE_GUARDS,
    WIDEN_PERIODS,
    ledger_table,
    list_postgres_guards,
    list_sqlite_guards,
    make_sqlite_replace_guard,
    metadata,
)

_SQLITE_ROOM = (
    "PRAGMA cache_size = 2",  # pages: inserted rows go to the disk at once
    "SAVEPOINT room",
    "CREATE TABLE room (filling BLOB)",
    "INSERT INTO room VALUES (zeroblob(65536))",
    "ROLLBACK TO room",
    "RELEASE room",
)
"""Check for room for many entries: write 64 KiB and roll back."""
TIMEOUT = 30.0
"""Default seconds to wait for other writers."""
RESTART_SECONDS = 15.0
"""Seconds to wait for a database that does not answer, since it may be restarting."""
_PAUSE = 0.25
_CREATION_LOCK = 7_096_531_844  # any number; two processes that create the tables at once take turns


def hide_password(address: str | Path) -> str:
    """Return a ledger's address for people, without a password.  Raises LedgerError if it is no path or URL."""
    return _hide_password(_make_url(address))


def check_connection(address: str) -> None:
    """Raise LedgerError for a PostgreSQL database that refuses connections; a restarting one is waited for."""
    url, _ = take_schema(_make_url(address))
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 10})

    def connect() -> None:
        with _translate_errors(f"the database {_hide_password(url.set(query={}))}", is_file=False):
            engine.connect().close()

    _wait_out(connect)


def _hide_password(url: sa.URL) -> str:
    sqlite = url.get_backend_name() == "sqlite"
    return str(url.database) if sqlite else url.render_as_string(hide_password=True)


_T = TypeVar("_T")
_P = ParamSpec("_P")


def _wait_out(task: Callable[[], _T]) -> _T:
    """Run ``task``, and repeat it while the database does not answer, for RESTART_SECONDS."""
    end = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            return task()
        except DatabaseGoneError:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


@contextmanager
def _translate_errors(database: str, *, is_file: bool) -> Iterator[None]:
    """Raise LedgerError about ``database`` for a database's error, DatabaseGoneError if it may be restarting."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, OSError, ImportError, UnicodeDecodeError) as error:
        problem, cure = describe_database_error(error, is_file=is_file)
        kind = DatabaseGoneError if not is_file and is_gone(error) else LedgerError
        raise kind(f"{database} {problem}", cure) from error


class Database:
    """One ledger's database; every transaction opens and closes its own connection."""

    def __init__(self, address: str | Path, timeout: float | None = None, *, create: bool = True) -> None:
        """Open the database.

        ``address``: a PostgreSQL or SQLite URL, or the path of an SQLite file; ``timeout`` in seconds.  A PostgreSQL
        server that does not answer is waited for, for RESTART_SECONDS.  Without ``create``, raises LedgerMissingError
        for a missing ledger.
        """
        self.url = _make_url(address)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        url, schema = (self.url, None) if self.sqlite else take_schema(self.url)
        self.schema = schema
        self._timeout = TIMEOUT if timeout is None else timeout
        with self._translate():
            if self.sqlite:
                path = Path(str(self.url.database))
                if not create and (not path.exists() or (path.is_file() and path.stat().st_size == 0)):
                    raise LedgerMissingError(self.name)
                if path.exists() and not (path.is_file() or path.is_dir()):
                    raise LedgerError(f"the ledger {self.name} is not a regular file", "Name a file that lasts")
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # an existing folder is unchanged
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            wait = {"timeout": self._timeout} if self.sqlite else {"connect_timeout": max(2, int(self._timeout))}
            engine = sa.create_engine(url, poolclass=NullPool, connect_args=wait)
            if self.sqlite:
                sa.event.listen(engine, "connect", _set_manual_transactions)
            sa.event.listen(engine, "begin", _begin if self.sqlite else _pin_path)
            self._engine = engine.execution_options(schema_translate_map={None: schema})
        _wait_out(lambda: self._create(create=create))

    @property
    def name(self) -> str:
        """The address for people, without a password."""
        return _hide_password(self.url)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a consistent read; database errors become LedgerError."""
        with self._translate(), self._engine.connect() as connection:
            if not self.sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open one serialized write transaction: all or nothing, and without other writers."""
        with self._translate(), self._engine.connect() as connection:
            connection.execution_options(immediate=True)
            with connection.begin():
                if not self.sqlite:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(self._timeout * 1000)}")
                    connection.execute(sa.select(ledger_table.c.id).with_for_update()).one()
                yield connection

    def guards_missing(self, connection: Connection) -> bool:
        """Return whether a trigger that keeps the tables append-only is missing."""
        guarded = (*FIRST_TABLES, *(table for table in CHAINED_TABLES if self.has(connection, table)))
        count = GUARD_COUNT[self.url.get_backend_name()]
        needed = POSTGRES_GUARDS
        if self.sqlite:
            needed = SQLITE_GUARDS if _is_replacing_refused(connection) else SQLITE_GUARDS - 1
        counts = (count.format(table=table, schema=self.schema) for table in guarded)
        return any(connection.exec_driver_sql(counting).scalar_one() < needed for counting in counts)

    def list_shadows(self, connection: Connection) -> list[str]:
        """Return, as sentences, what a program that names no schema could mistake for this ledger."""
        return [] if self.schema is None else list_shadows(connection, self.schema)

    def has(self, connection: Connection, table: str) -> bool:
        """Return whether the ledger has this later table."""
        return bool(sa.inspect(connection).has_table(table, schema=self.schema))

    def make(self, connection: Connection, table: str) -> None:
        """Create this later table and its chain if missing, in a write transaction."""
        if not self.has(connection, table):
            metadata.create_all(connection, [metadata.tables[table], CHAINED_TABLES[table]])
            self._guard(connection, table)
            connection.execute(CHAINED_TABLES[table].insert().values(id=1, rows=0, head="0" * 64))

    def _guard(self, connection: Connection, *names: str) -> None:
        guards = list_sqlite_guards(names) if self.schema is None else list_postgres_guards(names, self.schema)
        for statement in guards:
            connection.exec_driver_sql(statement)

    def check_writable(self) -> None:
        """Write without changing anything.  Raises LedgerError if the database is read-only, full or long locked."""
        with self.write() as connection:
            for statement in _SQLITE_ROOM if self.sqlite else ():
                connection.exec_driver_sql(statement)
            connection.execute(ledger_table.update().values(entries=ledger_table.c.entries))

    def _create(self, *, create: bool) -> None:
        """Create missing tables.  Raises LedgerError for a schema of another version."""
        with self._translate():
            self._create_missing(create=create)

    def _create_missing(self, *, create: bool) -> None:
        with self._engine.connect() as connection:
            if self.has(connection, "ledger"):
                version = connection.execute(sa.select(ledger_table.c.version)).scalar_one_or_none()
                if version == SCHEMA_VERSION:
                    self._guard_against_replacing(connection)
                    return
                raise LedgerError(
                    f"the ledger {self.name} has schema version {version}, and this program knows {SCHEMA_VERSION}",
                    "Use the version of privsyn-flows that wrote it",
                )
            elsewhere = None if self.sqlite else find_schema_in_path(connection)
            if elsewhere not in (None, self.schema):  # self.schema: another process has just created them
                raise LedgerError(
                    f"the ledger {self.name} has no tables in the schema {self.schema}, but there are some in "
                    f"{elsewhere}, possibly made by an earlier version",
                    f"Write ?{LEDGER_OPTION}={elsewhere} at the end of the address if they are yours, or move them "
                    "away",
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
        """Add the third guard to an SQLite ledger of earlier versions; a read-only one needs none."""
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
        """Create every table that a release may need, so that releases need no right to create any."""
        with self.write() as connection:
            for table in CHAINED_TABLES:
                self.make(connection, table)
            if not self.sqlite and connection.exec_driver_sql(ARE_PERIODS_NARROW.format(schema=self.schema)).first():
                connection.exec_driver_sql(WIDEN_PERIODS.format(schema=self.schema))

    def _create_tables(self, connection: Connection) -> None:
        if self.has(connection, "ledger"):
            return  # another process was quicker
        metadata.create_all(connection, [ledger_table, *(metadata.tables[name] for name in FIRST_TABLES)])
        self._guard(connection, *FIRST_TABLES)
        connection.execute(ledger_table.insert().values(id=1, version=SCHEMA_VERSION, entries=0, head="0" * 64))
        for table in CHAINED_TABLES:
            self.make(connection, table)
        if self.sqlite:
            connection.exec_driver_sql(f"PRAGMA user_version = {REPLACE_REFUSED_VERSION}")

    def _translate(self) -> AbstractContextManager[None]:
        return _translate_errors(f"the ledger {self.name}", is_file=self.sqlite)


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


def _set_manual_transactions(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin on its own; _begin does
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")


def _is_replacing_refused(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql("PRAGMA user_version").scalar_one() >= REPLACE_REFUSED_VERSION)


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def _pin_path(connection: Connection) -> None:
    connection.exec_driver_sql(PINNED_PATH)


def wait_out_restarts(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Retry an idempotent method while its database restarts."""

    @wraps(method)
    def waiting(*arguments: _P.args, **named: _P.kwargs) -> _T:
        return _wait_out(lambda: method(*arguments, **named))

    return waiting


class DatabaseGoneError(LedgerError):
    """The database does not answer, or broke a connection off: it may be restarting."""


@dataclass(frozen=True)
class _Problem:
    """The message for an error that matches ``pattern``, and its cure for a file and for a server."""

    pattern: str
    words: str
    file_cure: Text
    server_cure: Text


_ADDRESS = mention("settings.ledger")
_RESTORE = "Restore it from a backup; do not start a new one for data that has been released before"
_GONE = (
    r"connection refused|starting up|shutting down|in recovery mode|terminating connection|server closed the connection"
    r"|connection is (lost|closed)|running locally and accepting|connection timeout|ConnectionTimeout|AdminShutdown"
    r"|CannotConnectNow|consuming input failed|connection reset"
)
_PROBLEMS = (
    _Problem(
        r"no password supplied",
        "asks for a password, and none was given",
        "",
        "Write it into a file that only this user reads, and name that in "
        f"{mention('settings.database_password_file')} (or use PostgreSQL's own .pgpass)",
    ),
    _Problem(
        r"password authentication failed|role \"[^\"]*\" does not exist|no pg_hba.conf entry",
        "refuses the user or the password",
        "",
        "Correct them in " + _ADDRESS + " or " + mention("settings.database_password_file"),
    ),
    _Problem(
        r"certificate|SSL (is not enabled|error|connection)|does not support SSL",
        "cannot be reached as safely as its address asks",
        "",
        "Look at sslmode in " + _ADDRESS + ", at PGSSLROOTCERT and at the server's certificate",
    ),
    _Problem(
        r"translate host name|Name or service not known|failed to resolve host",
        "is on a computer that cannot be found",
        "",
        "Correct the host in " + _ADDRESS,
    ),
    _Problem(
        r"database \"[^\"]*\" does not exist",
        "is in a database that does not exist",
        "",
        "Create the database, or correct its name in " + _ADDRESS,
    ),
    _Problem(
        r"too many (connections|clients)|remaining connection slots",
        "has no connection left to give",
        "",
        "Wait for the other runs, or raise max_connections",
    ),
    _Problem(
        r"locked|lock timeout|LockNotAvailable",
        "has been locked by another process for too long",
        "Wait for the other run, or end it, and start again",
        "Wait for the other run, or end it, and start again",
    ),
    _Problem(
        r"permission denied|must be owner|InsufficientPrivilege",
        "refuses this user a right that it needs",
        "",
        "Let the owner of the tables make them (`privsyn ledger create`) and run ledger_role.sql again",
    ),
    _Problem(
        r"StringDataRightTruncation",
        "was made by a version whose periods had shorter names",
        "",
        "Let the owner of the tables widen them: `privsyn ledger create`",
    ),
    _Problem(
        r"readonly|read-only|unable to open|is a directory|permission denied",
        "cannot be opened for writing",
        "Give this user the right to write the file and its folder, or name another ledger in " + _ADDRESS,
        "Name the database that takes changes in " + _ADDRESS + ", not a read-only copy of it",
    ),
    _Problem(
        r"not a database|malformed|UnicodeDecodeError|could not decode|no such (column|table)|Undefined(Table|Column)",
        "is damaged or not a ledger",
        _RESTORE,
        _RESTORE,
    ),
    _Problem(
        r"disk is full|disk I/O|No space|DiskFull",
        "cannot be written: the disk is full or failing",
        "Free some space and start again",
        "Free some space on the database's computer and start again",
    ),
    _Problem(
        r"append-only", "refused a change of its history", "Entries are only ever added", "Entries are only ever added"
    ),
    _Problem(
        r"No module named", "needs the PostgreSQL driver", "", "Install it with: pip install 'privsyn-flows[postgres]'"
    ),
    _Problem(
        _GONE,
        "does not answer",
        "",
        "Start the database, or correct its address in "
        + _ADDRESS
        + "; the same request then goes on where it stopped",
    ),
)


def describe_database_error(error: BaseException, *, is_file: bool) -> tuple[str, Text]:
    """Return the predicate of a sentence about the ledger, and the cure; ``is_file``: whether it is an SQLite file."""
    text = _join_texts(error)
    for problem in _PROBLEMS:
        cure = problem.file_cure if is_file else problem.server_cure
        if cure and re.search(problem.pattern, text, re.IGNORECASE):
            return problem.words, cure
    kind = type(getattr(error, "orig", None) or error).__name__
    if is_file:
        return f"cannot be used ({kind})", "Check that it is the right file, and that this user may write it"
    return f"cannot be used ({kind})", "Check that the database is running and the address is right"


def is_gone(error: BaseException) -> bool:
    """Return whether the database does not answer or broke the connection off, as during a restart."""
    return bool(getattr(error, "connection_invalidated", False) or re.search(_GONE, _join_texts(error), re.IGNORECASE))


def _join_texts(error: BaseException) -> str:
    return f"{type(error).__name__} {type(getattr(error, 'orig', None)).__name__} {error}"


DEFAULT_SCHEMA = "public"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

PINNED_PATH = "SET LOCAL search_path = pg_catalog"
"""Set in every transaction, so that functions and operators are PostgreSQL's own."""

_RESTORE_PATH = "SELECT set_config('search_path', reset_val, true) FROM pg_settings WHERE name = 'search_path'"
_FIRST_FOUND = "SELECT pg_catalog.to_regclass('ledger')::pg_catalog.oid"
_SCHEMA_OF = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class e ON e.relname = 'entries' AND e.relnamespace = n.oid
JOIN pg_attribute a ON a.attrelid = e.oid AND a.attname = 'prev_hash'
WHERE c.oid = %(table)s
"""
_LEDGERS_OF_OTHERS = """
SELECT n.nspname, pg_get_userbyid(c.relowner) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class e ON e.relname = 'entries' AND e.relnamespace = n.oid
JOIN pg_attribute a ON a.attrelid = e.oid AND a.attname = 'prev_hash'
WHERE c.relname = 'ledger' AND n.nspname <> %(schema)s
AND c.relowner <> (SELECT relowner FROM pg_class WHERE oid = %(own)s::regclass)
ORDER BY 1
"""
_SEARCH_PATHS = """
SELECT coalesce(r.rolname, 'every role'), substr(setting, length('search_path=') + 1)
FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) setting
WHERE setting LIKE 'search_path=%%'
AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
ORDER BY 1
"""
_SESSION = "SELECT session_user, reset_val FROM pg_settings WHERE name = 'search_path'"
_TAKEN_NAMES = """
SELECT DISTINCT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ANY(%(names)s) AND c.relkind IN ('r', 'v', 'm', 'f', 'p') AND n.nspname <> %(schema)s
"""


def take_schema(url: URL) -> tuple[URL, str]:
    """Return the address without its option ``schema``, and the schema.  Raises RequestError for an invalid name."""
    named = url.query.get(LEDGER_OPTION, DEFAULT_SCHEMA)
    if not isinstance(named, str) or not _SCHEMA_NAME.fullmatch(named) or named.startswith("pg_"):
        raise RequestError(
            "the schema of the ledger's address is not a plain name",
            "Use lower-case letters, digits and _, as in postgresql://USER@HOST/DATABASE?schema=NAME",
            "settings.ledger",
        )
    return url.difference_update_query([LEDGER_OPTION]), named


def find_schema_in_path(connection: Connection) -> str | None:
    """Return the schema of the first ledger in this session's own search path, or None."""
    connection.exec_driver_sql(_RESTORE_PATH)
    table = connection.exec_driver_sql(_FIRST_FOUND).scalar_one()
    connection.exec_driver_sql(PINNED_PATH)
    schema = connection.exec_driver_sql(_SCHEMA_OF, {"table": table}).scalar_one_or_none()
    return None if schema is None else str(schema)


def list_shadows(connection: Connection, schema: str) -> list[str]:
    """Return, as sentences, the ledgers and tables that names without a schema could find in place of ``schema``'s.

    A ledger of another schema counts if another role owns it, or if some role's search path has it first.  One that the
    owner moved away does not count.
    """
    ledger = f"{schema}.ledger"
    problems = [
        f"the role {owner} has a ledger of its own in the schema {other}: this one lacks the releases charged there"
        for other, owner in connection.exec_driver_sql(_LEDGERS_OF_OTHERS, {"schema": schema, "own": ledger})
    ]
    names = {"schema": schema, "names": list(metadata.tables)}
    taken = {str(row[0]) for row in connection.exec_driver_sql(_TAKEN_NAMES, names)}
    for role, path in _list_search_paths(connection).items():
        parts = [part.strip().strip('"').replace("$user", role) for part in path.split(",")]
        before = parts[: parts.index(schema)] if schema in parts else []
        problems += [
            f"the search path of {role} has tables of the schema {name} in the place of the ledger's in {schema}"
            for name in before
            if name in taken
        ]
    return problems


def _list_search_paths(connection: Connection) -> dict[str, str]:
    """Return the search path of each role that has one set, and of this session."""
    paths = {str(role): str(path) for role, path in connection.exec_driver_sql(_SEARCH_PATHS)}
    role, path = connection.exec_driver_sql(_SESSION).one()
    return {**paths, str(role): str(path)}
