"""Shrinkage of a noisy marginal towards its expected counts: empirical Bayes, cell by cell and by singular vectors.

Not in the paper. Post-processing of released counts with a public sigma costs no budget.

Cell by cell: a cell's departure is normal around 0.  Its standard deviation is t e^(3/4) for the expected count e; t is
one of a few scales, mixed in unknown shares.  Expectation maximization fits the shares to the noisy marginal itself
(maximum likelihood), and each cell gets its posterior mean.  A cell below the noise is drawn to its expected count; one
that stands out keeps its count.  One more component of the mixture holds empty cells: if one column determines
another, most cells are empty, however many rows independence expects there.

By singular vectors: a trend moves every cell a little, and no cell stands out.  So the departures of a pair are also
shrunk around their low-rank part, because a correlation has mostly rank 1.  The singular values of this part are shrunk
(Gavish and Donoho, "Optimal Shrinkage of Singular Values", IEEE Transactions on Information Theory 63, 2017).  Stein's
unbiased estimate gives the risk of both estimates from the noisy counts alone.  Their average has weights that fall
exponentially with the risk (Leung and Barron, "Information Theory and Mixing Least-Squares Regressions", IEEE
Transactions on Information Theory 52, 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.pooled_coefficients import fit_mixture
from privsyn.tasks.kernels.streams import derive_stream, draw_uniforms

Floats = NDArray[np.float64]

SCALES = 10.0 ** np.arange(-3, 4)
"""Variances of the mixture's components at the median expected count, in units of the noise variance."""

VARIANCE_POWER = 1.5
"""A departure's variance is the expected count to this power: between counting noise (1) and a constant relative
departure (2)."""

RISK_TEMPERATURE = 8.0
"""Difference of two risks, in units of the noise variance, that makes one weight e times the other.  From 4 on there is
a proof, for linear estimates under known noise."""


class Shrunk(NamedTuple):
    """Estimates of all cells, and the probability that each cell's true count is 0; both in the counts' shape."""

    mean: Floats
    empty: Floats


class Posterior(NamedTuple):
    """A :class:`Shrunk` estimate with fitted ``shares`` of SCALES and, last, of empty cells: shape (scales + 1,)."""

    mean: Floats
    shares: Floats
    empty: Floats


_ROUNDS = 25
_CLOSE = 1e-3  # shares that move by less have settled
_LEAST_NOISE_SHARE = 0.05  # least share of the noise variance left around the low-rank part
_STEP = 0.1  # size of the moves that probe an estimator, in standard deviations of the noise


def shrink_marginal(
    counts: Floats,
    expected: Floats,
    variance: float,
    further_estimator: Callable[[Floats], Floats] | None = None,
    alternative: Floats | None = None,
) -> Shrunk:
    """Return the estimate of every cell, and the probability that it is empty.

    Args:
        counts: Unbiased noisy counts.
        expected: Counts >= 0 of the same shape that agree with all marginals on one attribute fewer.
        variance: Noise variance of each measured cell, >= 0.  The counts already agree with the lower marginals, which
            removes degrees of freedom.  If the variance or all of ``expected`` is 0, the counts stay as they are.
        further_estimator: Another estimator of a pair's cells, averaged with the other two.
        alternative: Other expected counts of a pair, with the same total.  The estimates around the two are averaged
            by Stein's risk of the cell-by-cell estimates.
    """
    if variance <= 0 or not (expected > 0).any():
        return Shrunk(counts, np.zeros(counts.shape))
    remaining_variance = variance * float(np.prod([1 - 1 / size for size in counts.shape]))
    if remaining_variance <= 0:
        return Shrunk(counts, np.zeros(counts.shape))
    around_expected = _Expectation(counts, expected, variance, remaining_variance)
    if alternative is None:
        return around_expected.shrink(further_estimator)
    around_alternative = _Expectation(counts, alternative, variance, remaining_variance)
    log_odds = np.clip((around_alternative.risk - around_expected.risk) / RISK_TEMPERATURE, -50.0, 50.0)
    weight = 1.0 / (1.0 + np.exp(log_odds))
    pairs = zip(around_alternative.shrink(), around_expected.shrink(further_estimator), strict=True)
    return Shrunk(*(weight * second + (1 - weight) * first for second, first in pairs))


class _Estimate(NamedTuple):
    """An estimate of the cells, and a function that computes its Stein risk."""

    mean: Floats
    risk: Callable[[], float]


@dataclass(frozen=True, eq=False)
class _Expectation:
    """Noisy ``counts`` as departures from ``expected``, with the arguments of :func:`shrink_marginal`.

    ``remaining_variance``: noise variance of a cell after the counts agree with the lower marginals.
    """

    counts: Floats
    expected: Floats
    variance: float
    remaining_variance: float

    @cached_property
    def _cells(self) -> CellMixture:
        return CellMixture(self.expected, self.remaining_variance)

    @cached_property
    def _by_cell(self) -> Posterior:
        return self._cells.estimate(self.counts)

    @cached_property
    def risk(self) -> float:
        """Stein's risk of the cell-by-cell estimate."""
        return self._estimate_risk(lambda y: self._cells.estimate(y, self._by_cell.shares).mean, self._by_cell.mean)

    def _estimate_risk(self, estimator: Callable[[Floats], Floats], estimate: Floats) -> float:
        return estimate_stein_risk(estimator, self.counts, estimate, self.variance)

    def shrink(self, further_estimator: Callable[[Floats], Floats] | None = None) -> Shrunk:
        """Return the estimates of the cells, averaged by risk."""
        if self.counts.ndim != 2:
            return Shrunk(self._by_cell.mean, self._by_cell.empty)
        estimates = [_Estimate(self._by_cell.mean, lambda: self.risk)]
        directions = estimate_low_rank(self.counts - self.expected, self._sigma)
        if directions.degrees:
            estimates.append(self._shrink_around(directions))
        if further_estimator is not None:
            mean = further_estimator(self.counts)
            estimates.append(_Estimate(mean, lambda: self._estimate_risk(further_estimator, mean)))
        return Shrunk(_average_by_risk(estimates), self._by_cell.empty)

    @property
    def _sigma(self) -> float:
        return float(np.sqrt(self.variance))

    def _shrink_around(self, directions: LowRank) -> _Estimate:
        """Return the cell-by-cell estimate around the low-rank part."""
        rest = self.remaining_variance * max(_LEAST_NOISE_SHARE, 1 - directions.degrees / directions.all_degrees)
        trend = np.maximum(self.expected + directions.estimate, 0.0)
        around, shares, _ = compute_posterior_means(self.counts, trend, rest)

        def estimate(y: Floats) -> Floats:
            trend = np.maximum(self.expected + estimate_low_rank(y - self.expected, self._sigma).estimate, 0.0)
            return compute_posterior_means(y, trend, rest, shares).mean

        return _Estimate(around, lambda: self._estimate_risk(estimate, around))


def shrink_counts(counts: Floats, expected: Floats, sigma: float) -> Floats:
    """Return counts drawn towards ``expected``, of the same shape, by positive-part James-Stein.

    They move by the share of the squared distance that noise of standard deviation ``sigma`` explains.
    """
    distance = float(((counts - expected) ** 2).sum())
    signal_share = max(0.0, 1 - counts.size * sigma**2 / distance) if distance > 0 else 0.0
    return np.asarray(expected + signal_share * (counts - expected))


def _average_by_risk(estimates: Sequence[_Estimate]) -> Floats:
    """Return the average of the estimates; weights fall exponentially with Stein's risk."""
    if len(estimates) == 1:
        return estimates[0].mean
    risks = [e.risk() for e in estimates]
    weights = np.exp(-np.minimum((np.array(risks) - min(risks)) / RISK_TEMPERATURE, 50.0))
    return np.asarray(np.tensordot(weights / weights.sum(), np.stack([e.mean for e in estimates]), axes=1))


def estimate_stein_risk(
    estimator: Callable[[Floats], Floats], counts: Floats, estimate: Floats, variance: float
) -> float:
    """Return Stein's unbiased estimate of the squared error of ``estimate`` = estimator(counts).

    The risk is in units of ``variance`` > 0, up to a constant that all estimates share.  counts: two-dimensional, with
    noise of that variance in each cell.

    Moving the counts shows how far the estimator follows the noise (Ramani, Blu and Unser, "Monte-Carlo SURE", IEEE
    Transactions on Image Processing 17, 2008).  Every cell moves one step up or down by a fixed public sequence of
    signs, less the means of rows and columns, which the lower marginals fix.
    """
    moves = _list_moves(*counts.shape)
    step = _STEP * float(np.sqrt(variance))
    followed = float((moves * (estimator(counts + step * moves) - estimate)).sum()) / step
    return float(((estimate - counts) ** 2).sum()) / variance + 2 * followed


@lru_cache(maxsize=256)
def _list_moves(rows: int, columns: int) -> Floats:
    signs = np.where(draw_uniforms(derive_stream(rows, columns), rows * columns) < 0.5, -1.0, 1.0)
    moves = signs.reshape(rows, columns)
    moves = moves - moves.mean(axis=0)
    moves -= moves.mean(axis=1, keepdims=True)
    moves.flags.writeable = False
    return moves


class CellMixture:
    """The mixture model of departures from ``expected`` >= 0 under noise of ``variance`` > 0 in each cell."""

    def __init__(self, expected: Floats, variance: float) -> None:
        self._expected, self._variance = expected, variance
        expectation = np.maximum(expected.ravel(), 1e-3) ** VARIANCE_POWER
        prior = np.multiply.outer(SCALES * variance / float(np.median(expectation)), expectation)
        self._total = prior + variance
        self._logs, self._follows = np.log(self._total), prior / self._total

    def estimate(self, counts: Floats, shares: Floats | None = None) -> Posterior:
        """Return the posterior of every cell; ``shares`` are fitted to the counts unless given."""
        y, departure = counts.ravel(), (counts - self._expected).ravel()
        likelihood = -0.5 * (self._logs + departure**2 / self._total)
        likelihood = np.vstack([likelihood, -0.5 * (np.log(self._variance) + y**2 / self._variance)])
        likelihood = np.exp(likelihood - likelihood.max(axis=0))
        if shares is None:
            shares = fit_mixture(likelihood, _ROUNDS, _CLOSE)
        chance = shares[:, None] * likelihood
        chance /= chance.sum(axis=0)
        follows = (chance[:-1] * self._follows).sum(axis=0)
        mean = self._expected + (follows * departure - chance[-1] * self._expected.ravel()).reshape(counts.shape)
        return Posterior(mean, shares, chance[-1].reshape(counts.shape))


def compute_posterior_means(
    counts: Floats, expected: Floats, variance: float, shares: Floats | None = None
) -> Posterior:
    """Return the posterior of every cell under :class:`CellMixture`."""
    return CellMixture(expected, variance).estimate(counts, shares)


@dataclass(frozen=True)
class LowRank:
    """``estimate``, in the matrix's shape, uses ``degrees`` of its ``all_degrees`` degrees of freedom."""

    estimate: Floats
    degrees: int
    all_degrees: int


def estimate_low_rank(departure: Floats, sigma: float) -> LowRank:
    """Return the low-rank estimate with the least expected squared error in large tables (Gavish and Donoho, III).

    departure: shape (rows, columns); its row and column sums are about 0, so it has one row and one column fewer than
    its shape.  sigma: standard deviation of the noise in each cell, > 0.  Singular values within the bulk of pure noise
    are dropped; larger ones are shrunk by what noise adds to them.
    """
    rows, columns = (n - 1 for n in departure.shape)
    few, many = min(rows, columns), max(rows, columns)
    if few < 1:
        return LowRank(np.zeros_like(departure), 0, 0)
    unit, ratio = sigma * np.sqrt(many), few / many
    left_vectors, values, right_vectors = np.linalg.svd(departure, full_matrices=False)
    y = values / unit
    rank = int((y > 1 + np.sqrt(ratio)).sum())
    shrunk = np.sqrt((y[:rank] ** 2 - ratio - 1) ** 2 - 4 * ratio) / y[:rank]
    return LowRank(
        left_vectors[:, :rank] * (shrunk * unit) @ right_vectors[:rank], rank * (rows + columns - rank), rows * columns
    )
