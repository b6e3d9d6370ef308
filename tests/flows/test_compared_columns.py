"""Releases of tables with compared columns: wages and income, which most people have equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import privsyn
from tests.support.examples import keep_first
from tests.support.releases import QUICK, run
from tests.support.specs import make_spec

pytestmark = pytest.mark.usefixtures("places")

Save = Callable[..., str]

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 18, "max": 80},
    "wages": {"kind": "integer", "min": 0, "max": 200_000},
    "income": {"kind": "integer", "min": 0, "max": 300_000, "nullable": True},
}
AMOUNTS: dict[str, Any] = {"privacy": {"epsilon": 2.0, "delta": 1e-9}, "budget": {"epsilon": 50.0, "delta": 1e-8}}
MECHANISMS = ("privsyn", "adaptive", "aim", "mst", "privbayes", "independent")


def people(rows: int) -> pa.Table:
    """Wages are all the income of six in ten people, and never above it."""
    rng = np.random.default_rng(0)
    wages = np.where(rng.random(rows) < 0.75, np.round(np.exp(9.8 + 0.6 * rng.normal(size=rows)), -2), 0)
    wages = np.clip(wages, 0, 200_000)
    more = np.where(rng.random(rows) < np.where(wages > 0, 0.2, 0.9), np.exp(8.5 + rng.normal(size=rows)), 0)
    income = np.clip(wages + np.round(more, -2), 0, 300_000)
    missing = rng.random(rows) < 0.1
    return pa.table({"age": rng.integers(18, 81, rows), "wages": wages, "income": pa.array(income, mask=missing)})


def compare(table: pd.DataFrame) -> tuple[float, float]:
    """Return the share of rows in which both are equal, and in which wages are above income, of those with both."""
    both = table.dropna(subset=["wages", "income"])
    return float((both.wages == both.income).mean()), float((both.wages > both.income).mean())


def release(data: str, **fields: Any) -> pd.DataFrame:
    """Return the synthetic table of a release, which names the compared pair in its note, if it has one."""
    made = privsyn.open_release(run(make_spec(COLUMNS, data=data, **AMOUNTS, **fields)).released)
    assert ("## Columns that are compared" in made.note and "- wages with income" in made.note) == ("compare" in fields)
    return made.to_pandas()


def test_rows_keep_what_is_compared(save: Save) -> None:
    table = people(6_000)
    equal, _ = compare(table.to_pandas())
    kept = release(save(table), compare=[["wages", "income"]])
    lost = release(save(table))
    assert compare(lost)[0] < 0.1 and compare(lost)[1] > 0.15
    assert abs(compare(kept)[0] - equal) < 0.04
    assert compare(kept)[1] < 0.03
    assert abs(kept.income.isna().mean() - 0.1) < 0.03
    assert list(kept.columns) == list(COLUMNS)
    assert kept.wages.between(0, 200_000).all() and kept.income.dropna().between(0, 300_000).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_rules_compute_follows_from_the_values_that_come_out(save: Save) -> None:
    """A comparison moves values after all columns are drawn; and null is no number."""
    total: dict[str, Any] = {"total": {"kind": "integer", "min": 0, "max": 500_000, "nullable": True}}
    rows = people(300).append_column("total", pa.nulls(300, pa.int64()))
    fields = {"compare": [["wages", "income"]], "rules": [{"derive": {"total": "wages + income"}}], **QUICK}
    made = run(make_spec({**COLUMNS, **total}, data=save(rows), **AMOUNTS, **fields))
    table = privsyn.open_release(made.released).to_pandas()
    pd.testing.assert_series_equal(table.total, table.wages + table.income, check_names=False, check_dtype=False)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_keeps_it(save: Save, mechanism: str) -> None:
    kept = release(save(people(3_000)), compare=[["wages", "income"]], mechanism={"name": mechanism})
    assert compare(kept)[0] > 0.4


def test_questions_are_answered_by_the_measured_difference(save: Save) -> None:
    table = people(6_000)
    rows = table.to_pandas().dropna(subset=["income"])
    made = run(make_spec(COLUMNS, data=save(table), compare=[["wages", "income"]], **AMOUNTS))
    r = privsyn.open_release(made.released)
    for condition, real in {
        "wages == income": (rows.wages == rows.income).sum(),
        "income > wages": (rows.wages < rows.income).sum(),
        "not (wages < income)": (rows.wages >= rows.income).sum(),
        "wages < income or wages > income": (rows.wages != rows.income).sum(),
    }.items():
        found = r.count(where=condition).iloc[0]
        assert found.source == "measured" and abs(found.estimate - real) <= 4 * found.std_error < 400
    share = r.share("wages == income").iloc[0]
    assert share.source == "measured" and abs(share.estimate - (rows.wages == rows.income).sum() / 6_000) < 0.05
    within = r.count(where="wages == income and wages >= 10000").iloc[0]
    assert within.low <= ((rows.wages == rows.income) & (rows.wages >= 10_000)).sum() <= within.high
    by_age = r.count("age", where="wages == income")
    assert (by_age.low <= by_age.high).all()


@pytest.mark.parametrize("type_", keep_first(["date", "timestamp"]))
def test_questions_about_days_and_moments_are_too(save: Save, type_: str) -> None:
    rng = np.random.default_rng(0)
    begun = rng.integers(14_600, 14_900, 2_000)
    ended = begun + np.where(rng.random(2_000) < 0.6, 0, rng.integers(1, 60, 2_000))
    kind = pa.date32() if type_ == "date" else pa.timestamp("s")
    days = [
        pa.array((d if type_ == "date" else d * 86_400).astype("int32" if type_ == "date" else "int64"))
        for d in (begun, ended)
    ]
    column = {"kind": "datetime", "type": type_, "min": "2009-01-01", "max": "2011-01-01"}
    spec = make_spec(
        {"begun": column, "ended": column},
        data=save(pa.table({"begun": days[0].cast(kind), "ended": days[1].cast(kind)})),
        compare=[["begun", "ended"]],
        **AMOUNTS,
    )
    r = privsyn.open_release(run(spec).released)
    assert abs(r.count(where="begun == ended").estimate[0] - (begun == ended).sum()) < 100
    assert abs(r.count(where="begun < ended").estimate[0] - (begun < ended).sum()) < 100


def test_rules_bind_where_columns_are_compared(save: Save) -> None:
    rules = [{"never": "wages > income"}]
    kept = release(save(people(3_000)), compare=[["wages", "income"]], rules=rules)
    assert compare(kept)[1] == 0


def test_linked_rows_refuse_it(save: Save) -> None:
    with pytest.raises(Exception, match="not kept for linked rows"):
        make_spec(
            {**COLUMNS, "pid": {"kind": "drop"}, "year": {"kind": "integer", "min": 2000, "max": 2009}},
            unit={"person_id": "pid", "max_records": 3},
            order="year",
            compare=[["wages", "income"]],
        )
