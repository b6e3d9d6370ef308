"""The field `compare` of the spec: what is refused and how."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from tests.support.specs import make_spec

AMOUNT = {"kind": "integer", "min": 0, "max": 1000}
COLUMNS: dict[str, Any] = {
    "wages": AMOUNT,
    "income": AMOUNT,
    "share": {"kind": "number", "min": 0, "max": 1},
    "day": {"kind": "date", "min": "2020-01-01", "max": "2021-01-01"},
    "sex": {"kind": "categorical", "values": ["f", "m"]},
}


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([["wages"]], "must name two different columns"),
        ([["wages", "wages"]], "must name two different columns"),
        ([["wages", "salary"]], "measures no column 'salary'"),
        ([["wages", "sex"]], "no order: it is 'categorical'"),
        ([["wages", "day"]], "'wages' is 'integer' and 'day' is 'date'"),
        ([["wages", "share"]], "have different steps"),
        ([["wages", "income"], ["income", "wages"]], "a second time"),
    ],
)
def test_pairs_without_a_difference_are_refused(pairs: list[list[str]], words: str) -> None:
    with pytest.raises((ValidationError, RequestError), match=words):
        make_spec(COLUMNS, compare=pairs)


def test_a_column_of_the_attributes_name_is_refused() -> None:
    with pytest.raises((ValidationError, RequestError), match="the name that the comparison needs"):
        make_spec({**COLUMNS, "wages minus income": AMOUNT}, compare=[["wages", "income"]])


def test_units_that_differ_are_refused() -> None:
    columns = {**COLUMNS, "wages": {**AMOUNT, "unit": "EUR"}, "income": {**AMOUNT, "unit": "USD"}}
    with pytest.raises((ValidationError, RequestError), match="is in 'EUR' and 'income' in 'USD'"):
        make_spec(columns, compare=[["wages", "income"]])


def test_a_computed_column_is_refused() -> None:
    rules = [{"derive": {"income": "wages"}}]
    with pytest.raises((ValidationError, RequestError), match="made from others by a rule"):
        make_spec(COLUMNS, rules=rules, compare=[["wages", "income"]])
