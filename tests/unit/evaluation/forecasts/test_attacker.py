"""What an attacker learns agrees with the definition, by simulation and at its ends."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import privsyn
from privsyn.evaluation.forecasts.attacker import PUBLISHED, compute_risk
from tests.support.specs import make_spec


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_the_best_guess_is_that_of_the_likelihood_ratio(epsilon: float) -> None:
    found, rng = compute_risk(epsilon, 1e-9), np.random.default_rng(0)
    for guess in found.guesses:
        there = rng.random(400_000) < guess.prior
        seen = rng.standard_normal(there.size) + found.mu * there
        odds = guess.prior / (1 - guess.prior) * np.exp(found.mu * seen - found.mu**2 / 2)
        assert np.mean((odds > 1) == there) == pytest.approx(guess.after, abs=0.003)
        belief = odds[there] / (1 + odds[there])
        assert np.median(belief) == pytest.approx(guess.typical, rel=0.05)
        assert np.mean(belief > guess.most) == pytest.approx(found.beyond, abs=0.001)


def test_nobody_learns_more_than_the_promise_allows() -> None:
    last = 0.0
    for epsilon in (0.01, 0.1, 1.0, 3.0, 10.0):
        found = compute_risk(epsilon, 1e-6)
        for guess in found.guesses:
            assert guess.before <= guess.after <= guess.any_promise <= 1 and guess.typical <= guess.most
        assert found.found <= np.exp(epsilon) * 0.01 + 1e-6 and found.found > last
        last = found.found
    half = compute_risk(1.0, 1e-9).guesses[0]
    assert half.any_promise == pytest.approx(np.e / (1 + np.e), abs=1e-6)
    assert half.after == pytest.approx(float(norm.cdf(compute_risk(1.0, 1e-9).mu / 2)))


def test_the_table_of_epsilons_takes_those_of_a_spec() -> None:
    asked = make_spec(privacy={"epsilon": 3.0, "delta": 1e-7})
    found = privsyn.epsilon(asked, epsilons=[5, 0.5, 3.0])
    assert found["epsilon"].tolist() == [0.5, 3.0, 5.0] and set(found["delta"]) == {1e-7}
    even, tenth, _ = compute_risk(3.0, 1e-7).guesses
    row = found.iloc[1]
    assert (row.guess, row.any_promise, row.most_10) == (even.after, even.any_promise, tenth.most)
    assert len(found.attrs["published"]) == len(PUBLISHED)
    assert len(privsyn.epsilon()) == 7
    with pytest.raises(privsyn.RequestError, match="cannot be accounted"):
        privsyn.epsilon(epsilons=[-1.0])
