"""A text that a rule compares a column with is one of the column's values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.ruled import ruled_spec


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
