"""Expected errors against simulation, and the shares against a general-purpose optimizer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from privsyn.tasks.estimation.expected_error import Departures, share_out


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


def test_unmeasured_is_the_departure_and_well_measured_the_noise() -> None:
    one = Departures(np.array([[50.0, 0.0]]), np.array([[10.0, 90.0]]))
    assert one.error(np.array([0.0])) == pytest.approx([math.sqrt(2 / math.pi) * 500])
    rho = 1e6
    assert one.error(np.array([rho])) == pytest.approx([10 / math.sqrt(math.pi * rho)], rel=1e-4)


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
