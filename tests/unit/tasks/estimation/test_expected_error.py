"""Expected errors against simulation, and the shares of the budget against optimizers and by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from privsyn.tasks.estimation.expected_error import (
    NO_TARGETS,
    Departures,
    TargetWeights,
    compute_size_weight,
    share_out,
    split_by_weight,
)
from privsyn.tasks.steps.select_marginals import select_by_expected_error


def departures(seed: int, marginals: int = 6, groups: int = 4) -> Departures:
    rng = np.random.default_rng(seed)
    tau = 10.0 ** rng.integers(0, 4, (marginals, groups)) * rng.random((marginals, groups))
    return Departures(tau, rng.integers(0, 40, (marginals, groups)).astype(float))


def test_the_error_is_that_of_the_posterior_mean() -> None:
    """One marginal of 200,000 cells, departures and noise drawn: the mean absolute error of the best guess."""
    rng = np.random.default_rng(0)
    tau, rho, k, cells = 30.0, 0.002, 2, 200_000
    sigma = k / math.sqrt(2 * rho)
    normal = (
        rng.choice([-1.0, 1.0], (24, cells)).sum(axis=0) / math.sqrt(24),
        rng.choice([-1.0, 1.0], (24, cells)).sum(axis=0) / math.sqrt(24),
    )
    true, seen = tau * normal[0], tau * normal[0] + sigma * normal[1]
    guess = seen * tau**2 / (tau**2 + sigma**2)
    expected = Departures(np.array([[tau]]), np.array([[float(cells)]])).error(np.array([rho]), k)
    assert np.abs(guess - true).sum() == pytest.approx(expected[0], rel=0.02)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rho", [1e-6, 1e-3, 1.0])
def test_the_shares_are_the_best(seed: int, rho: float) -> None:
    problem = departures(seed)
    found = share_out(problem, rho)
    assert found.sum() == pytest.approx(rho)
    assert (found >= 0).all()

    def error(logits: np.ndarray) -> float:
        shares = np.exp(logits - logits.max())
        return float(problem.error(rho * shares / shares.sum()).sum())

    begin = [np.zeros(6), np.log(found / rho + 1e-9)]
    best = min(minimize(error, x, method="Nelder-Mead", options={"maxiter": 20_000}).fun for x in begin)
    assert problem.error(found).sum() <= best * 1.002


def test_more_records_a_person_is_less_budget() -> None:
    problem = departures(3)
    assert share_out(problem, 0.09, records=3) == pytest.approx(9 * share_out(problem, 0.01))
    assert problem.error(np.full(6, 0.09), 3) == pytest.approx(problem.error(np.full(6, 0.01), 1))


def test_what_departs_nowhere_gets_nothing() -> None:
    nothing = Departures(np.zeros((2, 3)), np.ones((2, 3)))
    assert share_out(nothing, 1.0).tolist() == [0.0, 0.0]
    mixed = Departures(np.array([[0.0], [5.0]]), np.ones((2, 1)))
    assert share_out(mixed, 1.0) == pytest.approx([0.0, 1.0])
    assert share_out(Departures(np.zeros((0, 3)), np.zeros((0, 3))), 1.0).size == 0


def test_a_budget_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="rho"):
        share_out(departures(0), 0.0)


def test_allocation_is_the_lagrangian_solution() -> None:
    """Equation (1) beats every perturbation that keeps the sum: the stationary point is the minimum."""
    cells = [4, 100, 2_500, 30]
    shares = split_by_weight([compute_size_weight(c) for c in cells], Fraction(7, 10))
    assert sum(shares) == Fraction(7, 10)

    def noise(rhos: np.ndarray) -> float:
        return float(sum(c / math.sqrt(math.pi * r) for c, r in zip(cells, rhos, strict=True)))

    best = np.array([float(s) for s in shares])
    gradients = np.array(cells) * best**-1.5  # equal at the optimum: the Lagrange multiplier
    assert gradients == pytest.approx(np.full(4, gradients[0]), rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(100):
        step = rng.normal(size=4)
        step -= step.mean()
        assert noise(best) <= noise(best + 1e-3 * step * best.min())


PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]


def test_a_clique_has_the_largest_of_its_weights() -> None:
    targets = TargetWeights(frozenset({"a"}), 3.0, ((frozenset("acd"), 2.0), (frozenset("bc"), 7.0)))
    assert targets.weights([*PAIRS, ("b", "d"), ("a", "c", "d")]).tolist() == [3.0, 3.0, 7.0, 2.0, 1.0, 3.0]
    assert NO_TARGETS.weights(PAIRS).tolist() == [1.0] * 4


def test_a_target_gets_more_of_the_budget_and_is_chosen_where_it_was_not() -> None:
    departures = Departures(np.full((4, 1), 20.0), np.full((4, 1), 50.0))

    def shares(targets: TargetWeights, rho: float) -> dict[tuple[str, str], float]:
        weighted = targets.weighted(departures, PAIRS)
        table = select_by_expected_error(PAIRS, [1000.0] * 4, [50] * 4, weighted, rho, 1, 10**6)
        return {(r["a"], r["b"]): r["weight"] for r in table.to_pylist()}

    assert list(shares(NO_TARGETS, 0.01).values()) == pytest.approx([0.25] * 4, rel=1e-2)
    aimed = shares(TargetWeights(frozenset({"d"}), 3.0), 0.01)
    assert aimed["c", "d"] > 1.5 * max(w for pair, w in aimed.items() if pair != ("c", "d"))
    assert sum(aimed.values()) <= 1 + 1e-9
    assert shares(NO_TARGETS, 2.5e-3) == {}
    assert set(shares(TargetWeights(frozenset({"d"}), 30.0), 2.5e-3)) == {("c", "d")}


def test_equal_weights_share_equally_and_any_weights_sum_exactly() -> None:
    assert split_by_weight([3.0, 3.0, 3.0], Fraction(1, 7)) == [Fraction(1, 21)] * 3
    weights = np.random.default_rng(1).random(50) + 1e-3
    shares = split_by_weight(weights.tolist(), Fraction(3, 11))
    assert sum(shares) == Fraction(3, 11)
    assert [float(s) for s in shares] == pytest.approx(weights / weights.sum() * 3 / 11, rel=1e-8)
