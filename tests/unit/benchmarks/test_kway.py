"""Marginals of sets: solvers keep what is known, and closed forms of the best mechanism follow by hand."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from benchmarks.kway import SOLVERS, constraints, maximum_entropy
from benchmarks.residual_bases import compute_ratio, cut_at_zero, list_workloads, measure_residuals, price_sets
from privsyn.data_contracts.domain import Domain

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))


def tables() -> dict[tuple[str, ...], np.ndarray]:
    """Counts of a, b, c in which a and c depend on each other by way of b only, summed over c, and over a."""
    rng = np.random.default_rng(3)
    of_b, a_given, c_given = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2), 3), rng.dirichlet(np.ones(2), 3)
    whole = np.einsum("b,ba,bc->abc", of_b, a_given, c_given) * 1_000
    return {("a", "b", "c"): whole, ("a", "b"): whole.sum(axis=2), ("b", "c"): whole.sum(axis=0)}


@pytest.mark.parametrize("name", SOLVERS)
def test_every_answer_fulfils_the_known_sums(name: str) -> None:
    known = {c: t for c, t in tables().items() if len(c) < 3}
    answer = SOLVERS[name](constraints(("a", "b", "c"), known, DOMAIN))
    assert answer.shape == (2, 3, 2) and answer.min() >= 0
    assert answer.sum(axis=2) * 1_000 == pytest.approx(known["a", "b"], abs=0.1)
    assert answer.sum(axis=0) * 1_000 == pytest.approx(known["b", "c"], abs=0.1)


def test_maximum_entropy_is_conditional_independence() -> None:
    found = tables()
    whole = found.pop(("a", "b", "c"))
    answer = maximum_entropy(constraints(("a", "b", "c"), found, DOMAIN))
    assert answer * 1_000 == pytest.approx(whole, abs=1e-3)


def test_only_the_largest_known_parts_are_asked() -> None:
    known = {("a",): np.array([1.0, 3.0]), ("a", "b"): np.ones((2, 3)), ("c",): np.array([2.0, 2.0])}
    given = constraints(("a", "b", "c"), known, DOMAIN)
    assert sorted(axes for axes, _ in given.parts) == [(0, 1), (2,)]
    matrix, right = given.system()
    assert matrix.shape == (8, 12) and matrix.sum() == 24
    assert right.sum() == pytest.approx(2.0)


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
