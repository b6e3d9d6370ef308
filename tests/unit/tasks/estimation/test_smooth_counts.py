"""Smoothed one-ways: nearer to the truth where neighbours tell, as they were where they do not, and of the same sum."""

from __future__ import annotations

import numpy as np

from privsyn.tasks.codecs.cells import AttributeBins, Points
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.estimation.smooth_counts import smooth_counts, smooth_one_ways

CELLS = 64
ZERO = Points(np.array([0]), np.array([1]), np.array([0.5]))
EXPONENTIAL = 4_000 * np.exp(-np.arange(CELLS) / 8) * (1 - np.exp(-1 / 8))


def compute_errors(truth: np.ndarray, sigma: float, widths: np.ndarray) -> tuple[float, float]:
    """Return the mean L1 error of noisy counts and of smoothed ones, over 20 draws."""
    rng = np.random.default_rng(1)
    noisy = [truth + rng.normal(0, sigma, len(truth)) for _ in range(20)]
    smooth = [smooth_counts(y, sigma, widths) for y in noisy]
    return float(np.mean([np.abs(y - truth).sum() for y in noisy])), float(
        np.mean([np.abs(y - truth).sum() for y in smooth])
    )


def test_cells_of_one_and_two_steps_are_smoothed_as_densities() -> None:
    widths = np.resize([1.0, 2.0], CELLS)
    raw, smooth = compute_errors(EXPONENTIAL * widths, 30.0, widths)
    unaware = compute_errors(EXPONENTIAL * widths, 30.0, np.ones(CELLS))[1]
    assert smooth < 0.5 * raw
    assert smooth < 0.8 * unaware


def build_recode(y: np.ndarray, sigma: float) -> AttributeRecode:
    coarse = np.minimum(np.arange(len(y)) // 16, 3).astype(np.int32)
    coarse[-1] = 4
    kept = np.ones(len(y), dtype=bool)
    return AttributeRecode(coarse, kept, np.ones(len(y)), y, np.full(len(y), sigma**2))


def test_a_zero_that_stands_out_and_null_keep_their_counts_and_shares_sum_to_one() -> None:
    sigma = 20.0
    y = np.append(np.round(EXPONENTIAL + np.random.default_rng(3).normal(0, sigma, CELLS)), 700.0)
    y[0] += 1_500
    widths = np.append(np.ones(CELLS), 0.0)
    bins = AttributeBins(np.arange(CELLS + 1, dtype=np.int32), ((0, CELLS),), True, widths, points=ZERO)
    recode = {"x": build_recode(y, sigma)}
    found = smooth_one_ways(recode, recode, {"x": bins})["x"]
    assert np.isclose(found.estimate.sum(), y.sum(), atol=0.1)
    assert abs(found.estimate[0] - y[0]) < 2 * sigma
    assert abs(found.estimate[-1] - 700) < 2 * sigma
    assert (found.estimate >= 0).all()
    assert np.allclose(np.bincount(found.coarse, weights=found.weight), 1.0)


def test_a_zero_that_does_not_stand_out_has_its_part_of_the_smoothed_density() -> None:
    sigma = 20.0
    y = np.full(CELLS, 100.0) + np.random.default_rng(4).normal(0, sigma, CELLS)
    y[0] = 20.0
    bins = AttributeBins(np.arange(CELLS, dtype=np.int32), ((0, CELLS),), True, np.ones(CELLS), points=ZERO)
    recode = {"x": build_recode(y, sigma)}
    found = smooth_one_ways(recode, recode, {"x": bins})["x"]
    assert np.isclose(found.estimate[0], found.estimate[1], atol=0.01)
    assert abs(found.estimate[0] - 100) < 25


def release_counts(truth: np.ndarray, sigma: float, seed: int, points: Points | None = None) -> np.ndarray:
    """Return the counts that rows follow, of noisy counts of a column with open bins."""
    y = truth + np.random.default_rng(seed).normal(0, sigma, len(truth))
    bins = AttributeBins(np.arange(len(y), dtype=np.int32), ((0, len(y)),), True, np.ones(len(y)), points=points)
    recode = {"x": build_recode(y, sigma)}
    return smooth_one_ways(recode, recode, {"x": bins})["x"].estimate


def compute_deviation(counts: np.ndarray) -> float:
    cells = np.arange(len(counts))
    mean = np.average(cells, weights=counts)
    return float(np.sqrt(np.average((cells - mean) ** 2, weights=counts)))


def test_noise_puts_no_rows_far_from_all_others() -> None:
    truth = np.where(np.arange(CELLS) < 12, 4_000.0 * 0.6 ** np.arange(CELLS), 0.0)
    found = [release_counts(truth, 30.0, seed) for seed in range(10)]
    assert np.mean([counts[24:].sum() for counts in found]) < 25.0  # 40 cells, of 30 rows of noise each
    assert np.median([compute_deviation(counts) for counts in found]) < 1.25 * compute_deviation(truth)
    downwards = [release_counts(truth[::-1], 30.0, seed) for seed in range(10)]
    assert np.mean([counts[:-24].sum() for counts in downwards]) < 25.0


def test_a_long_tail_and_a_value_far_out_that_many_rows_share_stay() -> None:
    truth = 3_000 / (1 + np.arange(CELLS)) ** 1.5
    truth[50] += 600
    found = np.mean([release_counts(truth, 20.0, seed) for seed in range(10)], axis=0)
    assert abs(found[50] - truth[50]) < 50
    assert abs(found[20:50].sum() - truth[20:50].sum()) < 0.25 * truth[20:50].sum()


def test_few_rows_beside_many_zeros_lie_near_them() -> None:
    truth = np.append(5_000.0, 40 * 0.8 ** np.arange(CELLS - 1))
    found = np.mean([release_counts(truth, 40.0, seed, ZERO) for seed in range(10)], axis=0)
    assert found[1:17].sum() > 3 * found[17:].sum()
