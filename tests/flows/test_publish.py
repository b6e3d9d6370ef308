"""A released folder in a database: the tables of the folder, with the promise on each, all of them or none."""

from __future__ import annotations

import datetime
import json
import shutil
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.api.open_release import Release, open_release
from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.publish import databases
from privsyn.publish.databases import NewTable, open_database, publish_tables
from privsyn.publish.folder import add_formats
from tests.support.commands import privsyn
from tests.support.kept import Kept
from tests.support.releases import few, run
from tests.support.specs import changed, people
from tests.support.tampering import raw

pytestmark = pytest.mark.usefixtures("places")

Place = Callable[[], str]


@pytest.fixture
def spec(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    """A quick release in several parts."""
    data = kept.begin_with(monkeypatch, people(400))
    asked = few(data, synthesis={"sweeps": 2, "rows": 400, "shard_rows": 100})
    columns = {name: column.model_dump() for name, column in asked.columns.items()}
    return changed(
        asked, columns={**columns, "age": {**columns["age"], "description": "it's the age", "unit": "years"}}
    )


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_database"))
    return f"{request.param}:///{tmp_path}/published.{request.param}"


def query(database: str, sql: str) -> list[tuple[Any, ...]]:
    """What a program of the database's own reads."""
    if database.startswith("postgresql"):
        with raw(database) as connection:
            return [tuple(row) for row in connection.exec_driver_sql(sql)]
    if database.startswith("duckdb"):
        import duckdb

        with duckdb.connect(DataUrl.parse(database, needs_rows=False).path) as connection:
            return connection.execute(sql).fetchall()
    with closing(sqlite3.connect(DataUrl.parse(database, needs_rows=False).path)) as connection:
        return connection.execute(sql).fetchall()


def list_tables(database: str) -> set[str]:
    if database.startswith("sqlite"):
        return {name for (name,) in query(database, "SELECT name FROM sqlite_master")}
    system = "('pg_catalog', 'information_schema')"
    sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN {system}"
    return {name for (name,) in query(database, sql)}


def read_comments(database: str) -> str:
    """Every comment on a table or a column."""
    if database.startswith("sqlite"):
        return "\n".join(sql for (sql,) in query(database, "SELECT sql FROM sqlite_master"))
    if database.startswith("duckdb"):
        tables = query(database, "SELECT comment FROM duckdb_tables()")
        return "\n".join(str(c) for (c,) in tables + query(database, "SELECT comment FROM duckdb_columns()"))
    return "\n".join(
        words for (words,) in query(database, "SELECT description FROM pg_description WHERE objoid > 16384")
    )


@pytest.fixture
def made(kept: Kept, spec: ReleaseSpec) -> Release:
    """The release of ``spec``, the same for every test that asks for it."""
    return open_release(kept.once(lambda: run(spec).run))


def test_a_database_has_what_the_folder_has(made: Release, database: str) -> None:
    shutil.rmtree(Settings().private_root)
    names = made.publish(database)
    assert (
        list_tables(database)
        == set(names)
        == {*(f"people_{name}" for name in (*made.marginals, "synthetic", "release"))}
    )
    found = query(database, "SELECT age, region FROM people_synthetic")
    assert sorted(found, key=str) == sorted((tuple(row.values()) for row in made.table.to_pylist()), key=str)
    for name, table in made.marginals.items():
        ((rows,),) = query(database, f"SELECT count(*) FROM people_{name}")
        assert rows == table.num_rows
    asked = "SELECT run, dataset, epsilon, delta, unit_of_protection, note, manifest FROM people_release"
    ((run_, dataset, epsilon, delta, unit, note, manifest),) = query(database, asked)
    c = made.certificate
    assert (run_, dataset, epsilon, delta, unit) == (c.run, "people", c.epsilon, c.delta, c.unit_of_protection)
    assert note == made.note and json.loads(manifest)["run"] == c.run
    comments = read_comments(database)
    assert "it's the age (years)" in comments
    assert comments.count(f"({c.epsilon:g}, {c.delta:g})-differential privacy") == len(names)
    assert comments.count(c.run) == comments.count("data set people") == len(names)


def test_every_type_is_that_of_the_release(database: str) -> None:
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 600)
    cells: dict[str, tuple[pa.DataType, Any]] = {
        "small": (pa.int8(), -3),
        "byte": (pa.uint8(), 200),
        "middle": (pa.uint16(), 60_000),
        "int": (pa.int32(), -70_000),
        "big": (pa.int64(), 2**60),
        "float": (pa.float32(), 0.5),
        "double": (pa.float64(), 0.1),
        "truth": (pa.bool_(), True),
        "text": (pa.string(), "it's \u00e9 \n"),
        "day": (pa.date32(), moment.date()),
        "hour": (pa.time64("us"), moment.time()),
        "moment": (pa.timestamp("us"), moment),
        "money": (pa.decimal128(9, 2), Decimal("12.50")),
        "names": (pa.list_(pa.string()), ["a", "b"]),
        "numbers": (pa.list_(pa.float64()), [0.5, 1e300]),
    }
    schema = pa.schema([("id", pa.int64(), False), *((name, type_) for name, (type_, _) in cells.items())])
    rows = pa.Table.from_pylist(
        [{"id": 1} | {name: value for name, (_, value) in cells.items()}, {"id": 2}], schema
    ).to_batches()
    with open_database(DataUrl.parse(database, needs_rows=False), None) as opened:
        opened.create(NewTable("typed", schema, rows, "-- '", {"day": "a\nday"}))
    names = ", ".join(f'"{name}"' for name in cells)
    first, second = query(database, f"SELECT {names} FROM typed ORDER BY id")
    expected = [value for _, value in cells.values()]
    if database.startswith("sqlite"):
        assert [json.loads(v) if str(v).startswith("[") else str(v) for v in first] == [
            v if isinstance(v, list) else {"True": "1", "12.50": "12.5"}.get(str(v), str(v)) for v in expected
        ]
    else:
        assert list(first) == expected
    assert second == (None,) * len(cells)


@pytest.mark.parametrize(
    "database", ["sqlite", "postgresql", pytest.param("duckdb", marks=pytest.mark.slow)], indirect=True
)
def test_the_same_release_is_there_once_and_another_only_takes_its_place_when_asked(
    made: Release, spec: ReleaseSpec, database: str
) -> None:
    assert publish_tables(made.folder, database).written
    assert not publish_tables(made.folder, database).written
    add_formats(made.run, ["csv"], Settings())  # its manifest says something else now
    assert publish_tables(made.folder, database).written
    other = open_release(run(changed(spec, privacy={"epsilon": 0.5, "delta": 1e-9})).run)
    with pytest.raises(RequestError, match=rf"holds the release {made.run} under these names.*replace") as caught:
        other.publish(database)
    assert caught.value.field == "publish.database"
    assert query(database, "SELECT run FROM people_release") == [(made.run,)]
    assert other.publish(database, prefix="Half ") == tuple(
        n.replace("people_", "Half ") for n in other.publish(database, replace=True)
    )
    assert (
        query(database, 'SELECT run FROM people_release UNION ALL SELECT run FROM "Half release"') == [(other.run,)] * 2
    )


def test_a_table_that_was_not_published_stays(made: Release, database: str) -> None:
    with open_database(DataUrl.parse(database, needs_rows=False), None) as opened:
        opened.fetch("CREATE TABLE people_recode (private INTEGER)")
        opened.fetch("CREATE TABLE other_release (private INTEGER)")
        opened.fetch("CREATE TABLE empty_release (run TEXT, manifest_sha256 TEXT, tables TEXT)")
    before = list_tables(database)
    for prefix in ("people_", "other_", "empty_"):
        with pytest.raises(RequestError, match=r"was not published by this program.*prefix"):
            made.publish(database, prefix=prefix, replace=True)
    assert list_tables(database) == before


def test_no_table_beyond_the_prefix_is_dropped_whatever_the_database_says(made: Release, database: str) -> None:
    """Who may write into the table that says what was published could name any table there."""
    made.publish(database)
    add_formats(made.run, ["csv"], Settings())
    with open_database(DataUrl.parse(database, needs_rows=False), None) as opened:
        opened.fetch("CREATE TABLE payroll (private INTEGER)")
        listed = json.dumps(["payroll", *(name for name in opened.list_tables() if name.startswith("people_"))])
        opened.fetch(f"UPDATE people_release SET tables = '{listed}'")
    assert publish_tables(made.folder, database).written
    assert "payroll" in list_tables(database)


def test_the_words_of_a_driver_are_in_no_traceback(tmp_path: Path) -> None:
    url = DataUrl.parse(f"sqlite:///{tmp_path / 'p.sqlite'}", needs_rows=False)
    with pytest.raises(RequestError) as caught, open_database(url, None):
        raise ValueError("SECRET ROW")
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
def test_all_tables_are_there_or_none(
    made: Release, spec: ReleaseSpec, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_release(run(changed(spec, privacy={"epsilon": 0.5, "delta": 1e-9})).run)
    kind = databases._DATABASES[database.partition(":")[0]]
    insert = kind.insert

    def fail(self: Any, table: NewTable) -> None:
        if table.name.endswith("_recode"):
            raise OSError("terminating connection")
        insert(self, table)

    monkeypatch.setattr(kind, "insert", fail)
    with pytest.raises(RequestError, match=r"does not answer, or broke off.*nothing was published"):
        made.publish(database)
    if not database.startswith("postgresql"):
        assert not Path(DataUrl.parse(database, needs_rows=False).path).exists()
    monkeypatch.undo()
    made.publish(database)
    before = list_tables(database)
    monkeypatch.setattr(kind, "insert", fail)
    with pytest.raises(RequestError, match="nothing was published"):
        other.publish(database, replace=True)
    assert list_tables(database) == before and query(database, "SELECT run FROM people_release") == [(made.run,)]


@pytest.mark.slow
def test_a_schema_is_made_and_chosen(made: Release, postgres_database: str, tmp_path: Path) -> None:
    for database in (postgres_database, f"duckdb:///{tmp_path}/a.duckdb"):
        made.publish(database, schema="for all")
        assert not publish_tables(made.folder, database, schema="for all").written
        assert query(database, 'SELECT count(*) FROM "for all".people_synthetic') == [(made.manifest.rows,)]
        made.publish(database)
        assert query(database, "SELECT count(*) FROM people_synthetic") == [(made.manifest.rows,)]
    with pytest.raises(RequestError, match=r"^schema: is for PostgreSQL and DuckDB"):
        made.publish(f"sqlite:///{tmp_path}/a.sqlite", schema="for all")
    assert not (tmp_path / "a.sqlite").exists()


def test_what_is_no_place_for_a_release_is_said(made: Release, tmp_path: Path, postgres_database: str) -> None:
    for database, words in (
        ("postgresql://me:hunter2@db/main", "holds a password"),
        ("postgresql://db/main?table=people", "names a table or a query.*prefix names tables"),
        ("postgresql://db", "does not name a database"),
        ("s3://bucket/key", "does not name a database"),
        ("people.sqlite", r"does not name a database. Write postgresql://HOST/NAME, duckdb"),
        ("mysql://db/main", r"is not the URL of a supported database. Write postgresql://HOST/NAME, duckdb"),
        (f"sqlite:///{tmp_path}/none/a.sqlite", "file that cannot be opened"),
        (f"duckdb:///{tmp_path}/none/a.duckdb", "file that cannot be opened"),
    ):
        with pytest.raises(RequestError, match=words) as caught:
            made.publish(database)
        assert "hunter2" not in str(caught.value) and caught.value.field == "publish.database"
    with pytest.raises(RequestError, match=r"^prefix: makes 'xx.*at most 63 bytes"):
        made.publish(postgres_database, prefix="x" * 60)
    (made.folder / "marginals" / "recode.parquet").write_bytes(b"")
    with pytest.raises(RequestError, match="changed after its publication"):
        made.publish(postgres_database)
    assert list_tables(postgres_database) == set()


def test_a_user_who_may_not_write_is_told(made: Release, postgres_database: str, tmp_path: Path) -> None:
    name = f"reader_{tmp_path.name}"
    quoted = f'"{name}"'
    with raw(postgres_database) as connection:
        connection.exec_driver_sql(f"CREATE ROLE {quoted} LOGIN")
    try:
        with pytest.raises(RequestError, match=r"may not be written by this user; nothing was published.*GRANT"):
            made.publish(f"{postgres_database}&user={name}".replace("privsyn@", ""))
    finally:
        with raw(postgres_database) as connection:
            connection.exec_driver_sql(f"DROP ROLE {quoted}")


def test_the_command_says_what_it_wrote(made: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["publish", made.run, "duckdb:///here.duckdb", "--json"]
    done = [privsyn(*command) for _ in range(2)]
    assert [d.exit_code for d in done] == [0, 0], done[0].output
    first, second = (json.loads(d.stdout) for d in done)
    assert first.pop("written") and not second.pop("written") and first == second
    refused = privsyn("publish", made.run, "sqlite:///a", "--schema", "x")
    assert refused.exit_code == 2 and "--schema: is for PostgreSQL" in " ".join(refused.output.split())
