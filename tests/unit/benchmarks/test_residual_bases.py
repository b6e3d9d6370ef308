"""Closed forms of the best mechanism for marginals: what follows by hand."""

from __future__ import annotations

import pytest

from benchmarks.residual_bases import compute_ratio, list_workloads


def test_the_table_of_one_set_is_the_best_measurement_of_it() -> None:
    assert compute_ratio([4, 8, 16], [(0, 1, 2)], 0.0) == pytest.approx(1)


def test_one_ways_beside_two_single_columns_change_nothing() -> None:
    assert compute_ratio([2, 5], [(0,), (1,)], 0.25) == pytest.approx(compute_ratio([2, 5], [(0,), (1,)], 0.0))


@pytest.mark.parametrize("name", list_workloads())
def test_nothing_is_better_than_the_best(name: str) -> None:
    assert 1 - 1e-9 <= compute_ratio(*list_workloads()[name], 0.0) < compute_ratio(*list_workloads()[name], 0.25)
