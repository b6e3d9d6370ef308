"""Rows of a public table by groups: its workload, estimated distributions, and draws."""

from __future__ import annotations

from functools import partial
from math import log

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import apply_norm_sub
from privsyn.tasks.estimation.prior_levels import (
    UPPER_LEVEL_ROWS,
    NoisyLevel,
    PublicSupport,
    Workload,
    choose_independent_one_ways,
    choose_related_cliques,
    compute_mutual_information,
    estimate,
    iterate_group_shares,
    sum_information,
    update_distribution,
)
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.draw_rows import coarsen_rows, draw_rows, list_groups_with_rows, list_possible_rows
from tests.support.code_tables import write_rows

WIDE = Domain(("a", "b", "c", "d"), (4, 3, 2, 5))
KNOWN: dict[Clique, float] = {
    ("a", "b"): 0.6,
    ("a", "c"): 0.3,
    ("a", "d"): 0.0,
    ("b", "c"): 0.2,
    ("b", "d"): 0.01,
    ("c", "d"): 0.02,
}


def test_mutual_information_by_hand() -> None:
    assert sum_information(np.eye(4, dtype=np.int64) * 7) == pytest.approx(log(4))
    assert sum_information(np.outer([1, 2, 3], [4, 5])) == pytest.approx(0, abs=1e-12)
    assert sum_information(np.zeros((2, 2), np.int64)) == 0
    rows = np.repeat(np.arange(3, dtype=np.uint8), 5)
    table = CodeTable(Domain(("x", "y"), (3, 3)), (rows, rows))
    assert compute_mutual_information(table, ("x", "y"), 1) == pytest.approx({("x", "y"): log(3)})


@pytest.mark.parametrize(
    ("edge", "most_cells", "cliques"),
    [
        (0.1, 24, [("a", "b", "c"), ("d",)]),
        (0.1, 23, [("a", "b"), ("a", "c"), ("b", "c"), ("d",)]),
        (0.1, 11, [("a", "c"), ("b", "c"), ("d",)]),
        (0.25, 24, [("a", "b"), ("a", "c"), ("d",)]),
        (1.0, 24, [("a",), ("b",), ("c",), ("d",)]),
    ],
)
def test_cliques_hold_every_edge_that_has_few_cells(edge: float, most_cells: int, cliques: list[object]) -> None:
    assert choose_related_cliques(KNOWN, WIDE, most_cells, edge=edge) == cliques


def test_one_ways_are_nearly_independent_and_those_that_tell_most() -> None:
    assert choose_independent_one_ways(KNOWN, WIDE) == [("a",), ("d",)]
    assert choose_independent_one_ways(KNOWN, WIDE, limit=0.35) == [("a",), ("c",), ("d",)]


def solved(prior: np.ndarray, workload: Workload, answers: np.ndarray) -> np.ndarray:
    """Least relative entropy under the answers, by a convex solver."""
    matrix = np.zeros((workload.cells, prior.size))
    for i, cell in enumerate(workload.cell):
        matrix[cell, i] = 1

    def safe(q: np.ndarray) -> np.ndarray:
        return np.maximum(q, 1e-12)

    found = minimize(
        lambda q: float((q * np.log(safe(q) / prior)).sum()),
        np.full(prior.size, 1 / prior.size),
        jac=lambda q: np.log(safe(q) / prior) + 1,
        hess=lambda q: np.diag(1 / safe(q)),
        bounds=[(1e-9, 1)] * prior.size,
        constraints=[LinearConstraint(matrix, answers, answers)],
        method="trust-constr",
        options={"gtol": 1e-9, "xtol": 1e-11, "maxiter": 3_000},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("seed", range(3))
def test_an_update_is_the_distribution_of_least_relative_entropy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(7))
    workload = Workload(np.array([0, 1, 2, 0, 1, 2, 0]), 3)
    answers = rng.dirichlet(np.ones(3))
    found = update_distribution(prior, workload, answers)
    assert found.sum() == pytest.approx(1) and workload.answers(found) == pytest.approx(answers)
    assert found == pytest.approx(solved(prior, workload, answers), abs=2e-4)


@pytest.mark.parametrize(
    ("noisy", "nearest"),
    [([0.7, 0.6, -0.1], [0.55, 0.45, 0.0]), ([0.2, 0.3, -0.2], [13 / 30, 16 / 30, 1 / 30])],
)
def test_answers_are_the_nearest_that_a_distribution_can_have(noisy: list[float], nearest: list[float]) -> None:
    found = apply_norm_sub(np.array(noisy), 1.0)
    assert found == pytest.approx(nearest)
    rng, distance = np.random.default_rng(0), np.abs(found - noisy).sum()
    for other in rng.dirichlet(np.ones(3), 2_000):
        assert np.abs(other - noisy).sum() >= distance - 1e-12


def test_many_updates_answer_all_marginals_and_stay_in_the_support() -> None:
    rng = np.random.default_rng(1)
    values = np.array([(a, b, c) for a in range(3) for b in range(4) for c in range(2) if (a + b + c) % 5])
    table = CodeTable(Domain(("a", "b", "c"), (3, 4, 2)), tuple(np.ascontiguousarray(v, np.uint8) for v in values.T))
    true, prior = rng.dirichlet(np.ones(len(values)), 2)
    workloads = [Workload.marginal(table, clique) for clique in (("a", "b"), ("b", "c"), ("a",))]
    answers = [w.answers(true) for w in workloads]
    found = estimate(prior, workloads, answers, 300, seed=0)
    for workload, answer in zip(workloads, answers, strict=True):
        assert workload.answers(found) == pytest.approx(answer, abs=1e-6)
    assert found.shape == prior.shape and found == pytest.approx(estimate(prior, workloads, answers, 300, seed=0))
    assert np.abs(found - true).sum() < np.abs(prior - true).sum()
    with pytest.raises(ValueError, match="no workload"):
        estimate(prior, [], [], 1, seed=0)


DOMAIN = Domain(("g", "x"), (4, 3))
table = partial(write_rows, DOMAIN)


PUBLIC = table([(0, 0), (0, 1), (1, 1), (1, 1), (1, 1), (1, 2)])
"""Groups 0 and 1; groups 2 and 3 are lacking."""


def test_rows_are_as_many_as_asked_and_lacking_groups_need_a_count_that_stands_out() -> None:
    noisy = np.array([10.3, 4.5, 8.9, 9.2])
    groups = list_groups_with_rows(PUBLIC, ("g",), noisy, 3.0, 24, None)
    assert groups.codes.ravel().tolist() == [0, 1, 3] and groups.rows.tolist() == [10, 5, 9]
    assert list_groups_with_rows(PUBLIC, ("g",), noisy, 2.0, 24, None).codes.ravel().tolist() == [0, 1, 2, 3]
    assert list_groups_with_rows(PUBLIC, ("g",), -noisy, 3.0, 5, None).rows.sum() == 5
    assert list_groups_with_rows(PUBLIC, ("g",), noisy, 3.0, 0, None).rows.size == 0


def test_a_group_that_no_row_can_be_in_has_none() -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    forbidden = np.zeros((4, 3), bool)
    forbidden[1] = True
    forbidden[0, 1] = True
    can = list_possible_rows(support, KnownZeros(((("g", "x"), forbidden),)))
    assert can is not None and [c.tolist() for c in can[:2]] == [[True, False, True], [False, False, False]]
    groups = list_groups_with_rows(PUBLIC, ("g",), np.array([5.0, 5, 0, 0]), 1.0, 10, can)
    assert (groups.codes.tolist(), groups.rows.tolist()) == ([[0]], [10])
    (rows,) = draw_rows(support, groups, [np.array([0.2, 0.6, 0.2])], can, 0)
    assert np.bincount(rows.column("x")).tolist() == [5, 0, 5]
    assert list_possible_rows(support, None) is None


def test_draws_are_as_many_as_the_shares_say() -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    groups = list_groups_with_rows(PUBLIC, ("g",), np.array([600.0, 400, 0, 0]), 1.0, 1_000, None)
    shares = [np.array([0.25, 0.5, 0.25]), np.array([0.0, 0.0, 1.0])]
    (rows,) = draw_rows(support, groups, shares, None, 1)
    first = rows.column("x")[rows.column("g") == 0]
    assert np.abs(np.bincount(first, minlength=3) - [150, 300, 150]).max() <= 1
    assert set(rows.column("x")[rows.column("g") == 1]) == {2}
    assert not (np.diff(rows.column("g").astype(int)) >= 0).all()  # in random order
    (again,) = draw_rows(support, groups, shares, None, 1)
    assert all(np.array_equal(a, b) for a, b in zip(rows.columns, again.columns, strict=True))


@pytest.mark.parametrize(("noise", "told"), [(None, [0.0, 0.0, 1.0]), (1e6, [1 / 6, 4 / 6, 1 / 6])])
def test_counts_are_believed_or_drawn_to_what_the_public_table_says(noise: float | None, told: list[float]) -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    given = None if noise is None else (noise,)
    level = NoisyLevel((), np.array([90.0]), (("x",),), (np.array([[0.0, 0.0, 90.0]]),), given)
    small = NoisyLevel(("g",), np.array([40.0, 50, 0, 0]), (), (), None)
    (found,) = iterate_group_shares(
        support, (level, small), np.array([[2]]), 3, 0, own_rows=True
    )  # a group without public rows
    assert found == pytest.approx(told)


def test_a_group_begins_with_its_own_public_rows_and_some_of_the_table() -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    own, whole = np.array([0.5, 0.5, 0.0]), np.array([1 / 6, 4 / 6, 1 / 6])
    assert support.start(whole, 0) == pytest.approx((2 * own + UPPER_LEVEL_ROWS * whole) / (2 + UPPER_LEVEL_ROWS))
    assert support.start(whole, 3) == pytest.approx(whole)


def test_public_rows_of_filtered_values_are_left_out_unless_all_are() -> None:
    keep = AttributeRecode(*(np.array(v) for v in ([0, 1, 2, 3], [True] * 4, [1.0] * 4, [5.0] * 4, [1.0] * 4)))
    some = AttributeRecode(
        np.array([0, 1, 2]), np.array([True, True, False]), np.array([1.0, 1, 0]), np.ones(3), np.ones(3)
    )
    found = coarsen_rows(PUBLIC, {"g": keep, "x": some})
    assert found.rows == 5 and found.domain.sizes == (4, 2)
    assert coarsen_rows(table([(0, 2), (1, 2)]), {"g": keep, "x": some}).column("x").tolist() == [1, 1]


def test_the_four_cases_by_hand() -> None:
    workload, answers = Workload(np.array([0, 0, 1, 1, 2, 2]), 3), np.array([0.5, 0.3, 0.2])
    prior = np.array([0.3, 0.1, 0.0, 0.0, 0.4, 0.2])
    assert update_distribution(prior, workload, answers) == pytest.approx([0.375, 0.125, 0.15, 0.15, 0.4 / 3, 0.2 / 3])
    bare = np.array([0.6, 0.2, 0.1, 0.1, 0.0, 0.0])
    assert update_distribution(bare, workload, answers) == pytest.approx([0.375, 0.125, 0.15, 0.15, 0.1, 0.1])
    nowhere = Workload(np.array([0, 0, 0]), 2)  # a query that counts no value of the support
    assert update_distribution(np.array([0.2, 0.2, 0.6]), nowhere, np.array([0.5, 0.5])) == pytest.approx(
        [0.2, 0.2, 0.6]
    )
