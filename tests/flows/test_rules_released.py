"""Rules in a release, of one row and across rows: none is broken, and all that is written says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.tasks.codecs import plan
from tests.support.evaluations import slight_settings
from tests.support.examples import keep_first
from tests.support.panels import PANEL_COLUMNS, make_panel, make_panel_spec
from tests.support.releases import QUICK, released, run
from tests.support.ruled import COLUMNS, RULES, people, ruled_spec

WAYS: dict[str, dict[str, Any]] = {
    "sweeps": {},
    "shards": {"mechanism": {"name": "privsyn", "synthesis": {"shard_rows": 1000}}},
    "gum": {"preset": "paper"},
    "adaptive": {"mechanism": {"name": "adaptive"}},
    "independent": {"mechanism": {"name": "independent"}},
    "mst": {"mechanism": {"name": "mst"}},
    "privbayes": {"mechanism": {"name": "privbayes"}},
    "aim": {"mechanism": {"name": "aim", "rounds": 2}},
}


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))


def broken_rows(release: privsyn.Release, spec: ReleaseSpec) -> int:
    """Rows of the release that break a rule, computed here from pandas for RULES, and by the rules themselves."""
    t = release.to_pandas()
    hired = pd.to_datetime(t.hired)
    own = (
        (t.exper != t.age - t.educ - 6)
        | ((t.age < 15) & (t.wage.notna() | t.marital.isin(["married", "widowed"])))
        | ((t.wage > 5000) & (t.marital == "widowed"))
        | ((hired.dt.year < 2000) & (t.age < 35))
        | (t.east.astype(int) + t.north != 1)
    )
    rules = plan(spec).rules
    assert rules is not None
    table = {name: release.table[name].combine_chunks() for name in release.table.column_names}
    assert int(rules.find_broken_rows(table).any(axis=0).sum()) == 0
    return int(own.sum())


@pytest.mark.parametrize("way", keep_first(WAYS, 2))
def test_no_row_breaks_a_rule(way: str, tmp_path: Path) -> None:
    private = people(3000, seed=7)
    spec = ruled_spec(data="", **WAYS[way])
    release = privsyn.release(private, spec, out=tmp_path)
    assert len(release.to_pandas()) > 2500
    assert broken_rows(release, spec) == 0


@pytest.mark.slow
def test_no_row_of_a_million_breaks_a_rule(tmp_path: Path) -> None:
    synthesis = {"rows": 1_000_000, "shard_rows": 300_000}
    spec = ruled_spec(data="", mechanism={"name": "privsyn", "synthesis": synthesis})
    release = privsyn.release(people(20_000, seed=7), spec, out=tmp_path)
    assert release.table.num_rows == 1_000_000
    assert broken_rows(release, spec) == 0


def test_columns_keep_their_types_and_another_rule_on_known_edges_costs_nothing(tmp_path: Path) -> None:
    private = people(1000, seed=2)
    release = privsyn.release(private, ruled_spec(data=""), out=tmp_path)
    assert release.table.column_names == list(COLUMNS)
    assert release.table.schema.field("exper").type == pa.int64()
    assert release.table.schema.field("east").type == pa.bool_()
    assert release.table.schema.field("north").type == pa.int64()
    note = (release.folder / "README.md").read_text()
    assert "## Rules" in note
    assert "exper is `age - educ - 6`" in note
    attributes = set(release.marginals["recode"]["attribute"].to_pylist())
    assert "exper" not in attributes  # it is computed, and not measured
    assert {"age", "educ", "one of east, north"} <= attributes
    spent = privsyn.ledger(out=tmp_path).as_json()
    more = ruled_spec([*RULES, {"never": "age < 15 and hired is not null"}], data="")
    second = privsyn.release(private, more, out=tmp_path)
    assert second.folder != release.folder
    assert privsyn.ledger(out=tmp_path).as_json() == spent
    table = second.to_pandas()
    assert not ((table.age < 15) & table.hired.notna()).any()


@pytest.mark.slow
def test_an_evaluation_sees_every_column_and_counts_private_breaks(tmp_path: Path) -> None:
    private = people(2000, seed=4)
    release = privsyn.release(private, ruled_spec(data=""), out=tmp_path)
    report = privsyn.evaluate(release, private, settings=slight_settings(tmp_path))
    assert {o.column for o in report.evaluation.one_ways} == set(COLUMNS)
    html = report.html.read_text()
    child = int(((private.age < 15) & (private.wage.notna() | (private.marital != "never married"))).sum())
    assert child > 0
    assert "never age &lt; 15" in html
    assert f"{child:,}" in html


def test_a_lookup_table_is_read_beside_the_spec_and_never_by_a_run(tmp_path: Path) -> None:
    (tmp_path / "years.csv").write_text("marital,educ,note\nnever married,10,a\nmarried,12,b\nwidowed,9,c\n")
    columns = {name: COLUMNS[name] for name in ("age", "educ", "marital")}
    columns["educ"] = {**columns["educ"], "nullable": True}
    rule = {"lookup": {"from": "marital", "to": "educ", "table": str(tmp_path / "years.csv")}}
    private = people(500, seed=1)
    spec = {**ruled_spec([], data="").model_dump(exclude_unset=True), "columns": columns, "rules": [rule]}
    table = privsyn.release(private[list(columns)], spec, out=tmp_path).to_pandas()
    wanted = table.marital.map({"never married": 10, "married": 12, "widowed": 9})
    assert (table.educ.astype(float).fillna(-1) == wanted.fillna(-1)).all()
    from privsyn.base.settings import load_settings
    from tests.support.releases import release_in_process

    unread = ReleaseSpec.model_validate(spec)
    with pytest.raises(RequestError, match="a run needs the table itself"):
        release_in_process(unread, load_settings(tmp_path), data=pa.Table.from_pandas(private[list(columns)]))


@pytest.mark.slow
def test_random_seeds_and_sizes(tmp_path: Path) -> None:
    private = people(400, seed=9)
    rng = np.random.default_rng(0)
    spec = ruled_spec(data="", budget={"epsilon": 100, "delta": 1e-7})
    for rows in rng.integers(1, 3000, 3):
        synthesis = {"rows": int(rows), "seed": int(rng.integers(1000)), "shard_rows": 1000}
        again = spec.with_rows(**synthesis)
        assert broken_rows(privsyn.release(private, again, out=tmp_path), again) == 0


pytestmark = pytest.mark.usefixtures("places")
LARGE = {"privacy": {"epsilon": 50, "delta": 1e-9}, "budget": {"epsilon": 200, "delta": 1e-8}}
ACROSS = [
    {"never": "income < previous.income"},
    {"never": "job == 'none' and previous.job == 'full'"},
    {"never": "next.age - age > 4 and next.job != job"},
    {"never": "count(job == 'none') > 3"},
]


def make(folder: Path, persons: int = 500, **changes: Any) -> tuple[str, Any]:
    """A release of a panel whose private rows break the rules: where the table is, and the summary of the run."""
    path = folder / "panel.parquet"
    pq.write_table(make_panel(persons), path)
    return str(path), run(make_panel_spec(data=str(path), **{"rules": ACROSS, **LARGE, **QUICK, **changes}))


def count_broken(rows: pd.DataFrame) -> int:
    """Rows that break ACROSS, computed from pandas."""
    rows = rows.astype({"job": str})
    before, after = rows.groupby("pid").shift(), rows.groupby("pid").shift(-1)
    broken = (rows["income"] < before["income"]) | ((rows["job"] == "none") & (before["job"] == "full"))
    broken |= (after["age"] - rows["age"] > 4) & (after["job"] != rows["job"]) & after["job"].notna()
    return int(broken.sum() + (rows["job"].eq("none").groupby(rows["pid"]).sum() > 3).sum())


@pytest.mark.parametrize("synthesis", keep_first([{}, {"seed": 3, "shard_rows": 1_000}]))
def test_no_row_breaks_a_rule_across_rows(tmp_path: Path, synthesis: dict[str, Any]) -> None:
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
