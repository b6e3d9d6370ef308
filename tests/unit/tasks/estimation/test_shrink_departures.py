"""Departures of pairs by empirical Bayes, each pair alone and pooled: noise goes, what stands out and trends stay."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.pooled_coefficients import NoisyPair, fit_pooled_coefficients
from privsyn.tasks.estimation.shrink_departures import (
    SCALES,
    compute_posterior_means,
    estimate_low_rank,
    estimate_stein_risk,
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


def _make_pair(
    number: int,
    trend: float,
    noise: float,
    rng: np.random.Generator,
    sizes: tuple[int, int] = (3, 3),
    *,
    in_order: bool = True,
) -> tuple[NoisyPair, np.ndarray]:
    """Return a pair of even one-ways and 4,500 rows with a trend, and its true counts."""
    first, second = (np.linspace(-1.2, 1.2, size) for size in sizes)
    expected = np.full(sizes, 4_500 / (sizes[0] * sizes[1]))
    true = expected * (1 + trend * np.outer(first, second))
    noisy = true + rng.normal(0, noise, sizes)
    noisy += noisy.mean() - noisy.mean(axis=0) - noisy.mean(axis=1, keepdims=True) + expected.mean() - noisy.mean()
    ordered = (np.ones(sizes[0], bool), np.ones(sizes[1], bool)) if in_order else (None, None)
    return NoisyPair((f"c{2 * number}", f"c{2 * number + 1}"), noisy, expected, noise**2, ordered=ordered), true


@pytest.mark.slow
def test_many_pairs_tell_a_trend_from_noise_better_than_one() -> None:
    together, alone, raw = [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        made = [_make_pair(i, trend, 84, rng) for i, trend in enumerate(rng.choice([0.0, 0.0, 0.05, 0.3], 20))]
        pairs = [pair for pair, _ in made]
        for (pair, true), estimate in zip(made, fit_pooled_coefficients(pairs), strict=True):
            (own,) = fit_pooled_coefficients([pair])
            together.append(np.abs(estimate(pair.counts) - true).sum())
            alone.append(np.abs(own(pair.counts) - true).sum())
            raw.append(np.abs(pair.counts - true).sum())
    assert np.mean(together) < 0.9 * np.mean(alone) < 0.9 * np.mean(raw)


def test_noise_alone_is_taken_off_without_and_with_an_order() -> None:
    for in_order in (True, False):
        rng = np.random.default_rng(3)
        pairs = [_make_pair(i, 0.0, 50, rng, (6, 6), in_order=in_order)[0] for i in range(20)]
        left = [
            np.abs(estimate(pair.counts) - pair.expected).sum() / np.abs(pair.counts - pair.expected).sum()
            for pair, estimate in zip(pairs, fit_pooled_coefficients(pairs), strict=True)
        ]
        assert np.mean(left) < 0.1


def test_codes_beside_those_in_order_are_told_apart_from_their_trend() -> None:
    rng = np.random.default_rng(5)
    scores = np.array([-1.2, 0.0, 1.2, 0.0])  # the last code is null
    expected = np.outer([1_000.0, 1_000, 1_000, 9_000], [4_000.0, 4_000, 4_000]) / 12_000
    true = expected * (1 + 0.4 * np.outer(scores, scores[:3]))
    noisy = true + rng.normal(0, 40, true.shape)
    pair = NoisyPair(("c0", "c1"), noisy, expected, 40.0**2, ordered=(np.arange(4) < 3, np.ones(3, bool)))
    (estimate,) = fit_pooled_coefficients([pair])
    measure = lambda counts: float(scores @ counts @ scores[:3] / (scores @ true @ scores[:3]))  # noqa: E731
    for found in (estimate(noisy), estimate.keep_trend(noisy, expected)):
        assert measure(found) == pytest.approx(measure(noisy), abs=0.05)
    assert estimate.keep_trend(noisy, expected)[3] == pytest.approx(expected[3])


@pytest.mark.parametrize("seed", range(2))
def test_a_trend_below_the_noise_of_every_cell_is_found(seed: int) -> None:
    """No cell of the trend is larger than one and a half standard deviations of its noise."""
    rows, columns, sigma = 20, 30, 40.0
    drawn = np.random.default_rng(seed).normal(0, sigma, (rows, columns))
    drawn -= drawn.mean(axis=0)
    noise = drawn - drawn.mean(axis=1, keepdims=True)
    truth = 1.5 * sigma * np.outer(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns))
    found = estimate_low_rank(truth + noise, sigma)
    assert found.degrees >= (rows - 1) + (columns - 1) - 1
    assert np.square(found.estimate - truth).sum() < 0.25 * np.square(noise).sum()
    assert np.square(found.estimate - truth).sum() < 0.6 * np.square(truth).sum()


def test_what_moves_the_estimate_tells_how_far_it_follows_the_noise() -> None:
    """Stein's estimate against the error itself, which the test knows: right on average over seeds, within a tenth."""
    sigma, difference, errors = 60.0, [], []
    for seed in range(60):
        counts = measured(TREND, sigma, seed)
        found, shares, _ = compute_posterior_means(counts, EXPECTED, sigma**2)
        risk = estimate_stein_risk(
            lambda y, s=shares: compute_posterior_means(y, EXPECTED, sigma**2, s).mean, counts, found, sigma**2
        )
        errors.append(np.square(found - TREND).sum() / sigma**2)
        difference.append(risk - 19 * 29 - errors[-1])
    assert abs(np.mean(difference)) < 0.1 * np.mean(errors) + 3 * np.std(difference) / np.sqrt(60)
