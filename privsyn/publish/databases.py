"""A released folder as tables of a database, with comments: rows, noisy counts, and a table about the release.

Only the released folder is read, and each of its files is checked first.  All tables are written in one transaction:
PostgreSQL, DuckDB or SQLite.  SQLite has no comments on tables: they go into the CREATE TABLE statement, whose text
SQLite keeps.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import RequestError
from privsyn.base.places import OPTIONS, DataUrl, is_url, resolve_place
from privsyn.base.registry import need_package
from privsyn.base.wording import mention
from privsyn.data_contracts.certificate import Manifest
from privsyn.pipelines.registry import plan_release
from privsyn.publish.formats.tables import (
    DescribedRelease,
    add_unmeasured,
    describe_linked_column,
    format_meaning,
    list_ranges,
    name_linked_file,
)
from privsyn.sources.databases import CONFIGURATION, format_address
from privsyn.sources.reader import REFUSED_BY_DATABASE, ErrorPattern, build_select, find_problem, quote_name, quote_text
from privsyn.storage.released_files import (
    check_released_file,
    list_synthetic_names,
    read_certificate,
    read_manifest,
    read_public_spec,
)
from privsyn.tasks.codecs.parsing import get_value_type

_RELEASE = "publish.release"
_BATCH_ROWS = 50_000

FIELD = "publish.database"

_TYPES = (
    (pa.types.is_boolean, "BOOLEAN"),
    (lambda t: pa.types.is_integer(t) and t.bit_width - pa.types.is_signed_integer(t) < 16, "SMALLINT"),
    (lambda t: pa.types.is_integer(t) and t.bit_width - pa.types.is_signed_integer(t) < 32, "INTEGER"),
    (pa.types.is_integer, "BIGINT"),
    (pa.types.is_float32, "REAL"),
    (pa.types.is_floating, "DOUBLE PRECISION"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (lambda t: pa.types.is_timestamp(t) and t.tz is not None, "TIMESTAMP WITH TIME ZONE"),
    (pa.types.is_timestamp, "TIMESTAMP"),
)
"""Test of an Arrow type -> SQL type of the column; any other type is TEXT."""

_OTHER = ErrorPattern("", "the database does not take the tables", "Look at what the database itself logs")
_WRITING = (
    ErrorPattern(
        r"already exists|23505|could not serialize|Conflict on|write-write",
        "another program has just made a table with this name",
        "Try again",
    ),
    ErrorPattern(
        r"42703|no such column|Binder Error",
        "a table with this name was not published by this program",
        "Choose another prefix",
    ),
    ErrorPattern(
        r"2BP01|depend", "the tables cannot be replaced: other objects, such as views, need them", "Drop those"
    ),
    ErrorPattern(
        r"42501|25006|permission denied|must be owner|read-?only",
        "the tables may not be written by this user",
        "GRANT it CREATE on the schema, or let the owner of the tables publish",
    ),
    ErrorPattern(r"53\d00|disk|No space", "the database's disk is full or failing", "Free some space"),
    *REFUSED_BY_DATABASE,
)


@dataclass(frozen=True)
class PublishedTables:
    """The tables of a release in a database; ``written``: False if they were already there."""

    database: str
    tables: tuple[str, ...]
    written: bool


def publish_tables(
    folder: Path, database: str, *, prefix: str | None = None, schema: str | None = None, replace: bool = False
) -> PublishedTables:
    """Write a released folder into a database in one transaction: all of its tables, or none.

    ``prefix`` begins every name (None: the data set's name).  The same release is written again only if its folder
    changed.  Another release under these names is replaced only with ``replace``; a table that was not published is
    never replaced.  Raises RequestError, with nothing written.
    """
    url = parse_database(database)
    tables = _list_tables(folder, prefix)
    for table in tables:
        check_names(url, table.name, table.schema.names)
    names, release_table = tuple(table.name for table in tables), tables[-1]
    with open_database(url, schema) as opened:
        existing = opened.list_tables()
        earlier = _read_earlier(opened, release_table.name) if release_table.name in existing else None
        (release_row,) = pa.Table.from_batches(release_table.rows).to_pylist()
        if (
            earlier is not None
            and earlier[:2] == (release_row["run"], release_row["manifest_sha256"])
            and existing.issuperset(names)
        ):
            return PublishedTables(str(url), names, written=False)
        if earlier is not None and earlier[0] != release_row["run"] and not replace:
            problem = f"holds the release {earlier[0]} under these names"
            cure = "Publish it with " + mention("publish.replace") + ", or choose another " + mention("publish.prefix")
            raise RequestError(problem, cure, FIELD)
        # Anyone with write access may have listed any table as published: drop only those under the prefix.
        start = release_table.name.removesuffix("release")
        replaceable = [n for n in earlier[2] if n in names or (start and n.startswith(start))] if earlier else []
        taken = next((name for name in names if name in existing and name not in replaceable), None)
        if taken is not None:
            raise make_foreign_error(taken)
        for name in replaceable:
            if name in existing:
                opened.fetch(f"DROP TABLE {opened.name(name)}")
        for table in tables:
            opened.create(table)
    return PublishedTables(str(url), names, written=True)


def _read_earlier(database: Transaction, table: str) -> tuple[str, str, tuple[str, ...]]:
    """Return run, manifest digest and tables of the release published under these names."""
    try:
        ((run, digest, tables),) = database.select(("run", "manifest_sha256", "tables"), database.name(table))
        return str(run), str(digest), tuple(map(str, json.loads(tables)))
    except (ValueError, TypeError):
        raise make_foreign_error(table) from None


def _list_tables(folder: Path, prefix: str | None) -> list[NewTable]:
    """Return the tables of a released folder; the last one describes the release."""
    manifest, certificate = read_manifest(folder), read_certificate(folder)
    spec = read_public_spec(manifest, _RELEASE)
    plan = plan_release(spec, column_order=tuple(manifest.column_order))
    ranges = list_ranges(plan.request)
    release = DescribedRelease(plan, certificate, ranges, manifest.rows, manifest.files, dict(manifest.versions))
    start = re.sub(r"\W", "_", spec.dataset) + "_" if prefix is None else prefix
    words = {file.name: file.words for step in plan.steps for file in step.published.values()}
    source = f"{release.title} (data set {certificate.dataset}, release {manifest.run})"
    reference = f"Note, certificate and manifest: table {start}release."
    columns = {name: _describe(spec.get_published_column(name)) for name in ranges}
    comment = f"{source}. {release.promise} {reference}"
    tables = [_read_table(folder, manifest, list_synthetic_names(manifest), f"{start}synthetic", comment, columns)]
    promise = f"({certificate.epsilon:g}, {certificate.delta:g})-differential privacy for adding or removing "
    promise += f"{certificate.unit_of_protection}."
    table_of_file = name_counts(name for name in manifest.files if name.startswith("marginals/"))
    for name in sorted(table_of_file):
        about = f"{name}: {words[name]}" if words.get(name) else name
        of_counts = f"{source}, {about}. Made from the private table with {promise} {reference}"
        tables.append(_read_table(folder, manifest, [name], start + table_of_file[name], of_counts))
    for table in spec.table_names:
        file, described = name_linked_file(table), spec.tables[table].columns
        columns = {name: _describe(describe_linked_column(spec, table, name)) for name in described}
        tables.append(_read_table(folder, manifest, [file], f"{start}tables_{table}", comment, columns))
    names = [table.name for table in tables] + [f"{start}release"]
    row = {
        "run": manifest.run,
        "dataset": certificate.dataset,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "unit_of_protection": certificate.unit_of_protection,
        "rows": manifest.rows,
        "note": check_released_file(folder, manifest, "README.md", _RELEASE).read_text(encoding="utf-8"),
        "certificate": check_released_file(folder, manifest, "certificate.json", _RELEASE).read_text(encoding="utf-8"),
        "manifest": (folder / "manifest.json").read_text(encoding="utf-8"),
        "manifest_sha256": hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest(),
        "tables": json.dumps(names),
    }
    release_row = pa.Table.from_pylist([row])
    release_row = release_row.cast(pa.schema([f.with_nullable(False) for f in release_row.schema]))
    comment = f"{source}. {release.promise} One row: the promise, and the note."
    return [*tables, NewTable(names[-1], release_row.schema, release_row.to_batches(), comment)]


def name_counts(files: Iterable[str]) -> dict[str, str]:
    """Return file -> table of noisy counts; names for a further table begin with its name.

    A double underscore avoids clashes: ``consistent__sets`` of a further table ``consistent`` is not
    ``consistent_sets``.
    """
    parts = {name: PurePosixPath(name).with_suffix("").relative_to("marginals").parts for name in files}
    joined = Counter("_".join(of_file).lower() for of_file in parts.values())
    return {n: ("_" if joined["_".join(names).lower()] == 1 else "__").join(names) for n, names in parts.items()}


def _describe(column: Any) -> str:
    return add_unmeasured(format_meaning(column), column)


def _read_table(
    folder: Path,
    manifest: Manifest,
    files: Sequence[str],
    name: str,
    comment: str,
    columns: Mapping[str, str] = MappingProxyType({}),
) -> NewTable:
    paths = [check_released_file(folder, manifest, file, _RELEASE) for file in files]
    stored = pq.read_schema(paths[0])
    schema = pa.schema([pa.field(f.name, get_value_type(f.type), f.nullable) for f in stored])
    comments = {name: words for name, words in columns.items() if words}
    return NewTable(name, schema, _read_rows(paths, schema), comment, comments)


def _read_rows(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=_BATCH_ROWS):
                yield batch.cast(schema)


@dataclass(frozen=True)
class NewTable:
    """A table to be made: columns by ``schema``, its rows, and comments on it and some of its columns."""

    name: str
    schema: pa.Schema
    rows: Iterable[pa.RecordBatch]
    comment: str
    column_descriptions: Mapping[str, str] = field(default_factory=dict)


class Transaction(ABC):
    """An open transaction, rolled back unless committed."""

    schema = ""
    """The schema of the tables; empty if the database has no schemas."""

    _connection: Any

    @abstractmethod
    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows; empty for a statement without a result."""

    def select(self, columns: Sequence[str], rows: str) -> list[tuple[Any, ...]]:
        """Return columns, or expressions, of ``rows``, the text after FROM."""
        return self.fetch(build_select(columns, rows))

    @abstractmethod
    def insert(self, table: NewTable) -> None:
        """Insert the rows into the table."""

    def commit(self) -> None:
        """Commit the transaction."""
        self.fetch("COMMIT")

    def close(self) -> None:
        """Close the connection and roll back what was not committed."""
        self._connection.close()

    def list_tables(self) -> set[str]:
        """Return the names of the schema's tables and views."""
        where = f"WHERE table_schema = {quote_text(self.schema)}"
        return {name for (name,) in self.select(["table_name"], f"information_schema.tables {where}")}

    def create(self, table: NewTable) -> None:
        """Create the table with its comments and rows."""
        where = self.name(table.name)
        columns = ", ".join(describe_column(f) for f in table.schema)
        self.fetch(f"CREATE TABLE {where} ({columns})")
        self.fetch(f"COMMENT ON TABLE {where} IS {quote_text(table.comment)}")
        for name, words in table.column_descriptions.items():
            self.fetch(f"COMMENT ON COLUMN {where}.{quote_name(name)} IS {quote_text(words)}")
        self.insert(table)

    def name(self, table: str) -> str:
        """Return a table's quoted name in SQL, with its schema."""
        return f"{quote_name(self.schema)}.{quote_name(table)}" if self.schema else quote_name(table)

    def choose_schema(self, schema: str | None) -> None:
        """Choose the schema to write into, creating it if needed; None: the database's current schema."""
        if schema is None:
            ((chosen,),) = self.fetch("SELECT current_schema()")
            if chosen is None:
                raise RequestError("the user's search path has no schema", "Name one", "publish.schema")
        else:
            chosen, where = schema, f"WHERE schema_name = {quote_text(schema)}"
            if not self.select(["1"], f"information_schema.schemata {where}"):
                self.fetch(f"CREATE SCHEMA {quote_name(schema)}")
        self.schema = chosen


class _Postgres(Transaction):
    def __init__(self, url: DataUrl, schema: str | None) -> None:
        with need_package("adbc-driver-postgresql", "publishing to PostgreSQL", "databases", FIELD):
            from adbc_driver_postgresql import dbapi
        self._connection = dbapi.connect(format_address(url))
        self.fetch("SET LOCAL standard_conforming_strings = on")
        self.fetch("SELECT pg_advisory_xact_lock(hashtext('privsyn publish'))::text")
        self.choose_schema(schema)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def insert(self, table: NewTable) -> None:
        rows = pa.RecordBatchReader.from_batches(table.schema, table.rows)
        with closing(self._connection.cursor()) as cursor:
            cursor.adbc_ingest(table.name, rows, mode="append", db_schema_name=self.schema)

    def commit(self) -> None:
        self._connection.commit()


class _Duckdb(Transaction):
    def __init__(self, url: DataUrl, schema: str | None) -> None:
        with need_package("duckdb", "publishing to DuckDB", "databases", FIELD):
            import duckdb
        self._connection = duckdb.connect(str(url.file), config=CONFIGURATION)
        self.fetch("BEGIN TRANSACTION")
        self.choose_schema(schema)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(sql).fetchall())

    def insert(self, table: NewTable) -> None:
        self._connection.register("rows_to_publish", pa.RecordBatchReader.from_batches(table.schema, table.rows))
        self.fetch(f"INSERT INTO {self.name(table.name)} {build_select(['*'], 'rows_to_publish')}")
        self._connection.unregister("rows_to_publish")


class _Sqlite(Transaction):
    def __init__(self, url: DataUrl, schema: str | None) -> None:
        import sqlite3

        if schema is not None:
            raise RequestError("is for PostgreSQL and DuckDB: SQLite has no schemas", "Leave it out", "publish.schema")
        self._connection = sqlite3.connect(url.file, isolation_level=None)
        self.fetch("BEGIN IMMEDIATE")

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def list_tables(self) -> set[str]:
        return {name for (name,) in self.select(["name"], "sqlite_master WHERE type IN ('table', 'view')")}

    def create(self, table: NewTable) -> None:
        lines = [
            f"  {describe_column(f, lists=False)}{',' if number < len(table.schema) else ''}"
            + _comment(table.column_descriptions.get(f.name, ""))
            for number, f in enumerate(table.schema, 1)
        ]
        head = f"CREATE TABLE {self.name(table.name)} ({_comment(table.comment)}"
        self.fetch("\n".join([head, *lines, ")"]))
        self.insert(table)

    def insert(self, table: NewTable) -> None:
        places = ", ".join("?" * len(table.schema))
        rows = (row for batch in table.rows for row in zip(*map(_list_plain, batch.columns), strict=True))
        self._connection.executemany(f"INSERT INTO {self.name(table.name)} VALUES ({places})", rows)  # noqa: S608


_DATABASES: dict[str, type[Any]] = {"postgresql": _Postgres, "duckdb": _Duckdb, "sqlite": _Sqlite}


def parse_database(text: str) -> DataUrl:
    """Return the URL of a database; a file is relative to the working folder.  Raises RequestError if not valid."""
    form = "Write postgresql://HOST/NAME, duckdb:///FILE or sqlite:///FILE"
    if "://" in text and text.strip().partition("://")[0] not in OPTIONS:
        raise RequestError("is not the URL of a supported database", form, FIELD)
    place = resolve_place(text, FIELD, needs_rows=False)
    url = DataUrl.parse(place, FIELD, needs_rows=False) if is_url(place) else None
    if url is None or url.scheme not in _DATABASES or not url.path:
        raise RequestError("does not name a database", form, FIELD)
    if url.table is not None or url.query is not None:
        cure = "Write the database alone; " + mention("publish.prefix") + " names tables"
        raise RequestError("names a table or a query", cure, FIELD)
    return url


@contextmanager
def open_database(url: DataUrl, schema: str | None) -> Iterator[Transaction]:
    """Yield a transaction that is committed at the end of the block, or rolled back on an error.

    A missing database file is created.  Raises RequestError if the database refuses.
    """
    is_new, done, problem = url.is_file and not url.file.exists(), False, None
    try:
        with closing(_DATABASES[url.scheme](url, schema)) as database:
            yield database
            database.commit()
            done = True
    except (RequestError, GeneratorExit, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # drivers raise many kinds of errors
        problem = find_problem(error, _WRITING, _OTHER)
    finally:
        if is_new and not done:
            url.file.unlink(missing_ok=True)
    if problem is not None:
        raise RequestError(f"{problem.words}; nothing was published", problem.cure, FIELD) from None


def describe_column(column: Any, *, lists: bool = True) -> str:
    """Return a column's definition for CREATE TABLE; without ``lists``, a column of lists is text."""
    is_list = pa.types.is_list(column.type)
    type_ = _name_type(column.type.value_type) + "[]" if is_list and lists else _name_type(column.type)
    return f"{quote_name(column.name)} {type_}{'' if column.nullable else ' NOT NULL'}"


def _name_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"NUMERIC({type_.precision}, {type_.scale})"
    return next((name for fits, name in _TYPES if fits(type_)), "TEXT")


def _comment(words: str) -> str:
    return f" -- {' '.join(words.split())}" if words else ""


def _list_plain(array: pa.Array) -> list[Any]:
    """Return cells for SQLite: numbers and text; lists as JSON."""
    type_ = array.type
    if pa.types.is_list(type_):
        return [None if value is None else json.dumps(value) for value in array.to_pylist()]
    plain = pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_)
    return array.to_pylist() if plain else array.cast(pa.string()).to_pylist()


def check_names(url: DataUrl, table: str, columns: Iterable[str]) -> None:
    """Raise RequestError for names that the database would truncate or consider equal."""
    longest = 63
    if url.scheme == "postgresql":
        if len(table.encode()) > longest:
            problem = f"makes {table!r}, and names of PostgreSQL have at most {longest} bytes"
            raise RequestError(problem, "Choose a shorter one", "publish.prefix")
        if any(len(name.encode()) > longest for name in columns):
            problem = f"cannot hold the release: it has a column whose name is longer than {longest} bytes"
            raise RequestError(problem, "Publish it in DuckDB or SQLite, or release it with shorter names", FIELD)
        return
    names = [name.lower() for name in columns]
    if len({*names}) < len(names):
        problem = "cannot hold the release: two of its columns differ only in letter case"
        raise RequestError(problem, "Publish it in PostgreSQL, or release it with other names", FIELD)


def make_foreign_error(table: str) -> RequestError:
    """Return the error for a table with the same name that was not published by this program."""
    problem = f"has a table {table!r} that was not published by this program"
    return RequestError(problem, "Choose another " + mention("publish.prefix"), FIELD)
