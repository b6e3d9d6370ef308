"""Misread columns and a newcomer's file: what a check, a report and a draft say of them, and which cures they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.answers.questions import answer
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import Evaluation, EvaluationSpec
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.evaluation.report.page import explain_column, write_verdict
from privsyn.publish.folder import count_repairs
from privsyn.specs.draft import draft, list_open_fields
from privsyn.specs.messages import group_todos
from privsyn.specs.spec_file import parse_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.commands import privsyn as command
from tests.support.evaluations import SLIGHT
from tests.support.releases import QUICK, run
from tests.support.specs import make_spec

QUICKLY = EvaluationSpec.model_validate(SLIGHT)
ROWS = 600
COLUMNS: dict[str, Any] = {
    "seen": {"kind": "datetime", "min": "2015-01-01", "max": "2020-01-01", "bins": 10, "nullable": True},
    "state": {"kind": "categorical", "values": ["ny", "ma"]},
    "rest": {"kind": "categorical", "values": ["ny"], "unlisted": "other"},
    "age": {"kind": "integer", "min": 0, "max": 3},
}


def table(dates: str) -> pa.Table:
    days = [(1 + i % 12, 1 + i % 28, 2015 + i % 5) for i in range(ROWS)]
    return pa.table(
        {
            "seen": [dates.format(m=m, d=d, y=y) for m, d, y in days],
            "state": [("ny", "ma", "other", "Ny")[i % 4] for i in range(ROWS)],
            "rest": [("ny", "ma")[i % 2] for i in range(ROWS)],
            "age": [i % 4 for i in range(ROWS)],
        }
    )


def evaluation(places: Path, dates: str = "{m:02}/{d:02}/{y}", **how: Any) -> Evaluation:
    path = places / "people.csv"
    pc.write_csv(table(dates), path)
    summary = run(make_spec(COLUMNS, data=str(path), privacy={"epsilon": 9.0, "delta": 1e-9}, **QUICK, **how))
    counts = count_repairs(Path(summary.private))
    assert counts.rows == ROWS and counts.counts["rest", "unlisted"] == ROWS // 2
    return evaluate(AskedEvaluation(summary.run, spec=QUICKLY, against=[str(path)]), Settings()).evaluation


def test_errors_are_against_what_the_values_meant(places: Path) -> None:
    found = evaluation(places)
    columns = {o.column: o for o in found.one_ways}
    assert columns["seen"].l1 == pytest.approx(2.0), "no date is where it was, though both tables are all null"
    assert columns["seen"].real[-1] == 1.0 and columns["seen"].labels[-1] == "(misread)"
    assert 0.4 < columns["state"].l1 < 0.8, "a quarter is misread; a real `other` is what a release writes, too"
    assert columns["rest"].l1 < 0.1 and not columns["rest"].misread, "the spec says where the rest goes"
    assert {name: explain_column(o) for name, o in columns.items()}["seen"] == "misread"
    assert {m.column: m.counted for m in found.misread} == {"seen": True, "state": True, "rest": False}
    assert found.misread[0].cures[0] == 'Dates have the month first: write `format: "%m/%d/%Y"`.'
    assert write_verdict(found).startswith("The real table is misread in seen, state, so these columns")
    pairs = {(p.a, p.b): p.cause for p in found.pairs}
    assert pairs["seen", "age"] == pairs["state", "age"] == "misread" and pairs["rest", "age"] != "misread"
    itself = {m.name: m.value for m in found.scores[1].metrics}
    assert itself["l1_1way"] == itself["l1_2way"] == 0.0


@pytest.mark.slow
def test_columns_that_are_read_say_nothing(places: Path) -> None:
    found = evaluation(places, "{y}-{m:02}-{d:02}")
    assert sorted(m.column for m in found.misread) == ["rest", "state"]
    assert {o.column for o in found.one_ways if o.misread} == {"state"}
    assert {o.column: o for o in found.one_ways}["seen"].l1 < 0.6


@pytest.mark.slow
def test_records_that_cannot_be_read_are_named_too(places: Path) -> None:
    path = places / "people.csv"
    pc.write_csv(table("{y}-{m:02}-{d:02}"), path)
    with path.open("a", encoding="utf-8") as file:
        file.write("one,too,many,fields,here\n" * ROWS)
    summary = run(make_spec(COLUMNS, data=str(path), **QUICK))
    report = evaluate(AskedEvaluation(summary.run, spec=QUICKLY), Settings())
    records = report.evaluation.misread[0]
    assert (records.column, records.words) == ("", "of all records 50.0% cannot be read.")
    assert "Whole records" in report.html.read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_person_counts_as_the_release_keeps_it(places: Path) -> None:
    """The same rows are kept of each person whether a column is misread or not."""
    path = places / "people.parquet"
    rows = table("{m}/{d}/{y}").append_column("pid", pa.array([i // 3 for i in range(ROWS)]))
    pq.write_table(rows, path)
    unit = {"person_id": "pid", "max_records": 1}
    summary = run(make_spec({**COLUMNS, "pid": {"kind": "drop"}}, data=str(path), unit=unit, **QUICK))
    report = evaluate(AskedEvaluation(summary.run, spec=QUICKLY), Settings())
    assert report.evaluation.rows_real == ROWS // 3
    assert report.evaluation.misread[0].repairs == {"unparseable": 1.0}
    content = json.loads(report.figures.read_text(encoding="utf-8"))
    assert content["misread"][0]["column"] == "seen"


@pytest.mark.slow
def test_a_hierarchy_of_a_misread_column_still_works(places: Path) -> None:
    """Its labels are the spec's: such a column is named, and compared as the release has it."""
    path = places / "people.csv"
    pc.write_csv(table("{y}-{m:02}-{d:02}"), path)
    summary = run(make_spec(COLUMNS, data=str(path), **QUICK))
    tree = {"mgd": {"hierarchies": {"state": {"east": ["ny", "ma"], "else": ["other"]}}}}
    settings = EvaluationSpec.model_validate({**SLIGHT, **tree})
    found = evaluate(AskedEvaluation(summary.run, spec=settings), Settings()).evaluation
    assert {m.column: m.counted for m in found.misread}["state"] is False
    assert {o.column: o.misread for o in found.one_ways}["state"] is False


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
