"""How time and memory grow with rows, columns and marginals: ``python -m benchmarks.growth [--quick]``.

A release here is all steps with release noise, contract checks, files and ledger, without Prefect.  Its time is that of
the CPU in all threads, which depends less than wall time on what else the computer does.  Its memory is the process's
own peak less what it took before the release began: imports, the contract checks and the kernels.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.bench import chosen_marginals
from benchmarks.census_like import census_like
from benchmarks.pages import write_between
from benchmarks.tables import FOLDER, table_spec
from benchmarks.whole_release import census_spec
from privsyn.api.release import propose_release, run_proposal
from privsyn.base.process_memory import memory_mb
from privsyn.base.settings import Settings
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.synthesize import synthesize

README = Path(__file__).with_name("README.md")
PICTURE = README.parents[1] / "docs" / "img" / "growth.png"
BEGIN, END = "<!-- growth: begin -->", "<!-- growth: end -->"
ROWS, ROWS_COLUMNS = (10_000, 100_000, 1_000_000, 10_000_000), 15
COLUMNS, COLUMNS_ROWS = (10, 30, 100, 300), 100_000
MARGINALS, MARGINALS_SHAPE = (100, 200, 400, 800, 1_600, 3_200), (100_000, 97)
MEMORY = 24 * 2**10
"""MB that the largest tables may take."""


@dataclass(frozen=True)
class Point:
    """One measurement: what grows, its size, CPU seconds, MB besides the imports (NaN: not measured)."""

    growing: str
    size: int
    cpu: float
    peak_mb: float


def released(spec: ReleaseSpec, folder: Path) -> float:
    """Release into ``folder``, and return the CPU seconds."""
    settings = Settings(out=folder / "out", ledger=str(folder / "ledger.sqlite"))
    used = time.process_time()
    run_proposal(propose_release(spec, settings))
    return time.process_time() - used


def in_this_process(spec_file: Path) -> None:
    """Release once to warm up, on ten rows, and once to measure; print the figures as JSON."""
    spec = ReleaseSpec.model_validate_json(spec_file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = census_like(10, 3)
        pq.write_table(small.to_arrow(), folder / "small.parquet")
        released(census_spec(small.domain, str(folder / "small.parquet")), folder / "small")
        before = memory_mb("VmRSS")
        cpu = released(spec, folder / "large")
    print(json.dumps([cpu, memory_mb("VmHWM") - before]))


def release_point(growing: str, size: int, spec: ReleaseSpec, folder: Path) -> Point:
    """Return a release in a process of its own, so that its memory is its own."""
    spec_file = folder / "spec.json"
    spec_file.write_text(spec.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.growth", "--one", str(spec_file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cpu, peak = json.loads(done.stdout.splitlines()[-1])
    return Point(growing, size, cpu, peak)


def census_point(growing: str, size: int, rows: int, columns: int) -> Point:
    """Return a release of a census-like table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = census_like(rows, columns)
        pq.write_table(table.to_arrow(), folder / "table.parquet")
        spec = census_spec(table.domain, str(folder / "table.parquet"))
        del table
        return release_point(growing, size, spec, folder)


def marginals_points(sizes: Sequence[int], shape: tuple[int, int]) -> Iterator[Point]:
    """Synthesis alone, from exact marginals, on all cores."""
    table: CodeTable = census_like(*shape)
    for number in sizes:
        marginals = chosen_marginals(table, number)
        if number == sizes[0]:
            synthesize(marginals, table.domain, Synthesis(), table.rows)  # compiles
        used = time.process_time()
        synthesize(marginals, table.domain, Synthesis(), table.rows)
        yield Point("marginals", number, time.process_time() - used, float("nan"))


def exponent(points: Sequence[Point], figure: Callable[[Point], float]) -> float:
    """Return the slope of log figure over log size, by least squares."""
    sizes, figures = np.log([p.size for p in points]), np.log([figure(p) for p in points])
    return float(np.polyfit(sizes, figures, 1)[0])


def exponents(points: Sequence[Point]) -> str:
    """Return how CPU time grows over the whole range and over its largest step, and memory over the largest step."""
    time_all, time_last = exponent(points, lambda p: p.cpu), exponent(points[-2:], lambda p: p.cpu)
    memory = [p for p in points if np.isfinite(p.peak_mb) and p.peak_mb > 0]
    more = f"; memory size^{exponent(memory[-2:], lambda p: p.peak_mb):.2f} there" if len(memory) > 1 else ""
    return f"time grows as size^{time_all:.2f}, over the largest step as size^{time_last:.2f}{more}"


def plot(groups: Sequence[Sequence[Point]], path: Path) -> None:
    """CPU seconds over size, both logarithmic, one panel a group, with the fitted line."""
    import altair as alt

    panels = []
    for points in groups:
        slope = exponent(points, lambda p: p.cpu)
        middle = np.mean([np.log(p.cpu) - slope * np.log(p.size) for p in points])
        values = [{**asdict(p), "fit": float(np.exp(middle + slope * np.log(p.size)))} for p in points]
        data = alt.Data(values=[{k: v for k, v in value.items() if v == v} for value in values])
        x = alt.X("size:Q", scale=alt.Scale(type="log"), title=points[0].growing, axis=alt.Axis(format="~s"))
        base = alt.Chart(data, width=250, height=220)
        line = base.mark_line(strokeDash=[4, 3], color="#888").encode(
            x=x, y=alt.Y("fit:Q", scale=alt.Scale(type="log"), title="CPU seconds")
        )
        dots = base.mark_point(filled=True, size=60, color="#2e7d4f").encode(x=x, y="cpu:Q")
        panels.append((line + dots).properties(title=f"{points[0].growing}: exponent {slope:.2f}"))
    alt.hconcat(*panels).configure_view(stroke=None).save(str(path), scale_factor=2)


def markdown(groups: Sequence[tuple[str, Sequence[Point]]]) -> str:
    """Return the text between the markers of the README: the least and the largest size of each group."""
    lines = []
    for what, points in groups:
        fitted = f": {exponents(points)}" if len(points) > 2 else ""
        lines += [f"**{what}**{fitted}.", "", "| size | CPU | peak besides imports |", "|---|---|---|"]
        for p in points if len(points) < 3 else (points[0], points[-1]):
            peak = f"{p.peak_mb:,.0f} MB" if np.isfinite(p.peak_mb) else ""
            lines.append(f"| {p.size:,} {p.growing} | {p.cpu:.1f} s | {peak} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def main() -> int:
    """Measure, print, and without --quick write the plot and the tables; 1 where a table takes more than MEMORY."""
    parser = argparse.ArgumentParser(description="Growth in rows, columns and marginals.")
    parser.add_argument("--quick", action="store_true", help="without the largest sizes; prints, and writes nothing")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        in_this_process(arguments.one)
        return 0
    last = -1 if arguments.quick else None
    rows = [census_point("rows", n, n, ROWS_COLUMNS) for n in ROWS[:last]]
    columns = [census_point("columns", n, COLUMNS_ROWS, n) for n in COLUMNS[:last]]
    marginals = list(marginals_points(MARGINALS[:last], MARGINALS_SHAPE))
    groups: list[tuple[str, Sequence[Point]]] = [
        (f"Releases of {ROWS_COLUMNS} columns", rows),
        (f"Releases of {COLUMNS_ROWS:,} rows", columns),
        (f"Synthesis of {MARGINALS_SHAPE[0]:,} rows x {MARGINALS_SHAPE[1]} columns", marginals),
    ]
    if (FOLDER / "stroke_ist.parquet").is_file():
        spec = table_spec("stroke_ist")
        with tempfile.TemporaryDirectory() as name:
            point = release_point("columns", len(spec.released_columns), spec, Path(name))
        groups.append(("A release of stroke_ist, by the rule of benchmarks/tables.py", [point]))
    text = markdown(groups)
    print(text)
    if not arguments.quick:
        plot([rows, columns, marginals], PICTURE)
        write_between(README, (BEGIN, END), [text])
    return int(any(p.peak_mb > MEMORY for _, points in groups for p in points))


if __name__ == "__main__":
    raise SystemExit(main())
