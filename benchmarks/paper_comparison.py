"""Figures 4 to 7 and Tables 6 and 7 of PrivSyn on public tables: ``python -m benchmarks.paper_comparison``.

Part of ``make results``.  The tables are public and the noise is seeded: nothing here is a release.  Runs are kept as
they end; what was interrupted goes on where it was.  Every method gets the same rows in the same public bins, the same
epsilon and delta = 1/n^2; its own accountant is what turns them into noise.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt

from benchmarks.compare import Job, machine, measured, method_version, real_rows
from benchmarks.compare_page import REAL
from benchmarks.compare_store import Run, Store
from benchmarks.compare_tables import load_split_table
from benchmarks.pages import write_between
from benchmarks.paper_figures import PAGE
from benchmarks.results import DOCS
from benchmarks.tables import keep_present
from privsyn.base.pictures import draw_chart
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import DomainTooLargeError
from privsyn.evaluation.comparison.results import COLORS

STORE = Path(__file__).parent / "paper_comparison.jsonl"
MARKERS = ("<!-- paper comparison: begin -->", "<!-- paper comparison: end -->")
TABLES = {
    "adult": "Adult",
    "loans": "for Loan: Lending Club, one quarter",
    "fire2016": "for US Accident: fire department's calls",
    "census_income": "for Colorado: Current Population Survey",
}
"""The tables, and which of the paper's each stands for."""

EPSILONS = (0.2, 0.5, 1.0, 2.0)
SHOWN = 1.0
TABLED = ("l1_2way", "svm")
"""The epsilon and the metrics of the tables; the figures have all."""

SEEDS = 3
METRICS = {"l1_2way": "pairs: L1 error", "range_query": "range queries: error", "svm": "SVM: misclassification"}
FIGURES = {
    "figure-4": (
        "From end to end (Figure 4)",
        ("privsyn-paper", "privbayes", "privbayes-selection", "dual-query"),
    ),
    "figure-5": (
        "Selection (Figure 5)",
        ("privsyn-paper", "non-private-selection", "privbayes-selection", "non-private-privbayes-selection"),
    ),
    "figure-6": ("Noise (Figure 6)", ("privsyn-paper", "equal-gaussian", "equal-laplace")),
    "figure-7": (
        "Synthesis, marginals chosen without noise (Figure 7)",
        (
            "non-private-selection",
            "non-private-selection-sweeps",
            "non-private-selection-mcf",
            "non-private-selection-pgm",
        ),
    ),
}
"""Figure -> its title, and its methods."""

LARGE = 100_000
LIMITED = {"non-private-selection-mcf"}
"""Methods that are not run on tables of more than LARGE rows: minutes a run, where all others take seconds."""

TIMED = ("privsyn-paper", "privbayes", "dual-query")


@dataclass(frozen=True)
class Point:
    """The mean of one metric of one method, and its standard deviation over the seeds; None with one seed."""

    mean: float
    sd: float | None
    seeds: int


def jobs(tables: Sequence[str], seeds: int) -> Iterator[Job]:
    """Yield all runs, seeds outermost."""
    methods = dict.fromkeys(m for _, names in FIGURES.values() for m in names)
    for seed in range(seeds):
        for table in tables:
            for epsilon in EPSILONS:
                yield from (Job(m, table, epsilon, seed) for m in methods)


def run_all(store: Store, wanted: Iterable[Job]) -> None:
    """Run what the store does not have."""
    for job in wanted:
        version = method_version(job.method)
        if store.has(job.method, version, job.table, job.epsilon, job.seed):
            continue
        table = load_split_table(job.table)
        if job.method in LIMITED and table.train.rows > LARGE:
            continue
        if (REAL, job.table, 0.0, 0) not in store.runs:
            store.add(real_rows(job.table))
        trial = replace(table.trial(job.epsilon, job.seed), delta=1.0 / table.train.rows**2)
        blank = Run(job.method, version, job.table, job.epsilon, job.seed, "done", machine=machine())
        began = time.monotonic()
        try:
            run = measured(METHODS[job.method], table, trial, blank)
        except DomainTooLargeError as error:
            run = replace(blank, outcome="memory", detail=str(error))
        except ImportError as error:
            print(f"{job.method}: {error}", flush=True)
            continue
        store.add(run)
        seconds = time.monotonic() - began
        print(f"{job.table} {job.method} {job.epsilon:g} {job.seed}: {run.outcome}, {seconds:.1f} s", flush=True)


def point(runs: Iterable[Run], job: Job, metric: str) -> Point | None:
    """Return one metric of the runs of the job's method, table and epsilon; None where none is done."""
    found = [
        r.figures[metric]
        for r in runs
        if (r.method, r.table, r.epsilon) == (job.method, job.table, job.epsilon) and metric in r.figures
    ]
    if not found:
        return None
    return Point(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))


def chart(runs: Sequence[Run], methods: Sequence[str], title: str) -> dict[str, Any]:
    """Return a row of panels a table, a panel a metric, epsilon against error, a line a method; as Vega-Lite."""
    tables = [t for t in TABLES if any(r.table == t for r in runs)]
    titles = [METHODS[m].title for m in methods]
    scale = alt.Scale(domain=titles, range=list(COLORS[: len(titles)]))
    rows = [[_panel(runs, methods, table, metric, scale) for metric in METRICS] for table in tables]
    whole = alt.vconcat(*(alt.hconcat(*row) for row in rows)).properties(title=title)
    legend = {"orient": "bottom", "columns": 3, "title": None, "labelLimit": 300, "symbolStrokeWidth": 3}
    content: dict[str, Any] = whole.configure_legend(**legend).to_dict()
    return content


def _panel(runs: Sequence[Run], methods: Sequence[str], table: str, metric: str, scale: alt.Scale) -> alt.LayerChart:
    values = []
    for epsilon in EPSILONS:
        for method in methods:
            found = point(runs, Job(method, table, epsilon, 0), metric)
            if found is not None:
                ends = {"low": found.mean - (found.sd or 0), "high": found.mean + (found.sd or 0)}
                values.append({"epsilon": epsilon, "method": METHODS[method].title, "mean": found.mean, **ends})
    y_scale = alt.Scale(type="log", nice=False) if metric != "svm" else alt.Scale(zero=False)
    x = alt.X("epsilon:Q", axis=alt.Axis(values=list(EPSILONS)))
    y = alt.Y("mean:Q", title=METRICS[metric], scale=y_scale)
    base = alt.Chart(alt.Data(values=values)).encode(x, alt.Color("method:N", scale=scale))
    layers = [
        base.mark_line(strokeWidth=1.5).encode(y),
        base.mark_point(filled=True, size=40, opacity=1).encode(y),
        base.mark_rule().encode(alt.Y("low:Q", title=METRICS[metric]), alt.Y2("high:Q")),
    ]
    if metric == "svm":
        layers += _references(runs, table)
    return alt.layer(*layers).properties(width=240, height=150, title=table)


def _references(runs: Sequence[Run], table: str) -> list[alt.Chart]:
    """Dashed lines: an SVM trained on the real rows, and the most frequent label."""
    real = next((r.figures for r in runs if r.method == REAL and r.table == table), {})
    names = {"svm": "NonPriv", "majority": "Majority"}
    base = alt.Chart(alt.Data(values=[{"mean": real[k], "name": n} for k, n in names.items() if k in real]))
    lines = base.mark_rule(strokeDash=[4, 3], color="#555").encode(alt.Y("mean:Q"))
    words = base.mark_text(align="left", dx=2, dy=-5, color="#555", fontSize=10)
    return [lines, words.encode(alt.Y("mean:Q"), alt.Text("name:N"), x=alt.value(0))]


def errors_table(runs: Sequence[Run], methods: Sequence[str], epsilon: float = SHOWN) -> list[str]:
    """Return a line a method, a column a table and metric: mean and standard deviation."""
    tables = [t for t in TABLES if any((r.table, r.epsilon) == (t, epsilon) for r in runs)]
    places = [(table, metric) for metric in TABLED for table in tables]
    heads = [f"{table}, {METRICS[metric].partition(':')[0]}" for table, metric in places]
    lines = ["| method | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for method in methods:
        points = [point(runs, Job(method, table, epsilon, 0), metric) for table, metric in places]
        if any(points):
            lines.append(f"| {METHODS[method].title} | " + " | ".join(_cell(p) if p else "" for p in points) + " |")
    return lines


def _cell(found: Point) -> str:
    return f"{found.mean:.3g}" + (f"±{found.sd:.1g}" if found.sd is not None else "")


def cost_table(runs: Sequence[Run]) -> list[str]:
    """Return Table 6: CPU seconds of a run at the largest epsilon, the mean over its seeds."""
    tables = [t for t in TABLES if any(r.table == t for r in runs)]
    lines = ["| method | " + " | ".join(tables) + " |", "|---|" + "---|" * len(tables)]
    for method in TIMED:
        cells = []
        for table in tables:
            at = (method, table, EPSILONS[-1])
            found = [r for r in runs if (r.method, r.table, r.epsilon) == at and r.cpu is not None]
            cells.append(f"{statistics.fmean(r.cpu or 0.0 for r in found):.2g} s" if found else "")
        lines.append(f"| {METHODS[method].title} | " + " | ".join(cells) + " |")
    return lines


def page(runs: Sequence[Run]) -> list[str]:
    """Return the generated part of docs/results/papers.md."""
    seeds = len({r.seed for r in runs if r.method != REAL})
    lines = [
        f"Tables are at epsilon {SHOWN:g}: mean and standard deviation of up to {seeds} seeds; delta = 1/n^2. "
        f"Runs: {runs[-1].machine}.",
        "",
    ]
    for name, (title, _) in FIGURES.items():
        lines += [f"![{title}](../img/{name}.png)", ""]
    methods = list(dict.fromkeys(m for _, names in FIGURES.values() for m in names))
    return [
        *lines,
        *errors_table(runs, methods),
        "",
        f"CPU time at epsilon {EPSILONS[-1]:g}:",
        "",
        *cost_table(runs),
        "",
    ]


def main() -> None:
    """Run what is missing; draw the figures and write the page."""
    parser = argparse.ArgumentParser(description="Figures 4 to 7 of PrivSyn on public tables.")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", choices=("runs", "page"), help="the runs, or the page of the runs that are kept")
    parser.add_argument("--store", type=Path, default=STORE)
    asked = parser.parse_args()
    store = Store(asked.store)
    tables = keep_present(asked.tables.split(","))
    if asked.only != "page":
        run_all(store, jobs(tables, asked.seeds))
    if asked.only != "runs":
        runs = list(store.runs.values())
        if not runs:
            sys.exit("no run is kept: none of the tables is there")
        for name, (title, methods) in FIGURES.items():
            (DOCS / "img" / f"{name}.png").write_bytes(draw_chart(chart(runs, methods, title), "png"))
        write_between(PAGE, MARKERS, page(runs))


if __name__ == "__main__":
    main()
