"""Releases of tables larger than memory: ``python -m benchmarks.scale [--rows N] [--engine dask] [--out ROWS]``.

With ``--persons N`` of two tables, N persons and their visits: about ten each, in random order.

The table lies in a temporary folder and is deleted afterwards, as is all that the release writes (about four times the
table's own size).  Time is CPU time in all threads of the process that runs the release, and of each worker of Dask
from its start to the end; memory is each process's own peak, imports included.  Printed, too, is what went over the
loopback interface; ``unshare --net sh -c "ip link set lo up; ..."`` gives the run one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.census_like import census_like
from benchmarks.whole_release import census_spec
from privsyn.api.release import propose_release
from privsyn.base.process_memory import forget_peak_memory, memory_mb
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.open_run import open_run
from privsyn.engine.step import Step, run_steps
from privsyn.engine.step_tables import StepRefs
from privsyn.publish.folder import publish
from privsyn.tasks.kernels.counting import CodeTable

ROWS, COLUMNS, CHUNK = 100_000_000, 20, 1_000_000
OUT_ROWS = 1_000_000
FEW = 10_000
TICKS, LEAST_CPU = os.sysconf("SC_CLK_TCK"), 1.0
"""The system's units of CPU time a second; seconds below which a process has done no work."""


@dataclass(frozen=True)
class Cost:
    """One step: CPU and wall seconds, and the process's peak resident memory meanwhile in MB (2^20 bytes)."""

    step: str
    cpu: float
    wall: float
    peak_mb: float


def chunks(rows: int, columns: int = COLUMNS, seed: int = 1, chunk: int = CHUNK) -> Iterator[CodeTable]:
    """``rows`` census-like rows in chunks: each draws rows, with replacement, of one table of ``chunk`` rows."""
    base = census_like(min(rows, chunk), columns, seed)
    for number, first in enumerate(range(0, rows, chunk)):
        drawn = np.random.default_rng([seed, number]).integers(base.rows, size=min(chunk, rows - first))
        yield CodeTable(base.domain, tuple(column[drawn] for column in base.columns))


def write_table(folder: Path, rows: int, columns: int = COLUMNS) -> ReleaseSpec:
    """Return the table as one Parquet file of row groups of a chunk each, and its spec."""
    path, writer = folder / "table.parquet", None
    for table in chunks(rows, columns):
        arrow = table.to_arrow()
        writer = writer or pq.ParquetWriter(path, arrow.schema)
        writer.write_table(arrow)
        domain = table.domain
    if writer is None:
        raise ValueError("a table of no rows")
    writer.close()
    return census_spec(domain, str(path))


def write_tables(folder: Path, persons: int) -> ReleaseSpec:
    """Return the spec of two tables, which are written: persons, of whom a tenth has no visit, and 10 visits a person.

    Visits are drawn a chunk at a time: each is anybody's, as in a table by date.
    """
    rng = np.random.default_rng(1)
    above = pa.table(
        {
            "pid": np.arange(persons),
            "sex": pa.array(["f", "m"]).take(pa.array(rng.integers(2, size=persons))),
            "birth_year": rng.integers(1930, 2010, persons),
        }
    )
    pq.write_table(above, folder / "persons.parquet")
    with_visits, writer = rng.permutation(persons)[: max(persons * 9 // 10, 1)], None
    ill, rows, clinics = rng.random(persons), persons * 10, pa.array([f"c{i}" for i in range(30)])
    for first in range(0, rows, CHUNK):
        who = rng.choice(with_visits, min(CHUNK, rows - first))
        kinds = (rng.random(len(who)) * 3 * ill[who]).astype(int)
        below = pa.table(
            {
                "visit": np.arange(first, first + len(who)),
                "pid": who,
                "date": pa.array(rng.integers(18_262, 20_454, len(who)).astype("int32"), pa.date32()),
                "type": pa.array(["er", "ward", "office"]).take(pa.array(kinds)),
                "cost": np.round(rng.exponential(200, len(who)) * (0.5 + ill[who]), 2),
                "score": rng.binomial(20, ill[who]),
                "clinic": clinics.take(pa.array((who + rng.integers(3, size=len(who))) % len(clinics))),
            }
        )
        writer = writer or pq.ParquetWriter(folder / "visits.parquet", below.schema)
        writer.write_table(below)
    if writer is None:
        raise ValueError("tables of no rows")
    writer.close()
    return ReleaseSpec.model_validate(
        {
            "dataset": "visits",
            "unit": {"person_id": "pid"},
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "budget": {"epsilon": 10.0, "delta": 1e-8},
            "tables": {
                "persons": {
                    "data": str(folder / "persons.parquet"),
                    "key": "pid",
                    "columns": {
                        "sex": {"kind": "categorical", "values": ["f", "m"]},
                        "birth_year": {"kind": "integer", "min": 1920, "max": 2010},
                    },
                },
                "visits": {
                    "data": str(folder / "visits.parquet"),
                    "of": "persons",
                    "key": "visit",
                    "order": "date",
                    "max": 20,
                    "columns": {
                        "date": {"kind": "date", "min": "2020-01-01", "max": "2025-12-31"},
                        "type": {"kind": "categorical", "values": ["er", "ward", "office"]},
                        "cost": {"kind": "number", "min": 0, "max": 10_000, "decimals": 2},
                        "score": {"kind": "integer", "min": 0, "max": 20},
                        "clinic": {"kind": "categorical", "values": [f"c{i}" for i in range(30)]},
                    },
                },
            },
        }
    )


@contextmanager
def measured(step: str, found: list[Cost]) -> Iterator[None]:
    """Append what the block cost."""
    forget_peak_memory()
    start, wall = time.process_time(), time.perf_counter()
    yield
    found.append(Cost(step, time.process_time() - start, time.perf_counter() - wall, memory_mb("VmHWM")))


def release_costs(spec: ReleaseSpec, folder: Path) -> list[Cost]:
    """Return what each step of a release of ``spec`` costs.

    Everything before the first step counts as ``preflight``.
    """
    found: list[Cost] = []
    settings = Settings(out=folder / "out", ledger=str(folder / "ledger.sqlite"))
    opening = open_run(propose_release(spec, settings))
    with measured("preflight", found):
        run = opening.__enter__()

    def execute(step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
        with measured(step.name, found):
            return run.execute(step, inputs)

    refs = run_steps(run.steps, execute)
    with measured("publish", found):
        publish(run, refs)
    found += list_worker_costs()  # while they are there
    opening.__exit__(None, None, None)
    return found


def list_worker_costs() -> list[Cost]:
    """Return what each process that this one has started has cost so far, those that only watch left out."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text(encoding="ascii").split():
            cpu = sum(map(int, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]))
            cost = Cost(f"worker {len(found) + 1}", cpu / TICKS, 0.0, memory_mb("VmHWM", child))
            found += [cost] if cost.cpu > LEAST_CPU else []
    return found


def count_loopback_bytes() -> int:
    """Return the bytes that went over the loopback interface since the system, or its network namespace, began."""
    lines = Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == "lo:")


def in_this_process(spec_file: Path) -> None:
    """Release once on few rows, which compiles and imports, and once to measure; print the costs as JSON."""
    spec = ReleaseSpec.model_validate_json(spec_file.read_text(encoding="utf-8"))
    folder = spec_file.parent
    (folder / "few").mkdir()
    local = write_tables(folder / "few", FEW // 10) if spec.tables else write_table(folder / "few", FEW)
    release_costs(local, folder / "few")
    before = count_loopback_bytes()
    costs = release_costs(spec, folder)
    print(json.dumps([[asdict(cost) for cost in costs], count_loopback_bytes() - before]))


def markdown(costs: list[Cost], rows: int) -> str:
    """Return the table of costs, by step and a million rows of the private table."""
    whole = Cost("all", sum(c.cpu for c in costs), sum(c.wall for c in costs), max(c.peak_mb for c in costs))
    lines = ["| step | CPU | a million rows | wall | peak memory |", "|---|---|---|---|---|"]
    for c in (*costs, whole):
        per_million = c.cpu / rows * 1e6
        lines.append(f"| {c.step} | {c.cpu:,.1f} s | {per_million:.3f} s | {c.wall:,.1f} s | {c.peak_mb:,.0f} MB |")
    return "\n".join(lines)


def main() -> int:
    """Measure in a process of its own, and print; 1 above 2 GB for the whole release."""
    parser = argparse.ArgumentParser(description="One release of a table larger than memory.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--persons", type=int, help="two tables: so many persons, with ten visits each")
    parser.add_argument("--out", type=int, default=OUT_ROWS, help="rows to make; 0: as many as the table has, about")
    parser.add_argument("--engine", choices=("local", "dask"), default="local")
    parser.add_argument("--folder", help="where to put the temporary folder")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        in_this_process(arguments.one)
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        if arguments.persons:
            made, rows = write_tables(folder, arguments.persons), 10 * arguments.persons
        else:
            made, rows = write_table(folder, arguments.rows).with_rows(rows=arguments.out or "auto"), arguments.rows
        content = json.loads(made.model_dump_json(exclude_defaults=True))
        content |= {"engine": {"kind": arguments.engine}} if arguments.engine != "local" else {}
        (folder / "spec.json").write_text(json.dumps(content), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.scale", "--one", str(folder / "spec.json")]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found, sent = json.loads(done.stdout.splitlines()[-1])
    costs = [Cost(**cost) for cost in found]
    table = f"{arguments.persons:,} persons, {rows:,} visits" if arguments.persons else f"{rows:,} x {COLUMNS}"
    made_rows = "as many" if arguments.persons else arguments.out or "as many"
    print(f"{table}, {made_rows} rows out, engine {arguments.engine}\n")
    print(markdown(costs, rows))
    own, workers = (sum(c.cpu for c in costs if c.step.startswith("worker ") == of) for of in (False, True))
    shares = f"{own / (own + workers):.1%} of the CPU seconds in the process that runs the release"
    print(f"\n{shares}; {sent / 1e6:,.1f} MB over the loopback interface")
    return int(max(c.peak_mb for c in costs) > 2_000)


if __name__ == "__main__":
    raise SystemExit(main())
