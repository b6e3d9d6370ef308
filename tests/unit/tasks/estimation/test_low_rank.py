"""The low-rank part of a pair's departure: noise alone has none, a trend is found and loses what noise adds to it."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.shrink_departures import estimate_low_rank

ROWS, COLUMNS, SIGMA = 20, 30, 40.0


def centred(matrix: np.ndarray) -> np.ndarray:
    found = matrix - matrix.mean(axis=0)
    return found - found.mean(axis=1, keepdims=True)


def noise(seed: int) -> np.ndarray:
    return centred(np.random.default_rng(seed).normal(0, SIGMA, (ROWS, COLUMNS)))


TREND = np.outer(np.linspace(-1, 1, ROWS), np.linspace(-1, 1, COLUMNS))


def test_noise_alone_has_hardly_a_low_rank_part() -> None:
    """Its largest singular value is at the threshold, and passes it by a little in one table of eight."""
    found = [estimate_low_rank(noise(seed), SIGMA) for seed in range(40)]
    assert sum(f.degrees > 0 for f in found) <= 10
    assert sum(np.square(f.estimate).sum() for f in found) < 0.005 * sum(np.square(noise(s)).sum() for s in range(40))
    assert all(f.all_degrees == (ROWS - 1) * (COLUMNS - 1) for f in found)


@pytest.mark.parametrize("seed", range(2))
def test_a_trend_below_the_noise_of_every_cell_is_found(seed: int) -> None:
    """No cell of the trend is larger than one and a half standard deviations of its noise."""
    truth = 1.5 * SIGMA * TREND
    found = estimate_low_rank(truth + noise(seed), SIGMA)
    assert found.degrees >= (ROWS - 1) + (COLUMNS - 1) - 1
    assert np.square(found.estimate - truth).sum() < 0.25 * np.square(noise(seed)).sum()
    assert np.square(found.estimate - truth).sum() < 0.6 * np.square(truth).sum()


def test_values_follow_the_formula() -> None:
    """Section III: sqrt((y^2 - b - 1)^2 - 4 b) / y for a square matrix is sqrt(y^2 - 4)."""
    size, sigma = 11, 1.0
    left = centred(np.random.default_rng(3).normal(size=(size, size)))
    u, _, v = np.linalg.svd(left)
    for y in (2.1, 3.0, 9.0):
        found = estimate_low_rank(y * np.sqrt(size - 1) * np.outer(u[:, 0], v[0]), sigma)
        assert np.linalg.norm(found.estimate) == pytest.approx(np.sqrt(y**2 - 4) * np.sqrt(size - 1))
    assert estimate_low_rank(1.9 * np.sqrt(size - 1) * np.outer(u[:, 0], v[0]), sigma).degrees == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (2, 1)])
def test_a_pair_with_a_single_code_has_no_departure(shape: tuple[int, int]) -> None:
    found = estimate_low_rank(np.zeros(shape), 1.0)
    assert (found.degrees, found.all_degrees, found.estimate.shape) == (0, 0, shape)
