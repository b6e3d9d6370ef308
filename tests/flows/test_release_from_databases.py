"""A release of a table in a database: that of the same rows in Parquet, from one snapshot, and no secret anywhere."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl
from privsyn.base.settings import Settings
from privsyn.engine.policy_checks import check_table
from privsyn.engine.request import Request
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.publish.folder import ReleaseSummary
from privsyn.sources.open_source import open_source
from privsyn.sources.reader import Reader, translate_errors
from privsyn.specs.draft import draft
from privsyn.storage.store import Store
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.codecs.parsing import to_keys
from privsyn.tasks.steps.encode import encode
from tests.support import databases, postgres, repeated_noise
from tests.support.households import make_household_spec, make_households
from tests.support.places import ROOT
from tests.support.releases import QUICK, few, release_in_process, spent
from tests.support.specs import COLUMNS, make_spec, people
from tests.support.tampering import raw

pytestmark = pytest.mark.usefixtures("places")

KINDS = ("sqlite", pytest.param("duckdb", marks=pytest.mark.slow), "postgresql")


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """What writes a table into a new database of each kind, and returns its URL."""

    def write(table: pa.Table, name: str = "people") -> str:
        if request.param == "postgresql":
            return databases.write_postgres(table, request.getfixturevalue("postgres_database"), name)
        writer = databases.write_sqlite if request.param == "sqlite" else databases.write_duckdb
        return writer(table, tmp_path / f"private.{request.param}", name)

    return write


def release(spec: Any, **how: Any) -> ReleaseSummary:
    repeated_noise._CALLS.clear()
    return release_in_process(spec, Settings(), **how)


def read_released(summary: ReleaseSummary) -> dict[str, Any]:
    folder = Path(summary.released)
    files = [f for f in sorted(folder.rglob("*.parquet")) if "receipts" not in f.name]
    return {str(f.relative_to(folder)): pq.read_table(f).to_pydict() for f in files}


def test_equal_rows_make_an_equal_release_wherever_they_are(save: Any, database: Any, tmp_path: Path) -> None:
    table = people(600)
    persons = {"unit": {"person_id": "caseid", "max_records": 2}}
    doubled = pa.concat_tables([table, people(300, seed=1)])
    for rows, name, unit in ((table, "people", {}), (doubled, "twice", persons)):
        of_file = release(make_spec(data=save(rows, f"{name}.parquet"), dataset=f"{name}-file", **unit, **QUICK))
        of_database = release(make_spec(data=database(rows, name), dataset=f"{name}-db", **unit, **QUICK))
        assert len(of_file.drawn) == len(of_database.drawn) == 3
        assert read_released(of_file) == read_released(of_database)
    texts = "".join(f.read_text(errors="replace") for f in Path(of_database.released).rglob("*") if f.is_file())
    assert not re.search(r"(sqlite|duckdb|postgresql)://", texts) and str(tmp_path) not in texts
    note = json.loads((Path(of_database.private) / "run.json").read_text())
    assert DataUrl.parse(note["data"]) == DataUrl.parse(note["files"][0]) and "table=twice" in note["data"]


@pytest.mark.slow
def test_a_release_is_there_for_who_asks_again_and_for_an_evaluation(database: Any) -> None:
    url = database(people(400))
    first = release(few(url))
    paid = spent()
    assert release(few(url)).drawn == () and spent() == paid > 0
    report = evaluate(AskedEvaluation(first.run, None, None, ()), Settings())
    assert report.evaluation.rows_real == 400


def test_a_query_stands_beside_its_database(database: Any, save: Any) -> None:
    table = people(600)
    url = database(table).partition("?table=")[0].partition("&table=")[0]
    kept = table.filter(pa.compute.greater(table["income"], 20_000))
    query = "SELECT * FROM people -- all of them\nWHERE income > 20000"
    spec = few(url, query=query)
    made = release(spec)
    assert "query" not in json.loads((Path(made.released) / "manifest.json").read_text())["spec"]
    assert read_released(made) == read_released(release(few(save(kept), dataset="kept")))
    for bad in ("SELECT 1; SELECT 2", "DELETE FROM people", "SELECT nothing FROM people", "SELECT FROM WHERE"):
        with pytest.raises(RequestError) as caught:
            open_source(few(url, query=bad).place, spec)
        assert caught.value.field in ("query", "columns") and "nothing" not in str(caught.value.problem)
    with pytest.raises(RequestError, match=r"^query: the query's table is not there"):
        open_source(few(url, query="SELECT * FROM persons").place, spec)
    assert open_source(spec.place, spec).columns == tuple(table.column_names)


_NOT_ONE_SELECT = (
    "SELECT age, region, income FROM people; SELECT age, region, income FROM people",
    "SELECT * FROM people) AS a WHERE age > 40; SELECT * FROM (SELECT * FROM people",
    "SELECT * FROM people) AS a; --",
    "SELECT * FROM people) AS a WHERE age > 40 --",
    "SELECT * FROM people) AS a /*",
    "SELECT * FROM people /* open",
    "SELECT * FROM people WHERE region = 'north",
    "SELECT age FROM people) AS a, (SELECT region, income FROM people LIMIT 1",
    "SELECT * FROM (SELECT * FROM people",
    "-- nothing",
    ";",
    "DELETE FROM people",
    "EXPLAIN SELECT * FROM people",
)


def test_a_query_that_is_not_one_whole_select_is_refused_and_never_cut(database: Any) -> None:
    url = database(people(30)).partition("?table=")[0].partition("&table=")[0]
    for query in _NOT_ONE_SELECT:
        with pytest.raises(RequestError) as caught:
            open_source(few(url, query=query).place, few(""))
        assert caught.value.field == "query" and "one SELECT" in str(caught.value), query
        assert "PRIVATE" not in str(caught.value) and "north" not in str(caught.value) and spent() == 0
    # One whole select is read however it is written.
    for query in (
        "SELECT * FROM people;",
        "  SELECT * FROM people ;; ",
        "SELECT * FROM people -- all; of them)",
        "/* all; of (them */ SELECT * FROM people",
        "SELECT * FROM people WHERE ';)' <> '/*--('",
        "WITH a AS (SELECT * FROM people) SELECT * FROM (SELECT * FROM a) AS b",
        "(SELECT * FROM people WHERE age < 0) UNION ALL SELECT * FROM people",
    ):
        if "sqlite" in url and query.startswith("("):
            continue  # no query of SQLite begins with a bracket
        spec = few(url, query=query)
        assert sum(batch.num_rows for batch in open_source(spec.place, spec).batches()) == 30, query


def test_equal_rows_have_one_fingerprint_in_every_database_and_order(tmp_path: Path, postgres_database: str) -> None:
    table, store = people(500), Store(Settings().private_root, Settings().released_root, "people")
    spec = make_spec({**COLUMNS, "seen": {"kind": "drop"}})  # a moment in SQLite is text
    other_order = table.take(pa.array(range(499, -1, -1))).select(list(reversed(table.column_names)))
    urls = [
        databases.write_sqlite(table, tmp_path / "a.sqlite"),
        databases.write_sqlite(other_order, tmp_path / "b.sqlite"),
        databases.write_duckdb(table, tmp_path / "c.duckdb"),
        databases.write_postgres(table, postgres_database),
    ]
    assert len({open_source(url, spec).fingerprint(store) for url in urls}) == 1
    fewer = databases.write_duckdb(table.slice(1), tmp_path / "d.duckdb")
    assert open_source(fewer, spec).fingerprint(store) != open_source(urls[0], spec).fingerprint(store)


def test_one_snapshot_is_read_whatever_others_write(postgres_database: str) -> None:
    url = databases.write_postgres(people(300), postgres_database)
    spec = few(url)
    source = open_source(url, spec)
    source.check_rows()
    with raw(postgres_database) as connection:
        connection.exec_driver_sql("DELETE FROM people WHERE age > 30")
    assert sum(batch.num_rows for batch in source.batches()) == 300
    source.close()
    with pytest.raises(RequestError, match="changed while it was read"):
        list(source.batches())
    with raw(postgres_database) as connection:
        connection.exec_driver_sql("ALTER TABLE people DROP COLUMN region")
    with pytest.raises(RequestError, match=r"columns: the spec lists 'region', which the table 'people'"):
        open_source(url, spec)


def test_a_connection_that_is_lost_costs_nothing_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres.cluster() as server:
        url = databases.write_postgres(people(2_000), server.url)
        passes: list[str] = []
        from privsyn.sources.databases import PostgresReader

        read = PostgresReader.read

        def losing(self: Reader, *how: Any) -> Iterator[pa.RecordBatch]:
            passes.append("pass")
            if len(passes) == 2:  # the rows are being encoded: the price is reserved
                server.stop(9)
            yield from read(self, *how)

        monkeypatch.setattr(PostgresReader, "read", losing)
        with pytest.raises(RequestError, match="does not answer, or broke off; no budget is lost") as caught:
            release(few(url))
        assert "http" not in str(caught.value) and spent() == 0
        (server.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        server.start()
        assert len(release(few(url)).drawn) == 3
        server.stop(2)


@pytest.mark.slow
def test_nobody_is_told_that_nothing_was_spent_once_something_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Households are read again after the first counts; the same request goes on and pays once."""
    from privsyn.sources.databases import SqliteReader

    spec = make_household_spec(
        data=databases.write_sqlite(make_households(200), tmp_path / "t.sqlite"), dataset="people"
    )
    read, passes = SqliteReader.read, [0]

    def losing(self: Reader, *how: Any) -> Iterator[pa.RecordBatch]:
        passes[0] += 1
        with translate_errors(DataUrl.parse(str(spec.data))):
            if passes[0] == 5:
                raise OSError("terminating connection")
        yield from read(self, *how)

    monkeypatch.setattr(SqliteReader, "read", losing)
    with pytest.raises(RequestError, match="broke off; no budget is lost") as caught:
        release(spec)
    assert spent() > 0 and "nothing was spent" not in str(caught.value)
    release(spec)
    assert spent() == pytest.approx(float(Request(spec, ()).total_rho))


def test_what_a_value_did_to_a_query_is_private_whatever_the_value(tmp_path: Path, postgres_database: str) -> None:
    texts = pa.table({"x": ["password", "42abc", "timeout", "locked"]})
    sqlite, duckdb = (
        write(texts, tmp_path / write.__name__, "t") for write in (databases.write_sqlite, databases.write_duckdb)
    )
    places = [(databases.write_postgres(texts, postgres_database, "t"), "CAST(x AS INT)"), (duckdb, "CAST(x AS INT)")]
    for url, expression in (*places, (sqlite, "json_extract(x, '$.a')")):
        for text in texts["x"].to_pylist():
            query = f"SELECT {expression} AS age FROM t WHERE x = '{text}'"
            spec = make_spec(
                {"age": {"kind": "integer", "min": 0, "max": 9}}, data=url.rpartition("table=")[0][:-1], query=query
            )
            with pytest.raises(RequestError, match="PRIVATE: a value may be why") as caught:
                open_source(spec.place, spec).check_rows()
            assert caught.value.field == "query" and caught.value.__context__ is None


def test_a_password_in_a_url_is_refused_and_shown_nowhere(tmp_path: Path) -> None:
    for url in ("postgresql://me:hunter2@db/main?table=t", "postgresql://db/main?table=t&password=hunter2"):
        with pytest.raises(RequestError, match="holds a password") as caught:
            release(few(url))
        assert "hunter2" not in str(caught.value) and "PGPASSWORD" in str(caught.value)
    assert not any("hunter2" in f.read_text(errors="replace") for f in tmp_path.rglob("*") if f.is_file())


def test_an_address_of_the_internet_s_sixth_version_stays_whole() -> None:
    for text in ("postgresql://me@[2001:db8::1]:5433/main?table=t", "postgresql://[::1]/main?table=t"):
        assert str(DataUrl.parse(text)) == text
    url = DataUrl.parse("postgresql://[::1]:5432/main?table=t")
    assert url.is_within(["postgresql://[::1]/main"]) and not url.is_within(["postgresql://[::2]/main"])


@pytest.mark.parametrize("url", ["sqlite:///t%00.db?table=t", "postgresql://h/db?table=t%00"])
def test_a_url_with_a_byte_0_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"^data: is a URL that cannot be read"):
        DataUrl.parse(url)


def test_user_and_password_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with postgres.cluster(authentication="scram-sha-256", listen_addresses="127.0.0.1", port="54329") as server:
        databases.write_postgres(people(300), server.url)
        with raw(server.url) as connection:
            connection.exec_driver_sql("CREATE ROLE reader LOGIN PASSWORD 'hunter2'")
        url, spec = "postgresql://reader@127.0.0.1:54329/postgres?table=people", few("")
        for name in [name for name in os.environ if name.startswith("PG")]:
            monkeypatch.delenv(name)
        with pytest.raises(RequestError, match=r"refuses the user or the password.*PGPASSFILE"):
            open_source(url, spec)
        monkeypatch.setenv("PGPASSWORD", "hunter2")
        with pytest.raises(RequestError, match=r"may not be read by this user.*GRANT"):
            open_source(url, spec)
        with raw(server.url) as connection:
            connection.exec_driver_sql("GRANT SELECT ON people TO reader")
        with closing(open_source(url, spec)) as source:  # the server's stop waits for who is connected
            assert source.columns
        monkeypatch.delenv("PGPASSWORD")
        secret = tmp_path / "pass"
        secret.write_text("127.0.0.1:54329:postgres:reader:hunter2\n")
        secret.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(secret))
        made = release(few(url))
        assert len(made.drawn) == 3
        secret.unlink()
        files = [f for f in tmp_path.rglob("*") if f.is_file()]
        assert files and not any(b"hunter2" in f.read_bytes() for f in files)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_wrong_file_and_a_wrong_table_are_told_apart(kind: str, tmp_path: Path) -> None:
    spec = few("")
    write = databases.write_sqlite if kind == "sqlite" else databases.write_duckdb
    url = write(people(10), tmp_path / "db")
    with pytest.raises(RequestError, match=r"data: there is no file .*none\. Check the path\."):
        open_source(f"{kind}:///{tmp_path}/none?table=people", spec)
    with pytest.raises(RequestError, match="the table 'persons' is not there"):
        open_source(url.replace("=people", "=persons"), spec)
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 100)
    with pytest.raises(RequestError, match="such a database"):
        open_source(f"{kind}:///{tmp_path}/text?table=people", spec)
    for url, words in (
        (f"{kind}:///x.db", "names no table"),
        (f"{kind}:///x.db?table=a&query=b", "a table and a query"),
        (f"{kind}://server/x.db?table=a", "three slashes"),
        (f"{kind}:///x.db?tabel=a", "has the option 'tabel'"),
        ("mysql://host/db?table=a", r"is a URL \(mysql://\), a kind that is not supported"),
    ):
        with pytest.raises(RequestError, match=words):
            open_source(url, spec)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("asked", ["table=words", "query=SELECT%20*%20FROM%20words"])
def test_columns_are_called_as_words_and_values_of_sql_are(kind: str, asked: str, tmp_path: Path) -> None:
    """A view of SQLite has no column `true`."""
    names = ["false", "true", "null", "order", "select", "group", "current_date", "rowid", "column1"]
    rows = pa.table({name: [number, number + 1] for number, name in enumerate(names, start=2)})
    write = databases.write_sqlite if kind == "sqlite" else databases.write_duckdb
    url = write(rows, tmp_path / "db", "words").replace("table=words", asked)
    source = open_source(url, make_spec({name: {"kind": "integer", "min": 0, "max": 99} for name in names}))
    assert pa.Table.from_batches(list(source.batches())).to_pydict() == rows.to_pydict()


def test_two_columns_of_one_name_are_told_apart_beside_one_that_sqlite_may_have_named(tmp_path: Path) -> None:
    file = tmp_path / "joined.sqlite"
    with sqlite3.connect(file) as connection:
        for name, own in (("a", "column1"), ("b", "x")):
            connection.execute(f"CREATE TABLE {name} (id INTEGER, {own} INTEGER)")
            connection.execute(f"INSERT INTO {name} VALUES (1, 2)")
    names = ["id", "column1", "id:1", "x"]
    spec = make_spec({name: {"kind": "integer", "min": 0, "max": 9} for name in names})
    source = open_source(f"sqlite:///{file}?query=SELECT%20*%20FROM%20a%20JOIN%20b%20ON%20a.id%20=%20b.id", spec)
    assert list(source.columns) == names


def test_a_cell_of_sqlite_is_read_by_itself(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "n": {"kind": "integer", "min": 0, "max": 10, "nullable": True},
        "x": {"kind": "number", "min": 0, "max": 10, "bins": 10, "nullable": True},
        "t": {"kind": "categorical", "values": ["a", "1.5", "7"], "nullable": True},
    }
    file = tmp_path / "mixed.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE mixed (n INTEGER, x REAL, t)")
        connection.executemany("INSERT INTO mixed VALUES (?, ?, ?)", [(None, None, None)] * 200_000)
        rows = [(1, 1, "a"), ("CANARY", "CANARY", 1.5), (2.5, 2.5, 7), (b"\xff", b"\xff", b"\xff")]
        connection.executemany("INSERT INTO mixed VALUES (?, ?, ?)", rows)
    source = open_source(f"sqlite:///{file}?table=mixed", make_spec(columns))
    repairs = Repairs()
    found = pa.Table.from_batches(list(source.batches(repairs))).slice(200_000).to_pydict()
    assert found == {"n": [1, None, None, None], "x": [1.0, None, 2.5, None], "t": ["a", "1.5", "7", None]}
    assert repairs.counts == {
        ("n", "not of its column's type"): 3,
        ("x", "not of its column's type"): 2,
        ("t", "not of its column's type"): 1,
    }


def test_duckdb_opens_nothing_but_its_file(tmp_path: Path) -> None:
    url = databases.write_duckdb(people(10), tmp_path / "db").partition("?")[0]
    (tmp_path / "other.csv").write_text("age,region\n30,north\n")
    for query in (
        f"SELECT * FROM read_csv('{tmp_path}/other.csv')",
        f"SELECT * FROM '{tmp_path}/other.csv'",
        "SELECT * FROM read_parquet('https://example.invalid/x.parquet')",
        "SELECT * FROM read_text('/etc/passwd')",
    ):
        with pytest.raises(RequestError, match=r"files and extensions are not opened|does not take the SQL") as caught:
            open_source(few(url, query=query).place, few(""))
        assert caught.value.field == "query"


def test_infinite_days_and_moments_of_duckdb_are_null(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(str(tmp_path / "db")) as connection:
        connection.execute("CREATE TABLE ended (day DATE, moment TIMESTAMP)")
        connection.execute("INSERT INTO ended VALUES ('2020-01-01', '2020-01-01 10:00'), ('infinity', '-infinity')")
        connection.execute("CREATE MACRO isfinite(x) AS x < DATE '2015-01-01'")  # of the database, and not asked
        connection.execute("CREATE TABLE far (moment TIMESTAMP_S)")
        connection.execute("INSERT INTO far VALUES (make_timestamp(0)), ('infinity')")
        far = pa.table({"moment": pa.array([10**13], pa.timestamp("s"))})  # more than microseconds hold
        connection.register("later", far)
        connection.execute("INSERT INTO far SELECT * FROM later")
    years = {"min": "2010-01-01", "max": "2030-01-01", "bins": 10, "nullable": True}
    columns = {"day": {"kind": "date", **years}, "moment": {"kind": "datetime", **years}}
    (rows,) = open_source(f"duckdb:///{tmp_path}/db?table=ended", make_spec(columns)).batches()
    assert [column.null_count for column in rows.columns] == [1, 1]
    moments = make_spec({"moment": columns["moment"]})
    (seconds,) = open_source(f"duckdb:///{tmp_path}/db?table=far", moments).batches()
    assert seconds.column(0).null_count == 1 and seconds.num_rows == 3


def test_whole_numbers_of_duckdb_beyond_64_bits_are_the_numbers_that_they_are(tmp_path: Path) -> None:
    """DuckDB sends those of 128 bits as decimals of 38 digits, where the largest is -1 and the least cannot be read."""
    import duckdb

    signed = [1, 2**127 - 1, -(2**127), None, 10**38, -1, -5]
    unsigned = [1, 2**128 - 1, 2**127, None, 10**38, 2**64, 5]
    with duckdb.connect(str(tmp_path / "db")) as connection:
        connection.execute("CREATE TABLE large (s HUGEINT, u UHUGEINT, d DECIMAL(38, 2), b UBIGINT)")
        for s, u in zip(signed, unsigned, strict=True):
            connection.execute(f"INSERT INTO large VALUES ({s or 'NULL'}, {u or 'NULL'}, {'9' * 36}.99, {2**64 - 1})")
    number = {"kind": "integer", "min": -10, "max": 10, "nullable": True}
    spec = make_spec(dict.fromkeys("sudb", number))
    source = open_source(f"duckdb:///{tmp_path}/db?table=large", spec)
    source.check_rows()
    rows = pa.Table.from_batches(list(source.batches(batch_rows=3))).to_pydict()
    assert rows["s"] == signed and rows["u"] == unsigned
    (codes,) = encode(source.batches, Request(spec, source.columns).encoding, spec.unit, Repairs())
    assert codes.to_pydict() == {
        "s": [11, 20, 0, 21, 20, 9, 5],
        "u": [11, 20, 20, 21, 20, 20, 15],
        "d": [20] * 7,
        "b": [20] * 7,
    }
    texts = to_keys(next(iter(source.batches())).column("u"), pa.string()).to_pylist()
    assert texts[:3] == ["1", str(2**128 - 1), str(2**127)]


def test_the_farthest_values_of_postgres_end_no_release(postgres_database: str) -> None:
    with raw(postgres_database) as connection:
        connection.exec_driver_sql(
            "CREATE TABLE far (n numeric, w numeric(50, 10), x float8, r real, i bigint, day date, at timestamp, "
            "zoned timestamptz, clock time, money money)"
        )
        connection.exec_driver_sql(
            "INSERT INTO far VALUES (1, 1, 1, 1, 1, '2020-01-01', '2020-01-01', '2020-01-01', '10:00', 1), "
            "(1e1000, 1e39, 'Infinity', 'Infinity', 9223372036854775807, '5874897-12-31', '294276-12-31 23:59:59', "
            "'294276-12-31 23:59:59+00', '24:00', '92233720368547758.07'), "
            "(-1e1000, -1e39, '-Infinity', '-Infinity', -9223372036854775808, '4713-01-01 BC', "
            "'4713-01-01 BC', '4713-01-01 BC', '00:00', '-92233720368547758.08'), "
            "('NaN', 'NaN', 'NaN', 'NaN', NULL, NULL, NULL, NULL, NULL, NULL)"
        )
    number = {"kind": "number", "min": 0, "max": 100, "bins": 100, "nullable": True}
    moment = {"kind": "datetime", "min": "2010-01-01", "max": "2030-01-01", "bins": 10, "zone": "UTC"}
    columns: dict[str, Any] = {
        **dict.fromkeys(("n", "w", "x", "r", "i", "money"), number),
        "day": {"kind": "date", "min": "2010-01-01", "max": "2030-01-01", "bins": 10, "nullable": True},
        "at": {**moment, "nullable": True},
        "zoned": {**moment, "nullable": True},
        "clock": {"kind": "time", "nullable": True},
    }
    spec = make_spec(columns)
    source = open_source(f"{postgres_database}&table=far", spec)
    source.check_rows()
    (codes,) = encode(source.batches, Request(spec, source.columns).encoding, spec.unit, Repairs())
    for name in columns:
        first, high, low, null = column = codes.column(name).to_pylist()
        assert low == 0 and null == max(column) and low <= first <= high < null, name


def test_postgres_types_are_read_as_a_spec_means_them(postgres_database: str) -> None:
    with raw(postgres_database) as connection:
        connection.exec_driver_sql("CREATE TYPE mood AS ENUM ('low', 'high')")
        connection.exec_driver_sql(
            "CREATE TABLE typed (id uuid, amount numeric(8, 2), free numeric, mood mood, at timestamptz, day date, "
            "i smallint)"
        )
        connection.exec_driver_sql(
            "INSERT INTO typed VALUES ('c0aff88b-6d4c-4276-9ca0-8670de925d80', 12.50, 1e400, 'high', "
            "'2020-01-01 10:00+02', '2020-01-01', 3), (NULL, 'NaN', 2.5, NULL, NULL, NULL, NULL)"
        )
        connection.exec_driver_sql(
            "INSERT INTO typed (amount, free, at, day) VALUES (NULL, 'Infinity', 'infinity', '-infinity'), "
            "('NaN', '-Infinity', '-infinity', 'infinity')"
        )
    years = {"min": "2010-01-01", "max": "2030-01-01", "bins": 10, "nullable": True}
    columns: dict[str, Any] = {
        "id": {"kind": "categorical", "values": ["c0aff88b-6d4c-4276-9ca0-8670de925d80"], "nullable": True},
        "amount": {"kind": "number", "min": 0, "max": 100, "bins": 10, "decimals": 2, "nullable": True},
        "free": {"kind": "number", "min": 0, "max": 100, "bins": 10, "nullable": True},
        "mood": {"kind": "categorical", "values": ["low", "high"], "nullable": True},
        "at": {
            "kind": "datetime",
            "min": "2010-01-01",
            "max": "2030-01-01",
            "bins": 10,
            "nullable": True,
            "zone": "UTC",
        },
        "day": {"kind": "date", **years},
        "i": {"kind": "integer", "min": 0, "max": 10, "nullable": True},
    }
    source = open_source(f"{postgres_database}&table=typed", make_spec(columns))
    rows = pa.Table.from_batches(list(source.batches()))
    assert [str(source.types[name]) for name in columns] == [
        "string",
        "decimal128(8, 2)",
        "double",
        "string",
        "timestamp[us, tz=UTC]",
        "date32[day]",
        "int16",
    ]
    assert rows["id"].to_pylist()[0] == columns["id"]["values"][0] and rows["mood"].to_pylist() == ["high", *[None] * 3]
    assert [str(v) for v in rows["amount"].to_pylist()] == ["12.50", *["None"] * 3]
    assert rows["free"].to_pylist() == [inf, 2.5, inf, -inf]
    assert rows["at"].null_count == rows["day"].null_count == 3


def test_money_is_no_cents_and_padded_text_has_no_blanks(postgres_database: str) -> None:
    with raw(postgres_database) as connection:
        connection.exec_driver_sql("CREATE TABLE paid (amount money, code char(5), note json, place inet)")
        connection.exec_driver_sql("INSERT INTO paid (amount, code) VALUES (12.34, 'ab'), (NULL, NULL)")
    dropped = {"note": {"kind": "drop"}, "place": {"kind": "drop"}}
    number = {"kind": "number", "min": 0, "max": 100, "bins": 10, "nullable": True}
    columns: dict[str, Any] = {"amount": number, "code": {"kind": "categorical", "values": ["ab"], "nullable": True}}
    url = f"{postgres_database}&table=paid"
    (rows,) = open_source(url, make_spec({**columns, **dropped})).batches()
    assert rows.to_pylist() == [{"amount": 12.34, "code": "ab"}, {"amount": None, "code": None}]
    for name, type_ in (("note", "json"), ("place", "inet")):
        with pytest.raises(RequestError, match=f"columns.{name}: its type in the table 'paid' is {type_}, which"):
            open_source(url, make_spec({**columns, **dropped, name: number}))
    with pytest.raises(RequestError, match="the part before a dot is the schema"):
        open_source(f"{postgres_database}&table=other.public.paid", make_spec(columns))


@pytest.mark.slow
def test_the_page_from_postgresql_to_a_published_folder(tmp_path: Path, postgres_database: str) -> None:
    page = (ROOT / "docs" / "from-postgresql.md").read_text(encoding="utf-8")
    address, host = postgres_database.split("?")
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```$", page, re.S | re.M))
    script = script.replace("postgresql://db.example.org/main?", f"{address.replace('privsyn@', '')}?{host}&")
    script = script.replace("postgresql://db.example.org/main", postgres_database)
    script = script.replace("ROLE steward", f"ROLE {tmp_path.name}").replace("TO steward", f"TO {tmp_path.name}")
    script = script.replace("user=steward", f"user={tmp_path.name}").replace(
        'table=survey"', 'table=survey&user=privsyn"'
    )
    folders = [Path(sys.executable).parent, *filter(None, [postgres.programs()]), os.environ["PATH"]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PATH": os.pathsep.join(map(str, folders)), "PREFECT_HOME": str(tmp_path / "prefect")}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (released,) = (tmp_path / "out" / "released").iterdir()
    assert (released / "manifest.json").is_file()
    note = json.loads((tmp_path / "out" / "private" / "runs" / released.name / "run.json").read_text())
    assert DataUrl.parse(note["data"]).query == "SELECT age, region, income FROM survey WHERE consent"
    with raw(postgres_database) as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {tmp_path.name}")
        connection.exec_driver_sql(f"DROP ROLE {tmp_path.name}")


def test_a_policy_names_the_databases_that_are_read(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = databases.write_sqlite(people(300), places / "people.sqlite")
    rules = {"paths": [], "budget": {"epsilon": 10, "delta": 1e-8}, "epsilon": 1, "delta": 1e-9}

    def allow(*paths: str) -> None:
        (places / "policy.yaml").write_text(json.dumps({"others": {**rules, "paths": paths}}))
        monkeypatch.setenv("PRIVSYN_POLICY", str(places / "policy.yaml"))

    def is_refused(data: str) -> bool:
        with pytest.raises(RequestError) as caught:
            check_table("people", data, Settings(), "data")
            raise RequestError("allowed")
        return "is not among the policy's others.paths" in str(caught.value)

    allow(str(places))
    assert len(release(few(url)).drawn) == 3
    server = "postgresql://db.example.org/main?table=people"
    assert is_refused(server) and is_refused("sqlite:////elsewhere/people.sqlite?table=people")
    monkeypatch.chdir(places)
    assert is_refused(server)
    allow(server)
    assert is_refused(url) and not is_refused(server) and not is_refused(server.replace("org/", "org:5432/"))
    assert is_refused(server.replace("db.example.org", "[::1]"))
    assert not is_refused("postgresql:///main?host=DB.example.org&table=people&user=me")
    for other in (
        server.replace("people", "persons"),
        server.replace("table=", "query=SELECT%201%20FROM%20"),
        server.replace("main", "mainly"),
        server.replace("org/", "org:5433/"),
        server + "&host=evil.example",
    ):
        assert is_refused(other)
    allow("postgresql://db.example.org/main")
    assert not is_refused(server) and not is_refused(server.replace("people", "persons"))
    assert is_refused(server.replace("main", "mainly"))


def test_a_draft_has_the_names_and_types_of_a_database(tmp_path: Path) -> None:
    url = databases.write_duckdb(people(5), tmp_path / "people.duckdb")
    text = draft(url, folder=tmp_path)
    assert 'data: "duckdb:///people.duckdb?table=people"' in text and "dataset: people" in text.replace('"', "")
    kinds = re.findall(r"^    kind: (\w+)", text, re.M)
    assert kinds == ["integer", "number", "categorical", "boolean", "datetime", "categorical"]
