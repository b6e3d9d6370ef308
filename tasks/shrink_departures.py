"""How much of a noisy pair is signal, cell by cell: empirical Bayes towards independence.

Belongs here: the estimate of one pair's counts, given its noise and what its one-ways say.  Does not belong here:
averaging and projection (make_consistent.py), shrinking towards the rows made so far (synthesis/shrink.py).
Not in the paper.  Post-processing of released counts with a public sigma: costs no budget.

The model: a cell's departure from independence is normal around 0, with a standard deviation that grows with the
expected count e as t e^(3/4); t is one of a few scales, mixed in unknown shares.  The shares are fitted to the noisy
pair itself by expectation maximization (maximum likelihood), and each cell gets its posterior mean.  A cell whose noise
hides all is drawn to independence; one that stands out keeps its count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SCALES = 10.0 ** np.arange(-3, 4)
"""Variances of the departures that are mixed, in units of the noise's where the expected count is the median."""

POWER = 1.5
"""The variance of a departure grows with the expected count to this power: between counting noise (1) and a constant
relative departure (2)."""

_ROUNDS = 25
_CLOSE = 1e-3  # shares that move by less have settled


def shrink_pair(counts: Floats, expected: Floats, variance: Floats) -> Floats:
    """Posterior mean of every cell, of the shape of ``counts``.

    counts: unbiased noisy counts; expected: non-negative counts under independence; variance: of the noise in each
    cell, >= 0.  Without noise, or where nothing is expected anywhere, the counts stay as they are.
    """
    noise = np.broadcast_to(variance, counts.shape).ravel()
    expectation = np.maximum(expected.ravel(), 1e-3) ** POWER
    typical = float(np.median(noise))
    if typical <= 0 or not (expected > 0).any():
        return counts
    departure = (counts - expected).ravel()
    prior = np.multiply.outer(SCALES * typical / float(np.median(expectation)), expectation)
    total = prior + noise
    likelihood = -0.5 * (np.log(total) + departure**2 / total)
    likelihood = np.exp(likelihood - likelihood.max(axis=0))
    shares = np.full(len(SCALES), 1.0 / len(SCALES))
    for _ in range(_ROUNDS):
        before, shares = shares, _posterior(likelihood, shares).mean(axis=1)
        if np.abs(shares - before).max() < _CLOSE:
            break
    kept = (_posterior(likelihood, shares) * (prior / total)).sum(axis=0)
    return expected + (kept * departure).reshape(counts.shape)


def _posterior(likelihood: Floats, shares: Floats) -> Floats:
    """Probability of each scale in each cell, shape (scales, cells)."""
    weighted = likelihood * shares[:, None]
    return weighted / weighted.sum(axis=0)
