"""Closed forms of the best mechanism for marginals: what follows by hand."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from benchmarks.residual_bases import compute_ratio, cut_at_zero, list_workloads, measure_residuals, price_sets


def test_the_table_of_one_set_is_the_best_measurement_of_it() -> None:
    assert compute_ratio([4, 8, 16], [(0, 1, 2)], 0.0) == pytest.approx(1)


@pytest.mark.parametrize("name", list_workloads())
def test_nothing_is_better_than_the_best(name: str) -> None:
    assert 1 - 1e-9 <= compute_ratio(*list_workloads()[name], 0.0) < compute_ratio(*list_workloads()[name], 0.25)


def test_residuals_have_the_least_sum_of_variances_and_agree() -> None:
    sets, levels = [(0, 1), (0, 2), (1, 2)], [3, 4, 2]
    exact = {b: np.full((levels[b[0]], levels[b[1]]), 10**6) for b in sets}  # far from 0: nothing is cut
    squares = []
    for seed in range(400):
        told = measure_residuals(exact, 0.5, np.random.default_rng(seed))
        noise = {b: told[b] - exact[b] for b in sets}
        assert noise[0, 1].sum(axis=1) == pytest.approx(noise[0, 2].sum(axis=1))
        squares.append(sum(float(((told[b] - exact[b]) ** 2).sum()) for b in sets))
    least = sum(sqrt(weight * price) for price, weight in price_sets(levels, sets).values()) ** 2
    assert np.mean(squares) == pytest.approx(least, rel=0.08)


def test_a_table_is_cut_at_zero_and_keeps_its_sum() -> None:
    assert cut_at_zero(np.array([[5.0, -1.0], [2.0, 0.0]])) == pytest.approx(np.array([[4.5, 0], [1.5, 0]]))
    assert (cut_at_zero(np.array([[-1.0, 0.5]])) == 0).all()


def test_one_ways_beside_two_single_columns_change_nothing() -> None:
    assert compute_ratio([2, 5], [(0,), (1,)], 0.25) == pytest.approx(compute_ratio([2, 5], [(0,), (1,)], 0.0))
