"""A release of linked rows: persons with new identifiers, in order, within the cap, and all that is written of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.answers.questions import answer
from privsyn.api.open_release import open_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.evaluation.forecasts.forecast import forecast
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.evaluation.quality_release import publish_quality
from tests.support.documented import read_example
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.panels import PANEL_COLUMNS, make_panel, make_panel_spec
from tests.support.releases import QUICK, released, run
from tests.support.specs import make_spec

pytestmark = pytest.mark.usefixtures("places")
LARGE = {"privacy": {"epsilon": 50, "delta": 1e-9}, "budget": {"epsilon": 200, "delta": 1e-8}}
Made = tuple[ReleaseSpec, pd.DataFrame, Path]
"""A release of a panel: its spec, its rows and its folder."""


def save(folder: Path, table: pa.Table) -> str:
    path = folder / "panel.parquet"
    pq.write_table(table, path)
    return str(path)


def make(folder: Path, persons: int = 1_500, **changes: Any) -> Made:
    """A release of a panel with little noise."""
    spec = make_panel_spec(data=save(folder, make_panel(persons)), **{**LARGE, **QUICK, **changes})
    summary = run(spec)
    return spec, released(summary, "synthetic.parquet").to_pandas(), Path(summary.released)


@pytest.fixture
def made(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """One release of 1,500 persons, also as CSV, the same for every test that asks for it."""
    home = kept.begin(monkeypatch)
    return kept.once(lambda: make(home, formats=["parquet", "csv"]))  # type: ignore[no-any-return]


def test_persons_have_linked_rows_in_their_order(made: Made) -> None:
    spec, rows, _ = made
    assert next(iter(rows)) == "pid"
    persons = rows.groupby("pid")
    assert rows["pid"].is_monotonic_increasing
    assert persons.size().between(1, spec.unit.records).all()
    assert (persons["year"].diff().dropna() > 0).all()
    assert (persons["sex"].nunique() == 1).all()
    born = rows["year"] - rows["age"]
    assert (born.groupby(rows["pid"]).nunique() == 1).all()
    assert rows["year"].between(2000, 2009).all()
    # The folder says what is linked and what was counted.
    _, _, folder = made
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["records_per_person"] == 1
    sensitivities = {s["step"]: {g["sensitivity"] for g in s["groups"]} for s in certificate["stages"]}
    assert sensitivities.pop("measure_rows") == {5}  # all rows of a person may have one code
    assert sensitivities.pop("trend_scores") == {64, 64**2}  # one record a person, of a score up to 64 or two
    assert {1} == set().union(*sensitivities.values())
    assert "measure_transitions" in {stage["step"] for stage in certificate["stages"]}
    note = (folder / "README.md").read_text()
    assert "Rows with the same `pid` are one synthetic person's" in note
    assert "no row is linked to another" not in note
    fields = json.loads((folder / "datapackage.json").read_text())["resources"][0]["schema"]["fields"]
    assert fields[0]["name"] == "pid"
    assert (folder / "synthetic.csv").read_text().startswith('"pid","year",')
    private = set(make_panel(1_500)["pid"].to_pylist())
    assert not private & set(pd.read_csv(folder / "synthetic.csv")["pid"].astype(str))


@pytest.mark.slow
def test_what_persons_were_the_year_before_is_kept(tmp_path: Path) -> None:
    """With little noise jobs stay, and incomes move little, as they do in the private table."""
    _, rows, _ = make(tmp_path, persons=3_000)
    real = make_panel(3_000).to_pandas().sort_values(["pid", "year"])
    figures = []
    for table in (real, rows):
        before = table.groupby("pid", observed=True).shift()
        known = before["income"].notna()
        job = table["job"].astype(str)[known]
        stays = (job == before["job"].astype(str)[known]).mean()
        figures.append((stays, np.corrcoef(table["income"][known], before["income"][known])[0, 1]))
    (stays, alike), (made_stays, made_alike) = figures
    assert abs(made_stays - stays) < 0.05
    assert made_alike > 0.85 * alike


def test_the_same_request_is_found_again_and_another_seed_draws_other_rows_at_no_cost(made: Made) -> None:
    spec, rows, folder = made
    again = run(spec)
    assert Path(again.released) == folder
    other = run(spec.with_rows(seed=1))
    assert not released(other, "synthetic.parquet").to_pandas().equals(rows)
    certificates = [json.loads((Path(f) / "certificate.json").read_text()) for f in (folder, other.released)]
    assert certificates[0]["dataset_total"]["rho"] == certificates[1]["dataset_total"]["rho"]


def test_answers_are_of_persons_each_by_one_row(made: Made) -> None:
    _, rows, folder = made
    answer = open_release(folder).count("sex")
    assert abs(answer["estimate"].sum() - rows["pid"].nunique()) < 0.1 * rows["pid"].nunique()
    assert any("about persons, each represented by one row" in words for words in answer.attrs["words"])
    model = open_release(folder).count("job", where="age > 30 and income < 20")
    assert model["estimate"].sum() < rows["pid"].nunique()
    # Figures that are simulated elsewhere have no interval.
    release = open_release(made[2])
    for table in (release.regress("income ~ job"), release.estimate(lambda rows: rows["income"].std(), ["income"])):
        assert table.source.eq("not known").all() and table.estimate.notna().all()
        assert any("linked rows" in words for words in table.attrs["words"])


@pytest.mark.slow
def test_the_private_report_compares_persons_over_time(made: Made) -> None:
    spec, _, folder = made
    report = evaluate(AskedEvaluation(str(folder), spec.data), Settings())
    figures = {(f.name, f.column): f for f in report.evaluation.panel}
    assert figures["rows per person", ""].distance is not None
    assert figures["persons that never change", "sex"].synthetic == 1.0
    transitions = figures["transitions, and the share that stays", "job"]
    assert transitions.distance is not None
    assert transitions.distance < 0.2
    assert transitions.sample_distance is not None
    assert 0 < figures["persons still so since they first were", "job"].distance < 0.3  # type: ignore[operator]
    assert 0 < figures["persons like a random one", ""].distance < 0.2  # type: ignore[operator]
    steady = figures["persons still as in their first row", "job"]
    assert steady.distance is not None
    assert steady.distance < 0.15
    assert steady.real is not None and steady.sample is not None
    assert abs(steady.real - steady.sample) < 0.2
    assert "Persons or households" in report.html.read_text()


def test_every_row_keeps_the_rules(tmp_path: Path) -> None:
    columns = {**PANEL_COLUMNS, "rich": {"kind": "boolean"}}
    table = make_panel(600)
    rich = pa.array([income > 50 for income in table["income"].to_pylist()])
    spec = make_panel_spec(
        columns=columns,
        data=save(tmp_path, table.append_column("rich", rich)),
        rules=[{"never": "job == 'none' and income > 40"}, {"derive": {"rich": "income > 50"}}],
        **LARGE,
        **QUICK,
    )
    rows = released(run(spec), "synthetic.parquet").to_pandas()
    assert not ((rows["job"] == "none") & (rows["income"] > 40)).any()
    assert (rows["rich"] == (rows["income"] > 50)).all()
    assert (rows.groupby("pid")["sex"].nunique() == 1).all()


@pytest.mark.parametrize("order", keep_first(["date", "datetime"]))
def test_rows_in_the_order_of_days_and_moments(tmp_path: Path, order: str) -> None:
    table = make_panel(400)
    days = [f"{year}-0{1 + i % 9}-15" for i, year in enumerate(table["year"].to_pylist())]
    column = {"kind": order, "min": "2000-01-01", "max": "2009-12-31"}
    spec = make_panel_spec(
        columns={**PANEL_COLUMNS, "year": column},
        with_order=[],
        data=save(tmp_path, table.set_column(1, "year", pa.array(days))),
        **LARGE,
        **QUICK,
    )
    rows = released(run(spec), "synthetic.parquet").to_pandas()
    moments = pd.to_datetime(rows["year"])
    assert (moments.groupby(rows["pid"]).diff().dropna() > pd.Timedelta(0)).all()
    assert moments.min() >= pd.Timestamp("2000-01-01")
    assert moments.max() < pd.Timestamp("2010-01-01")


@pytest.mark.slow
def test_a_table_in_several_parts_has_every_person_once(tmp_path: Path) -> None:
    data = save(tmp_path, make_panel(1_500))
    spec = make_panel_spec(data=data, **LARGE, synthesis={"sweeps": 2, "shard_rows": 1_000})
    folder = Path(run(spec).released)
    parts = sorted((folder / "synthetic").glob("*.parquet"))
    rows = pd.concat([pd.read_parquet(part) for part in parts])
    assert len(parts) > 2
    assert rows["pid"].is_monotonic_increasing
    assert rows.groupby("pid").size().max() <= spec.unit.records
    assert abs(rows["pid"].nunique() - 1_500) < 50


def test_a_forecast_takes_persons_for_rows(tmp_path: Path) -> None:
    asked = [{"question": "share(ever(job == 'none')) by sex"}]
    made = forecast(make_panel_spec(workload=asked), 500, epsilons=(), seeds=1)
    assert "A row stands for a person" in " ".join(made.words)
    assert {column.column for column in made.at[0].columns} >= {"year", "sex", "age", "income", "job"}


def test_the_example_of_the_docs_is_a_spec() -> None:
    example = read_example("docs/panels.md")
    spec = make_spec(example.pop("columns"), **example)
    assert spec.panel is not None
    assert spec.panel.carried == {"year", "sex", "birth_year", "age"}


def test_released_figures_of_quality_are_refused_before_anything_is_spent(made: Made, kept: Kept) -> None:
    _, _, folder = made
    before = (kept.home / "ledger.sqlite").read_bytes()
    with pytest.raises(RequestError, match="has linked rows of persons"):
        publish_quality(str(folder), 1.0, Settings())
    assert (kept.home / "ledger.sqlite").read_bytes() == before


def test_transitions_are_asked_with_intervals(tmp_path: Path) -> None:
    _, _, folder = make(tmp_path, privacy={"epsilon": 5, "delta": 1e-9})
    release = open_release(folder)
    asked = release.transitions("job", level=0.999)
    assert len(asked) == 9
    assert np.allclose(asked.groupby("job of a row")["estimate"].sum(), 1.0, atol=0.1)
    stays = asked[asked["job of a row"] == asked["job of the next row"]]
    expected = 0.9 + 0.1 / 3  # one in three of those who draw anew
    drawn = 4 * np.sqrt(expected * (1 - expected) / 400)  # intervals are of the noise: about 430 pairs begin in each
    assert (stays["low"] <= expected + drawn).all()
    assert (stays["high"] >= expected - drawn).all()
    assert (stays["source"] == "measured").all()
    assert set(release.transitions("income")["source"]) <= {"measured", "not known"}
    assert answer(release, "transitions(job)", level=0.999).equals(asked)
    with pytest.raises(RequestError, match="neither `by` nor `where`"):
        answer(release, "transitions(job) by sex")
    with pytest.raises(RequestError, match="no transitions of 'sex' were measured"):
        release.transitions("sex")


def test_questions_about_persons_are_bounded(made: Made) -> None:
    """How many ever and always are lies in the interval, in all and in groups that are constant."""
    _, _, folder = made
    real = make_panel(1_500).to_pandas()
    release = open_release(folder)
    of = real["job"].eq("none").groupby(real["pid"])
    sex = real.groupby("pid")["sex"].first()
    for when, true in (("ever", of.any()), ("always", of.all())):
        share = release.persons(f"{when}(job == 'none')", share=True, level=0.99).iloc[0]
        assert share["source"] == "bounded"
        assert 0 <= share["low"] <= true.mean() <= share["high"] <= 1
        assert share["low"] <= share["estimate"] <= share["high"]
        assert abs(share["estimate"] - true.mean()) < 0.1
        by_sex = release.persons(f"{when}(job == 'none')", by="sex", level=0.99).set_index("sex")
        for group, held in true.groupby(sex):
            assert by_sex.loc[group, "low"] <= held.sum() <= by_sex.loc[group, "high"]
    # Questions about persons in words.
    counted = answer(release, "count persons by sex where any(job == 'none' and income > 20)")
    assert counted.equals(release.persons("ever(job == 'none' and income > 20)", by="sex"))
    assert answer(release, "share(always(job == 'none')) by sex").equals(
        release.persons("always(job == 'none')", by="sex", share=True)
    )
    assert answer(release, "count persons by sex").equals(release.count("sex"))
    with pytest.raises(RequestError, match="'job' may differ between rows of one person"):
        answer(release, "share(ever(income > 20)) by job")
    with pytest.raises(RequestError, match="is not a statement about a person's rows"):
        answer(release, "count persons where job == 'none'")
    with pytest.raises(RequestError, match="take neither `population` nor a further condition"):
        answer(release, "share(ever(job == 'none')) where sex == 'f'")


@pytest.mark.slow
def test_questions_about_persons_that_the_workload_names_are_measured(tmp_path: Path) -> None:
    """Close intervals, in groups, too; rows follow them; what was not named is as before."""
    statements = ["ever(job == 'none')", "count(job == 'none') > 2", "change(income) < 0"]
    questions = [f"share({statement}) by sex" for statement in statements]
    unit = {"person_id": "pid", "max_records": 7}
    _, made, folder = make(tmp_path, unit=unit, workload=[{"question": q} for q in questions])
    real, release = make_panel(1_500).to_pandas(), open_release(folder)
    sex = real.groupby("pid")["sex"].first()

    def share(rows: pd.DataFrame) -> list[pd.Series]:
        of = rows.sort_values(["pid", "year"]).groupby("pid")
        none = (rows["job"] == "none").groupby(rows["pid"])
        groups = of["sex"].first().astype(str)
        figures = (none.any(), none.sum() > 2, of["income"].last() < of["income"].first())
        return [figure.groupby(groups).mean() for figure in figures]

    for question, true, own in zip(questions, share(real), share(made), strict=True):
        asked = answer(release, question).set_index("sex")
        assert (asked["source"] == "measured").all()
        assert (asked["high"] - asked["low"] < 0.1).all()
        for group in set(sex):
            assert abs(asked.loc[group, "estimate"] - true[group]) < 0.04
            assert abs(own[group] - true[group]) < 0.06
    counted = answer(release, "count persons by sex where ever(job == 'none')")
    assert (counted["source"] == "measured").all()
    assert answer(release, "share(count(job == 'none') == 0)").iloc[0]["source"] == "measured"
    assert answer(release, "share(ever(job == 'part'))").iloc[0]["source"] == "bounded"
    with pytest.raises(RequestError, match="not known: sum\\(income\\) of a person was not measured"):
        answer(release, "share(sum(income) > 40)")
    with pytest.raises(RequestError, match="is a number"):
        answer(release, "share(count(job == 'none'))")


@pytest.mark.slow
def test_a_value_inside_a_wide_code_bounds_nothing(tmp_path: Path) -> None:
    """A code that holds many values is not shown to hold none that the condition names."""
    _, _, folder = make(tmp_path, persons=400)
    release = open_release(folder)
    everyone = release.count().iloc[0]
    for asked in ("ever(income > 20 and income < 22)", "ever(income > 20 or income == 12)"):
        assert release.persons(asked).high[0] >= everyone.estimate
    assert release.persons("ever(income >= 0)").high[0] <= everyone.high * 1.2


def test_rows_that_are_not_linked_say_nothing_of_persons(tmp_path: Path) -> None:
    _, _, folder = make(tmp_path, persons=100, order=None, constant=[], with_order=[])
    with pytest.raises(RequestError, match="the rows of this release are not linked"):
        answer(open_release(folder), "count persons where ever(job == 'none')")


@pytest.mark.slow
def test_what_is_counted_beside_a_column_has_no_transitions(tmp_path: Path) -> None:
    """Weekdays and round amounts are drawn for every row: they take no part of the transitions' budget."""
    rng, table = np.random.default_rng(0), make_panel(900)
    days = np.datetime64("2020-01-04") + 7 * rng.integers(0, 100, table.num_rows)  # Saturdays
    pay = pa.array(100 * rng.integers(0, 900, table.num_rows))
    table = table.append_column("seen", pa.array(days)).append_column("pay", pay)
    added = {
        "seen": {"kind": "date", "min": "2020-01-01", "max": "2022-12-31"},
        "pay": {"kind": "integer", "min": 0, "max": 99_999},
    }
    spec = make_panel_spec(data=save(tmp_path, table), columns={**PANEL_COLUMNS, **added}, **LARGE, **QUICK)
    plan = Request(spec, tuple(spec.released_columns)).encoding
    assert {"seen", "pay"} < set(plan.following)
    assert plan.drawn_by_row == ("seen (weekday)", "pay (rounded to)")
    made = run(spec)
    receipts = released(made, "marginals/transitions_receipts.parquet")
    asked = {a for names in receipts["attributes"].to_pylist() for a in names}
    assert asked and not any("weekday" in a or "rounded" in a for a in asked)
    rows = released(made, "synthetic.parquet").to_pandas()
    saturdays = pd.to_datetime(rows.seen).dt.day_of_week == 5
    assert saturdays.mean() > 0.7 and (rows.pay % 100 == 0).mean() > 0.7
