"""Whole releases, timed from outside as a user starts them: ``python -m benchmarks.whole_release [--quick]``."""

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

from benchmarks.census_like import ATTRIBUTES, ROWS, census_domain, census_like
from privsyn.api.release import propose_release, run_proposal
from privsyn.base.settings import Settings
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.spec_file import load_spec, override_options

ADULT_SPEC = Path(__file__).parents[1] / "examples" / "adult.yaml"
ADULT_DATA = Path(__file__).parents[2] / "shared" / "data" / "adult.parquet"


LAUNCHER = """
import json, os, sys, time
start = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
with open(sys.argv[1], "w") as file:
    json.dump([time.perf_counter() - start, usage.ru_maxrss, usage.ru_utime + usage.ru_stime], file)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Starts a command and waits: the system counts a child's peak memory from the size of the process that starts it, so
that one must be small.  This one takes about 10 MB."""


@dataclass(frozen=True)
class Run:
    """One finished command: wall seconds, CPU seconds, peak resident memory in MB (2^20 bytes), its JSON."""

    seconds: float
    cpu: float
    peak_mb: float
    result: dict[str, object]


def timed_command(arguments: list[str], folder: Path) -> Run:
    """Run ``privsyn`` with an own ledger and output folder under ``folder``; RuntimeError if it fails."""
    environment = {**os.environ, "PRIVSYN_LEDGER": str(folder / "ledger.sqlite"), "PRIVSYN_OUT": str(folder / "out")}
    figures = folder / "figures.json"
    command = [
        sys.executable,
        "-S",
        "-c",
        LAUNCHER,
        str(figures),
        sys.executable,
        "-m",
        "privsyn.cli",
        *arguments,
    ]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    seconds, peak, cpu = json.loads(figures.read_text(encoding="utf-8"))
    return Run(seconds, cpu, peak / 1024, json.loads(done.stdout))


def census_spec(domain: Domain, data: str, inside: int | None = None) -> ReleaseSpec:
    """Return the spec of a census-like table over ``domain``: each code a value of its own.

    ``inside``: without ``bins``, and each code has so many values.
    """
    columns = {
        a: {"kind": "integer", "min": 0, "max": s * (inside or 1) - 1, **({} if inside else {"bins": s})}
        for a, s in zip(domain.attributes, domain.sizes, strict=True)
    }
    spec = {
        "dataset": "census-like", "data": data, "unit": {"records_per_person": 1},
        "privacy": {"epsilon": 1.0, "delta": 1e-12}, "budget": {"epsilon": 10.0, "delta": 1e-11}, "columns": columns,
    }  # fmt: skip
    return ReleaseSpec.model_validate(spec)


def write_census(folder: Path, rows: int) -> Path:
    """Return the census-like table as Parquet with its spec; returns the spec's path."""
    table = census_like(rows, ATTRIBUTES)
    pq.write_table(table.to_arrow(), folder / "census.parquet")
    spec = census_spec(table.domain, "census.parquet").model_dump_json(exclude_defaults=True)
    (folder / "census.yaml").write_text(spec, encoding="utf-8")  # JSON is YAML
    return folder / "census.yaml"


def encoded_mb(rows: int) -> float:
    """Return size of the encoded census-like table in memory, in MB.

    The codes of one row, by their types, times the rows.
    """
    return rows * sum(choose_code_dtype(s).itemsize for s in census_domain(ATTRIBUTES).sizes) / 2**20


def warm_seconds(repeats: int = 5) -> tuple[float, float]:
    """Wall and CPU seconds of the fastest of some Adult releases in one warm process, without Prefect.

    Counted: reading, encoding, every step, release noise (exact, by OpenDP), contract checks, files on disk, ledger and
    publishing.  Not counted: imports, compilation, Prefect's server.
    """
    spec = override_options(load_spec(ADULT_SPEC), data=ADULT_DATA)
    found = []
    for _ in range(repeats + 1):
        with tempfile.TemporaryDirectory() as name:
            settings = Settings(out=Path(name) / "out", ledger=str(Path(name) / "ledger.sqlite"))
            start, used = time.perf_counter(), time.process_time()
            run_proposal(propose_release(spec, settings))
            found.append((time.perf_counter() - start, time.process_time() - used))
    return min(wall for wall, _ in found[1:]), min(cpu for _, cpu in found[1:])


MOST_SECONDS = {"large": 60.0, "adult": 30.0, "warm": 1.0}
"""What a whole release may take: 662,000 x 97, Adult, and Adult in a warm process."""


def measure(rows: int) -> tuple[str, bool]:
    """Return the markdown table of whole releases, and whether all keep what is required of them."""
    kept = []
    lines = ["| whole release | wall time | required | peak memory | required |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = timed_command(["release", str(write_census(folder, 10))], folder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = timed_command(["release", str(write_census(folder, rows))], folder)
        what = f"`privsyn release`, {rows:,} × {ATTRIBUTES}, synthetic census"
        most = 6 * encoded_mb(rows) + 300
        kept += [run.seconds <= MOST_SECONDS["large"], run.peak_mb - few.peak_mb <= most]
        besides = f"{run.peak_mb:,.0f} MB, {run.peak_mb - few.peak_mb:,.0f} MB besides imports"
        required = f"{MOST_SECONDS['large']:.0f} s"
        lines.append(f"| {what} | {run.seconds:.0f} s | {required} | {besides} | {most:,.0f} MB besides imports |")
        lines.append(f"| the same of 10 rows: imports and starts | {few.seconds:.0f} s | | {few.peak_mb:,.0f} MB | |")
        run = timed_command(["evaluate", str(run.result["run"])], folder)
        lines.append(f"| `privsyn evaluate` of it | {run.seconds:.0f} s | | {run.peak_mb:,.0f} MB | |")
    if ADULT_DATA.exists():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            run = timed_command(["release", str(ADULT_SPEC), "--data", str(ADULT_DATA)], folder)
            kept.append(run.seconds <= MOST_SECONDS["adult"])
            required = f"{MOST_SECONDS['adult']:.0f} s"
            lines.append(f"| `privsyn release`, Adult | {run.seconds:.0f} s | {required} | {run.peak_mb:,.0f} MB | |")
            run = timed_command(["evaluate", str(run.result["run"])], folder)
            lines.append(f"| `privsyn evaluate` of it | {run.seconds:.0f} s | | {run.peak_mb:,.0f} MB | |")
        alone = [sys.executable, "-c", "from benchmarks.whole_release import warm_seconds; print(*warm_seconds())"]
        wall, cpu = map(float, subprocess.check_output(alone, text=True).split()[-2:])  # the tables above left alone
        what = "Adult, warm: every step, noise, checks, files, ledger; no Prefect"
        kept.append(wall <= MOST_SECONDS["warm"])
        lines.append(f"| {what} | {wall:.2f} s ({cpu:.2f} s CPU) | {MOST_SECONDS['warm']:.0f} s | | |")
    return "\n".join(lines), all(kept)


def main() -> int:
    """Print the table; 1 when a release takes more than is required."""
    parser = argparse.ArgumentParser(description="Whole releases as a user starts them.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    text, kept = measure(ROWS // 10 if parser.parse_args().quick else ROWS)
    print(text)
    return int(not kept)


if __name__ == "__main__":
    raise SystemExit(main())
