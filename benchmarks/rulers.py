"""Others' rulers of utility: ``python -m benchmarks.rulers [sdnist|sdmetrics|synmeter]`` (``make rulers``).

sdnist: SDNist's report on national2019, ten columns, of this project's releases, beside the sample reports that NIST
publishes.  SDNIST_SOURCE names a clone of usnistgov/SDNist, which has those and what its package would download; the
rows are rebuilt from the table beside the project, and are the published file to the byte.

sdmetrics: SDMetrics' quality and diagnostic reports of releases and of peers' tables, on three public tables, by specs
with public bounds and steps only (benchmarks/relations.py).

synmeter: SynMeter's fidelity of the same tables, by its own code: SYNMETER_SOURCE names a clone of zealscott/SynMeter;
without it that ruler is left out.
The rows made are kept in build/rulers, so that another ruler costs no other run.

Settings are the defaults; nothing is chosen by these figures.  The tables are public and the noise is seeded: nothing
here is a release.  Runs are kept in rulers.jsonl as they end; ``--print`` writes the pages from them.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.compare_store import Run, Store, describe_failure
from benchmarks.compare_tables import DEMOGRAPHIC, SUBSET
from benchmarks.pages import write_between
from benchmarks.peers import (
    ENVIRONMENTS,
    LIMITS,
    NOT_DONE,
    OF_VALUES,
    ONE_THREAD,
    Limits,
    PeerError,
    name_outcome,
    watch,
)
from benchmarks.relations import (
    BINNED,
    CUT,
    DOUBLING,
    EQUAL,
    PublicTable,
    get_version,
    load_table,
    release_in_memory,
    run_binned,
    run_cut,
)
from benchmarks.rulers_worker import NOT_INSTALLED
from benchmarks.rules import RULES, rules_of
from benchmarks.tables import FOLDER
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rule_language import find_names
from privsyn.specs.spec_file import load_any_spec

HERE = Path(__file__).parent
STORE = HERE / "rulers.jsonl"
MADE = HERE.parent / "build" / "rulers"
"""Where synthetic rows are kept, which git does not see."""
PAGES = (HERE.parent / "README.md", HERE.parent / "docs" / "results.md")
MARKERS = {name: (f"<!-- {name}: begin -->", f"<!-- {name}: end -->") for name in ("sdnist", "sdmetrics", "synmeter")}
TWO_TABLES = {"sdmetrics": "quality", "synmeter": "synmeter"}
"""Ruler that is laid on real and synthetic rows -> its main figure."""
SYNMETER = ("cat_error", "cont_error", "cat_cat_error", "cat_cont_error", "cont_cont_error")
"""SynMeter's parts: listed columns and numbers alone, then pairs of listed, of both kinds, of numbers."""
SEEDS = 3
REAL = "real rows"

NIST_EPSILONS = (1.0, 10.0)
NIST_ROWS = "b49ba83e18472b6b76438bb511a01668bdbe2c1ace54521614a32edcc748f79a"
"""SHA-256 of national2019.csv as NIST publishes it."""
SAMPLES = {
    "AIM": (1.0, "r_aim_e_1_demographic"),
    "MST": (1.0, "r_mst_e_1_demographic_na2019"),
    "Tumult's histogram": (10.0, "r_dphist_e_10_cf9_na2019"),
    "PATECTGAN": (10.0, "r_patectgan_e_10_demographic_focused_na2019"),
}
"""Published sample report -> its epsilon and folder."""
GROUPS = {"all": "Total Population", "Black women": "Black Women", "Asian women": "Asian Women", "AIANNH women": ""}
"""Group of adults on the page -> how SDNist heads it; the last one's is long."""
PLAIN, RULED = "privsyn", "privsyn, rules"


def judge(ruler: str, folder: Path) -> None:
    """Lay a ruler on the folder's table, in the ruler's environment.

    ImportError: not installed; PeerError: it failed, or took more than a peer's limits.
    """
    python = ENVIRONMENTS / ruler / "bin" / "python"
    if not python.exists():
        raise ImportError(f"{ruler} is not installed: call `make rulers`")
    command = [str(python), str(HERE / "rulers_worker.py"), ruler, str(folder)]
    watched = watch(command, LIMITS, {**os.environ, **ONE_THREAD, "PYTHONPATH": ""}, folder / "log")
    if watched.exit_code == NOT_INSTALLED:
        raise ImportError(f"{ruler} is not installed: call `make rulers`")
    if watched.outcome != "ended" or watched.exit_code:
        raise PeerError(f"{ruler}: {watched.outcome}: {(watched.stderr.strip().splitlines() or [''])[-1][:200]}")


def with_n(table: pa.Table) -> pd.DataFrame:
    """Return a table of national2019 with N for null, as NIST writes it."""
    frame = table.to_pandas(ignore_metadata=True, types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame.astype(object).where(frame.notna(), "N")


def write_nist_data(source: Path, folder: Path) -> None:
    """Write the folder that SDNist would download: the rows, and its dictionaries from the clone."""
    published = source / "BenchmarkData" / "ACSDataExcerpts"
    (folder / "national").mkdir(parents=True)
    for name in ("config.json", "mappings.json", "data_dictionary.json", "national/national2019.json"):
        shutil.copy(published / name, folder / name)
    table = pq.read_table(FOLDER / "national2019.parquet")
    income = table.schema.get_field_index("PINCP")
    table = table.set_column(income, "PINCP", table["PINCP"].cast(pa.float64()))
    rows = with_n(table).to_csv(index=False, lineterminator="\r\n").encode()
    if hashlib.sha256(rows).hexdigest() != NIST_ROWS:
        raise ValueError("national2019 is not the file that NIST publishes")
    (folder / "national" / "national2019.csv").write_bytes(rows)


def nist_table() -> PublicTable:
    """Return national2019 with the columns of the samples."""
    whole = load_table("national2019", None)
    if whole is None:
        raise FileNotFoundError("national2019")
    columns = [c for c in whole.columns if c in DEMOGRAPHIC]
    return PublicTable(SUBSET, whole.table.select(columns), {c: whole.columns[c] for c in columns})


def nist_spec(public: PublicTable, method: str, epsilon: float) -> ReleaseSpec:
    """Return the spec by the defaults, or with those rules of examples/rules that are about the table's columns."""
    spec = public.spec(epsilon)
    if method == PLAIN:
        return spec
    kept = [r for r in rules_of("national2019") if "never" in r and set(find_names(r["never"])) <= {*public.columns}]
    return load_any_spec({**spec.model_dump(exclude_unset=True), "rules": kept}, folder=RULES)


def read_report(folder: Path) -> tuple[dict[str, float], str]:
    """Return the figures of SDNist's report in a folder, and the check that most rows fail.

    It may be of the package's version, or of the later one of the samples.
    """
    content = json.loads((folder / "ui.json").read_text(encoding="utf-8"))
    parts = {p["metric_name"]: p["attachments"]["-1"] for p in (*content["utility"], *content["privacy"])}

    def find(metric: str, pattern: str) -> list[float]:
        return [float(found) for found in re.findall(pattern, json.dumps(parts[metric]))]

    checks = re.findall(r"h4(\w+): .*?Highlight-(\d+) violations", json.dumps(parts["Inconsistencies"]))
    broken, check = max(((int(rows), name) for name, rows in checks), default=(0, ""))
    figures = {
        "k_marginal": find("K-Marginal Synopsys", r"Score: ([\d.]+)")[0],
        "pmse": find("Propensity Mean Square Error", r"Highlight-Score: ([\d.]+)")[0],
        "broken": float(broken),
        "unique": find("Unique Exact Matches", r"\(([\d.]+)%\)-Highlight")[0],
        "apparent": find("Apparent Match Distribution", r"-Highlight-(\d+) \(")[0],
    }
    for part in parts["Linear Regression"]:
        group = next((g for g, head in GROUPS.items() if part["name"] == head), None)
        if group is None and str(part["name"]).endswith("(AIANNH) Women"):
            group = "AIANNH women"
        if group is not None:
            figures[f"slope.{group}"] = float(re.findall(r"(-?[\d.]+) slope", json.dumps(part))[-1])
    [differences] = [
        p for n in ("pearson/diff.csv", "pearson_correlation/correlation_difference.csv") if (p := folder / n).exists()
    ]
    with differences.open(encoding="utf-8", newline="") as stream:
        rows = [list(map(float, row[1:])) for row in list(csv.reader(stream))[1:]]
    pairs = [abs(rows[i][j]) for i, j in combinations(range(len(rows)), 2)]
    return {**figures, "pearson": mean(pairs), "largest_pearson": max(pairs)}, check


def time_release(public: PublicTable, spec: ReleaseSpec, seed: int) -> tuple[pa.Table, float, float]:
    """Return the rows of a release of ours, and its wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = release_in_memory(public, spec, seed)
    return made, time.perf_counter() - wall, time.process_time() - cpu


def run_sdnist(store: Store, seeds: int) -> None:
    """Make the runs of SDNist's report that are not there yet; the samples are read from the clone."""
    source = Path(os.environ["SDNIST_SOURCE"])
    for name, (epsilon, report) in SAMPLES.items():
        figures, check = read_report(source / "sample-reports" / "acs_excerpt_reports" / report)
        if not store.has(name, "published", SUBSET, epsilon, 0):
            store.add(Run(name, "published", SUBSET, epsilon, 0, "done", figures, detail=check))
    public, release = nist_table(), get_version(PLAIN)
    wanted = [(REAL, 0.0, 0), *((m, e, s) for s in range(seeds) for e in NIST_EPSILONS for m in (PLAIN, RULED))]
    for method, epsilon, seed in wanted:
        if store.has(method, release, SUBSET, epsilon, seed):
            continue
        made, wall, cpu = public.table, 0.0, 0.0
        if method != REAL:
            made, wall, cpu = time_release(public, nist_spec(public, method, epsilon), seed)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_nist_data(source, folder / "data")
            with_n(made).to_csv(folder / "made.csv", index=False)
            judge("sdnist", folder)
            figures, check = read_report(folder / "report")
        spent = {"wall": round(wall, 2), "cpu": round(cpu, 2)}
        store.add(Run(method, release, SUBSET, epsilon, seed, "done", figures, **spent, detail=check))
        print(store.runs[method, SUBSET, epsilon, seed], flush=True)


def list_runs(store: Store, method: str, table: str, epsilon: float) -> list[Run]:
    """Return the runs of a method on a table at an epsilon."""
    return [r for (m, t, e, _), r in store.runs.items() if (m, t, e) == (method, table, epsilon)]


def shorten(number: float, digits: int = 2) -> str:
    """Return a number without the zero in front."""
    return f"{number:.{digits}f}".replace("0.", ".", 1)


def list_sdnist(store: Store) -> Iterator[str]:
    """Yield the table of SDNist's reports: a line a method and epsilon, means over the seeds."""
    yield (
        "| | epsilon | k-marginal | pMSE | Pearson, mean / largest | "
        + " | ".join(GROUPS)
        + " | broken | unique | apparent |"
    )
    yield "|---|---|---|---|---|" + "---|" * len(GROUPS) + "---|---|---|"
    ours = {PLAIN: "PrivSyn Flows", RULED: "the same with rules"}
    lines = [(REAL, 0.0), *((m, 1.0) for m in ours), ("AIM", 1.0), ("MST", 1.0), *((m, 10.0) for m in ours)]
    for method, epsilon in (*lines, ("Tumult's histogram", 10.0), ("PATECTGAN", 10.0)):
        runs = list_runs(store, method, SUBSET, epsilon)
        if not runs:
            continue
        f = {name: mean(r.figures[name] for r in runs) for name in runs[0].figures}
        cells = [
            ours.get(method, method),
            f"{epsilon:g}" if epsilon else "",
            f"{f['k_marginal']:.0f}",
            shorten(f["pmse"], 3),
        ]
        cells += [f"{shorten(f['pearson'], 3)} / {shorten(f['largest_pearson'], 3)}"]
        cells += [shorten(f[f"slope.{group}"]) for group in GROUPS]
        cells += [f"{f['broken']:.0f}", f"{f['unique']:.1f} %", f"{f['apparent']:.0f}"]
        yield "| " + " | ".join(cells) + " |"


TEN_COLUMNS = "national2019, ten columns"
TABLES = ("adult", "ma2019", "national2019", TEN_COLUMNS)
"""Tables of the other rulers; ma2019 took no part in any choice; the last one is SDNist's."""
METHODS = {
    "privsyn": "PrivSyn Flows",
    "copula-sdv": "Gaussian copula of SDV, no privacy",
    "mst-dpsynth": "MST of dpsynth",
    "swift-dpsynth": "SWIFT of dpsynth",
    "mst-dpmm": "MST of dpmm",
    "mst-opendp": "MST of OpenDP",
    "aim-dpmm": "AIM of dpmm, 4 MB",
    "aim-opendp": "AIM of OpenDP, 4 MB",
    "aim-dpsynth": "AIM of dpsynth",
}
"""Method of these reports -> what it is called, in the order in which they are run."""
TUNED = {
    "mst-dpmm": (("priv-tree", 64), ("priv-tree", 16), ("uniform", 64), ("uniform", 16)),
    "mst-dpsynth": (("drawn", 32), ("drawn", 16), ("drawn", 64), ("own", 16), ("own", 64)),
    "mst-opendp": ((DOUBLING, 16), (DOUBLING, 32), (EQUAL, 16), (EQUAL, 64)),
}
"""Method -> kinds and numbers of bins beside its own; the page shows the best by score.  Chosen by Adult's scores.

Bins of dpsynth have equal mass; "drawn": values are drawn inside a bin, and not its middle.
"""


def make_table(
    public: PublicTable, method: str, epsilon: float, seed: int, bins: tuple[str, int] | None, limits: Limits
) -> tuple[Any, ...]:
    """Return the rows that a method makes, and its wall and CPU seconds."""
    if method in CUT:
        return run_cut(public, method, epsilon, seed, bins, limits)[:3]
    if method in {*BINNED, *OF_VALUES}:
        with tempfile.TemporaryDirectory() as name:
            return run_binned(public, method, epsilon, seed, Path(name) / "log", bins=bins, limits=limits)[:3]
    return time_release(public, public.spec(epsilon), seed)


def as_real(public: PublicTable, made: pa.Table) -> pa.Table:
    """Return the synthetic columns in the types of the real ones."""
    arrays = []
    for column, kind in zip(public.table.column_names, public.table.schema.types, strict=True):
        values = made[column]
        if pa.types.is_integer(kind) and pa.types.is_floating(values.type):
            values = pc.round(values)
        arrays.append(values.cast(kind))
    return pa.table(arrays, public.table.column_names)


def judge_by(ruler: str, public: PublicTable, made: pa.Table) -> dict[str, float]:
    """Return the scores of a ruler of TWO_TABLES, laid on real and synthetic rows."""
    listed = {c: content["kind"] == "categorical" for c, content in public.columns.items()}
    metadata = {
        "columns": {c: {"sdtype": "categorical" if is_listed else "numerical"} for c, is_listed in listed.items()}
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(public.table, folder / "real.parquet")
        pq.write_table(made, folder / "made.parquet")
        (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        judge(ruler, folder)
        found: dict[str, float] = json.loads((folder / "judged.json").read_text(encoding="utf-8"))
    return found


def run_rulers(store: Store, asked: argparse.Namespace) -> None:
    """Make the runs at epsilon 1 that are not there yet, and lay the rulers on them; a method that fails is a result.

    The rows made are kept in MADE, so that another ruler costs no other run.  Other bins are tried with the first seed
    only.
    """
    limits = Limits(asked.minutes * 60, LIMITS.megabytes)
    ways: list[tuple[str, Any, int]] = [(m, None, s) for s in range(asked.seeds) for m in asked.methods]
    ways += [(m, bins, 0) for m in asked.methods if not asked.untuned for bins in TUNED.get(m, ())]
    rulers = (
        [asked.ruler] if asked.ruler else [r for r in TWO_TABLES if r != "synmeter" or "SYNMETER_SOURCE" in os.environ]
    )
    if "synmeter" in rulers:
        ways.append((REAL, None, 0))
    for (method, bins, seed), table in product(ways, asked.tables):
        public = nist_table() if table == TEN_COLUMNS else load_table(table, None)
        stored = method if bins is None else f"{method}, {bins[1]} {bins[0]}"
        if public is None or any(run.outcome != "done" for run in list_runs(store, stored, table, 1.0)):
            continue
        release = get_version(PLAIN if method == REAL else method)
        run = store.runs.get((stored, table, 1.0, seed))
        if run is None or run.version != release:
            run = Run(stored, release, table, 1.0, seed, "done")
        missing = [r for r in rulers if TWO_TABLES[r] not in run.figures]
        rows = MADE / f"{stored}, {release}, {table}, {seed}.parquet"
        if not missing or (asked.kept and method != REAL and not rows.is_file()):
            continue
        try:
            if method == REAL:
                made = public.table
            elif rows.is_file():
                made = pq.read_table(rows)
            else:
                made, wall, cpu = make_table(public, method, 1.0, seed, bins, limits)
                made = as_real(public, made)
                MADE.mkdir(parents=True, exist_ok=True)
                pq.write_table(made, rows)
                run = replace(run, wall=round(wall, 2), cpu=round(cpu, 2))
            for ruler in missing:
                run = replace(run, figures={**run.figures, **judge_by(ruler, public, made)})
        except NOT_DONE as error:
            run = replace(run, outcome=name_outcome(error), detail=str(error))
        store.add(run)
        print(run, flush=True)


def list_two_tables(store: Store, ruler: str) -> Iterator[str]:
    """Yield the table of a ruler: a line a method, and one of its best bins where others were tried."""
    named, shown = METHODS, TABLES
    if ruler == "synmeter":  # what made no rows is said by SDMetrics' table
        done = [run for run in store.runs.values() if TWO_TABLES[ruler] in run.figures]
        methods = {run.method for run in done}
        named = {m: title for m, title in ({REAL: "other real rows"} | METHODS).items() if m in methods}
        shown = tuple(table for table in TABLES if table in {r.table for r in done})
    yield f"| | {' | '.join(shown)} |"
    yield "|---|" + "---|" * len(shown)
    for method, title in named.items():
        tried = [f"{method}, {number} {kind}" for kind, number in TUNED.get(method, ())]
        tuned = [table for table in shown if any(has_result(store, ruler, name, table) for name in tried)]
        for names, head, tables in (([method], title, shown), ([method, *tried], f"{title}, tuned bins", tuned)):
            cells = [describe_best(store, ruler, names, table) if table in tables else "" for table in shown]
            if any(cells):
                yield f"| {head} | {' | '.join(cells)} |"


def has_result(store: Store, ruler: str, name: str, table: str) -> bool:
    """Return whether a ruler was laid on a run of that name, or the run made no rows."""
    return any(r.outcome != "done" or TWO_TABLES[ruler] in r.figures for r in list_runs(store, name, table, 1.0))


def describe_best(store: Store, ruler: str, names: Sequence[str], table: str) -> str:
    """Return scores and CPU seconds of the name that a ruler scores best on a table, or why there is none."""
    groups = {name: list_runs(store, name, table, 1.0) for name in names}
    main = TWO_TABLES[ruler]
    done = {
        name: found
        for name, runs in groups.items()
        if (found := [r for r in runs if r.outcome == "done" and main in r.figures])
    }
    if not done:
        failed = [run for runs in groups.values() for run in runs if run.outcome != "done"]
        return describe_failure(failed[0]) if failed else ""
    means = {name: mean(r.figures[main] for r in runs) for name, runs in done.items()}
    best = (max if ruler == "sdmetrics" else min)(means, key=lambda name: means[name])
    spread = f" ±{shorten(stdev(r.figures[main] for r in done[best]), 3)}" if len(done[best]) > 1 else ""
    seconds = [r.cpu for r in done[best] if r.cpu is not None]
    bins = f" by {best.partition(', ')[2] or 'its own'}" if len(names) > 1 else ""
    scores = {f: mean(r.figures[f] for r in done[best] if f in r.figures) for f in done[best][0].figures}
    if ruler == "sdmetrics":
        shown = [shorten(scores[s], 3) for s in ("Column Shapes", "Column Pair Trends", "diagnostic")]
        text = f"({shown[0]}, {shown[1]}), {shown[2]}"
    else:
        shown = [shorten(scores[s], 3) if s in scores else "" for s in SYNMETER]
        text = f"({', '.join(shown)})"
    spent = mean(seconds) if seconds else 0.0
    cpu = f"; {spent:.{0 if spent >= 1 else 1}f} s" if seconds else ""
    return f"{shorten(means[best], 3)}{spread} {text}{bins}{cpu}"


def write_pages(store: Store) -> None:
    """Write both tables where the pages have their markers; the README has no epsilon of 10."""
    tables = {"sdnist": list_sdnist(store), **{ruler: list_two_tables(store, ruler) for ruler in TWO_TABLES}}
    for name, lines in tables.items():
        content = list(lines)
        print("\n".join(content))
        for page in PAGES:
            if MARKERS[name][0] in page.read_text(encoding="utf-8"):
                shown = [line for line in content if page.name != "README.md" or "| 10 |" not in line]
                write_between(page, MARKERS[name], shown)


def main() -> None:
    """Make the runs that are not there yet, and write the tables into the pages."""
    parser = argparse.ArgumentParser(description="Others' rulers of utility.")
    parser.add_argument("ruler", nargs="?", choices=tuple(MARKERS), help="of one ruler only")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, help="not of SDNist's report")
    parser.add_argument("--tables", nargs="*", default=list(TABLES), help="not of SDNist's report")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=LIMITS.seconds / 60, help="CPU minutes of a peer's run")
    parser.add_argument("--untuned", action="store_true", help="by the peers' own bins only")
    parser.add_argument("--kept", action="store_true", help="of rows that are kept only: no method is run")
    parser.add_argument("--print", action="store_true", help="of the finished runs only")
    asked = parser.parse_args()
    store = Store(STORE)
    if not asked.print and asked.ruler in (None, "sdnist"):
        run_sdnist(store, asked.seeds)
    if not asked.print and asked.ruler != "sdnist":
        run_rulers(store, asked)
    write_pages(store)


if __name__ == "__main__":
    main()
