"""Columns that rules compute, and dummies: answered from the counts of what they follow from."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks.coverage import MemoryCounts
from privsyn.answers.cells import ColumnCells, list_levels
from privsyn.answers.questions import Questions
from privsyn.base.errors import RequestError
from tests.support.answered import COLUMNS, released, table
from tests.support.specs import make_spec

NEW: dict[str, Any] = {
    "work years": {"kind": "integer", "min": 0, "max": 89, "bins": 8, "nullable": True},
    "climate": {"kind": "categorical", "values": ["cold", "warm"], "nullable": True},
    "by car": {"kind": "integer", "min": 0, "max": 1},
    "by bus": {"kind": "integer", "min": 0, "max": 1},
}
RULES = [
    {"derive": {"work years": "max(age - 18, 0)"}},
    {"lookup": {"from": "region", "to": "climate", "rows": [["north", "cold"], ["south", "warm"], ["east", "cold"]]}},
    {"one_of": ["by car", "by bus"]},
]


class Asked(Questions):
    """A release in memory, asked as one of a folder."""

    def __init__(self, counts: MemoryCounts) -> None:
        self.__dict__["_counts"] = counts


@cache
def rows() -> pa.Table:
    made = table(3_000)
    age = made["age"].to_numpy(zero_copy_only=False)
    years = pa.array(np.nan_to_num(age - 18).astype(np.int64), mask=np.isnan(age))
    climate = ["warm" if r == "south" else "cold" for r in made["region"].to_pylist()]
    car = np.asarray(made["income"]) > 50_000
    columns = (years, pa.array(climate), pa.array(car.astype(np.int64)), pa.array(1 - car.astype(np.int64)))
    for name, values in zip(NEW, columns, strict=True):
        made = made.append_column(name, values)
    return made


@cache
def release() -> Asked:
    promise = {"epsilon": 3.0, "delta": 1e-9}
    return Asked(released(rows(), make_spec(COLUMNS | NEW, privacy=promise, rules=RULES), 3))


def held(found: pd.DataFrame, real: pd.Series) -> bool:
    both = found.set_index(found.columns[0])
    return all(both.low[k] - 1e-9 <= v <= both.high[k] + 1e-9 for k, v in real.items())


def test_counts_of_computed_columns_follow_from_those_of_their_sources() -> None:
    frame = rows().to_pandas()
    for column in ("climate", "by car"):
        found = release().count(column, level=0.999)
        found[column] = found[column].astype(str)
        assert held(found, frame[column].astype(str).value_counts())
        assert set(found.source) == {"measured"}
    years = release().count("work years")
    assert years.estimate.sum() == pytest.approx(3_000, abs=150)
    real = release().count(where="`work years` >= 20", level=0.999)
    assert real.low[0] <= (frame["work years"] >= 20).sum() <= real.high[0]


def test_no_cell_of_a_row_is_said_to_have_no_value_of_its_computed_level() -> None:
    counts, ages = release()._counts, rows()["age"].combine_chunks()
    codes, _ = counts.codecs["age"].encode({"age": ages})
    computed = counts.every_codec["work years"]
    levels = computed.groups[computed.encode({"work years": rows()["work years"].combine_chunks()})[0]]
    for level, (_, condition) in enumerate(list_levels(counts, "work years")):
        part = ColumnCells(counts, ("age",)).fractions(condition)[codes]
        assert (part[levels == level] > 0).all() and (part[levels != level] < 1).all()


def test_means_and_shares_of_computed_columns_have_intervals() -> None:
    frame = rows().to_pandas()
    mean = release().mean("work years")
    assert mean.low[0] <= frame["work years"].mean() <= mean.high[0] and mean.source[0] == "implied"
    share = release().share("climate == 'warm'", level=0.999)
    assert share.low[0] <= (frame.climate == "warm").mean() <= share.high[0]
    assert held(release().share("climate", level=0.999), frame.climate.value_counts(normalize=True))
    groups = release().mean("income", by="climate", level=0.999)
    assert held(groups, frame.groupby("climate").income.mean())
    joint = release().count("happy", "climate")
    assert list(joint.columns[:2]) == ["happy", "climate"] and len(joint) >= 4


@pytest.mark.slow
def test_what_is_not_known_of_computed_columns_is_said() -> None:
    assert release().quantile("work years", 0.5).source[0] == "not known"
    found = release().estimate(lambda rows: rows["work years"].mean(), columns=["work years"])
    assert found.source[0] == "simulated" and np.isfinite(found.high[0])
    for ask in (lambda: release().count("nobody"), lambda: release().mean("climate")):
        with pytest.raises(RequestError):
            ask()
