"""Drafts of two tables: keys, order and the table above guessed from names, marked, and asked for where unclear."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import privsyn
from privsyn.base.errors import RequestError
from privsyn.specs.draft_tables import CONFIRM, draft_any, make_table_name
from privsyn.specs.spec_file import parse_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.commands import privsyn as run_command
from tests.support.linked_tables import make_members, make_tree, make_visits, save_tables
from tests.unit.specs.test_draft import fill

Tables = dict[str, Any]


def read(text: str) -> dict[str, Any]:
    return parse_yaml(text, "the draft").content["tables"]


def fill_tables(text: str) -> str:
    """The draft of two tables with every TODO replaced by some choice."""
    return fill(text).replace("order: TODO", "order: year").replace("dataset: TODO", "dataset: people")


def pair(above: Tables, below: Tables, names: tuple[str, str] = ("persons", "visits")) -> dict[str, pa.Table]:
    return {name: pa.table(columns) for name, columns in zip(names, (above, below), strict=True)}


DAY = [dt.date(2020, 1, 1)]


def name_key(tables: Any, table: str, column: str, name: str) -> Any:
    """The tables with another name of a column."""
    names = [name if c == column else c for c in tables[table].column_names]
    return {**tables, table: tables[table].rename_columns(names)}


def test_keys_order_and_cap_are_drafted_and_marked() -> None:
    made = draft_any(name_key(make_visits(20), "visits", "visit", "visit_id"))
    tables = read(made.text)
    assert (tables["persons"]["key"], list(tables["persons"]["columns"])) == ("pid", ["sex"])
    visits = tables["visits"]
    assert {field: visits[field] for field in ("of", "key", "order", "max")} == {
        "of": "persons",
        "key": "visit_id",
        "order": "year",
        "max": 10,
    }
    assert list(visits["columns"]) == ["year", "age", "income", "job"]
    marked = [line.split(":")[0].strip() for line in made.text.split("\n") if f"# {CONFIRM}: " in line]
    assert marked == ["unit", "key", "of", "key", "order", "max"]
    assert [guess.rpartition(".")[2] for guess in made.guesses] == marked
    spec = parse_spec(fill_tables(made.text))
    assert spec.unit.person_id == "pid" and spec.unit.records == 10 and spec.order == "year"


def test_text_called_like_its_table_is_asked_about_unless_another_table_has_it() -> None:
    """As a key it would not be released, and `drug` of `drugs` may be what was taken."""
    made = draft_any(make_tree(20))
    tables = read(made.text)
    assert "key" not in tables["drugs"] and "drug" in tables["drugs"]["columns"]
    assert "    # key: drug, if each row has its own" in made.text
    assert tables["visits"]["key"] == "visit"


def test_nothing_of_rows_is_in_it() -> None:
    """The same text for no rows, one and many, whoever has most of them."""
    whole = make_visits(200)
    fewer = {name: table.slice(0, 3) for name, table in whole.items()}
    none = {name: table.schema.empty_table() for name, table in whole.items()}
    assert len({draft_any(tables).text for tables in (whole, fewer, none)}) == 1


@pytest.mark.parametrize(
    ("above", "below", "words"),
    [
        ({"pid": [1], "sex": [1]}, {"person": [1], "date": DAY}, "have no column of the same name"),
        ({"a": [1], "sex": [1]}, {"a": [1], "date": DAY}, r"share a, and their names do not tell .*Name it with key"),
        ({"pid": [1], "site_id": [1]}, {"pid": [1], "site_id": [1]}, "share pid, site_id, and their names do not tell"),
        ({"pid": [1], "sex": [1]}, {"pid": [1], "sex": [1]}, "share sex beside the key pid, and a release has one"),
        ({"visit_id": [1], "sex": [1]}, {"visit_id": [1], "date": DAY}, "seems to identify a row of visits, and"),
        ({"pid": [1.5], "sex": [1]}, {"pid": [1.5], "date": DAY}, "share pid, and their names do not tell"),
    ],
    ids=["no key", "a name that says nothing", "two keys", "one more shared column", "the other way round", "floats"],
)
def test_what_names_do_not_tell_is_asked_for(above: Tables, below: Tables, words: str) -> None:
    with pytest.raises(RequestError, match=f"(?s){words}") as caught:
        draft_any(pair(above, below))
    assert caught.value.field == "draft_spec.data"


def test_the_one_named_second_may_be_the_one_above() -> None:
    tables = dict(reversed(make_members(20).items()))
    with pytest.raises(RequestError, match="hid seems to identify a row of homes, and members is named first"):
        draft_any(tables)
    made = read(draft_any(tables, of="homes").text)
    assert list(made) == ["homes", "members"] and made["members"]["of"] == "homes"


def test_what_is_said_is_no_guess() -> None:
    tables = pair({"a": [1], "sex": [1]}, {"a": [1], "date": DAY, "seen": DAY})
    made = draft_any(tables, key="a")
    assert "tables.persons.key" not in made.guesses and read(made.text)["persons"]["key"] == "a"
    assert read(made.text)["visits"]["order"] == "TODO"
    assert "the order of rows within a person: date, seen?" in made.text
    for wrong, field in (({"key": "sex"}, "key"), ({"key": "a", "of": "homes"}, "of")):
        with pytest.raises(RequestError) as caught:
            draft_any(tables, **wrong)
        assert caught.value.field == f"draft_spec.{field}"
    with pytest.raises(RequestError, match="is of two tables, and one was named"):
        privsyn.draft_spec(tables["persons"], key="a")


def test_a_further_table_without_a_time_is_drafted_without_an_order() -> None:
    items = pa.table({"visit": ["v1"], "item": ["a"], "price": [1.5]})
    made = draft_any(make_visits(20) | {"items": items})
    assert "order" not in read(made.text)["items"] and "tables.items.order" not in made.guesses
    assert "# order: COLUMN, optional: the order of rows within a row of visits" in made.text


@pytest.mark.slow
def test_a_dictionary_of_both_tables_names_keys_and_values(tmp_path: Path) -> None:
    (tmp_path / "d.sql").write_text(
        "CREATE TABLE clients (code INT PRIMARY KEY, sex VARCHAR(1) NOT NULL CHECK (sex IN ('f', 'm')));\n"
        "CREATE TABLE stays (stay INT PRIMARY KEY, code INT REFERENCES clients, arrived DATE NOT NULL, "
        "days INT CHECK (days BETWEEN 1 AND 90));\n"
    )
    tables = pair(
        {"code": [1], "sex": ["f"]}, {"stay": [1], "code": [1], "arrived": DAY, "days": [3]}, ("clients", "stays")
    )
    made = read(draft_any(tables, tmp_path / "d.sql").text)
    assert made["clients"]["key"] == "code" and made["clients"]["columns"]["sex"]["values"] == ["f", "m"]
    assert made["stays"]["key"] == "stay" and made["stays"]["order"] == "arrived"
    assert made["stays"]["columns"]["days"]["max"] == 90
    with pytest.raises(RequestError, match="code seems to identify a row of clients"):
        draft_any(dict(reversed(tables.items())), tmp_path / "d.sql")


def test_the_other_private_table_is_not_read_as_a_dictionary(tmp_path: Path) -> None:
    """Refused before it is read: what a dictionary holds may be shown."""
    (tmp_path / "persons.csv").write_text("pid,sex\n1,f\n2,m\n")
    (tmp_path / "visits.csv").write_text("name,type\nsecret,integer\nsecret,date\n")
    places = {name: tmp_path / f"{name}.csv" for name in ("persons", "visits")}
    with pytest.raises(RequestError, match="is the private table itself") as caught:
        draft_any(places, tmp_path / "visits.csv")
    assert "secret" not in str(caught.value)


def test_the_primary_key_of_a_data_package_is_one(tmp_path: Path) -> None:
    fields = [[{"name": n} for n in names] for names in (("who", "sex"), ("who", "date"))]
    resources = [
        {"name": "persons", "schema": {"fields": fields[0], "primaryKey": ["who"]}},
        {"name": "visits", "schema": {"fields": fields[1]}},
    ]
    (tmp_path / "d.json").write_text(json.dumps({"resources": resources}))
    tables = pair({"who": [1], "sex": [1]}, {"who": [1], "date": DAY})
    assert read(draft_any(tables, tmp_path / "d.json").text)["persons"]["key"] == "who"


def test_the_command_writes_it_and_says_what_to_confirm(tmp_path: Path) -> None:
    save_tables(tmp_path, make_visits(20), {})
    out = tmp_path / "spec.yaml"
    given = [str(tmp_path / f"{name}.parquet") for name in ("persons", "visits")]
    done = run_command("spec", "draft", *given, "-o", str(out))
    assert done.exit_code == 0, done.output
    assert "Confirm what was guessed from names and types: unit, tables.persons.key" in " ".join(done.output.split())
    out.write_text(fill_tables(out.read_text()).replace("values: [a]", "values: [a, b]"))
    assert run_command("spec", "check", str(out)).exit_code == 0
    named = run_command("spec", "draft", f"a={given[0]}", f"b={given[1]}", "-o", str(tmp_path / "named.yaml"))
    assert named.exit_code == 0 and list(read((tmp_path / "named.yaml").read_text())) == ["a", "b"]
    twice = run_command("spec", "draft", given[0], given[0], "-o", str(tmp_path / "twice.yaml"))
    assert twice.exit_code == 2 and "Name them: NAME=PATH" in twice.output
    unclear = run_command("spec", "draft", *given, "--key", "nobody", "-o", str(tmp_path / "unclear.yaml"))
    assert unclear.exit_code == 2 and "--key: is not a column of both tables" in " ".join(unclear.output.split())
    assert not (tmp_path / "unclear.yaml").exists()


def test_a_draft_in_python_says_what_is_guessed() -> None:
    drafted = privsyn.draft_spec(make_visits(20), dataset="people")
    assert "tables.visits.order" in drafted.guesses and "guessed, to be confirmed: unit" in repr(drafted)
    assert drafted.to_yaml().startswith(f"# {CONFIRM}, guessed from names and types: unit, tables.persons.key")
    assert privsyn.draft_spec(make_visits(20)["persons"]).guesses == ()
    for wrong in ({"a": pa.table({"x": [1]})}, {"a b": pa.table({"x": [1]}), "c": pa.table({"x": [1]})}):
        with pytest.raises(RequestError) as caught:
            privsyn.draft_spec(wrong)
        assert caught.value.field == "draft_spec.data"


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("a/visits.parquet", "visits"),
        ("a/2020-visits.csv.gz", "t_2020_visits"),
        ("postgresql://db.example.org/main?table=drugs", "drugs"),
        ("s3://bucket/parts/", "parts"),
        ("x" * 90, "x" * 48),
    ],
)
def test_names_of_tables_are_made_of_their_places(place: str, name: str) -> None:
    assert make_table_name(place) == name


def test_further_tables_are_of_the_one_before_whose_key_they_have() -> None:
    made = draft_any(name_key(make_tree(20), "drugs", "drug", "drug_id"))
    tables = read(made.text)
    assert {name: table.get("of") for name, table in tables.items()} == {
        "persons": None,
        "visits": "persons",
        "drugs": "visits",
        "buys": "persons",
    }
    assert (tables["drugs"]["key"], tables["drugs"]["order"], tables["buys"]["order"]) == ("drug_id", "day", "week")
    assert set(parse_spec(fill_tables(made.text)).table_pairs) == {"visits", "drugs", "buys"}
    alone = {**make_tree(5), "sites": pa.table({"site": [1]})}
    with pytest.raises(RequestError, match="sites has no key of a table before it"):
        draft_any(alone)


def test_households_have_roles_and_their_own_promise() -> None:
    made = draft_any(make_members(20))
    assert parse_yaml(made.text, "the draft").content["unit"] == {"household_id": "hid"}
    members = read(made.text)["members"]
    assert (members["key"], members["order"], members["max"]) == ("pid", "role", 8)
    assert parse_spec(fill_tables(made.text)).unit.household_id == "hid"
