"""How much of a noisy marginal's departure from its parts is signal: empirical Bayes, cell by cell and in directions.

Not in the paper. Post-processing of released counts with a public sigma costs no budget.

Cell by cell: a cell's departure is normal around 0, with a standard deviation that grows with the expected count e as
t e^(3/4); t is one of a few scales, mixed in unknown shares.  The shares are fitted to the noisy marginal itself by
expectation maximization (maximum likelihood), and each cell gets its posterior mean.  A cell whose noise hides all is
drawn to what the parts say; one that stands out keeps its count.  One more part of the mixture are cells that are
empty: where a column follows from another, most are, however many rows independence would expect there.

In directions: a trend moves every cell a little, and no cell stands out.  So the departures of a pair are also taken
around their low-rank part, by shrunk singular values (a correlation is mostly of rank 1; Gavish and Donoho, "Optimal
Shrinkage of Singular Values", IEEE Transactions on Information Theory 63, 2017).  Which of the two is nearer to the
true counts, Stein's unbiased estimate of the risk tells from the noisy counts alone, and they are averaged with
weights that fall exponentially with it (Leung and Barron, "Information Theory and Mixing Least-Squares Regressions",
IEEE Transactions on Information Theory 52, 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.kernels.streams import derive_stream, draw_uniforms

Floats = NDArray[np.float64]

SCALES = 10.0 ** np.arange(-3, 4)
"""Variances of the departures that are mixed, in units of the noise's where the expected count is the median."""

VARIANCE_POWER = 1.5
"""The variance of a departure grows with the expected count to this power: between counting noise (1) and a constant
relative departure (2)."""

RISK_TEMPERATURE = 8.0
"""Difference of two risks, in units of the noise's variance, at which their weights are e to 1; from 4 on there is a
proof, for linear estimates of known noise."""


class Shrunk(NamedTuple):
    """Estimates of all cells, and the chance of each that its true count is 0; both of the shape of the counts."""

    mean: Floats
    empty: Floats


class Posterior(NamedTuple):
    """An estimate as :class:`Shrunk`, with the fitted ``shares`` of SCALES and, last, of empty cells.

    Shape (scales + 1,).
    """

    mean: Floats
    shares: Floats
    empty: Floats


_ROUNDS = 25
_CLOSE = 1e-3  # shares that move by less have settled
_LEAST_NOISE_SHARE = 0.05  # of the noise at least is left in the cells, whatever directions take
_STEP = 0.1  # of the noise's standard deviation: by how much counts are moved to see how an estimate follows


def shrink_marginal(
    counts: Floats,
    expected: Floats,
    variance: float,
    further_estimator: Callable[[Floats], Floats] | None = None,
    alternative: Floats | None = None,
) -> Shrunk:
    """Return the estimate of every cell, and the chance that it is empty.

    Args:
        counts: Unbiased noisy counts.
        expected: Counts >= 0 of the same shape that agree with those of all parts of one attribute less.
        variance: Of the noise as measured in each cell, >= 0; averaging with the parts has taken a degree of freedom
            per cell of theirs.  Without noise, or where nothing is expected anywhere, the counts stay as they are.
        further_estimator: Of a pair's cells; its estimate is averaged with those by cells and by directions.
        alternative: What else may be expected of a pair, of the same total: the estimates around the two are averaged
            by the weights that Stein's risk of each, cell by cell, gives.
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
    """An estimate of the cells, and Stein's risk of it, computed where it is asked for."""

    mean: Floats
    risk: Callable[[], float]


@dataclass(frozen=True, eq=False)
class _Expectation:
    """Noisy ``counts`` as departures from what is ``expected`` of them; ``remaining_variance``: of their noise.

    All as of :func:`shrink_marginal`.
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
        """Stein's risk of the estimate cell by cell."""
        return self._estimate_risk(lambda y: self._cells.estimate(y, self._by_cell.shares).mean, self._by_cell.mean)

    def _estimate_risk(self, estimator: Callable[[Floats], Floats], estimate: Floats) -> float:
        return estimate_stein_risk(estimator, self.counts, estimate, self.variance)

    def shrink(self, further_estimator: Callable[[Floats], Floats] | None = None) -> Shrunk:
        """Return the average of the estimates of the cells by the weights of their risks."""
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
        """Return the estimate cell by cell around the low-rank part."""
        rest = self.remaining_variance * max(_LEAST_NOISE_SHARE, 1 - directions.degrees / directions.all_degrees)
        trend = np.maximum(self.expected + directions.estimate, 0.0)
        around, shares, _ = compute_posterior_means(self.counts, trend, rest)

        def estimate(y: Floats) -> Floats:
            trend = np.maximum(self.expected + estimate_low_rank(y - self.expected, self._sigma).estimate, 0.0)
            return compute_posterior_means(y, trend, rest, shares).mean

        return _Estimate(around, lambda: self._estimate_risk(estimate, around))


def shrink_counts(counts: Floats, expected: Floats, sigma: float) -> Floats:
    """Return counts drawn towards ``expected``, of the same shape, by positive-part James-Stein.

    They move by the share of their squared distance that noise of deviation ``sigma`` a cell explains.
    """
    distance = float(((counts - expected) ** 2).sum())
    signal_share = max(0.0, 1 - counts.size * sigma**2 / distance) if distance > 0 else 0.0
    return np.asarray(expected + signal_share * (counts - expected))


def _average_by_risk(estimates: Sequence[_Estimate]) -> Floats:
    """Return the average of estimates with weights that fall with Stein's risk of each."""
    if len(estimates) == 1:
        return estimates[0].mean
    risks = [e.risk() for e in estimates]
    weights = np.exp(-np.minimum((np.array(risks) - min(risks)) / RISK_TEMPERATURE, 50.0))
    return np.asarray(np.tensordot(weights / weights.sum(), np.stack([e.mean for e in estimates]), axes=1))


def estimate_stein_risk(
    estimator: Callable[[Floats], Floats], counts: Floats, estimate: Floats, variance: float
) -> float:
    """Return Stein's unbiased estimate of the squared error of ``estimate`` = estimator(counts).

    In units of ``variance`` > 0, up to a constant that all estimates share.  counts: two-dimensional, with noise of
    that variance in each cell.

    How far an estimator follows the noise is seen by moving the counts (Ramani, Blu and Unser, "Monte-Carlo SURE", IEEE
    Transactions on Image Processing 17, 2008): every cell by one step up or down, the signs a fixed public sequence,
    less the means of rows and columns, which averaging has settled.
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
    """The mixture that departures of cells from what is expected come from, and noise.

    expected: >= 0; variance: of the noise in each cell, > 0.
    """

    def __init__(self, expected: Floats, variance: float) -> None:
        self._expected, self._variance = expected, variance
        expectation = np.maximum(expected.ravel(), 1e-3) ** VARIANCE_POWER
        prior = np.multiply.outer(SCALES * variance / float(np.median(expectation)), expectation)
        self._total = prior + variance
        self._logs, self._follows = np.log(self._total), prior / self._total

    def estimate(self, counts: Floats, shares: Floats | None = None) -> Posterior:
        """Return the posterior of every cell; ``shares``: fitted to the counts unless they are given."""
        y, departure = counts.ravel(), (counts - self._expected).ravel()
        likelihood = -0.5 * (self._logs + departure**2 / self._total)
        likelihood = np.vstack([likelihood, -0.5 * (np.log(self._variance) + y**2 / self._variance)])
        likelihood = np.exp(likelihood - likelihood.max(axis=0))
        if shares is None:
            shares = _fit_shares(likelihood)
        chance = shares[:, None] * likelihood
        chance /= chance.sum(axis=0)
        follows = (chance[:-1] * self._follows).sum(axis=0)
        mean = self._expected + (follows * departure - chance[-1] * self._expected.ravel()).reshape(counts.shape)
        return Posterior(mean, shares, chance[-1].reshape(counts.shape))


def compute_posterior_means(
    counts: Floats, expected: Floats, variance: float, shares: Floats | None = None
) -> Posterior:
    """Return the posterior of every cell by its :class:`CellMixture`."""
    return CellMixture(expected, variance).estimate(counts, shares)


def _fit_shares(likelihood: Floats) -> Floats:
    """Fit the shares of a mixture's parts by expectation maximization.

    likelihood: shape (parts, cells), 1 at each cell's best.

    A part's new share is the mean over the cells of its probability there.
    """
    parts, cells = likelihood.shape
    shares = np.full(parts, 1.0 / parts)
    for _ in range(_ROUNDS):
        before, shares = shares, shares * (likelihood @ (1.0 / (shares @ likelihood))) / cells
        if np.abs(shares - before).max() < _CLOSE:
            break
    return shares


@dataclass(frozen=True)
class LowRank:
    """``estimate``: of the shape of the matrix; it takes ``degrees`` of the matrix's ``all_degrees`` of freedom."""

    estimate: Floats
    degrees: int
    all_degrees: int


def estimate_low_rank(departure: Floats, sigma: float) -> LowRank:
    """Return the low-rank estimate of least expected squared error, for large tables (Gavish and Donoho, section III).

    departure: shape (rows, columns), whose sums over rows and over columns are about 0, so that it has one row and
    column less than it seems; sigma: standard deviation of the noise in each cell, > 0.  A singular value within the
    bulk that noise alone would make is dropped, one above it loses what noise adds to it.
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
