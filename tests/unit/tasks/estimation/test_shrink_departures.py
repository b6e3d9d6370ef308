"""Empirical Bayes for one pair: what noise explains goes, what stands out stays, and trends are found as directions."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.shrink_departures import (
    SCALES,
    compute_posterior_means,
    estimate_low_rank,
    shrink_marginal,
)

INDEPENDENT = np.outer(np.linspace(1, 4, 20), np.linspace(1, 9, 30)) * 10


def noisy(truth: np.ndarray, sigma: float, seed: int = 0) -> np.ndarray:
    return truth + np.random.default_rng(seed).choice([-1.0, 1.0], truth.shape) * sigma


def test_a_cell_that_stands_out_keeps_its_count() -> None:
    truth = INDEPENDENT.copy()
    truth[0, 0] += 5_000
    found = shrink_marginal(noisy(truth, 50.0), INDEPENDENT, 2500.0).mean
    assert found[0, 0] == pytest.approx(truth[0, 0], rel=0.05)
    assert np.abs(found - truth).sum() < 0.5 * np.abs(noisy(truth, 50.0) - truth).sum()


def test_a_cell_keeps_more_of_its_departure_the_more_is_expected_of_it_by_hand() -> None:
    """One scale: the prior's variance is scale x noise x (e / median of e)^1.5, and what is kept its share."""
    expected, variance = np.array([[4.0, 16.0, 64.0]]), 100.0
    counts = expected + 10.0
    only = np.append((SCALES == 10.0).astype(float), 0.0)
    found = compute_posterior_means(counts, expected, variance, only).mean
    prior = 10.0 * variance * np.array([[1 / 8, 1.0, 8.0]])
    assert found - expected == pytest.approx(10.0 * prior / (prior + variance))


def test_the_chance_that_a_cell_is_empty_by_hand() -> None:
    """One scale and the empty cells, even shares: Bayes' rule for two normal densities of the noisy count."""
    expected, variance = np.array([[16.0, 16.0, 16.0]]), 100.0
    counts = np.array([[16.0, 5.0, -4.0]])
    even = np.append((SCALES == 10.0).astype(float), 1.0) / 2
    found = compute_posterior_means(counts, expected, variance, even)
    full = np.exp(-((counts - expected) ** 2) / (2 * 1100.0)) / np.sqrt(1100.0)
    none = np.exp(-(counts**2) / (2 * 100.0)) / np.sqrt(100.0)
    chance = none / (none + full)
    assert found.empty == pytest.approx(chance)
    assert found.mean == pytest.approx((1 - chance) * (expected + (counts - expected) * 1000 / 1100))


@pytest.mark.parametrize("seed", range(3))
def test_where_one_column_follows_from_another_the_other_cells_come_out_empty(seed: int) -> None:
    truth = np.zeros((8, 30))
    truth[np.arange(30) % 8, np.arange(30)] = np.linspace(200, 4_000, 30)
    expected = np.outer(truth.sum(axis=1), truth.sum(axis=0)) / truth.sum()
    found = shrink_marginal(measured(truth, 60.0, seed), expected, 3600.0)
    assert found.empty[truth == 0].mean() > 0.8
    assert found.empty[truth > 500].max() < 0.001
    assert np.abs(found.mean - truth)[truth == 0].mean() < 0.4 * 60


def test_awkward_tables_stay_as_they_are() -> None:
    counts = np.array([[3.0, -2.0]])
    assert np.array_equal(shrink_marginal(counts, np.zeros((1, 2)), 1.0).mean, counts)
    assert np.array_equal(shrink_marginal(counts, np.ones((1, 2)), 0.0).mean, counts)
    assert np.array_equal(shrink_marginal(counts, np.ones((1, 2)), 1.0).mean, counts), "its one-ways say all of it"


def measured(truth: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    """Counts under normal noise that agree with the truth's one-ways, as averaging leaves them."""
    noise = np.random.default_rng(seed).normal(0, sigma, truth.shape)
    noise -= noise.mean(axis=0)
    return truth + noise - noise.mean(axis=1, keepdims=True)


TREND = INDEPENDENT * (1 + 0.5 * np.outer(np.linspace(-1, 1, 20), np.linspace(-1, 1, 30)))
EXPECTED = np.outer(TREND.sum(axis=1), TREND.sum(axis=0)) / TREND.sum()


@pytest.mark.parametrize("seed", range(2))
def test_a_trend_is_followed_though_no_cell_stands_out(seed: int) -> None:
    """More than half of a correlation stays under noise that leaves less than a third of it cell by cell."""
    sigma = 40.0
    counts = measured(TREND, sigma, seed)
    found = shrink_marginal(counts, EXPECTED, sigma**2).mean
    alone = compute_posterior_means(counts, EXPECTED, sigma**2).mean
    kept, kept_alone = (
        ((f - EXPECTED) * (TREND - EXPECTED)).sum() / np.square(TREND - EXPECTED).sum() for f in (found, alone)
    )
    assert np.abs(found - TREND).sum() < 0.8 * np.abs(alone - TREND).sum()
    assert kept > 0.5 > 0.33 > kept_alone


@pytest.mark.parametrize("seed", range(2))
def test_directions_are_not_believed_where_few_cells_make_the_departure(seed: int) -> None:
    """Twelve cells that stand out, each a direction of its own, which brings back the noise of its row and column."""
    sigma = 50.0
    truth = np.ones((60, 60))
    truth[np.arange(12), 7 * np.arange(12) % 60] = 20 * sigma
    expected = np.outer(truth.sum(axis=1), truth.sum(axis=0)) / truth.sum()
    counts = measured(truth, sigma, seed)
    part = estimate_low_rank(counts - expected, sigma)
    alone = compute_posterior_means(counts, expected, sigma**2).mean
    around = compute_posterior_means(
        counts, np.maximum(expected + part.estimate, 0.0), sigma**2 * (1 - part.degrees / part.all_degrees)
    ).mean
    found = shrink_marginal(counts, expected, sigma**2).mean
    assert np.abs(around - truth).sum() > 1.8 * np.abs(alone - truth).sum()
    assert np.abs(found - truth).sum() < 1.05 * np.abs(alone - truth).sum()


def centred(matrix: np.ndarray) -> np.ndarray:
    found = matrix - matrix.mean(axis=0)
    return found - found.mean(axis=1, keepdims=True)


def test_values_follow_the_formula() -> None:
    """Section III: sqrt((y^2 - b - 1)^2 - 4 b) / y for a square matrix is sqrt(y^2 - 4)."""
    size, sigma = 11, 1.0
    left = centred(np.random.default_rng(3).normal(size=(size, size)))
    u, _, v = np.linalg.svd(left)
    for y in (2.1, 3.0, 9.0):
        found = estimate_low_rank(y * np.sqrt(size - 1) * np.outer(u[:, 0], v[0]), sigma)
        assert np.linalg.norm(found.estimate) == pytest.approx(np.sqrt(y**2 - 4) * np.sqrt(size - 1))
        assert (found.degrees, found.all_degrees) == (2 * (size - 1) - 1, (size - 1) ** 2)
    assert estimate_low_rank(1.9 * np.sqrt(size - 1) * np.outer(u[:, 0], v[0]), sigma).degrees == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (2, 1)])
def test_a_pair_with_a_single_code_has_no_departure(shape: tuple[int, int]) -> None:
    found = estimate_low_rank(np.zeros(shape), 1.0)
    assert (found.degrees, found.all_degrees, found.estimate.shape) == (0, 0, shape)
