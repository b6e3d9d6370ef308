"""Rules across the members of a household, and of two tables, end to end: none is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import privsyn
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.tasks.codecs import plan
from privsyn.tasks.estimation.known_zeros import find_forbidden_compositions
from privsyn.tasks.panels.link_members import MemberLinker
from privsyn.tasks.panels.link_rows import LinkedRows
from privsyn.tasks.steps.decode_linked import _Decoder, _make_random_persons, check_persons_feasible
from tests.support.households import HOUSEHOLD_COLUMNS, make_household_spec, make_households
from tests.support.linked_tables import make_tables_spec
from tests.support.releases import QUICK, released, run

pytestmark = pytest.mark.usefixtures("places")
LARGE = {"privacy": {"epsilon": 50, "delta": 1e-9}, "budget": {"epsilon": 200, "delta": 1e-8}}
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
    """Persons with a date of birth and of death, and visits with a beginning and an end, of which some break rules."""
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
