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
from functools import lru_cache
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
_LEFT = 0.05  # of the noise at least is left in the cells, whatever directions take
_STEP = 0.1  # of the noise's standard deviation: by how much counts are moved to see how an estimate follows


def shrink_marginal(
    counts: Floats, expected: Floats, variance: float, other: Callable[[Floats], Floats] | None = None
) -> Shrunk:
    """Return the estimate of every cell, and the chance that it is empty.

    counts: unbiased noisy counts; expected: non-negative counts that agree with those of all parts of one attribute
    less; variance: of the noise as measured in each cell, >= 0, of which averaging with the parts has taken a degree
    of freedom per cell of theirs. Without noise, or where nothing is expected anywhere, the counts stay as they are.
    other: one more estimator of a pair's cells, whose estimate is averaged with these two in the same way.
    """
    if variance <= 0 or not (expected > 0).any():
        return Shrunk(counts, np.zeros(counts.shape))
    left = variance * float(np.prod([1 - 1 / size for size in counts.shape]))
    if left <= 0:
        return Shrunk(counts, np.zeros(counts.shape))
    cells = CellMixture(expected, left)
    by_cell, shares, empty = cells.estimate(counts)
    if counts.ndim != 2:
        return Shrunk(by_cell, empty)
    candidates = [(by_cell, lambda y: cells.estimate(y, shares).mean)]
    sigma = float(np.sqrt(variance))
    directions = estimate_low_rank(counts - expected, sigma)
    if directions.degrees:
        rest = left * max(_LEFT, 1 - directions.degrees / directions.all_degrees)
        trend = np.maximum(expected + directions.estimate, 0.0)
        around, around_shares, _ = compute_posterior_means(counts, trend, rest)

        def around_directions(y: Floats) -> Floats:
            trend = np.maximum(expected + estimate_low_rank(y - expected, sigma).estimate, 0.0)
            return compute_posterior_means(y, trend, rest, around_shares).mean

        candidates.append((around, around_directions))
    if other is not None:
        candidates.append((other(counts), other))
    return Shrunk(_average_by_risk(counts, candidates, variance), empty)


def _average_by_risk(
    counts: Floats, candidates: Sequence[tuple[Floats, Callable[[Floats], Floats]]], variance: float
) -> Floats:
    """Return the average of estimates, each with its estimator, with weights that fall with Stein's risk of each."""
    if len(candidates) == 1:
        return candidates[0][0]
    risks = [estimate_stein_risk(estimator, counts, estimate, variance) for estimate, estimator in candidates]
    weights = np.exp(-np.minimum((np.array(risks) - min(risks)) / RISK_TEMPERATURE, 50.0))
    return np.asarray(np.tensordot(weights / weights.sum(), np.stack([e for e, _ in candidates]), axes=1))


def choose_nearer(counts: Floats, usual: tuple[Floats, Shrunk], other: Floats, variance: float) -> Shrunk:
    """Return the estimates around two expectations of a pair, by the weights that Stein's risk of each gives.

    usual: what is expected, and the estimate around it; other: what else may be expected, as counts of one total.
    """
    left = variance * float(np.prod([1 - 1 / size for size in counts.shape]))
    if left <= 0:
        return usual[1]
    around = shrink_marginal(counts, other, variance)
    risks = []
    for expected in (usual[0], other):
        cells = CellMixture(expected, left)
        found = cells.estimate(counts)

        def shrink(y: Floats, cells: CellMixture = cells, shares: Floats = found.shares) -> Floats:
            return cells.estimate(y, shares).mean

        risks.append(estimate_stein_risk(shrink, counts, found.mean, variance))
    weight = 1.0 / (1.0 + np.exp(np.clip((risks[1] - risks[0]) / RISK_TEMPERATURE, -50.0, 50.0)))
    return Shrunk(*(weight * o + (1 - weight) * u for o, u in zip(around, usual[1], strict=True)))


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
    left, values, right = np.linalg.svd(departure, full_matrices=False)
    y = values / unit
    rank = int((y > 1 + np.sqrt(ratio)).sum())
    shrunk = np.sqrt((y[:rank] ** 2 - ratio - 1) ** 2 - 4 * ratio) / y[:rank]
    return LowRank(left[:, :rank] * (shrunk * unit) @ right[:rank], rank * (rows + columns - rank), rows * columns)
