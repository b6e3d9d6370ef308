"""A CSV file as newcomers have them: dates written in two ways, days as numbers, codes with zeros, accents apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from unicodedata import normalize

import pytest

import privsyn
from privsyn.answers.questions import answer
from privsyn.specs.draft import draft, list_open_fields
from privsyn.specs.messages import group_todos
from privsyn.specs.spec_file import parse_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.commands import privsyn as command

PLACE = normalize("NFC", "R\u00e9sidence")
APART = normalize("NFD", PLACE)
SPEC = f"""
dataset: stays
unit: {{records_per_person: 1}}
privacy: {{epsilon: 1, delta: 1.0e-9}}
budget: {{epsilon: 10, delta: 1.0e-8}}
mechanism: {{name: independent}}
columns:
  {PLACE}: {{kind: categorical, values: [Bern, Basel], nullable: false}}
  born: {{kind: date, min: 1900-01-01, max: 2026-01-01, nullable: false}}
  left: {{kind: date, format: "%Y%m%d", min: 2024-01-01, max: 2026-01-01, nullable: false}}
  canton: {{kind: integer, min: 1, max: 26, nullable: false}}
  "weight, kg": {{kind: number, min: 0, max: 300, decimals: 1, nullable: false}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        f"{'Bern' if i % 3 else 'Basel'},{f'{i % 27 + 1:02}.05.2017' if i % 2 else f'2021-01-{i % 27 + 1:02}'},"
        f"{45_300 + i % 300},{i % 26 + 1:02},{40 + i % 50}.5"
        for i in range(600)
    ]
    path = tmp_path / "Stays 2024.csv"
    path.write_text("\n".join((f'{APART},born,left,canton,"weight, kg"', *rows)) + "\n", encoding="utf-8")
    return path


def test_a_draft_spells_names_in_one_way_and_its_list_of_todos_can_be_read(file: Path) -> None:
    text = draft(file)
    assert list(parse_yaml(text, "draft").content["columns"]) == [PLACE, "born", "left", "canton", "weight, kg"]
    assert f"{PLACE}, born, left, canton, `weight, kg`" in " ".join(group_todos(list_open_fields(text)))
    codebook = file.with_name("codebook.csv")
    codebook.write_text(f"name,type,description\n{APART},categorical,where they live\n", encoding="utf-8")
    assert parse_yaml(draft(file, codebook), "draft").content["columns"][PLACE]["description"] == "where they live"


def test_the_cures_name_what_is_wrong_whichever_format_is_written(file: Path) -> None:
    for written, spec in (("no format", SPEC), ("days first", SPEC.replace("born: {", 'born: {format: "%d.%m.%Y", '))):
        fit = privsyn.check_spec(parse_spec(spec), file).fit
        assert fit is not None
        cures = {column.column: " ".join(column.cures) for column in fit.columns}
        assert "more than one way" in cures["born"] and "write `format" not in cures["born"], written
        assert "stored as numbers" in cures["left"] and "zeros in front" in cures["canton"]
        assert cures[PLACE] == cures["weight, kg"] == ""


def test_dates_in_one_other_way_get_their_format(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join(line for line in lines if "2021-01" not in line) + "\n", encoding="utf-8")
    fit = privsyn.check_spec(parse_spec(SPEC), file).fit
    assert fit is not None and 'write `format: "%d.%m.%Y"`' in " ".join(fit.columns[1].cures)


def test_a_question_may_spell_a_name_in_either_way_and_a_mean_of_dates_is_a_date(file: Path, places: Path) -> None:
    days = "{kind: integer, min: 45000, max: 46000"
    spec = SPEC.replace('{kind: date, format: "%Y%m%d", min: 2024-01-01, max: 2026-01-01', days)
    released = privsyn.release(file, parse_spec(spec), out=places / "out")
    for question in ("{}", "share({})", "mean(canton) by {}", "canton where {} == 'Bern'"):
        first, second = (answer(released, question.format(name)) for name in (PLACE, APART))
        assert first.equals(second)
    shown = command("query", released.folder, "mean(born)")
    assert re.search(r"\b(19|20)\d\d-\d\d-\d\d .* days +(19|20)\d\d-", shown.stdout), shown.output
    assert "seconds since" not in shown.output
    figures = json.loads(command("query", released.folder, "mean(born)", "--json").stdout)
    assert -2.3e9 < figures["answers"][0]["estimate"] < 1.8e9 and "seconds since" in " ".join(figures["words"])
