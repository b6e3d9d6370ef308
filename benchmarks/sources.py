"""Time and memory of reading one table from each kind of database: `python benchmarks/sources.py --rows 2000000`.

Needs Debian's postgresql.  Each pass is made in a process of its own, whose peak memory is printed; the last line is
the same table in Parquet.  With ``--only-postgres`` the server makes the rows itself: any number of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from adbc_driver_postgresql.dbapi import connect as postgres_connection

sys.path.insert(0, str(Path(__file__).parents[1]))

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.open_source import open_source
from privsyn.sources.reader import build_select
from tests.support.databases import write_duckdb, write_postgres, write_sqlite
from tests.support.postgres import cluster
from tests.support.specs import make_spec, people


def read(place: str) -> dict[str, float]:
    """Return seconds of the first pass and of the second, and the peak memory of this process before and after."""
    spec: ReleaseSpec = make_spec(unit={"person_id": "caseid", "max_records": 1})
    source = open_source(place, spec)
    before, start = _peak(), time.perf_counter()
    source.check_rows()
    middle = time.perf_counter()
    rows = sum(batch.num_rows for batch in source.batches())
    end = time.perf_counter()
    return {"rows": rows, "first": middle - start, "second": end - middle, "before": before, "peak": _peak()}


def _peak() -> float:
    """Return the most memory that this program had so far, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Write the table into each database, and read it from there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--only-postgres", action="store_true")
    parser.add_argument("--read", default="")
    asked = parser.parse_args()
    if asked.read:
        print(json.dumps(read(asked.read)))
        return
    with cluster() as server, tempfile.TemporaryDirectory() as name:
        if asked.only_postgres:
            measure("PostgreSQL", generate_rows(server.url, asked.rows))
            return
        folder, table = Path(name), people(asked.rows)
        pq.write_table(table, folder / "people.parquet", row_group_size=131_072)
        places = {
            "PostgreSQL": write_postgres(table, server.url),
            "SQLite": write_sqlite(table, folder / "people.sqlite"),
            "DuckDB": write_duckdb(table, folder / "people.duckdb"),
            "Parquet": str(folder / "people.parquet"),
        }
        del table
        for kind, place in places.items():
            measure(kind, place)


def generate_rows(url: str, rows: int) -> str:
    """Return the URL of a new table of rows like those of the other tables, which the server makes."""
    with postgres_connection(url) as connection, connection.cursor() as cursor:
        columns = (
            "(18 + i % 72)::bigint AS age, (i * 7919 % 200000)::float8 AS income, i % 3 > 0 AS happy, i AS caseid, "
            "(ARRAY['north', 'south', 'east'])[1 + i * i % 3] AS region, "
            "timestamp '2010-01-01' + (i % 3650) * interval '1 day' AS seen"
        )
        made = build_select([columns], f"generate_series(1::bigint, {rows:d}) AS i")
        cursor.execute(f"CREATE UNLOGGED TABLE people AS {made}")
        connection.commit()
    return f"{url}{'&' if '?' in url else '?'}table=people"


def measure(kind: str, place: str) -> None:
    """Read the table in a process of its own, and print what it took."""
    done = subprocess.run([sys.executable, __file__, "--read", place], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    print(
        f"{kind}: {found['rows']:,.0f} rows, {found['first']:.1f} s for the first pass,",
        f"{found['second']:.1f} s for the second; memory {found['before']:.0f} MB before,",
        f"{found['peak']:.0f} MB at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
