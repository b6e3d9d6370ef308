"""Releases of two tables: keys that join, persons without rows, words, copies in other formats, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

import privsyn
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import count_repairs
from privsyn.sources.joined_source import AGAIN, ELSEWHERE, NO_KEY, NOBODY, TWICE
from privsyn.sources.open_source import open_source
from tests.support.commands import privsyn as run_command
from tests.support.examples import keep_first
from tests.support.linked_tables import (
    Tables,
    make_members,
    make_members_content,
    make_tables_spec,
    make_visits,
    make_visits_content,
    save_tables,
)
from tests.support.releases import QUICK, run

pytestmark = pytest.mark.usefixtures("places")
LARGE = {"privacy": {"epsilon": 50, "delta": 1e-9}, "budget": {"epsilon": 200, "delta": 1e-8}}


def make(folder: Path, persons: int = 1_000, **changes: Any) -> tuple[Tables, Path]:
    """A release of persons and visits with little noise: the private tables and the released folder."""
    tables = make_visits(persons)
    spec = make_tables_spec(save_tables(folder, tables, make_visits_content()), **{**LARGE, **QUICK, **changes})
    return tables, Path(run(spec).released)


def read(folder: Path, *names: str) -> list[pd.DataFrame]:
    return [pq.read_table(folder / "tables" / f"{name}.parquet").to_pandas() for name in names]


def test_keys_join_and_some_persons_have_no_row(tmp_path: Path) -> None:
    tables, folder = make(tmp_path)
    persons, visits = read(folder, "persons", "visits")
    assert list(persons) == ["pid", "sex"]
    assert list(visits) == ["visit", "pid", "year", "age", "income", "job"]
    assert persons["pid"].is_unique
    assert visits["visit"].is_unique
    assert visits["pid"].isin(persons["pid"]).all()
    assert not visits.isna().any(axis=None)
    assert visits.groupby("pid").size().max() == 5
    assert (visits.groupby("pid")["year"].diff().dropna() > 0).all()
    real = tables["persons"].to_pandas()
    for made, of in ((persons, visits), (real, tables["visits"].to_pandas())):
        made["none"] = ~made["pid"].isin(of["pid"])
    assert abs(len(persons) - len(real)) < 30
    assert persons["none"].mean() == pytest.approx(real["none"].mean(), abs=0.03)
    for sex in ("f", "m"):
        shares = [table["none"][table["sex"].astype(str) == sex].mean() for table in (persons, real)]
        assert shares[0] == pytest.approx(shares[1], abs=0.04)


@pytest.mark.slow
def test_all_persons_with_rows_leave_next_to_nobody_without(tmp_path: Path) -> None:
    tables = make_visits(600, without=0.0)
    spec = make_tables_spec(save_tables(tmp_path, tables, make_visits_content()), **LARGE, **QUICK)
    persons, visits = read(Path(run(spec).released), "persons", "visits")
    assert (~persons["pid"].isin(visits["pid"])).sum() < 10


@pytest.mark.slow
def test_both_tables_are_described_and_written_as_csv(tmp_path: Path) -> None:
    _, folder = make(tmp_path, formats=["parquet", "csv"])
    package = json.loads((folder / "datapackage.json").read_text())
    resources = {resource["path"]: resource for resource in package["resources"]}
    assert resources["tables/persons.csv"]["schema"]["primaryKey"] == "pid"
    (refers,) = resources["tables/visits.parquet"]["schema"]["foreignKeys"]
    named = {resource["name"]: path for path, resource in resources.items()}
    assert named[refers["reference"]["resource"]] == "tables/persons.parquet"
    assert (refers["fields"], refers["reference"]["fields"]) == ("pid", "pid")
    csv, (parquet,) = pd.read_csv(folder / "tables" / "visits.csv"), read(folder, "visits")
    assert csv["pid"].tolist() == parquet["pid"].tolist()
    note = (folder / "README.md").read_text()
    assert "`tables/persons.parquet`: the synthetic persons, also those without rows" in note
    with duckdb.connect() as database:
        found = database.sql(_place_files(note.split("```sql\n")[1].split("```")[0], folder))
        assert found.df().shape[0] == 5


def _place_files(statements: str, folder: Path) -> str:
    """The note's statements with the places of its files."""
    return statements.replace("'synthetic", f"'{folder}/synthetic").replace("'tables/", f"'{folder}/tables/")


def test_tables_in_memory_are_a_mapping(tmp_path: Path) -> None:
    tables = make_visits(100)
    spec = make_tables_spec(make_visits_content(), **LARGE, **QUICK)
    release = privsyn.release(tables, spec)
    assert (release.folder / "tables" / "visits.parquet").is_file()
    with pytest.raises(RequestError, match="Hand over a mapping with a table each for persons and visits"):
        privsyn.release(tables["visits"], spec)


@pytest.mark.slow
def test_households_without_members(tmp_path: Path) -> None:
    tables = make_members(1_500)
    spec = make_tables_spec(save_tables(tmp_path, tables, make_members_content()), **LARGE, **QUICK)
    folder = Path(run(spec).released)
    homes, members = read(folder, "homes", "members")
    assert list(homes) == ["hid", "region"]
    assert list(members) == ["pid", "hid", "role", "age", "sex", "income"]
    assert members["hid"].isin(homes["hid"]).all()
    empty = (~homes["hid"].isin(members["hid"])).mean()
    real = 1 - tables["members"].to_pandas()["hid"].nunique() / 1_500
    assert empty == pytest.approx(real, abs=0.02)
    for role in ("head", "partner"):
        assert (members["role"] == role).groupby(members["hid"]).sum().max() == 1
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["neighbours"] == "add or remove one household"
    assert "one household" in json.loads((folder / "datapackage.json").read_text())["differentialPrivacy"]["neighbours"]
    assert "the synthetic households, also those without rows" in (folder / "README.md").read_text()


@pytest.mark.slow
def test_the_private_report_and_answers_are_of_rows_and_their_persons(tmp_path: Path) -> None:
    tables, folder = make(tmp_path)
    report = evaluate(AskedEvaluation(str(folder)), Settings())
    assert {f.name for f in report.evaluation.panel} >= {"rows per person", "transitions, and the share that stays"}
    answer = privsyn.open_release(folder).count("sex")
    with_rows = tables["visits"].to_pandas()["pid"].nunique()
    assert answer["estimate"].sum() == pytest.approx(with_rows, abs=30)
    of_rows = privsyn.open_release(folder).persons("ever(job == 'none')")
    for asked in (answer, of_rows):
        assert "Persons without rows are not included; they are counted separately." in " ".join(asked.attrs["words"])


def change(tables: Tables, name: str, column: str, values: list[Any]) -> Tables:
    """The tables with the first cells of a column replaced."""
    table = tables[name]
    kept = [*values, *table[column].to_pylist()[len(values) :]]
    place = table.column_names.index(column)
    return {**tables, name: table.set_column(place, column, pa.array(kept, table.schema.field(column).type))}


UNFIT: dict[str, tuple[str, str, list[Any], str]] = {
    "a child without a parent": ("visits", "pid", ["nobody"], NOBODY),
    "a parent twice": ("persons", "pid", ["p1", "p1"], AGAIN),
    "a parent without a key": ("persons", "pid", [None], NO_KEY),
}


@pytest.mark.parametrize("case", keep_first(UNFIT, 2))
def test_rows_that_do_not_fit_are_left_out_and_counted_in_private(case: str, tmp_path: Path) -> None:
    name, column, values, repair = UNFIT[case]
    tables = change(make_visits(100, without=0.0), name, column, values)
    spec = make_tables_spec(save_tables(tmp_path, tables, make_visits_content()), **QUICK)
    summary = run(spec)
    counted = {r: n for (c, r), n in count_repairs(Path(summary.private)).counts.items() if c == "pid"}
    assert counted[repair] == 1
    assert all(counted.get(other, 0) == 0 for other in {NO_KEY, AGAIN} - {repair})
    persons, visits = read(Path(summary.released), "persons", "visits")
    assert visits["pid"].isin(persons["pid"]).all()
    words = "".join(p.read_text() for p in Path(summary.released).rglob("*.md"))
    assert "in the table above" not in words


def test_which_row_of_a_key_is_kept_hangs_on_no_order_and_no_other_person() -> None:
    tables = make_visits(50, without=0.0)
    persons = change(tables, "persons", "pid", ["p1", "p1", None])["persons"]
    persons = change({"persons": persons}, "persons", "sex", ["f", "m"])["persons"]
    spec = make_tables_spec(make_visits_content())
    backwards = persons.take(pa.array(range(persons.num_rows))[::-1])
    kept = [
        {row["sex"] for row in pa.Table.from_batches(source.batches()).to_pylist() if row["pid"] == "p1"}
        for source in (
            open_source({**tables, "persons": above}, spec) for above in (persons, persons.slice(0, 20), backwards)
        )
    ]
    assert len(kept[0]) == 1
    assert kept[0] == kept[1] == kept[2]


def test_a_table_above_without_one_key_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    tables = make_visits(5)
    nobody = change(tables, "persons", "pid", [None] * 5)
    spec = make_tables_spec(save_tables(tmp_path, nobody, make_visits_content()), **QUICK)
    with pytest.raises(RequestError, match="persons has no row with a `pid`") as caught:
        run(spec)
    assert "PRIVATE" in str(caught.value)
    assert Ledger(Settings().ledger, create=True).entries() == []


def test_a_household_keeps_one_row_of_each_member_whatever_other_households_have(tmp_path: Path) -> None:
    """Two rows of one member of a household are one; of a member of two households each keeps its own."""
    tables = make_members(100)
    homes, keys = (tables["members"][name].to_pylist() for name in ("hid", "pid"))
    own, other = next(i for i in range(1, 100) if homes[i] == homes[i - 1]), len(keys) - 1
    keys[own] = keys[other] = keys[own - 1]
    tables = change(tables, "members", "pid", keys)
    rows, alone = [], tables["members"].filter(pc.equal(tables["members"]["hid"], homes[own]))
    for members in (tables["members"], tables["members"].take(pa.array(range(len(keys)))[::-1]), alone):
        source = open_source({**tables, "members": members}, make_tables_spec(make_members_content()))
        joined = pa.Table.from_batches(source.batches()).to_pylist()
        rows.append(sorted((row["role"], row["age"]) for row in joined if row["hid"] == homes[own] and row["role"]))
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == homes.count(homes[own]) - 1
    summary = run(make_tables_spec(save_tables(tmp_path, tables, make_members_content()), **QUICK))
    counted = {r: n for (c, r), n in count_repairs(Path(summary.private)).counts.items() if c == "pid"}
    assert counted == {TWICE: 1, ELSEWHERE: 2}


def test_rows_of_nobody_and_of_no_time_are_left_out(tmp_path: Path) -> None:
    """A person whose rows have no place in the order is one without rows."""
    tables = make_visits(100, without=0.0)
    first = tables["visits"]["pid"].to_pylist()[0]
    years = [
        None if pid == first else year
        for pid, year in zip(tables["visits"]["pid"].to_pylist(), tables["visits"]["year"].to_pylist(), strict=True)
    ]
    changed = change(change(tables, "visits", "year", years), "visits", "pid", [first, None])
    spec = make_tables_spec(save_tables(tmp_path, changed, make_visits_content()), **LARGE, **QUICK)
    persons, visits = read(Path(run(spec).released), "persons", "visits")
    assert visits["pid"].isin(persons["pid"]).all()


def test_a_check_says_how_rows_with_their_persons_fit(tmp_path: Path) -> None:
    tables = make_visits(300)
    fit = privsyn.check_spec(make_tables_spec(make_visits_content()), tables).fit
    assert fit is not None
    assert fit.rows == tables["visits"].num_rows
    assert {column.column: column.nulls for column in fit.columns} == dict.fromkeys(
        ("sex", "year", "age", "income", "job"), 0
    )
    some = change(tables, "visits", "pid", ["nobody"] * 60)
    misread = privsyn.check_spec(make_tables_spec(make_visits_content()), some).fit.misread  # type: ignore[union-attr]
    assert [(m.column, [*m.repairs]) for m in misread] == [("pid", [NOBODY])]
    with pytest.raises(RequestError, match="Name both: persons and visits"):
        privsyn.check_spec(make_tables_spec(make_visits_content()), tables["visits"])


def test_the_command_checks_two_tables(tmp_path: Path) -> None:
    save_tables(tmp_path, make_visits(100), make_visits_content())
    content = make_tables_spec(make_visits_content()).model_dump(mode="json", exclude_unset=True)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    given = [f"--data={name}={tmp_path / name}.parquet" for name in ("persons", "visits")]
    checked = run_command("spec", "check", str(tmp_path / "spec.yaml"), *given)
    assert "PRIVATE - how the table fits" in checked.output
    refused = run_command("spec", "check", str(tmp_path / "spec.yaml"), given[0])
    assert refused.exit_code == 2
    assert "Write --data persons=PATH --data visits=PATH" in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("content", "of"), [(make_visits_content(), "persons"), (make_members_content(), "households")]
)
def test_a_forecast_is_of_persons_or_households(content: dict[str, Any], of: str) -> None:
    made = privsyn.forecast(make_tables_spec(content), 500, epsilons=[1.0], seeds=1)
    assert f"of 500 {of}" in repr(made)
    assert f"stands for a {of[:-1]}, with one " in " ".join(made.words)
