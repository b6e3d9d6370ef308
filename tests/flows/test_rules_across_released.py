"""Rules across rows, end to end: zero rows that break one, in every shard, at no cost, and counted in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from tests.support.examples import keep_first
from tests.support.panels import PANEL_COLUMNS, make_panel, make_panel_spec
from tests.support.releases import QUICK, released, run

pytestmark = pytest.mark.usefixtures("places")
LARGE = {"privacy": {"epsilon": 50, "delta": 1e-9}, "budget": {"epsilon": 200, "delta": 1e-8}}
RULES = [
    {"never": "income < previous.income"},
    {"never": "job == 'none' and previous.job == 'full'"},
    {"never": "next.age - age > 4 and next.job != job"},
    {"never": "count(job == 'none') > 3"},
]


def make(folder: Path, persons: int = 500, **changes: Any) -> tuple[str, Any]:
    """A release of a panel whose private rows break the rules: where the table is, and the summary of the run."""
    path = folder / "panel.parquet"
    pq.write_table(make_panel(persons), path)
    return str(path), run(make_panel_spec(data=str(path), **{"rules": RULES, **LARGE, **QUICK, **changes}))


def count_broken(rows: pd.DataFrame) -> int:
    """Rows that break RULES, computed from pandas."""
    rows = rows.astype({"job": str})
    before, after = rows.groupby("pid").shift(), rows.groupby("pid").shift(-1)
    broken = (rows["income"] < before["income"]) | ((rows["job"] == "none") & (before["job"] == "full"))
    broken |= (after["age"] - rows["age"] > 4) & (after["job"] != rows["job"]) & after["job"].notna()
    return int(broken.sum() + (rows["job"].eq("none").groupby(rows["pid"]).sum() > 3).sum())


@pytest.mark.parametrize("synthesis", keep_first([{}, {"seed": 3, "shard_rows": 1_000}]))
def test_no_row_breaks_a_rule(tmp_path: Path, synthesis: dict[str, Any]) -> None:
    assert count_broken(make_panel(800).to_pandas().sort_values(["pid", "year"])) > 500
    _, made = make(tmp_path, persons=800, synthesis={**QUICK["synthesis"], **synthesis})
    files = sorted(Path(made.released).glob("synthetic*/*.parquet")) or [Path(made.released) / "synthetic.parquet"]
    rows = pd.concat([pd.read_parquet(file) for file in files])
    assert count_broken(rows) == 0
    assert rows["pid"].nunique() > 0.9 * 800
    assert (rows.groupby("pid")["year"].diff().dropna() > 0).all()
    assert (rows.groupby("pid")["sex"].nunique() == 1).all()


@pytest.mark.slow
def test_the_private_report_counts_breaks_of_both_tables(tmp_path: Path) -> None:
    path, made = make(tmp_path)
    report = evaluate(AskedEvaluation(made.released, path), Settings())
    name = "rows that break a rule: never income < previous.income"
    figure = next(f for f in report.evaluation.panel if f.name == name)
    rows = make_panel(500).to_pandas().sort_values(["pid", "year"])
    assert figure.real is not None
    assert figure.real == pytest.approx((rows.groupby("pid")["income"].diff() < 0).mean(), abs=0.02)  # of those kept
    assert figure.synthetic == 0.0


@pytest.mark.slow
def test_rules_that_nobody_keeps_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no person of two or more rows was found that keeps it"):
        make(tmp_path, rules=[{"never": "previous.income >= 0"}])
    assert not list((tmp_path / "released").glob("*/manifest.json"))


@pytest.mark.slow
def test_missing_values_and_ties_of_the_order(tmp_path: Path) -> None:
    columns = {**PANEL_COLUMNS, "income": {**PANEL_COLUMNS["income"], "nullable": True}}
    table = make_panel(600).to_pandas()
    table.loc[::5, "income"] = None
    table["year"] = table["year"] // 2 * 2
    path = tmp_path / "ties.parquet"
    table.to_parquet(path, index=False)
    rules = [{"never": "income < previous.income"}, {"never": "previous.income is null and income is null"}]
    made = run(make_panel_spec(data=str(path), columns=columns, with_order=[], rules=rules, **LARGE, **QUICK))
    rows = released(made, "synthetic.parquet").to_pandas()
    assert (rows.groupby("pid")["year"].diff().dropna() == 0).any()  # ties come out, too
    before = rows.groupby("pid")["income"].shift()
    second = rows["pid"].duplicated()
    assert not (rows["income"] < before).any()
    assert not (rows["income"].isna() & before.isna() & second).any()
    assert rows["income"].isna().any()
