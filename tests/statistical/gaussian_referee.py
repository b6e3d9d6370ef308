"""A referee for integer noise: does a sample come from the discrete Gaussian N_Z(0, sigma^2)?

Belongs here: the exact pmf and Pearson's chi-square test against it, independent of any sampler.
It must reject too little noise, too much noise and the wrong shape; test_noise.py tests that too.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

MIN_EXPECTED = 25.0


def pmf(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Support (integers within 12 sigma + 12) and P(x) proportional to exp(-x^2 / (2 sigma^2))."""
    reach = int(np.ceil(12 * sigma)) + 12
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-((support / sigma) ** 2) / 2)
    return support, weights / weights.sum()


def p_value(sample: np.ndarray, sigma: float) -> float:
    """p-value of Pearson's chi-square, on bins of consecutive integers with at least MIN_EXPECTED expected.

    At most about 60 bins, so that wide distributions keep power against wrong shapes.  A draw outside
    the support (beyond 12 sigma) has probability below 1e-32 and gives p = 0.
    """
    support, probabilities = pmf(sigma)
    if np.any(np.abs(sample) > support[-1]):
        return 0.0
    observed = np.bincount(np.asarray(sample) + support[-1], minlength=len(support))
    expected = probabilities * len(sample)
    group = _groups(expected, max(MIN_EXPECTED, len(sample) / 60))
    return float(stats.chisquare(np.bincount(group, observed), np.bincount(group, expected)).pvalue)


def _groups(expected: np.ndarray, least: float) -> np.ndarray:
    """Bin number of each support point: consecutive points until ``least`` is expected; the rest joins the last."""
    bins, total, current = np.empty(len(expected), dtype=np.int64), 0.0, 0
    for i, e in enumerate(expected):
        bins[i] = current
        total += e
        if total >= least:
            current, total = current + 1, 0.0
    return np.minimum(bins, max(current - 1, 0))
