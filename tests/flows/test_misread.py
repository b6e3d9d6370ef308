"""A misread column is heard of: by its terminal line, its report, and errors against what the values meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import Evaluation, EvaluationSpec
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.evaluation.report.page import explain_column, write_verdict
from privsyn.publish.folder import count_repairs
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
