"""The parity of columns comes through a release where the set is named, or its label is in focus."""

from __future__ import annotations

import pytest

from benchmarks.named_sets import ROWS, list_cases, make_parity, make_rows, score_trees, write_parity_spec


@pytest.mark.parametrize(
    ("numbers", "case", "least"),
    [
        (2, "focus", 0.99),
        (3, "named", 0.95),
        pytest.param(2, "named", 0.99, marks=pytest.mark.slow),
        pytest.param(2, "named, aim", 0.99, marks=pytest.mark.slow),
    ],
)
def test_trees_trained_on_the_rows_tell_the_parity(numbers: int, case: str, least: float) -> None:
    real, table = make_parity(numbers, ROWS, 1_000), make_parity(numbers, ROWS, 1)
    made = make_rows(write_parity_spec(numbers, 1.0, list_cases(numbers)[case]), table, 1)
    assert score_trees(made, real) > least
