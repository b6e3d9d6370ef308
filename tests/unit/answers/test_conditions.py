"""Conditions: what they hold for, what nulls do, and that nothing but the listed forms is taken."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from privsyn.answers.conditions import Language, read_condition
from privsyn.base.errors import RequestError
from privsyn.tasks.rules.compiled_rules import CompiledRules

VALUES = {
    "age": pa.array([17, 18, 65, None]),
    "region": pa.array(["north", "south", None, "east"]),
    "happy": pa.array([True, False, None, True]),
    "seen": pa.array([dt.datetime(2020, 1, d) for d in (1, 2, 3, 4)], pa.timestamp("us")),
    "the day": pa.array([dt.date(2020, 1, d) for d in (1, 2, 3, 4)]),
    "hours-per-week": pa.array([1.5, 2.5, 3.5, 4.5]),
}

LANGUAGE = Language(
    {
        "age": "number",
        "region": "text",
        "happy": "truth",
        "seen": "moment",
        "the day": "moment",
        "hours-per-week": "number",
    },
    CompiledRules({}),
    {},
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("age >= 18", [1, 2]),
        ("18 <= age < 65", [1]),
        ("65 > age", [0, 1]),
        ("age != 17", [1, 2]),
        ("not age != 17", [0]),
        ("age is None", [3]),
        ("age is null or region is None", [2, 3]),
        ("age is not None and happy", [0]),
        ('region in ["north", "east"]', [0, 3]),
        ('region not in ("north",)', [1, 3]),
        ('region == "south" or not (happy or age > 20)', [1]),
        ("seen >= '2020-01-03'", [2, 3]),
        ("`the day` == '2020-01-02'", [1]),
        ("`hours-per-week` > 2 and `hours-per-week` < 4.0", [1, 2]),
        ("region == 'a `b` c'", []),
        ("age > -5", [0, 1, 2]),
        ("age - 10 * `hours-per-week` > 2", [2]),
        ("happy == 1", [0, 3]),
        ("year(seen) == 2020 and day(`the day`) > 3", [3]),
    ],
)
def test_a_condition_holds_for_these_rows(text: str, rows: list[int]) -> None:
    held = read_condition(text, LANGUAGE).holds(VALUES)
    assert [i for i in range(4) if held[i]] == rows


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__import__('os').system('x')",
        "1 < 2",
        "age > 1; age",
        "region == f'{age}'",
        "nobody > 3",
        "(" * 2_000 + "happy" + ")" * 2_000,
        "happy and " * 3_000 + "happy",
    ],
)
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(RequestError) as error:
        read_condition(text, LANGUAGE).holds(VALUES)
    assert error.value.exit_code == 2 and "\n" not in str(error.value)


def test_parts_have_columns_of_their_own_and_hold_together() -> None:
    whole = read_condition('age > 1 and (happy or region == "north") and age < 66 and happy', LANGUAGE)
    parts = whole.parts()
    assert sorted(sorted(p.columns) for p in parts) == [["age"], ["happy", "region"]]
    assert (whole.holds(VALUES) == (parts[0].holds(VALUES) & parts[1].holds(VALUES))).all()
