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

    About 60 bins in the body, so that wide distributions keep power against wrong shapes, and smaller ones towards the
    tails, so that cut or heavy tails are seen.  A draw outside the support (beyond 12 sigma) has probability below
    1e-32 and gives p = 0.
    """
    support, probabilities = pmf(sigma)
    if np.any(np.abs(sample) > support[-1]):
        return 0.0
    observed = np.bincount(np.asarray(sample) + support[-1], minlength=len(support))
    expected = probabilities * len(sample)
    beyond = np.minimum(np.cumsum(expected), np.cumsum(expected[::-1])[::-1])  # expected here and further out
    group = _groups(expected, np.clip(beyond / 4, MIN_EXPECTED, max(MIN_EXPECTED, len(sample) / 60)))
    return float(stats.chisquare(np.bincount(group, observed), np.bincount(group, expected)).pvalue)


def _groups(expected: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Bin number of each support point: consecutive points until ``least`` of the point is expected.

    The rest joins the last bin.
    """
    bins, total, current = np.empty(len(expected), dtype=np.int64), 0.0, 0
    for i, e in enumerate(expected):
        bins[i] = current
        total += e
        if total >= least[i]:
            current, total = current + 1, 0.0
    return np.minimum(bins, max(current - 1, 0))
