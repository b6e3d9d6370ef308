"""From a start to a release of 3,000 rows, four columns: ``python -m benchmarks.start [--before PYTHON] [--repeat N]``.

``--before``: the Python of an environment with version 0.2, whose command and import are timed in turns with today's;
the ratios are to these.  Without it today's seconds alone are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 3_000
SPEC = """\
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1.0, delta: 1.0e-9}
budget: {epsilon: 1000.0, delta: 1.0e-8}
columns:
  age: {kind: integer, min: 18, max: 89, bins: 24}
  income: {kind: number, min: 0, max: 200000, edges: [0, 10000, 25000, 50000, 100000, 200000], nullable: true}
  region: {kind: categorical, values: [north, south, east]}
  happy: {kind: boolean}
"""

IN_PROCESS = """
import json, time
start = time.perf_counter()
import privsyn
privsyn.release
imported = time.perf_counter()
privsyn.release(None, "people.yaml")
first = time.perf_counter()
privsyn.release(None, "people.yaml", fresh=True)
second = time.perf_counter()
privsyn.release(None, "people.yaml")
cached = time.perf_counter()
print(json.dumps({"import": imported - start, "first release": first - start, "second release": second - first,
                  "release found again": cached - second}))
"""
"""The import counts for the first release, as it does for whoever waits for it."""

BARE_IMPORT = "import time; s = time.perf_counter(); import {module}; print(time.perf_counter() - s)"

REQUIRED = {"import": 1 / 3, "first release": 1 / 4, "second release": 1 / 50}
"""What is timed -> the largest share of the yardstick that is wanted."""


def table() -> pa.Table:
    """Return a made-up table with related columns."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, ROWS)
    income = np.where(rng.random(ROWS) < 0.1, np.nan, rng.lognormal(10, 0.7, ROWS).clip(0, 200_000))
    return pa.table(
        {
            "age": age,
            "income": pa.array(income, from_pandas=True),
            "region": rng.choice(["north", "south", "east"], ROWS),
            "happy": rng.random(ROWS) < 0.4 + 0.003 * (age - 18),
        }
    )


def timed(command: list[str], folder: Path) -> tuple[float, str]:
    """Wall seconds and standard output of a command in ``folder``, with a ledger and an output folder there."""
    environment = {**os.environ, "PRIVSYN_LEDGER": str(folder / "ledger.sqlite"), "PRIVSYN_OUT": str(folder / "out")}
    environment.pop("PREFECT_API_URL", None)
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[:3]} failed: {done.stderr[-2_000:]}")
    return time.perf_counter() - start, done.stdout


def once(python: str, before: str | None) -> dict[str, float]:
    """Return one round of all that is timed, by name; each round in new folders."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(table(), folder / "people.parquet")
        (folder / "people.yaml").write_text(SPEC, encoding="utf-8")
        if before is not None:
            old = folder / "before"
            old.mkdir()
            for file in ("people.parquet", "people.yaml"):
                (old / file).write_bytes((folder / file).read_bytes())
            seconds["0.2: command"], _ = timed([before, "-P", "-m", "flows.cli", "release", "people.yaml"], old)
            seconds["0.2: import"] = float(timed([before, "-c", BARE_IMPORT.format(module="flows.release")], old)[1])
        seconds |= json.loads(timed([python, "-c", IN_PROCESS], folder)[1])
        seconds["import privsyn alone"] = float(timed([python, "-c", BARE_IMPORT.format(module="privsyn")], folder)[1])
        new = folder / "command"
        new.mkdir()
        for file in ("people.parquet", "people.yaml"):
            (new / file).write_bytes((folder / file).read_bytes())
        command = [python, "-P", "-m", "privsyn.cli", "release", "people.yaml"]
        seconds["command"], _ = timed(command, new)
        seconds["command, release found again"], _ = timed(command, new)
    return seconds


def markdown(medians: Mapping[str, float]) -> list[str]:
    """Return a line for each thing that was timed, with its share of 0.2's command (of its import, for imports)."""
    lines = ["| what | seconds | of version 0.2 | wanted |", "|---|---|---|---|"]
    for name, value in medians.items():
        yardstick = medians.get("0.2: import" if name.startswith("import") else "0.2: command")
        share = f"1/{yardstick / value:.1f}" if yardstick and not name.startswith("0.2") else ""
        wanted = f"1/{1 / REQUIRED[name]:.0f}" if name in REQUIRED else ""
        lines.append(f"| {name} | {value:.2f} | {share} | {wanted} |")
    return lines


def main() -> None:
    """Print medians of some rounds; exit code 1 where a share is larger than wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="PYTHON", help="Python of an environment with version 0.2.")
    parser.add_argument("--repeat", type=int, default=3, help="Rounds; the medians count.")
    given = parser.parse_args()
    rounds = [once(sys.executable, given.before) for _ in range(given.repeat)]
    medians = {name: statistics.median(round[name] for round in rounds) for name in rounds[0]}
    print("\n".join(markdown(medians)))
    if given.before is not None:
        yardsticks = {name: medians["0.2: import" if name == "import" else "0.2: command"] for name in REQUIRED}
        slow = [name for name, share in REQUIRED.items() if medians[name] > share * yardsticks[name]]
        if slow:
            sys.exit(f"slower than wanted: {', '.join(slow)}")


if __name__ == "__main__":
    main()
