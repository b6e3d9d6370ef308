"""What noise explains is left out, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.marginals import Marginal
from tasks.synthesis.shrink import signal_share, towards_independence


def test_the_share_by_hand() -> None:
    difference = np.array([3.0, -4.0, 0.0])  # squares: 25
    assert signal_share(difference, 3, 2.0, 1.0) == pytest.approx(1 - 3 * 4 / 25)
    assert signal_share(difference, 3, 2.0, 0.5) == pytest.approx(1 - 6 / 25)
    assert signal_share(difference, 3, 0.0, 1.0) == 1.0
    assert signal_share(difference, 3, 9.0, 1.0) == 0.0
    assert signal_share(np.zeros(3), 3, 2.0, 1.0) == 1.0


def test_noise_alone_is_shrunk_away_and_signal_is_not() -> None:
    rng = np.random.default_rng(0)
    noise = 5.0 * (rng.random(4_000) + rng.random(4_000) + rng.random(4_000) - 1.5) * 2  # standard deviation 5
    assert signal_share(noise, 4_000, 5.0, 1.0) < 0.05
    assert signal_share(noise + 50, 4_000, 5.0, 1.0) == pytest.approx(0.99, abs=0.002)


def test_a_pair_by_hand() -> None:
    # One-ways (40, 60) and (50, 50): independent 20 20 30 30; differences of 10: squares 400.
    pair = Marginal(("a", "b"), np.array([[30.0, 10], [20, 40]]), sigma=5.0)
    made = towards_independence(pair, 1.0)  # share 1 - 4 * 25 / 400 = 0.75
    np.testing.assert_allclose(made.counts, [[27.5, 12.5], [22.5, 37.5]])
    np.testing.assert_allclose(made.counts.sum(axis=0), pair.counts.sum(axis=0))
    np.testing.assert_allclose(made.counts.sum(axis=1), pair.counts.sum(axis=1))
    assert made.sigma == 5.0
    np.testing.assert_array_equal(towards_independence(pair, 0.0).counts, pair.counts)


@pytest.mark.parametrize(
    "marginal",
    [
        Marginal(("a",), np.array([3.0, 4]), 9.0),
        Marginal(("a", "b", "c"), np.arange(8.0).reshape(2, 2, 2), 9.0),
        Marginal(("a", "b"), np.zeros((2, 2)), 9.0),
    ],
)
def test_other_marginals_stay(marginal: Marginal) -> None:
    assert towards_independence(marginal, 1.0) is marginal
