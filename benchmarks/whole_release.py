"""Whole releases, timed from outside as a user starts them: ``python -m benchmarks.whole_release [--quick]``.

Belongs here: making the inputs, starting ``privsyn release``, its wall time and peak memory.  Does not
belong here: the kernels against their yardsticks (bench.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.census_like import ATTRIBUTES, ROWS, census_like
from flows.direct import release_directly
from flows.settings import Settings
from flows.spec_file import load_spec, override
from tasks.privacy.noise import SeededNoise

ADULT_SPEC = Path(__file__).parents[1] / "examples" / "adult.yaml"
ADULT_DATA = Path(__file__).parents[2] / "shared" / "data" / "adult.parquet"


@dataclass(frozen=True)
class Run:
    """One finished command: wall seconds, peak resident memory in MB, its JSON."""

    seconds: float
    peak_mb: float
    result: dict[str, object]


def timed_command(arguments: list[str], folder: Path) -> Run:
    """Run ``privsyn`` with an own ledger and output folder under ``folder``; RuntimeError if it fails."""
    environment = {**os.environ, "PRIVSYN_LEDGER": str(folder / "ledger.sqlite"), "PRIVSYN_OUT": str(folder / "out")}
    start = time.perf_counter()
    with (folder / "stdout").open("w+") as stdout, (folder / "stderr").open("w+") as stderr:
        command = [sys.executable, "-m", "flows.cli", *arguments, "--json"]
        child = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        stdout.seek(0)
        stderr.seek(0)
        if child.returncode != 0:
            raise RuntimeError(stderr.read())
        return Run(seconds, usage.ru_maxrss / 1024, json.loads(stdout.read()))


def write_census(folder: Path, rows: int) -> Path:
    """The census-like table as Parquet with its spec; returns the spec's path."""
    table = census_like(rows, ATTRIBUTES)
    pq.write_table(table.to_arrow(), folder / "census.parquet")
    columns = {
        a: {"kind": "integer", "min": 0, "max": s - 1, "bins": s}
        for a, s in zip(table.domain.attributes, table.domain.sizes, strict=True)
    }
    spec = {
        "dataset": "census-like", "data": "census.parquet", "unit": {"records_per_person": 1},
        "privacy": {"epsilon": 1.0, "delta": 1e-12}, "budget": {"epsilon": 10.0, "delta": 1e-11}, "columns": columns,
    }  # fmt: skip
    (folder / "census.yaml").write_text(json.dumps(spec), encoding="utf-8")  # JSON is YAML
    return folder / "census.yaml"


def warm_algorithm_seconds() -> float:
    """Seconds of a second Adult release in one process, without Prefect: the steps, checks and files."""
    spec = override(load_spec(ADULT_SPEC), data=ADULT_DATA)
    seconds = 0.0
    for _ in range(2):
        with tempfile.TemporaryDirectory() as name:
            settings = Settings(out=Path(name) / "out", ledger=str(Path(name) / "ledger.sqlite"))
            start = time.perf_counter()
            release_directly(spec, settings, noise=SeededNoise(0))
            seconds = time.perf_counter() - start
    return seconds


def measure(rows: int) -> str:
    """The markdown table of whole releases."""
    lines = ["| whole release | wall time | required | peak memory | required |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = timed_command(["release", str(write_census(folder, rows))], folder)
        what = f"`privsyn release`, {rows:,} × {ATTRIBUTES}, synthetic census"
        lines.append(f"| {what} | {run.seconds:.0f} s | 300 s | {run.peak_mb:,.0f} MB | 1,500 MB |")
        run = timed_command(["evaluate", str(run.result["run"])], folder)
        lines.append(f"| `privsyn evaluate` of it | {run.seconds:.0f} s | | {run.peak_mb:,.0f} MB | |")
    if ADULT_DATA.exists():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            run = timed_command(["release", str(ADULT_SPEC), "--data", str(ADULT_DATA)], folder)
            lines.append(f"| `privsyn release`, Adult | {run.seconds:.0f} s | 30 s | {run.peak_mb:,.0f} MB | |")
            run = timed_command(["evaluate", str(run.result["run"])], folder)
            lines.append(f"| `privsyn evaluate` of it | {run.seconds:.0f} s | | {run.peak_mb:,.0f} MB | |")
        warm = warm_algorithm_seconds()
        lines.append(f"| Adult, all steps and checks, warm, without Prefect | {warm:.1f} s | 5 s | | |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Whole releases as a user starts them.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    print(measure(ROWS // 10 if parser.parse_args().quick else ROWS))


if __name__ == "__main__":
    main()
