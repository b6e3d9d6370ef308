"""A release of households: members in the order of their roles, compositions, couples and children, and its words."""

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
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from tests.support.documented import read_example
from tests.support.households import ROLES, make_household_spec, make_households
from tests.support.kept import Kept
from tests.support.releases import QUICK, released, run
from tests.support.specs import make_spec

pytestmark = pytest.mark.usefixtures("places")
LARGE = {"privacy": {"epsilon": 50, "delta": 1e-9}, "budget": {"epsilon": 200, "delta": 1e-8}}
Made = tuple[ReleaseSpec, pd.DataFrame, Path]
"""A release of households: its spec, its rows and its folder."""


RULES = [{"never": "role == 'child' and age > 24"}, {"never": "role != 'child' and age < 18"}]


def save(folder: Path, table: pa.Table) -> str:
    path = folder / "members.parquet"
    pq.write_table(table, path)
    return str(path)


def make(folder: Path, households: int = 1_500, **changes: Any) -> Made:
    """A release of households with little noise."""
    spec = make_household_spec(data=save(folder, make_households(households)), **{**LARGE, **QUICK, **changes})
    summary = run(spec)
    return spec, released(summary, "synthetic.parquet").to_pandas(), Path(summary.released)


@pytest.fixture
def made(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """One release of 1,500 households under rules, also as CSV, the same for every test that asks for it."""
    home = kept.begin(monkeypatch)
    return kept.once(lambda: make(home, rules=RULES, formats=["parquet", "csv"]))  # type: ignore[no-any-return]


def share_compositions(rows: pd.DataFrame) -> pd.Series:
    """The share of households by how many members of each role they have."""
    counts = pd.crosstab(rows["hid"], rows["role"].astype(str)).reindex(columns=ROLES, fill_value=0)
    return counts.value_counts(normalize=True)


def pair(rows: pd.DataFrame, role: str) -> pd.DataFrame:
    """The ages and sexes of heads beside those of the first member of a role."""
    first = rows[rows["role"] == "head"].set_index("hid")
    other = rows[rows["role"] == role].groupby("hid").first()
    return first.join(other.add_suffix(" of other"), how="inner")


def test_members_come_in_the_order_of_their_roles_within_all_caps(made: Made) -> None:
    spec, rows, _ = made
    assert next(iter(rows)) == "hid"
    assert rows["hid"].is_monotonic_increasing
    households = rows.groupby("hid")
    assert households.size().between(1, spec.unit.records).all()
    assert (households["region"].nunique() == 1).all()
    place = rows["role"].astype(str).map(ROLES.index)
    assert (place.groupby(rows["hid"]).diff().dropna() >= 0).all()
    for role in ("head", "partner"):
        assert (rows["role"] == role).groupby(rows["hid"]).sum().max() == 1
    # Rules hold for every member.
    _, rows, _ = made
    child = rows["role"] == "child"
    assert child.any()
    assert (rows["age"][child] <= 24).all()
    assert (rows["age"][~child] >= 18).all()


@pytest.mark.slow
def test_who_lives_together_is_kept(tmp_path: Path) -> None:
    """With little noise compositions, couples and children are those of the private table."""
    _, rows, _ = make(tmp_path, households=3_000, synthesis={"sweeps": 20}, rules=RULES)
    real = make_households(3_000).to_pandas()
    shares = pd.concat([share_compositions(real), share_compositions(rows)], axis=1).fillna(0.0)
    assert abs(shares.iloc[:, 0] - shares.iloc[:, 1]).sum() < 0.05
    for role, least in (("partner", 0.85), ("child", 0.75)):
        found = [pair(table, role) for table in (real, rows)]
        correlations = [np.corrcoef(p["age"], p["age of other"])[0, 1] for p in found]
        assert correlations[1] > least * correlations[0]
        differences = [(p["age"] - p["age of other"]).mean() for p in found]
        assert abs(differences[0] - differences[1]) < 3
    other = [
        (p["sex"].astype(str) != p["sex of other"].astype(str)).mean()
        for p in (pair(t, "partner") for t in (real, rows))
    ]
    assert abs(other[0] - other[1]) < 0.05


def test_the_folder_says_that_the_promise_is_about_a_household(made: Made) -> None:
    _, _, folder = made
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["unit_of_protection"].startswith("one household with all members (at most 5 kept")
    sensitivities = {s["step"]: {g["sensitivity"] for g in s["groups"]} for s in certificate["stages"]}
    assert sensitivities.pop("trend_scores") == {64, 64**2}  # one record a household, of a score up to 64 or two
    assert set().union(*sensitivities.values()) == {1}
    note = (folder / "README.md").read_text()
    assert "Adding or removing any one household barely changes what these files can say" in note
    assert "Rows with the same `hid` are one synthetic household's" in note
    assert "Counts in `marginals/` are of households: one member of each" in note
    private = set(make_households(1_500)["hid"].to_pylist())
    assert not private & set(pd.read_csv(folder / "synthetic.csv")["hid"].astype(str))
    # Answers are of households each by one member.
    _, rows, folder = made
    answer = open_release(folder).count("sex")
    assert abs(answer["estimate"].sum() - rows["hid"].nunique()) < 0.1 * rows["hid"].nunique()
    assert any("about households, each represented by one row" in words for words in answer.attrs["words"])


@pytest.mark.slow
def test_the_private_report_compares_households(tmp_path: Path) -> None:
    spec, _, folder = make(tmp_path)
    report = evaluate(AskedEvaluation(str(folder), spec.data), Settings())
    figures = {(f.name, f.column): f for f in report.evaluation.panel}
    composition = figures["members by role", ""].distance
    assert composition is not None
    assert composition < 0.1
    couples = figures["head less partner, on average", "age"]
    assert couples.real is not None
    assert abs(couples.real) < 1
    assert figures["correlation of head and child", "age"].real is not None
    assert figures["Gini coefficient over households", "income"].synthetic is not None
    assert "Persons or households" in report.html.read_text()


def test_the_example_of_the_docs_is_a_spec() -> None:
    example = read_example("docs/panels.md", "example of households")
    spec = make_spec(example.pop("columns"), **example)
    assert spec.panel is not None
    assert spec.panel.household


@pytest.mark.slow
def test_couples_are_asked_with_intervals(made: Made) -> None:
    _, _, folder = made
    asked = open_release(folder).transitions("sex", level=0.999)
    couples = asked[asked["kind of pair"] == "first partner, after another role"]
    other = couples[couples["sex of a row"] != couples["sex of the next row"]]
    assert len(other) == 2
    assert (other["low"] <= 0.97).all()
    assert (other["high"] >= 0.93).all()
    with pytest.raises(RequestError, match=r"Name one of age, sex, income\.$"):
        open_release(folder).transitions("income (rounded to)")  # counted beside its column, and no column itself


@pytest.mark.slow
def test_questions_about_households_are_measured_and_rows_follow(tmp_path: Path) -> None:
    question = "share(count(age < 10) > 0) by region"
    _, rows, folder = make(tmp_path, households=600, workload=[{"question": question}])
    asked = answer(open_release(folder), question).set_index("region")
    assert (asked["source"] == "measured").all()

    def share(table: pd.DataFrame) -> pd.Series:
        young = (table["age"] < 10).groupby(table["hid"]).any()
        return young.groupby(table.groupby("hid")["region"].first().astype(str)).mean()

    real, made = share(make_households(600).to_pandas()), share(rows)
    for region in asked.index:
        assert abs(asked.loc[region, "estimate"] - real[region]) < 0.03
        assert abs(made[region] - real[region]) < 0.05
