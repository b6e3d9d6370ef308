"""Rules that a draft proposes: from a dictionary's words, never from rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.specs.dictionaries import Facts, propose_rules
from privsyn.specs.draft import draft as draft_text
from privsyn.specs.yaml_file import parse_yaml
from tests.support.places import ROOT

AGE = Facts(kind="integer", min=0, max=99)


@pytest.mark.parametrize(
    ("facts", "rules"),
    [
        (
            Facts(kind="number", universe="age >= 15", nullable=True),
            ["not (age >= 15) and `x` is not null"],
        ),
        (
            Facts(kind="integer", universe="Persons 15 years and over", nullable=True),
            ["not (`age` >= 15) and `x` is not null"],
        ),
        (
            Facts(kind="categorical", universe="Persons 16+", values=["0", "1"], labels=["Not in universe", "Yes"]),
            ["not (`age` >= 16) and `x` != '0'", "(`age` >= 16) and `x` == '0'"],
        ),
        (
            Facts(kind="categorical", universe="N/A (less than 3 years old)", values=[1, 2], nullable=True),
            ["not (`age` >= 3) and `x` is not null"],
        ),
        (Facts(kind="integer", universe="Persons in households", nullable=True), []),
        (Facts(kind="integer", universe="age >= 15"), []),
        (Facts(kind="integer", universe="salary > 3", nullable=True), []),
        (Facts(kind="integer", nullable=True), []),
    ],
)
def test_a_universe_proposes_what_holds_outside_it(facts: Facts, rules: list[str]) -> None:
    assert [p.never for p in propose_rules({"age": AGE, "x": facts})] == rules


def test_words_on_an_age_need_one_column_that_is_it() -> None:
    asked = Facts(kind="integer", universe="Persons 15+", nullable=True)
    assert propose_rules({"x": asked}) == []
    assert propose_rules({"age": AGE, "a_age": AGE, "x": asked}) == []


def draft(folder: Path, name: str, text: str, table: pa.Table) -> dict[str, Any]:
    (folder / name).write_text(text)
    return dict(parse_yaml(draft_text(table, folder / name, "people"), "draft").content)


def test_checks_of_sql_over_several_columns_are_rules(tmp_path: Path) -> None:
    schema = """
    CREATE TABLE trips (
        arrival INTEGER CHECK (arrival BETWEEN 0 AND 99), departure INTEGER CHECK (departure BETWEEN 0 AND 99),
        kind VARCHAR(9) CHECK (kind IN ('bus', 'train')), fare INTEGER CHECK (fare >= 0 AND fare <= 9),
        CHECK (arrival >= departure), CHECK (kind <> 'bus' OR fare IS NULL OR fare < 3), CHECK (length(kind) < fare)
    );
    """
    table = pa.table({"arrival": [1], "departure": [1], "kind": ["bus"], "fare": [1]})
    content = draft(tmp_path, "trips.sql", schema, table)
    assert content["rules"] == [
        {"never": "not (`arrival` >= `departure`)"},
        {"never": "not (`kind` != 'bus' or `fare` is null or `fare` < 3)"},
    ]


def test_a_codebook_with_universes_drafts_rules_with_its_words(tmp_path: Path) -> None:
    book = "name,type,min,max,universe\nage,integer,0,99,\nwage,integer,0,5000,Persons 16 and over\n"
    (tmp_path / "book.csv").write_text(book)
    text = draft_text(pa.table({"age": [1], "wage": [1]}), tmp_path / "book.csv", "people")
    assert "# the dictionary says of wage: Persons 16 and over" in text
    assert parse_yaml(text, "draft").content["rules"] == [{"never": "not (`age` >= 16) and `wage` is not null"}]


@pytest.mark.skipif(not (ROOT.parent / "shared" / "data" / "national2019.json").is_file(), reason="no shared data")
def test_the_excerpts_dictionary_proposes_its_skip_patterns() -> None:
    folder = ROOT.parent / "shared" / "data"
    text = draft_text(folder / "national2019.parquet", folder / "national2019.json")
    rules = [rule["never"] for rule in parse_yaml(text, "draft").content["rules"]]
    assert "not (`AGEP` >= 15) and `MSP` is not null" in rules
