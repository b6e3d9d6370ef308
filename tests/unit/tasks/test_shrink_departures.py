"""Empirical Bayes for one pair: what noise explains goes, what stands out stays."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.shrink_departures import shrink_pair

INDEPENDENT = np.outer(np.linspace(1, 4, 20), np.linspace(1, 9, 30)) * 10


def noisy(truth: np.ndarray, sigma: float, seed: int = 0) -> np.ndarray:
    return truth + np.random.default_rng(seed).choice([-1.0, 1.0], truth.shape) * sigma


def test_pure_noise_is_drawn_to_independence() -> None:
    found = shrink_pair(noisy(INDEPENDENT, 50.0), INDEPENDENT, np.full(INDEPENDENT.shape, 2500.0))
    assert np.abs(found - INDEPENDENT).mean() < 0.1 * 50


def test_a_cell_that_stands_out_keeps_its_count() -> None:
    truth = INDEPENDENT.copy()
    truth[0, 0] += 5_000
    found = shrink_pair(noisy(truth, 50.0), INDEPENDENT, np.full(truth.shape, 2500.0))
    assert found[0, 0] == pytest.approx(truth[0, 0], rel=0.05)
    assert np.abs(found - truth).sum() < 0.5 * np.abs(noisy(truth, 50.0) - truth).sum()


def test_strong_dependence_under_little_noise_stays_as_measured() -> None:
    truth = INDEPENDENT * np.random.default_rng(1).choice([0.0, 2.0], INDEPENDENT.shape)
    measured = noisy(truth, 1.0)
    found = shrink_pair(measured, INDEPENDENT, np.full(truth.shape, 1.0))
    assert np.abs(found - measured).max() < 1.0


@pytest.mark.parametrize("seed", range(5))
def test_it_beats_both_following_the_noise_and_ignoring_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = INDEPENDENT * rng.choice([0.7, 1.0, 1.3], INDEPENDENT.shape)
    sigma = 40.0
    counts = truth + rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0], truth.shape) * sigma / np.sqrt(2.0)
    found = shrink_pair(counts, INDEPENDENT, np.full(truth.shape, sigma**2))
    error = np.abs(found - truth).sum()
    assert error < np.abs(counts - truth).sum()
    assert error < np.abs(INDEPENDENT - truth).sum()


def test_awkward_tables_stay_as_they_are() -> None:
    counts = np.array([[3.0, -2.0]])
    assert np.array_equal(shrink_pair(counts, np.zeros((1, 2)), np.ones((1, 2))), counts)
    assert np.array_equal(shrink_pair(counts, np.ones((1, 2)), np.zeros((1, 2))), counts)
    assert np.isfinite(shrink_pair(counts * 1e9, np.ones((1, 2)), np.ones((1, 2)))).all()
