"""Releases of households: members in the order of their roles, who lives together, words, and rules across members."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import privsyn
from privsyn.answers.questions import answer
from privsyn.api.open_release import open_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.tasks.codecs import plan
from privsyn.tasks.estimation.known_zeros import find_forbidden_compositions
from privsyn.tasks.panels.link_members import MemberLinker
from privsyn.tasks.panels.link_rows import LinkedRows
from privsyn.tasks.steps.decode_linked import _Decoder, _make_random_persons, check_persons_feasible
from tests.support.documented import read_example
from tests.support.households import HOUSEHOLD_COLUMNS, ROLES, make_household_spec, make_households
from tests.support.kept import Kept
from tests.support.linked_tables import make_tables_spec
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


NOISY = {"privacy": {"epsilon": 1, "delta": 1e-9}, "budget": {"epsilon": 200, "delta": 1e-8}}
ONE_HEAD = {"never": "count(role == 'head') != 1"}
YOUNGER = {"never": "role == 'child' and age >= head.age - 14"}


@pytest.mark.parametrize("privacy", [LARGE, pytest.param(NOISY, marks=pytest.mark.slow)])
def test_every_household_has_one_head_and_children_that_are_younger(tmp_path: Path, privacy: dict[str, Any]) -> None:
    path = tmp_path / "households.parquet"
    table = make_households(600).to_pandas()
    table = table[(table["role"] != "head") | (np.arange(len(table)) % 10 > 0)]  # some private ones have no head
    table.to_parquet(path, index=False)
    rules = [ONE_HEAD, YOUNGER, {"never": "role == 'partner' and abs(age - head.age) > 20"}]
    rows = released(run(make_household_spec(data=str(path), rules=rules, **privacy, **QUICK)), "synthetic.parquet")
    made = rows.to_pandas().astype({"role": str})
    assert (made["role"].eq("head").groupby(made["hid"]).sum() == 1).all()
    head = made["hid"].map(made[made["role"] == "head"].set_index("hid")["age"])
    children, partners = made["role"] == "child", made["role"] == "partner"
    assert children.sum() > 200 and partners.sum() > 200
    assert (made["age"] < head - 14)[children].all()
    assert ((made["age"] - head).abs() <= 20)[partners].all()
    assert made["hid"].nunique() > 0.85 * 600
    assert (made.groupby("hid")["region"].nunique() == 1).all()


def test_mended_members_have_the_ages_of_the_others_of_their_role_and_composition() -> None:
    """Ages are exchanged, so that rules which forbid small differences make those between others no larger."""
    equal = {"compression": {"ladder": False}}  # cells as a release has them: rungs are split before rows are made
    free, ruled = (plan(make_household_spec(rules=rules, **equal)) for rules in ([], [YOUNGER]))
    rng = np.random.default_rng(1)
    codes = _make_random_persons(ruled, 3, rng)
    years = np.where(codes["role"] == 2, rng.integers(0, 25, 1_500), rng.integers(20, 80, 1_500))
    codes["age"] = ruled.get_codec("age").encode({"age": pa.array(years)})[0]
    tables = [pa.table(_Decoder(p, codes, np.random.default_rng(2)).decode()).to_pandas() for p in (free, ruled)]
    plain, kept = (t.astype({"role": str}) for t in tables)
    head = plain["hid"].map(plain[plain["role"] == "head"].set_index("hid")["age"])
    assert ((plain["role"] == "child") & (plain["age"] >= head - 14)).sum() > 30
    assert len(kept) == len(plain)
    ages = [t.groupby("role")["age"].mean() for t in (plain, kept)]
    assert (ages[0] - ages[1]).abs().max() < 0.5


@pytest.mark.slow
def test_no_member_is_made_with_a_code_that_a_rule_forbids_to_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is mended: a code that is drawn and mended away would change how often the others are."""
    table = make_households(300)
    status = [
        "kid" if role == "child" else "married" if role == "partner" else "single" for role in table["role"].to_pylist()
    ]
    pq.write_table(table.append_column("status", pa.array(status)), tmp_path / "members.parquet")
    made: list[LinkedRows] = []
    join = MemberLinker._join

    def keep(self: MemberLinker, *arguments: Any) -> LinkedRows:
        made.append(join(self, *arguments))
        return made[-1]

    monkeypatch.setattr(MemberLinker, "_join", keep)
    statuses = {"kind": "categorical", "values": ["kid", "single", "married"]}
    rules = [
        {"never": "role == 'child' and status != 'kid'"},
        {"never": "role == 'partner' and status != 'married'"},
        {"never": "role == 'head' and status == 'kid'"},
    ]
    columns = {**HOUSEHOLD_COLUMNS, "status": statuses}
    run(make_household_spec(columns=columns, data=str(tmp_path / "members.parquet"), rules=rules, **LARGE, **QUICK))
    head, partner, child = range(3)
    for linked in made:
        role, code = linked.step, linked.fine["status"]
        assert not code[role == child].any() and (code[role == partner] == 2).all() and code[role == head].all()
        assert {*role.tolist()} == {head, partner, child}


def test_a_rule_about_roles_forbids_compositions() -> None:
    made = plan(make_household_spec(rules=[ONE_HEAD, {"never": "count(role == 'child') > 2"}]))
    forbidden = find_forbidden_compositions(made)
    assert forbidden is not None
    members = made.get_compositions().members
    assert (forbidden == ((members[:, 0] != 1) | (members[:, 2] > 2))).all()
    assert find_forbidden_compositions(plan(make_household_spec(rules=[YOUNGER]))) is None


@pytest.mark.slow
def test_members_are_named_by_roles_of_which_there_is_one() -> None:
    with pytest.raises(ValidationError, match="several members of a household may have this role"):
        make_household_spec(rules=[{"never": "age > child.age"}])
    with pytest.raises(ValidationError, match="is neither a row nor a table"):
        make_household_spec(rules=[{"never": "age > boss.age"}])
    with pytest.raises(FieldError, match="no household of two or more rows was found that keeps it"):
        check_persons_feasible(plan(make_household_spec(rules=[{"never": "count(role == 'head') < 2"}])))


def make_dated(persons: int) -> dict[str, pa.Table]:
    """Persons with a date of birth and of death, and visits with a beginning and an end.  Some break rules."""
    rng = np.random.default_rng(0)
    day = np.timedelta64(1, "D")
    birth = np.datetime64("1990-01-01") + rng.integers(0, 12_000, persons) * day
    many = rng.integers(0, 5, persons)
    of = np.repeat(np.arange(persons), many)
    start = np.maximum(birth[of], np.datetime64("2018-01-01")) + rng.integers(-100, 1_500, len(of)) * day
    end = start + rng.integers(-5, 60, len(of)) * day
    above = pa.table(
        {"pid": pa.array([f"p{i}" for i in range(persons)]), "birth": birth, "sex": rng.choice(["f", "m"], persons)}
    )
    below = pa.table(
        {"pid": pa.array([f"p{i}" for i in of]), "start": start, "end": end, "cost": rng.uniform(0, 100, len(of))}
    )
    return {"persons": above, "visits": below}


DATED: dict[str, Any] = {
    "persons": {
        "key": "pid",
        "columns": {
            "birth": {"kind": "date", "min": "1990-01-01", "max": "2023-12-31"},
            "sex": {"kind": "categorical", "values": ["f", "m"]},
        },
    },
    "visits": {
        "of": "persons",
        "order": "start",
        "max": 4,
        "columns": {
            "start": {"kind": "date", "min": "2018-01-01", "max": "2026-12-31"},
            "end": {"kind": "date", "min": "2018-01-01", "max": "2027-03-31"},
            "cost": {"kind": "number", "min": 0, "max": 100, "decimals": 2},
        },
    },
}
DATED_RULES = [
    {"never": "visits.start < persons.birth"},
    {"never": "end < start or end - start > 60"},
    {"never": "start < previous.end"},
]


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [LARGE, pytest.param(NOISY, marks=pytest.mark.slow)])
def test_rows_keep_rules_about_their_person_and_the_row_before(tmp_path: Path, privacy: dict[str, Any]) -> None:
    tables = make_dated(1_500)
    release = privsyn.release(tables, make_tables_spec(DATED, rules=DATED_RULES, **privacy, **QUICK))
    persons = pq.read_table(release.folder / "tables" / "persons.parquet").to_pandas()
    visits = pq.read_table(release.folder / "tables" / "visits.parquet").to_pandas()
    rows = visits.merge(persons, on="pid", validate="many_to_one")
    start, end, birth = (pd.to_datetime(rows[name]) for name in ("start", "end", "birth"))
    assert len(rows) > 0.9 * tables["visits"].num_rows
    assert (start >= birth).all()
    assert ((end >= start) & ((end - start).dt.days <= 60)).all()
    assert not (start < end.groupby(rows["pid"]).shift()).any()


def test_a_column_is_named_with_the_table_that_has_it() -> None:
    with pytest.raises(ValidationError, match="which is not a released column of visits"):
        make_tables_spec(DATED, rules=[{"never": "visits.birth > start"}])
