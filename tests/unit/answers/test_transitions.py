"""Intervals of transitions: right as often as they say, and not known where too few pairs are left above the noise."""

from __future__ import annotations

import numpy as np

from privsyn.answers import persons
from privsyn.answers.persons import TransitionShares


def test_intervals_cover_the_share_as_often_as_they_say() -> None:
    rng, real, sigma = np.random.default_rng(0), np.array([[600.0, 100.0, 50.0]]), 20.0
    shares, covered = real / real.sum(), []
    for _ in range(400):
        found = TransitionShares([], [], [], [], [], [], [], [])
        noisy = real + rng.normal(0, sigma, real.shape)
        persons._add(found, "", ["a", "b", "c"], noisy, np.full(real.shape, sigma), 0.95)
        covered.append((np.array(found.low) <= shares[0]) & (shares[0] <= np.array(found.high)))
    assert 0.93 <= np.mean(covered) <= 0.975


def test_a_share_of_few_pairs_is_not_known() -> None:
    found = TransitionShares([], [], [], [], [], [], [], [])
    persons._add(found, "", ["a", "b"], np.array([[20.0, 10.0]]), np.full((1, 2), 20.0), 0.95)
    assert found.source == ["not known", "not known"]
    assert (found.low, found.high) == ([0.0, 0.0], [1.0, 1.0])
