"""PrivSyn Flows against its peers on public tables: ``python -m benchmarks.compare`` (``make compare``).

The tables are public and the noise of our methods is seeded: nothing here is a release.  All methods get the same
training rows in codes of the same public bins (tables.py) and give back rows of such codes.  Runs are kept as they
end; a comparison that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks import compare_page
from benchmarks.compare_page import REAL
from benchmarks.compare_store import Run, Store
from benchmarks.compare_tables import SplitTable, figures, load_split_table, real_figures
from benchmarks.peers import NOT_DONE, PEERS, SHORT, name_outcome
from benchmarks.tables import keep_present
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import Method, MethodInput
from privsyn.pipelines.one_shot import STEPS
from privsyn.tasks.kernels.counting import CodeTable

HERE = Path(__file__).parent
STORE = HERE / "compare.jsonl"
TABLES = (
    "adult",
    "national2019-demographic",
    "gss_happiness",
    "national2019",
    "stroke_ist",
    "census_income",
    "fire2016",
)
"""In the order in which they are run."""
EPSILONS = (0.2, 1.0, 2.0)
SEEDS = 3
OURS = ("default", "privsyn-paper", "independent")
WARM_UP_ROWS = 2_000


def machine() -> str:
    """Return the machine in words, without its name."""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores ({platform.machine()}), Python {platform.python_version()}, numpy {np.__version__}"


@dataclass(frozen=True)
class Job:
    """One run that is wanted."""

    method: str
    table: str
    epsilon: float
    seed: int


def jobs(methods: Sequence[str], tables: Sequence[str], epsilons: Sequence[float], seeds: int) -> Iterator[Job]:
    """Yield all runs, seeds outermost: the first table whole, then the others, smallest epsilon first."""
    for seed in range(seeds):
        for group in (tables[:1], tables[1:]):
            for epsilon in sorted(epsilons):
                for table in group:
                    yield from (Job(method, table, epsilon, seed) for method in methods)


def methods_of(ours: bool, peers: bool, named: Sequence[str] | None = None) -> list[str]:
    """Return the names of the methods in the order in which they are run.

    ``named``: these instead of OURS and SHORT; of this project's methods, any.
    """
    own = tuple(METHODS) if named is not None else OURS
    wanted = (*OURS, *SHORT) if named is None else named
    return [m for m in (*(own if ours else ()), *(PEERS if peers else ())) if m in wanted]


def method_version(method: str) -> str:
    """Return the version of the package behind a method; "" where it is not installed.

    Of our own methods that of the steps, too: a changed step makes their runs old.
    """
    if method in PEERS:
        return PEERS[method].version
    steps = ".".join(str(step.version) for step in STEPS)
    return f"{version('privsyn-flows')}, steps {steps}"


def run_job(job: Job) -> Run:
    """Run one method on one table and score what it made; a method that is stopped or fails is a result as well."""
    table = load_split_table(job.table)
    blank = Run(job.method, method_version(job.method), job.table, job.epsilon, job.seed, "done", machine=machine())
    run = _peer if job.method in PEERS else _ours
    try:
        return run(job, table, blank)
    except NOT_DONE as error:
        return replace(blank, outcome=name_outcome(error), detail=str(error))


def _peer(job: Job, table: SplitTable, blank: Run) -> Run:
    made, used = PEERS[job.method].run(table.trial(job.epsilon, job.seed))
    found = figures(table, made.table)
    return replace(blank, figures=found, wall=used.wall, cpu=used.cpu, peak_mb=used.peak_mb)


def _ours(job: Job, table: SplitTable, blank: Run) -> Run:
    return measured(METHODS[job.method], table, table.trial(job.epsilon, job.seed), blank)


def measured(method: Method, table: SplitTable, trial: MethodInput, blank: Run) -> Run:
    """Return a run of one of this project's methods, compiled by a run on few rows before its time is taken."""
    few = CodeTable(table.train.domain, tuple(c[:WARM_UP_ROWS].copy() for c in table.train.columns))
    method.run(replace(trial, rows=few))
    _forget_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    made = method.run(trial)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = _peak_mb()
    return replace(blank, figures=figures(table, made.table), wall=wall, cpu=cpu, peak_mb=peak)


def _forget_peak() -> None:
    """Let the peak of this process's memory start again from what it uses now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    """Peak resident memory of this process since :func:`_forget_peak`, in MB, imports and tables included (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def real_rows(name: str) -> Run:
    """Return the SVM trained on the real rows, and the error of the most frequent label."""
    return Run(REAL, "", name, 0.0, 0, "done", real_figures(load_split_table(name)), machine=machine())


def run_all(store: Store, wanted: Iterator[Job], again: Sequence[str] = ()) -> None:
    """Run what the store does not have; a method that was stopped is not tried at larger epsilons or other seeds."""
    for job in wanted:
        name = method_version(job.method)
        if not name:
            continue
        if job.method not in again and store.has(job.method, name, job.table, job.epsilon, job.seed):
            continue
        if store.stopped(job.method, name, job.table, job.epsilon):
            continue
        if (REAL, job.table, 0.0, 0) not in store.runs:
            store.add(real_rows(job.table))
        run = run_job(job)
        store.add(run)
        print(
            f"{job.table} {job.method} epsilon {job.epsilon:g} seed {job.seed}: {run.outcome} {run.detail}", flush=True
        )


def main() -> None:
    """Run what is missing, and write the page."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a peer under way is stopped too
    parser = argparse.ArgumentParser(description="PrivSyn Flows against its peers on public tables.")
    parser.add_argument(
        "--only", choices=("ours", "peers", "page"), help="the runs of one side without the page, or only the page"
    )
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--epsilons", default=",".join(f"{e:g}" for e in EPSILONS))
    parser.add_argument("--methods", help="of these methods only, comma-separated")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--again", action="store_true", help="run our own methods again: the code has changed")
    parser.add_argument("--store", type=Path, default=STORE)
    arguments = parser.parse_args()
    store = Store(arguments.store)
    tables = keep_present(arguments.tables.split(","), "-demographic")
    if arguments.only != "page":
        named = arguments.methods.split(",") if arguments.methods else None
        chosen = methods_of(arguments.only != "peers", arguments.only != "ours", named)
        epsilons = [float(e) for e in arguments.epsilons.split(",")]
        run_all(store, jobs(chosen, tables, epsilons, arguments.seeds), OURS if arguments.again else ())
    if arguments.only in (None, "page"):
        compare_page.write(store.runs.values())


if __name__ == "__main__":
    main()
