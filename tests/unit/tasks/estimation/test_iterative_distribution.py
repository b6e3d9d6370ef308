"""Iterative distribution estimation against a convex solver, by hand in all four cases, and as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.prior_levels import (
    UNCOUNTED_CELL,
    PartialWorkload,
    estimate,
    find_nearest_answers,
    update_distribution,
)
from privsyn.tasks.kernels.counting import CodeTable


def solved(prior: np.ndarray, workload: PartialWorkload, answers: np.ndarray) -> np.ndarray:
    """Least relative entropy under the answers, by a convex solver."""
    matrix = np.zeros((workload.cells + 1, prior.size))
    for i, cell in enumerate(workload.cell):
        if cell != UNCOUNTED_CELL:
            matrix[cell, i] = 1
    matrix[-1] = 1
    rows = slice(None, -1 if workload.covers_all else None)  # then the whole follows from the answers
    wanted = np.append(answers, 1.0)[rows]

    def safe(q: np.ndarray) -> np.ndarray:
        return np.maximum(q, 1e-12)

    found = minimize(
        lambda q: float((q * np.log(safe(q) / prior)).sum()),
        np.full(prior.size, 1 / prior.size),
        jac=lambda q: np.log(safe(q) / prior) + 1,
        hess=lambda q: np.diag(1 / safe(q)),
        bounds=[(1e-9, 1)] * prior.size,
        constraints=[LinearConstraint(matrix[rows], wanted, wanted)],
        method="trust-constr",
        options={"gtol": 1e-9, "xtol": 1e-11, "maxiter": 3_000},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("covers_all", [True, False])
def test_an_update_is_the_distribution_of_least_relative_entropy(seed: int, covers_all: bool) -> None:
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(7))
    cell = np.array([0, 1, 2, 0, 1, 2, 0] if covers_all else [0, 1, UNCOUNTED_CELL, 0, 1, UNCOUNTED_CELL, 0])
    workload = PartialWorkload(cell, 3 if covers_all else 2)
    answers = rng.dirichlet(np.ones(3))[: workload.cells]
    found = update_distribution(prior, workload, answers)
    assert found.sum() == pytest.approx(1) and workload.answers(found) == pytest.approx(answers)
    assert found == pytest.approx(solved(prior, workload, answers), abs=2e-4)


def test_the_four_cases_by_hand() -> None:
    cell = np.array([0, 0, 1, 1, UNCOUNTED_CELL, UNCOUNTED_CELL])
    workload, answers = PartialWorkload(cell, 2), np.array([0.5, 0.3])
    prior = np.array([0.3, 0.1, 0.0, 0.0, 0.4, 0.2])
    assert update_distribution(prior, workload, answers) == pytest.approx([0.375, 0.125, 0.15, 0.15, 0.4 / 3, 0.2 / 3])
    bare = np.array([0.6, 0.2, 0.1, 0.1, 0.0, 0.0])
    assert update_distribution(bare, workload, answers) == pytest.approx([0.375, 0.125, 0.15, 0.15, 0.1, 0.1])
    nowhere = PartialWorkload(np.array([0, 0, 0]), 2)  # a query that counts no value of the support
    assert update_distribution(np.array([0.2, 0.2, 0.6]), nowhere, np.array([0.5, 0.5])) == pytest.approx(
        [0.2, 0.2, 0.6]
    )


@pytest.mark.parametrize(
    ("noisy", "covers_all", "nearest"),
    [
        ([0.7, 0.6, -0.1], True, [0.55, 0.45, 0.0]),
        ([0.2, 0.3, -0.2], True, [13 / 30, 16 / 30, 1 / 30]),
        ([0.2, 0.3, -0.2], False, [0.2, 0.3, 0.0]),
        ([0.7, 0.6, -0.1], False, [0.55, 0.45, 0.0]),
    ],
)
def test_answers_are_the_nearest_that_a_distribution_can_have(
    noisy: list[float], covers_all: bool, nearest: list[float]
) -> None:
    found = find_nearest_answers(np.array(noisy), covers_all=covers_all)
    assert found == pytest.approx(nearest)
    rng, distance = np.random.default_rng(0), np.abs(found - noisy).sum()
    for other in rng.dirichlet(np.ones(3), 2_000) * (1 if covers_all else rng.random((2_000, 1))):
        assert np.abs(other - noisy).sum() >= distance - 1e-12


def test_many_updates_answer_all_marginals_and_stay_in_the_support() -> None:
    rng = np.random.default_rng(1)
    values = np.array([(a, b, c) for a in range(3) for b in range(4) for c in range(2) if (a + b + c) % 5])
    table = CodeTable(Domain(("a", "b", "c"), (3, 4, 2)), tuple(np.ascontiguousarray(v, np.uint8) for v in values.T))
    true, prior = rng.dirichlet(np.ones(len(values)), 2)
    workloads = [PartialWorkload.marginal(table, clique) for clique in (("a", "b"), ("b", "c"), ("a",))]
    answers = [w.answers(true) for w in workloads]
    found = estimate(prior, workloads, answers, 300, seed=0)
    for workload, answer in zip(workloads, answers, strict=True):
        assert workload.answers(found) == pytest.approx(answer, abs=1e-6)
    assert found.shape == prior.shape and found == pytest.approx(estimate(prior, workloads, answers, 300, seed=0))
    assert np.abs(found - true).sum() < np.abs(prior - true).sum()
    with pytest.raises(ValueError, match="no workload"):
        estimate(prior, [], [], 1, seed=0)
