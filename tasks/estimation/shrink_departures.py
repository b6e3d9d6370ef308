"""How much of a noisy marginal's departure from its parts is signal: empirical Bayes, cell by cell and in directions.

Not in the paper. Post-processing of released counts with a public sigma costs no budget.

Cell by cell: a cell's departure is normal around 0, with a standard deviation that grows with the expected count e as
t e^(3/4); t is one of a few scales, mixed in unknown shares.  The shares are fitted to the noisy marginal itself by
expectation maximization (maximum likelihood), and each cell gets its posterior mean.  A cell whose noise hides all is
drawn to what the parts say; one that stands out keeps its count.

In directions: a trend moves every cell a little, and no cell stands out.  So the departures of a pair are also taken
around their low-rank part (a correlation is mostly of rank 1).  Which of the two is nearer to the true counts, Stein's
unbiased estimate of the risk tells from the noisy counts alone, and they are averaged with weights that fall
exponentially with it (Leung and Barron, "Information Theory and Mixing Least-Squares Regressions", IEEE Transactions
on Information Theory 52, 2006).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.low_rank import low_rank
from privsyn.tasks.kernels.streams import stream, uniforms

Floats = NDArray[np.float64]

SCALES = 10.0 ** np.arange(-3, 4)
"""Variances of the departures that are mixed, in units of the noise's where the expected count is the median."""

POWER = 1.5
"""The variance of a departure grows with the expected count to this power: between counting noise (1) and a constant
relative departure (2)."""

TEMPERATURE = 8.0
"""Difference of two risks, in units of the noise's variance, at which their weights are e to 1; from 4 on there is a
proof, for linear estimates of known noise."""

_ROUNDS = 25
_CLOSE = 1e-3  # shares that move by less have settled
_LEFT = 0.05  # of the noise at least is left in the cells, whatever directions take
_STEP = 0.1  # of the noise's standard deviation: by how much counts are moved to see how an estimate follows


def shrink_marginal(counts: Floats, expected: Floats, variance: float) -> Floats:
    """Estimate of every cell, of the shape of ``counts``.

    counts: unbiased noisy counts; expected: non-negative counts that agree with those of all parts of one attribute
    less; variance: of the noise as measured in each cell, >= 0, of which averaging with the parts has taken a degree
    of freedom per cell of theirs. Without noise, or where nothing is expected anywhere, the counts stay as they are.
    """
    if variance <= 0 or not (expected > 0).any():
        return counts
    left = variance * float(np.prod([1 - 1 / size for size in counts.shape]))
    if left <= 0:
        return counts
    by_cell, shares = posterior_means(counts, expected, left)
    if counts.ndim != 2:
        return by_cell
    sigma = float(np.sqrt(variance))
    directions = low_rank(counts - expected, sigma)
    if not directions.degrees:
        return by_cell
    rest = left * max(_LEFT, 1 - directions.degrees / directions.all_degrees)
    around, around_shares = posterior_means(counts, np.maximum(expected + directions.estimate, 0.0), rest)

    def around_directions(y: Floats) -> Floats:
        trend = np.maximum(expected + low_rank(y - expected, sigma).estimate, 0.0)
        return posterior_means(y, trend, rest, around_shares)[0]

    worse = stein_risk(around_directions, counts, around, variance)
    worse -= stein_risk(lambda y: posterior_means(y, expected, left, shares)[0], counts, by_cell, variance)
    weight = 1.0 / (1.0 + np.exp(np.clip(worse / TEMPERATURE, -50.0, 50.0)))
    return weight * around + (1 - weight) * by_cell


def stein_risk(estimator: Callable[[Floats], Floats], counts: Floats, estimate: Floats, variance: float) -> float:
    """Stein's unbiased estimate of the squared error of ``estimate`` = estimator(counts), in units of ``variance`` > 0,
    up to a constant that all estimates share.  counts: two-dimensional, with noise of that variance in each cell.

    How far an estimator follows the noise is seen by moving the counts (Ramani, Blu and Unser, "Monte-Carlo SURE", IEEE
    Transactions on Image Processing 17, 2008): every cell by one step up or down, the signs a fixed public sequence,
    less the means of rows and columns, which averaging has settled.
    """
    signs = np.where(uniforms(stream(counts.shape[0], counts.shape[1]), counts.size) < 0.5, -1.0, 1.0)
    moves = signs.reshape(counts.shape)
    moves = moves - moves.mean(axis=0)
    moves = moves - moves.mean(axis=1, keepdims=True)
    step = _STEP * float(np.sqrt(variance))
    followed = float((moves * (estimator(counts + step * moves) - estimate)).sum()) / step
    return float(((estimate - counts) ** 2).sum()) / variance + 2 * followed


def posterior_means(
    counts: Floats, expected: Floats, variance: float, shares: Floats | None = None
) -> tuple[Floats, Floats]:
    """Posterior mean of every cell, of the shape of ``counts``, and the shares of SCALES, shape (scales,).

    expected: of the same shape, >= 0; variance: of the noise in each cell, > 0; shares: fitted to the counts unless
    they are given.
    """
    expectation = np.maximum(expected.ravel(), 1e-3) ** POWER
    departure = (counts - expected).ravel()
    prior = np.multiply.outer(SCALES * variance / float(np.median(expectation)), expectation)
    total = prior + variance
    likelihood = -0.5 * (np.log(total) + departure**2 / total)
    likelihood = np.exp(likelihood - likelihood.max(axis=0))
    if shares is None:
        shares = _fitted_shares(likelihood)
    kept = shares @ (likelihood * (prior / total)) / (shares @ likelihood)
    return expected + (kept * departure).reshape(counts.shape), shares


def _fitted_shares(likelihood: Floats) -> Floats:
    """The shares of the scales, by expectation maximization; likelihood: shape (scales, cells), 1 at each cell's best.

    A scale's new share is the mean over the cells of its probability there.
    """
    scales, cells = likelihood.shape
    shares = np.full(scales, 1.0 / scales)
    for _ in range(_ROUNDS):
        before, shares = shares, shares * (likelihood @ (1.0 / (shares @ likelihood))) / cells
        if np.abs(shares - before).max() < _CLOSE:
            break
    return shares
