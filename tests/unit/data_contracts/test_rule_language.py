"""The language of rules: what it reads, what it refuses, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import (
    MAX_LENGTH,
    drop_table_names,
    find_names,
    parse_condition,
    parse_expression,
)
from tests.support.ruled import ruled_spec

TYPES = {
    "age": "number",
    "wage": "number",
    "name": "text",
    "born": "moment",
    "east": "truth",
    "hours-per-week": "number",
}


@pytest.mark.parametrize(
    "text",
    [
        "age < 15",
        "0 <= age < 15",
        "age < 15 and (wage is not null or name != 'never married')",
        "name in ['a', 'b'] or name not in ('c',)",
        "`hours-per-week` > 40",
        "name == 'a `quoted` and `b`'",
        "born < '2000-01-01' or born >= date('2001-02-03')",
        "born + 30 < '2000-01-01' and born - date('1999-01-01') > 3",
        "year(born) < 2000 and month(born) == 2 and day(born) == 30",
        "born > '08:30'",
        "east and not (east == 0)",
        "min(age, wage, 3) < floor(age / 2) % 3",
        "(1 if age < 3 else 2) == 1",
        "-age > -3",
        "age < 3\n  or age > 5",
    ],
)
def test_conditions_are_read(text: str) -> None:
    assert parse_condition(text, TYPES).type == "truth"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age <", "is not an expression"),
        ("`no such` < 3", "'no such', which is not a released column"),
        ("age", "is a number, not a condition"),
        ("age < 'x'", "compares a number with a text"),
        ("name < 'x'", "orders a text"),
        ("name + 1 < 3", "calculates (+) with a text"),
        ("wage == null", "never true"),
        ("age is wage", "works for null only"),
        ("age in 3", "no list of values"),
        ("age in []", "no list of values"),
        ("age in [wage]", "is not a value"),
        ("max(age) < 3", "two values or more"),
        ("abs(name) < 3", "`abs()` of a text"),
        ("year(age) < 3", "`year()` of a number"),
        ("born < 'yesterday'", "is not a date"),
        ("born < '2000-01-01T00:00:00+02:00'", "has a time zone"),
        ("age.real < 3", "`age.real` refers to nothing known here"),
        ("__import__('os').system('x') == 0", "has no meaning here"),
        ("age[0] < 3", "has no meaning here"),
        ("(lambda: 1)() < age", "has no meaning here"),
        ("[age for age in (1,)] == 1", "has no meaning here"),
        ("age ** 9 < 3", "has no meaning here"),
        ("eval('1') < age", "has no meaning here"),
        ("abs(age, key=3) < 3", "has no meaning here"),
        ("(age := 3) < 4", "has no meaning here"),
        ("age < 1e999", "too large"),
        ("age < b'x'", "is not a value"),
        ("age < " + "9" * 5000, "longer than"),
        ("(" * 900 + "age < 3" + ")" * 900, "is not an expression"),
        ("age and wage", "where a condition must stand"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(FieldError) as refused:
        parse_condition(text, TYPES)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_null_is_no_column_after_is() -> None:
    assert parse_condition("age is not null", {**TYPES, "null": "number"}).columns == ("age",)


def test_long_and_deep_texts_are_refused_in_words() -> None:
    deep = "-" * (MAX_LENGTH - 10) + "age < 3"
    for text in (deep, " or ".join(["age<3"] * 300)):
        with pytest.raises(FieldError):
            parse_condition(text, TYPES)  # type: ignore[arg-type]


def test_an_expression_says_its_columns() -> None:
    node = parse_expression("wage if east else age - `hours-per-week`", TYPES)  # type: ignore[arg-type]
    assert node.type == "number"
    assert node.columns == ("east", "wage", "age", "hours-per-week")


def test_a_name_after_a_point_is_the_column() -> None:
    text = "previous.age < age and count(`hours-per-week` > 3) > 1 and visits.wage > null and abs(born) > 1"
    assert sorted(find_names(text)) == ["age", "born", "hours-per-week", "wage"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("visits.type == 'visits.type'", "type == 'visits.type'"),
        ("visits . `days in` > 2 and `visits.x` < 1", "`days in` > 2 and `visits.x` < 1"),
        ("revisits.type, persons.sex, previous.type, 1.5", "revisits.type, sex, previous.type, 1.5"),
    ],
)
def test_names_of_tables_are_left_out(text: str, plain: str) -> None:
    assert drop_table_names(text, ["visits", "persons"]) == plain
    assert drop_table_names(text, []) == text


def test_a_column_in_quotation_marks_is_told_to_stand_in_backticks() -> None:
    for text in ('"hours-per-week" > 40', "40 < 'hours-per-week'"):
        with pytest.raises(FieldError) as caught:
            parse_condition(text, TYPES)  # type: ignore[arg-type]
        assert caught.value.cure == "Write the column in backticks, `hours-per-week`: quotation marks are for values"
    with pytest.raises(FieldError) as caught:
        parse_condition("hours < 3", TYPES)  # type: ignore[arg-type]
    assert "a name that is no plain word in backticks" in caught.value.cure
    assert parse_condition('name == "NY"', TYPES).columns == ("name",)  # type: ignore[arg-type]


def test_a_column_has_one_name_however_its_accents_are_spelled() -> None:
    node = parse_condition("`e\u0301ge` > 1", {"\u00e9ge": "number"})
    assert node.columns == ("\u00e9ge",)


@pytest.mark.parametrize(
    "rule",
    [
        {"never": "age < 15 and marital != 'nevermarried'"},
        {"never": "marital in ['married', 'Widowed'] and age < 15"},
        {"derive": {"educ": "10 if 'wed' == marital else 12"}},
    ],
)
def test_a_value_that_the_column_does_not_list_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="is not one of the values of 'marital'"):
        ruled_spec([rule])


def test_listed_values_and_other_are_read() -> None:
    ruled_spec([{"never": "age < 15 and (marital in ['married', 'other'] or marital == 'widowed')"}])
