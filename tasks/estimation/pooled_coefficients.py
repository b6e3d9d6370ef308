"""Departures of pairs from independence in an orthonormal basis, shrunk with a prior fitted to all pairs together.

Not in the paper.  Post-processing of released counts with a public sigma costs no budget.

A pair's departure over its expected counts is a sum of products of functions of one attribute each (Lancaster, "The
Structure of Bivariate Distributions", Annals of Mathematical Statistics 29, 1958).  For ordered codes the functions are
cosines of the rank.  The first cosine is a trend: a rank correlation is nearly one coefficient, and averages the noise
of many cells.  Codes without an order, such as null, have contrasts, by falling share.
A coefficient is normal around 0 with one of a few standard deviations, mixed in unknown shares.  Empirical Bayes
(expectation maximization) fits the shares to all coefficients of one kind at once.  One pair cannot separate a weak
trend from noise; a hundred pairs show how strong trends are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique

Floats = NDArray[np.float64]

SCALES = 4.0 ** np.arange(-12, 3)
"""Variances of the mixture's components; for a trend, a squared correlation."""

LEAST_SHARE = 1e-4
"""Smallest share of the rows assumed for a code."""

FITTED_COEFFICIENTS = 100_000
"""Largest number of coefficients of one kind that the shares are fitted to."""

_ROUNDS = 60
_CLOSE = 1e-4  # shares that move by less have settled
_NOMINAL = 0  # the level of a contrast of codes; levels of cosines start at 1
_TREND = 0  # the kind of the product of two first cosines


@dataclass(frozen=True, eq=False)
class NoisyPair:
    """Noisy ``counts`` and the ``expected`` counts of independence, of one shape; noise ``variance`` of a cell, > 0.

    ``trend_deviation``: standard deviation of the pair's trend query, which was pooled into the counts.
    ``ordered``: mask of the ordered codes of each attribute, or None; two codes need no order.
    """

    attributes: Clique
    counts: Floats
    expected: Floats
    variance: float
    trend_deviation: float = np.inf
    ordered: tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None] = (None, None)


@dataclass(frozen=True, eq=False)
class _Basis:
    """Functions of an attribute's codes, shape (codes, codes - 1), orthonormal under the shares, shape (codes,).

    ``level``: of each function, shape (codes - 1,); ``reach``: square root of the share of the rows with codes in the
    function's domain.  Coefficients are divided by it, so that a trend is a correlation among these rows.
    ``spread``: sum of squares of each centred function, divided by its squared reach.
    """

    functions: Floats
    share: Floats
    level: NDArray[np.int64]
    reach: Floats

    @property
    def spread(self) -> Floats:
        return ((self.functions - self.functions.mean(axis=0)) ** 2).sum(axis=0) / self.reach**2


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """A pair's coefficients in its two bases; noise ``variance`` and ``kind`` have shape (functions, functions)."""

    first: _Basis
    second: _Basis
    expected: Floats
    variance: Floats
    kind: NDArray[np.int64]

    def read(self, counts: Floats) -> Floats:
        """Return the coefficients of noisy counts."""
        total = float(self.expected.sum())
        projected = self.first.functions.T @ (counts - self.expected) @ self.second.functions / total
        return np.asarray(projected / np.outer(self.first.reach, self.second.reach))

    def rebuild(self, coefficients: Floats) -> Floats:
        """Return the counts with these coefficients."""
        first, second = (b.share[:, None] * b.functions * b.reach for b in (self.first, self.second))
        return np.asarray(self.expected + float(self.expected.sum()) * first @ coefficients @ second.T)


@dataclass(frozen=True, eq=False)
class PooledEstimator:
    """Estimator of a pair's cells; ``shares``: shares of SCALES by kind of coefficient."""

    coefficients: _Coefficients
    shares: Mapping[int, Floats]

    def __call__(self, counts: Floats) -> Floats:
        """Return the posterior means of the cells, in the shape of the noisy ``counts``."""
        return self.coefficients.rebuild(self._estimate(counts))

    def keep_trend(self, counts: Floats, estimate: Floats) -> Floats:
        """Return another ``estimate`` of the cells with its trend replaced by the posterior trend of noisy ``counts``.

        The noise of the cells averages out in a trend; cell-by-cell shrinkage would draw the trend to 0.
        """
        difference = self._estimate(counts) - self.coefficients.read(estimate)
        moved = np.where(self.coefficients.kind == _TREND, difference, 0.0)
        return estimate + self.coefficients.rebuild(moved) - self.coefficients.expected

    def _estimate(self, counts: Floats) -> Floats:
        """Return the posterior means of the coefficients of noisy ``counts``."""
        noisy, variance = self.coefficients.read(counts), self.coefficients.variance.ravel()
        return compute_posterior_mean(noisy.ravel(), variance, self._shares_of_each).reshape(noisy.shape)

    @cached_property
    def _shares_of_each(self) -> Floats:
        """The shares of SCALES for each coefficient, shape (scales, coefficients)."""
        kinds, which = np.unique(self.coefficients.kind.ravel(), return_inverse=True)
        shares = np.array([self.shares[int(kind)] for kind in kinds]).reshape(len(kinds), len(SCALES))
        return np.ascontiguousarray(shares[which].T)


def fit_pooled_coefficients(pairs: Sequence[NoisyPair]) -> list[PooledEstimator]:
    """Return an estimator for each pair."""
    read = [_read_pair(pair) for pair in pairs]
    by_kind: dict[int, list[tuple[Floats, Floats]]] = {}
    for pair, coefficients in zip(pairs, read, strict=True):
        values = coefficients.read(pair.counts)
        for kind in np.unique(coefficients.kind):
            chosen = coefficients.kind == kind
            by_kind.setdefault(int(kind), []).append((values[chosen], coefficients.variance[chosen]))
    shares = {
        kind: fit_scales(*(np.concatenate(part) for part in zip(*values, strict=True)))
        for kind, values in by_kind.items()
    }
    return [PooledEstimator(coefficients, shares) for coefficients in read]


def _read_pair(pair: NoisyPair) -> _Coefficients:
    first, second = (
        _build_basis(pair.expected.sum(axis=1 - axis), ordered) for axis, ordered in enumerate(pair.ordered)
    )
    total = float(pair.expected.sum())
    variance = pair.variance / total**2 * np.outer(first.spread, second.spread)
    low, high = np.minimum.outer(first.level, second.level), np.maximum.outer(first.level, second.level)
    octave = np.floor(2 * np.log2(np.maximum(low, 1) * np.maximum(high, 1))).astype(np.int64)
    kind = np.where(low == _NOMINAL, np.where(high == _NOMINAL, -1, -2 - octave), octave)
    looked = np.where(kind == _TREND, pair.trend_deviation**-2.0, 0.0)
    return _Coefficients(first, second, pair.expected, 1 / (1 / variance + looked), kind)


def _build_basis(counts: Floats, ordered: NDArray[np.bool_] | None) -> _Basis:
    share = np.maximum(counts / counts.sum(), LEAST_SHARE)
    share = share / share.sum()
    codes = len(share)
    has_order = np.ones(codes, bool) if codes == 2 else np.zeros(codes, bool) if ordered is None else ordered
    by_share = np.argsort(-share, kind="stable")
    contrasts = by_share[~has_order[by_share]][: codes - 1]  # a full set with the constant would be dependent
    ordered_share = np.where(has_order, share, 0.0)
    rank = (np.cumsum(ordered_share) - ordered_share / 2) / max(float(ordered_share.sum()), LEAST_SHARE)
    cosines = np.arange(1, codes - len(contrasts))
    waves = np.where(has_order[:, None], np.cos(np.pi * np.multiply.outer(rank, cosines)), 0.0)
    raw = np.concatenate([np.ones((codes, 1)), np.eye(codes)[:, contrasts], waves], axis=1)
    weight = np.sqrt(share)[:, None]
    functions = np.linalg.qr(weight * raw)[0] / weight
    level = np.append(np.full(len(contrasts), _NOMINAL), cosines)
    reach = np.where(level == _NOMINAL, 1.0, np.sqrt(max(float(ordered_share.sum()), LEAST_SHARE)))
    return _Basis(functions[:, 1:], share, level, reach)


def _compute_likelihoods(coefficients: Floats, variance: Floats) -> Floats:
    """Return each coefficient's likelihood under each scale, its largest 1; shape (scales, coefficients)."""
    total = SCALES[:, None] + variance
    logs = -0.5 * (np.log(total) + coefficients**2 / total)
    return np.asarray(np.exp(logs - logs.max(axis=0)))


def fit_scales(coefficients: Floats, variance: Floats, before: Floats | None = None) -> Floats:
    """Return the maximum-likelihood shares of the scales, shape (scales,).

    ``before``: pseudo-counts of coefficients on each scale, shape (scales,); 0 by default.
    """
    every = max(1, -(-coefficients.size // FITTED_COEFFICIENTS))
    likelihood = _compute_likelihoods(coefficients[::every], variance[::every])
    seen = np.zeros(len(SCALES)) if before is None else before
    return fit_mixture(likelihood, _ROUNDS, _CLOSE, seen=seen, weight=float(seen.sum()))


def fit_mixture(
    likelihood: Floats,
    rounds: int,
    close: float = 0.0,
    *,
    start: Floats | None = None,
    seen: Floats | float = 0.0,
    weight: float = 0.0,
) -> Floats:
    """Return the shares of a mixture's components by expectation maximization, shape (components,).

    likelihood: shape (components, cells), 1 at each cell's maximum.  A component's new share is its mean posterior
    probability over the cells and the ``seen`` pseudo-cells of each component, ``weight`` in sum.  ``start``: the first
    shares (None: equal ones).  It ends once no share moves by ``close``, after ``rounds`` at most.
    """
    parts, cells = likelihood.shape
    shares = np.full(parts, 1.0 / parts) if start is None else start
    for _ in range(rounds):
        before, counted = shares, shares * (likelihood @ (1.0 / (shares @ likelihood)))
        shares = (counted + seen) / (cells + weight)
        if np.abs(shares - before).max() < close:
            break
    return shares


def compute_posterior_mean(coefficients: Floats, variance: Floats, shares: Floats) -> Floats:
    """Return the posterior means of coefficients with noise of this variance.

    ``shares``: shares of the scales, shape (scales,), or for each coefficient, (scales, coefficients).
    """
    chance = shares.reshape(len(SCALES), -1) * _compute_likelihoods(coefficients, variance)
    follows = (chance * (SCALES[:, None] / (SCALES[:, None] + variance))).sum(axis=0) / chance.sum(axis=0)
    return np.asarray(follows * coefficients)
