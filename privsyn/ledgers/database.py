"""The ledger's database: tables, append-only triggers, transactions, and what went wrong in words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.pool import NullPool

from privsyn.errors import LedgerError, LedgerMissingError, RequestError
from privsyn.ledgers.database_errors import problem_and_cure
from privsyn.paths import expanded, refuse_undecodable

SCHEMA_VERSION = 1

metadata = sa.MetaData()

ledger_table = sa.Table(
    "ledger",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("entries", sa.BigInteger, nullable=False),
    sa.Column("head", sa.String(64), nullable=False),
)
"""One row: the schema's version, the number of entries and the last entry's hash; locked by every writer."""

datasets_table = sa.Table(
    "datasets",
    metadata,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("epsilon", sa.Text, nullable=False),
    sa.Column("delta", sa.Text, nullable=False),
    sa.Column("rho", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
)
"""The lifetime cap of each data set; ``rho`` is exact, "numerator/denominator"."""

entries_table = sa.Table(
    "entries",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.String(100), sa.ForeignKey("datasets.name"), nullable=False, index=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("event", sa.String(10), nullable=False),
    sa.Column("rho", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("prev_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.CheckConstraint("event IN ('reserve', 'spent', 'abandon', 'cancel')", name="known_event"),
)
"""The history, numbered 1, 2, 3 ..., each entry hashed together with the one before."""

periods_table = sa.Table(
    "periods",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.String(100), sa.ForeignKey("datasets.name"), nullable=False),
    sa.Column("period", sa.String(10), nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("event", sa.String(10), nullable=False),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("prev_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.CheckConstraint("event IN ('begin', 'release')", name="known_period_event"),
    sa.Index(
        "one_release_a_period",
        "dataset",
        "period",
        unique=True,
        sqlite_where=sa.text("event = 'release'"),
        postgresql_where=sa.text("event = 'release'"),
    ),
)
"""Which run began and which released each period of a data set, chained like the entries.

Made when the first period is begun: ledgers of versions before have neither this table nor the next.
"""

period_chain_table = sa.Table(
    "period_chain",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("head", sa.String(64), nullable=False),
)
"""One row: how many rows ``periods`` has, and the last one's hash."""

_EARLIEST = [ledger_table, datasets_table, entries_table]
_OF_PERIODS = [periods_table, period_chain_table]
_GUARDED = ("datasets", "entries")
_REFUSAL = "the ledger is append-only"

_GUARD_COUNT = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '{table}'",
    "postgresql": "SELECT count(*) FROM pg_trigger WHERE tgname ~ '_no_(change|truncate)$' AND tgenabled <> 'D' "
    "AND tgrelid = '{table}'::regclass",
}
"""How many triggers keep a table append-only; two do."""
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


def shown_address(address: str | Path) -> str:
    """A ledger's address for people: a path, or a URL without its password.  Raises LedgerError if it is neither."""
    return _shown(_url(address))


def _shown(url: sa.URL) -> str:
    sqlite = url.get_backend_name() == "sqlite"
    return str(url.database) if sqlite else url.render_as_string(hide_password=True)


class Database:
    """One ledger's database; every transaction opens and closes its own connection."""

    def __init__(self, address: str | Path, timeout: float | None = None, *, create: bool = True) -> None:
        """``address``: a PostgreSQL or SQLite URL, or the path of an SQLite file; ``timeout`` in seconds.

        Without ``create`` a ledger that is not there is a LedgerMissingError.
        """
        self.url = _url(address)
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
                sa.event.listen(self._engine, "connect", _manual_transactions)
                sa.event.listen(self._engine, "begin", _begin)
            self._create(create=create)

    @property
    def name(self) -> str:
        """The address for people, without a password."""
        return _shown(self.url)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent read; LedgerError in place of database errors."""
        with self._in_words(), self._engine.connect() as connection:
            if not self.sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One serialized writing transaction: all or nothing, and nobody else writes meanwhile."""
        with self._in_words(), self._engine.connect() as connection:
            connection.execution_options(immediate=True)
            with connection.begin():
                if not self.sqlite:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(self._timeout * 1000)}")
                    connection.execute(sa.select(ledger_table.c.id).with_for_update()).one()
                yield connection

    def guards_missing(self, connection: Connection) -> bool:
        """Whether a trigger that keeps the tables append-only has been taken away."""
        guarded = (*_GUARDED, "periods") if self.has_periods(connection) else _GUARDED
        count = _GUARD_COUNT[self.url.get_backend_name()]
        return any(connection.exec_driver_sql(count.format(table=t)).scalar_one() < 2 for t in guarded)

    def has_periods(self, connection: Connection) -> bool:
        """Whether a period was ever begun here."""
        return bool(sa.inspect(connection).has_table("periods"))

    def make_periods(self, connection: Connection) -> None:
        """Make the tables of periods where they are missing; in a writing transaction."""
        if not self.has_periods(connection):
            metadata.create_all(connection, _OF_PERIODS)
            self._guard(connection, "periods")
            connection.execute(period_chain_table.insert().values(id=1, rows=0, head="0" * 64))

    def _guard(self, connection: Connection, *names: str) -> None:
        """Let these tables only grow."""
        for statement in (_sqlite_guards if self.sqlite else _postgres_guards)(names):
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

    def _create_tables(self, connection: Connection) -> None:
        if sa.inspect(connection).has_table("ledger"):
            return  # another process was quicker
        metadata.create_all(connection, _EARLIEST)
        self._guard(connection, *_GUARDED)
        connection.execute(ledger_table.insert().values(id=1, version=SCHEMA_VERSION, entries=0, head="0" * 64))

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, OSError, ImportError, UnicodeDecodeError) as error:
            problem, cure = problem_and_cure(error)
            raise LedgerError(f"the ledger {self.name} {problem}", cure) from error


def _sqlite_guards(names: Sequence[str]) -> list[str]:
    return [
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        for table in names
        for verb in ("UPDATE", "DELETE")
    ]


def _postgres_guards(names: Sequence[str]) -> list[str]:
    return [
        "CREATE OR REPLACE FUNCTION privsyn_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$",
        *(
            f"CREATE OR REPLACE TRIGGER {table}_no_{name} BEFORE {verbs} ON {table} "
            f"FOR EACH {level} EXECUTE FUNCTION privsyn_append_only()"
            for table in names
            for name, verbs, level in (("change", "UPDATE OR DELETE", "ROW"), ("truncate", "TRUNCATE", "STATEMENT"))
        ),
    ]


def _url(address: str | Path) -> URL:
    text = str(address)
    if "://" not in text:
        path = expanded(text, "settings.ledger").absolute()
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
    """The file (0600), and its folder (0700) where missing; an existing folder is left as it is."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _manual_transactions(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin on its own; _begin does
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
