"""What engineered specs bring: ``python -m benchmarks.engineered [--tables ..] [--specs ..] [--epsilons ..]``.

fire2016 with all its columns, Address with 17,704 values among them, and a made-up table with the columns of the
Colorado census of 1940 (DPSyn report, sections 5.3 and 5.4): plain, every column by the rule of tables.py, and
engineered by public statements.  Scores are NIST's of 2018.  The tables are public and the noise is seeded: nothing
here is a release.  Runs are kept in engineered.jsonl, so that what was interrupted goes on; take lines out to run them
again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.census_like import ROWS, correlated_rows
from benchmarks.compare_store import Run, Store
from benchmarks.rules import made
from benchmarks.tables import BINS, FOLDER
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import CodedTable, encode_table
from privsyn.evaluation.scores import Scorer
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan

STORE = Path(__file__).parent / "engineered.jsonl"
EPSILONS = (0.1, 1.0, 10.0)
TIMES = tuple(
    f"{what} DtTm"
    for what in ("Received", "Entry", "Dispatch", "Response", "On Scene", "Transport", "Hospital", "Available")
)
"""The moments of one dispatch: minutes to hours apart, in bins of eleven days."""
FINE = 100
"""Bins of a time in the source."""
FOLLOW = {
    "Address": ("Zipcode of Incident",),
    "Box": ("Station Area",),
    "Priority": ("Final Priority",),
}
"""Column -> what a public register says of each of its values."""
LEVELS = ("Address", "Box")
"""Columns of very many values, which are counted by what their register says, too."""
LARGEST = "Address"
"""The column of most values, 17,704."""
UNMEASURED = "-unmeasured"
"""How the name of a spec ends that does not measure it."""
DETAILED = (
    *("GQTYPE", "OWNERSHP", "RACE", "HISPAN", "BPL", "MBPL", "FBPL", "MTONGUE", "HIGRADE", "EDUC", "EMPSTAT"),
    *("CLASSWKR", "MIGRATE5", "VETSTAT"),
)
"""Columns of Colorado that follow from their detailed version, whose name has a D more."""
NUMBERS = (
    *("CITYPOP", "URBPOP", "RENT", "VALUEH", "FAMSIZE", "AGE", "AGEMARR", "CHBORN", "WKSWORK1", "HRSWORK1"),
    *("DURUNEMP", "OCCSCORE", "SEI", "PRESGL", "ERSCOR50", "EDSCOR50", "NPBOSS50"),
)
MANY = 100
"""A detailed column with more values is counted by its general one, too."""

Content = dict[str, Any]


def content_of(name: str, data: str, columns: Content, epsilon: float) -> Content:
    """Return a spec's content by these columns."""
    privacy = {"epsilon": epsilon, "delta": 1e-9}
    budget = {"epsilon": 1000.0, "delta": 1e-9}
    unit = {"records_per_person": 1}
    return {"dataset": name, "data": data, "unit": unit, "privacy": privacy, "budget": budget, "columns": columns}


def fire_columns() -> Content:
    """Return all columns of fire2016: lists as they are listed, numbers in as many bins as in tables.py."""
    listed = json.loads((FOLDER / "fire2016.json").read_text(encoding="utf-8"))["columns"]
    found: Content = {}
    for name, column in listed.items():
        nullable = bool(column.get("missing"))
        if column["kind"] == "categorical":
            found[name] = {"kind": "categorical", "values": column["values"], "nullable": nullable, "unlisted": "other"}
        else:
            kind = "integer" if isinstance(column["min"], int) else "number"
            few = kind == "integer" and column["max"] - column["min"] < 64
            found[name] = {"kind": kind, "min": column["min"], "max": column["max"], "nullable": nullable}
            found[name] |= {} if few else {"bins": BINS}
    return found


@cache
def register(key: str, columns: tuple[str, ...]) -> list[list[Any]]:
    """Return for every value of a column the values of ``columns`` that it has most often.

    A stand-in for a public register: it is made from the table, which is public here.
    """
    frame = pq.read_table(FOLDER / "fire2016.parquet", columns=[key, *columns]).to_pandas()
    listed = fire_columns()[key]["values"]
    known = {}
    for name in columns:
        counts = frame.groupby([key, name], observed=True).size().reset_index(name="rows").sort_values("rows")
        last = counts.drop_duplicates(key, keep="last").set_index(key)[name]
        common = frame[name].mode()[0]
        known[name] = [last.get(value, common) for value in listed]
    return [[value, *(_plain(known[name][i]) for name in columns)] for i, value in enumerate(listed)]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def fire_spec(spec: str, epsilon: float) -> ReleaseSpec:
    """Return a spec of fire2016 whole: plain, together (times that move together) or engineered.

    With ``-unmeasured``, the column of most values is not measured, and none follows from it.
    """
    content = content_of("fire2016", str(FOLDER / "fire2016.parquet"), fire_columns(), epsilon)
    columns, how = content["columns"], spec.removesuffix(UNMEASURED)
    if how != "plain":
        content["together"] = [list(TIMES)]
    measured = {of: names for of, names in FOLLOW.items() if how == spec or of != LARGEST}
    if how != spec:
        columns[LARGEST]["measured"] = False
    if how == "engineered":
        for name in (n for names in measured.values() for n in names):
            columns[name]["nullable"] = True
        for name in set(LEVELS) & set(measured):
            columns[name]["levels"] = list(measured[name])
        content["rules"] = [
            {"lookup": {"from": of, "to": list(names), "rows": register(of, names)}} for of, names in measured.items()
        ]
    return ReleaseSpec.model_validate(content)


def colorado_sizes() -> dict[str, int]:
    """Return column -> its number of values, as listed."""
    listed = json.loads((FOLDER / "colorado1940-domain.json").read_text(encoding="utf-8"))["columns"]
    return {name: int(size) for name, size in listed.items()}


@cache
def colorado_table(rows: int = ROWS) -> pa.Table:
    """Return a made-up table over these columns, whose general versions follow from the detailed ones."""
    sizes = colorado_sizes()
    table = correlated_rows(Domain(tuple(sizes), tuple(sizes.values())), rows, 1).to_arrow()
    for name in DETAILED:
        general = np.asarray(table[f"{name}D"]).astype(np.int64) * sizes[name] // sizes[f"{name}D"]
        table = table.set_column(table.column_names.index(name), name, pa.array(general))
    return table


def colorado_spec(spec: str, epsilon: float) -> ReleaseSpec:
    """Return a spec of the made-up table: plain or engineered."""
    sizes = colorado_sizes()
    columns: Content = {
        name: {"kind": "integer", "min": 0, "max": size - 1, **({} if size <= 64 else {"bins": BINS})}
        if name in NUMBERS
        else {"kind": "categorical", "values": list(range(size)), "unlisted": 0}
        for name, size in sizes.items()
    }
    content = content_of("colorado", "colorado.parquet", columns, epsilon)
    if spec == "engineered":
        rules = []
        for name in DETAILED:
            detailed = f"{name}D"
            rows = [[code, code * sizes[name] // sizes[detailed]] for code in range(sizes[detailed])]
            rules.append({"lookup": {"from": detailed, "to": name, "rows": rows}})
            columns[name] |= {"nullable": True, "unlisted": "null"}
            if sizes[detailed] > MANY:
                columns[detailed]["levels"] = [name]
        content["rules"] = rules
    return ReleaseSpec.model_validate(content)


SPECS: dict[str, Callable[[str, float], ReleaseSpec]] = {"fire2016": fire_spec, "colorado": colorado_spec}


def source_of(name: str, spec: ReleaseSpec) -> Callable[..., Any]:
    """Return the rows of a table."""
    return open_source(spec.data if name == "fire2016" else colorado_table(), spec).batches


@cache
def scorer_of(name: str) -> tuple[Scorer, ReleaseSpec]:
    """Return what a table is scored by: the bins of its plain spec."""
    spec = SPECS[name]("plain", 1.0)
    encoding = plan(spec)
    real = encode_table(source_of(name, spec)(), encoding)
    return Scorer(real, None, encoding, EvaluationSpec(), threads=1), spec


def close_times(table: pa.Table) -> float:
    """Return the share of rows whose times all lie in one bin of the source, those that are there."""
    listed = fire_columns()
    places = []
    for name in TIMES:
        low, high = listed[name]["min"], listed[name]["max"]
        values = pd.to_numeric(table[name].to_pandas()).to_numpy(dtype=float, na_value=np.nan)
        places.append(np.clip(np.floor((values - low) / (high - low) * FINE + 1e-6), 0, FINE - 1))
    apart = np.nanmax(places, axis=0) - np.nanmin(places, axis=0)
    return float((apart == 0).mean())


def measure(name: str, how: str, epsilon: float, seed: int) -> Run:
    """Return one run of a table by one spec."""
    spec = SPECS[name](how, epsilon)
    table, wall, cpu = made(spec, source_of(name, spec), seed)
    scorer, plain = scorer_of(name)
    own: CodedTable = encode_table(table.select(list(plain.released_columns)).to_batches(), scorer.encoding)
    found = scorer.score(own, only={"nist_density", "nist_range", "l1_1way", "l1_2way"})
    figures = {m.name: float(m.value) for m in found if m.value is not None} | {"rows": float(table.num_rows)}
    if name == "fire2016":
        figures["close times"] = close_times(table)
    return Run(how, "1", name, epsilon, seed, "done", figures, wall, cpu)


def markdown(store: Store, names: Sequence[str], specs: Sequence[str], epsilons: Sequence[float]) -> list[str]:
    """Return one line for each table, epsilon and spec."""
    lines = ["| table | epsilon | spec | seeds | density | ranges | 1-way | 2-way | CPU s |", "|" + "---|" * 9]
    for name in names:
        for epsilon in epsilons:
            for how in specs:
                runs = [r for (m, t, e, _), r in sorted(store.runs.items()) if (m, t, e) == (how, name, epsilon)]
                if not runs:
                    continue
                cells = []
                for figure, digits in (("nist_density", 0), ("nist_range", 0), ("l1_1way", 4), ("l1_2way", 4)):
                    values = np.array([r.figures[figure] for r in runs])
                    spread = f" ±{values.std(ddof=1):,.{digits}f}" if len(values) > 1 else ""
                    cells.append(f"{values.mean():,.{digits}f}{spread}")
                cells.append(f"{np.mean([r.cpu or 0 for r in runs]):.0f}")
                lines.append(f"| {name} | {epsilon:g} | {how} | {len(runs)} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure what is not in the store yet, and print the table as markdown."""
    parser = argparse.ArgumentParser(description="What engineered specs bring on two large tables.")
    parser.add_argument("--tables", nargs="+", choices=list(SPECS), default=list(SPECS))
    parser.add_argument("--specs", nargs="+", default=["plain", "engineered"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--store", type=Path, default=STORE, help="JSON lines of the runs")
    asked = parser.parse_args()
    store = Store(asked.store)
    for seed in range(asked.seeds):
        for name in asked.tables:
            for epsilon in asked.epsilons:
                for how in asked.specs:
                    if not store.has(how, "1", name, epsilon, seed):
                        store.add(measure(name, how, epsilon, seed))
                        print(store.runs[how, name, epsilon, seed], flush=True)
    print("\n".join(markdown(store, asked.tables, asked.specs, asked.epsilons)))


if __name__ == "__main__":
    main()
