"""Small specs and tables that many tests use, and hypothesis strategies over random ones."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from privsyn.data_contracts.presets import ROUNDS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.spec_file import load_any_spec

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 18, "max": 89, "bins": 24, "nullable": True, "unit": "years"},
    "income": {"kind": "number", "min": 0, "max": 200_000, "edges": [0, 10_000, 25_000, 50_000, 100_000, 200_000]},
    "region": {"kind": "categorical", "values": ["north", "south", "east"], "unlisted": "other"},
    "happy": {"kind": "boolean"},
    "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 40},
    "caseid": {"kind": "drop"},
}


PEOPLE_YAML = """\
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1, delta: 1.0e-9}
budget: {epsilon: 2, delta: 1.0e-9}
columns:
  age: {kind: integer, min: 18, max: 89, bins: 24, nullable: true}
  income: {kind: drop}
  region: {kind: categorical, values: [north, south, east], unlisted: other}
  happy: {kind: boolean}
  seen: {kind: drop}
  caseid: {kind: drop}
"""
"""A spec's file for `people`, with few columns and a small cap, as commands read it."""


def make_spec(columns: dict[str, Any] | None = None, **changes: Any) -> ReleaseSpec:
    """A valid spec; keyword arguments replace top-level fields."""
    content: dict[str, Any] = {
        "dataset": "people",
        "data": "people.parquet",
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "budget": {"epsilon": 10.0, "delta": 1e-8},
        "columns": COLUMNS if columns is None else columns,
    }
    return ReleaseSpec.model_validate({**content, **changes})


STATED_PRIOR = {"sha256": "0" * 64, "statement": "Rows that anybody may have."}
"""The field `prior` as a manifest shows it: it does not say where the public rows are."""


def mechanism_fields(name: str, group: str = "region", **options: Any) -> dict[str, Any]:
    """The fields of a spec that ask for a mechanism with these options, `prior` with a public table and a group."""
    needs = {"group": [group]} if name == "prior" else {}
    return {"mechanism": {"name": name, **needs, **options}, **({"prior": STATED_PRIOR} if needs else {})}


def changed(spec: ReleaseSpec, **changes: Any) -> ReleaseSpec:
    """The spec with other top-level fields; the options of its mechanism count as such."""
    content = spec.model_dump()
    gone = {*changes, *(("name", *ROUNDS.values()) if "adaptive" in changes else ())}
    content["mechanism"] = {name: value for name, value in content["mechanism"].items() if name not in gone}
    return ReleaseSpec.model_validate({**content, **changes})


def people(rows: int, seed: int = 0) -> pa.Table:
    """A table for COLUMNS with related columns, some nulls and some values outside the domain."""
    rng = np.random.default_rng(seed)
    age = rng.integers(15, 95, rows)
    income = np.maximum(0, (age - 15) * 900 + rng.normal(0, 9_000, rows))
    region = np.where(age > 50, "north", np.where(rng.random(rows) < 0.5, "south", "west"))
    seen = [dt.datetime(2009, 6, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 4_000, rows)]
    return pa.table(
        {
            "age": pa.array(age, mask=rng.random(rows) < 0.1),
            "income": income,
            "region": region,
            "happy": income > 30_000,
            "seen": pa.array(seen, pa.timestamp("us")),
            "caseid": [f"case-{i}" for i in range(rows)],
        }
    )


def people_with(word: str, rows: int) -> pa.Table:
    """``people``, in whose private rows the word stands: every seventh region, and every dropped number of a case."""
    table = people(rows)
    regions = pa.array([word if i % 7 == 0 else r for i, r in enumerate(table["region"].to_pylist())])
    cases = pa.array([f"{word}-{i}" for i in range(rows)])
    return table.set_column(2, "region", regions).set_column(5, "caseid", cases)


names = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    """One random column of any kind, as the spec writes it."""
    kind = draw(st.sampled_from(["integer", "number", "categorical", "boolean", "datetime"]))
    column: dict[str, Any] = {"kind": kind, "nullable": draw(st.booleans())}
    if kind == "integer":
        column["min"] = draw(st.integers(-(10**6), 10**6))
        column["max"] = column["min"] + draw(st.integers(0, 10**4))
        column["bins"] = draw(st.none() | st.integers(1, 50))
    elif kind == "number":
        column["min"] = draw(st.floats(-1e6, 1e6))
        column["max"] = column["min"] + draw(st.floats(1e-3, 1e6))
        column["bins"] = draw(st.none() | st.integers(1, 50))
    elif kind == "categorical":
        texts = st.lists(st.text(max_size=5), min_size=1, max_size=8, unique=True)
        column["values"] = draw(texts | st.lists(st.integers(-99, 99), min_size=1, max_size=8, unique=True))
    elif kind == "datetime":
        start = draw(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2050, 1, 1)))
        column |= {"min": start, "max": start + draw(st.timedeltas(dt.timedelta(hours=1), dt.timedelta(days=9_999)))}
        column["bins"] = draw(st.integers(1, 50))
    return column


specs = st.dictionaries(names, columns(), min_size=1, max_size=6).map(make_spec)

anything = st.one_of(
    st.lists(st.none() | st.text(max_size=8), max_size=30).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | st.floats(), max_size=30).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | st.booleans(), max_size=30).map(lambda v: pa.array(v, pa.bool_())),
    st.lists(st.none() | st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)), max_size=30).map(
        lambda v: pa.array(v, pa.timestamp("us"))
    ),
    st.lists(st.none() | st.dates(), max_size=30).map(lambda v: pa.array(v, pa.date32())),
)
"""An array of any readable type, with any values."""


def with_public_inputs(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the public files that it names, by paths relative to ``folder``."""
    return load_any_spec(spec, folder=folder)
