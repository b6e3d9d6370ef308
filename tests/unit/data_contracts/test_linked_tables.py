"""Specs of several tables: the table pairs that they are made of, and what each is refused for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.linked_tables import make_tables_spec, make_tree_content

TARGETS: dict[str, Any] = {
    "focus": {"columns": ["dose"], "scores": False},
    "workload": [
        {"columns": ["dose", "job"]},
        {"columns": ["day", "dose"], "measured": False},
        {"question": "share(ever(dose == 2)) by job"},
    ],
}


@pytest.mark.parametrize("targets", [{}, TARGETS], ids=["plain", "with targets"])
def test_a_tree_is_read_again_as_it_is_written(targets: dict[str, Any]) -> None:
    spec = make_tables_spec(make_tree_content(**targets))
    assert ReleaseSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert ReleaseSpec.model_validate(spec.public()).public() == spec.public()
    sorted_names = json.loads(json.dumps(spec.public(), sort_keys=True))  # as a private note or PostgreSQL keeps it
    assert ReleaseSpec.model_validate(sorted_names).public() == spec.public()


def test_a_branch_is_a_spec_of_two_tables() -> None:
    table_pairs = make_tables_spec(make_tree_content()).table_pairs
    panels = {name: pair_spec.panel for name, pair_spec in table_pairs.items()}
    assert [*table_pairs] == ["visits", "drugs", "buys"]
    assert {name: panel and panel.person for name, panel in panels.items()} == {
        "visits": "pid",
        "drugs": "visit",
        "buys": "pid",
    }
    assert panels["drugs"] is not None
    assert panels["drugs"].constant == ("sex", "year", "age", "income", "job")


def test_questions_may_name_the_table_before_a_column() -> None:
    asked = [{"question": "count persons where any(visits.job == 'none')"}, {"question": "job, persons.sex"}]
    spec = make_tables_spec(make_tree_content(workload=[{"question": "drugs.dose, visits.job"}]), workload=asked)
    assert [m.columns for m in spec.workload] == [("ever(job == 'none')",), ("job", "sex")]
    assert spec.tables["drugs"].workload[0].columns == ("dose", "job")


def test_a_question_of_one_table_names_no_column_of_another_that_is_called_the_same() -> None:
    week = {"week": {"kind": "integer", "min": 1, "max": 52}}
    content = make_tree_content(workload=[{"question": "share(buys.week == 3) by visits.job"}])
    content["drugs"]["columns"] |= week
    words = "names a column of buys, and is about drugs and visits and persons. Write it in `tables.buys.workload`"
    with pytest.raises(ValidationError, match=words):
        make_tables_spec(content)
    content = make_tree_content()
    content["buys"]["columns"]["job"] = content["visits"]["columns"]["job"]
    with pytest.raises(ValidationError, match="names a column of buys, and is about visits and persons"):
        make_tables_spec(content, workload=[{"question": "buys.job, sex"}])


@pytest.mark.parametrize("table", ["visits", "drugs"])
def test_no_column_has_the_name_of_the_order_of_rows_in_none(table: str) -> None:
    content = make_tree_content()
    content[table]["columns"][f"{table} (in no order)"] = {"kind": "integer", "min": 0, "max": 9}
    with pytest.raises(ValidationError, match=r"a name reserved for rows without an order\. Rename the column"):
        make_tables_spec(content)


def test_a_further_table_may_have_no_order() -> None:
    spec = make_tables_spec(change("drugs", order=None))
    assert ReleaseSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert ReleaseSpec.model_validate(spec.public()) == ReleaseSpec.model_validate(spec.public())
    panel = spec.table_pairs["drugs"].panel
    assert panel is not None and panel.order == "drugs (in no order)"
    assert spec.table_pairs["buys"].panel == make_tables_spec(make_tree_content()).table_pairs["buys"].panel


def change(name: str, **changes: Any) -> dict[str, Any]:
    """The tables of a tree, with fields of one replaced, or without those that are None."""
    content = make_tree_content()
    table = {**content.get(name, {}), **changes}
    return {**content, name: {field: value for field, value in table.items() if value is not None}}


DEEP = {"of": "drugs", "order": "n", "max": 2, "columns": {"n": {"kind": "integer", "min": 0, "max": 9}}}
AGAIN = {"job": {"kind": "boolean"}, "day": {"kind": "integer", "min": 0, "max": 30}}

NEVER_ABOVE = [{"never": "age > 30 and job == 'none'"}]
LOOKED_UP = {"lookup": {"from": "day", "to": "dose", "table": "doses.csv"}}


OF_FURTHER_TABLES: list[tuple[dict[str, Any], str]] = [
    ({"rules": [{"never": "dose == 2 and day < 3"}]}, "Write it in `tables.drugs.rules`"),
    ({"rules": [{"never": "count(drugs.dose == 2) > 1"}]}, "names 'dose', a column of drugs"),
    ({"rules": [{"derive": {"dose": "day - 1"}}]}, "names 'dose', a column of drugs"),
    ({"focus": {"columns": ["online"]}}, "names 'online', a column of buys, but is about the first two tables"),
    ({"workload": [{"columns": ["dose", "day"]}]}, "Write it in `tables.drugs.workload`"),
    ({"workload": [{"question": "count persons where ever(dose == 2)"}]}, "names 'dose', a column of drugs"),
    ({"rules": [{"never": "drugs.doze == 2"}]}, "'doze', which is not a released column of drugs"),
    ({"with_order": ["age"]}, "is also given in visits"),
]
"""Fields that are about the first two tables, and name a further one."""


NO_TREES = [
    (change("drugs", of="drugs"), "'drugs' is below itself"),
    (change("visits", of="drugs"), "'visits' is below itself"),
    (change("drugs", of="visit"), "names 'visit', which is not a table of the spec"),
    (change("buys", of=None), "persons and buys have no `of`, but only one table"),
    (change("doses", **DEEP), "'doses' lies below 3 tables, drugs and visits and persons, but 2 is"),
    (change("visits", key=None), "visits has no key, but drugs is `of` it"),
    (
        change("drugs", key="visit"),
        "is 'visit', which identifies the row above, so several rows of drugs",
    ),
    (change("visits", key="pid"), "is 'pid', which identifies the row above, so several rows of visits"),
    (change("drugs", max=None), "the most rows to keep per row of visits is missing"),
    (change("drugs", max=1), "greater than or equal to 2"),
    (change("visits", max=100_000), "is 100000, but rows are linked to each other"),
    (change("visits", max="3"), "is '3', but rows are linked to each other"),
    (change("drugs", order=None, with_order=["day"]), "the order of the rows of drugs is missing"),
    (change("drugs", order="dosage"), "names 'dosage', which is not a column of drugs"),
    (change("drugs", once=["a"]), "is about the roles in a household"),
    (change("drugs", columns=["day"]), "has no columns of its own"),
    (change("drugs", columns=AGAIN), "'job' is a column of visits and of drugs"),
    (change("drugs", rules=NEVER_ABOVE), "names no column of drugs, but rows above are made first"),
    (change("drugs", rules=[{"derive": {"age": "dose + 1"}}]), "makes 'age', which is not a column of drugs"),
    (change("drugs", rules=[{"never": "dose == 2 and buys.online == 1"}]), "Write one of previous, next, first"),
    (change("drugs", rules=[{"never": "dose == 'high'"}]), "dose"),
    (change("drugs", rules=[LOOKED_UP]), "names a file"),
    (change("visits", rules=NEVER_ABOVE), "is for further tables only; for the first two tables it is a field"),
    (change("visits", workload=[{"columns": ["age", "job"]}]), "Write it in `workload` of the spec"),
    (change("drugs", focus={"columns": ["sex"]}), "names no column of drugs"),
    (change("drugs", workload=[{"columns": ["sex", "job"]}]), "Add a column of drugs, or write it in `workload`"),
    (change("drugs", workload=[{"columns": ["dose", "week"]}]), "the spec releases no column 'week'"),
    (change("drugs", workload=[{"question": "share(ever(dose == 2)) by day"}]), "Group by columns that are const"),
]


@pytest.mark.parametrize(
    ("content", "fields", "words"),
    [
        *((make_tree_content(), *case) for case in OF_FURTHER_TABLES),
        *((content, {}, words) for content, words in NO_TREES),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_no_tree_is_refused_in_one_sentence(
    content: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        make_tables_spec(content, **fields)
    assert words in str(caught.value)
