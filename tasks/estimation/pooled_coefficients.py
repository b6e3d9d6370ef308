"""Departures of pairs from independence in an orthonormal basis, shrunk by what all pairs of the table say together.

Not in the paper.  Post-processing of released counts with a public sigma costs no budget.

A pair's departure over its expected counts is a sum of products of functions of one attribute each (Lancaster, "The
Structure of Bivariate Distributions", Annals of Mathematical Statistics 29, 1958).  For an ordered attribute these are
cosines of the rank, the first of them a trend: a rank correlation is nearly one coefficient, in which many cells'
noise averages out.  For others they are contrasts of the codes, by falling share.  A coefficient is normal around 0
with one of a few standard deviations, mixed in unknown shares, and the shares are fitted to those of one kind
of all pairs at once (empirical Bayes by expectation maximization): one pair cannot tell a weak trend from noise, a
hundred can tell how strong trends are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique

Floats = NDArray[np.float64]

SCALES = 4.0 ** np.arange(-12, 3)
"""Variances of coefficients that are mixed; that of a trend is a squared correlation."""

LEAST_SHARE = 1e-4
"""Share of the rows that a code is taken to have at least."""

FITTED_COEFFICIENTS = 100_000
"""Coefficients of one kind, at most, that the shares are fitted to."""

_ROUNDS = 60
_CLOSE = 1e-4  # shares that move by less have settled
_NOMINAL = 0  # the level of a contrast of codes; those of cosines count from 1


@dataclass(frozen=True, eq=False)
class NoisyPair:
    """Noisy ``counts``, and ``expected`` ones of independence, of one shape; ``variance``: of a cell's noise, > 0."""

    attributes: Clique
    counts: Floats
    expected: Floats
    variance: float


@dataclass(frozen=True, eq=False)
class _Basis:
    """Functions of an attribute's codes, shape (codes, codes - 1), orthonormal under the shares, shape (codes,).

    ``level``: of each function, shape (codes - 1,); ``spread``: the sum of squares of each less its mean.
    """

    functions: Floats
    share: Floats
    level: NDArray[np.int64]

    @property
    def spread(self) -> Floats:
        return ((self.functions - self.functions.mean(axis=0)) ** 2).sum(axis=0)


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """The coefficients of a pair by its two bases, of their noise ``variance``; all of shape (functions, functions)."""

    first: _Basis
    second: _Basis
    expected: Floats
    variance: Floats
    kind: NDArray[np.int64]

    def read(self, counts: Floats) -> Floats:
        """Return the coefficients of noisy counts."""
        total = float(self.expected.sum())
        return np.asarray(self.first.functions.T @ (counts - self.expected) @ self.second.functions / total)

    def rebuild(self, coefficients: Floats) -> Floats:
        """Return the counts that have these coefficients."""
        left = self.first.share[:, None] * self.first.functions
        right = self.second.share[:, None] * self.second.functions
        return np.asarray(self.expected + float(self.expected.sum()) * left @ coefficients @ right.T)


def fit_pooled_coefficients(pairs: Sequence[NoisyPair], ordered: AbstractSet[str]) -> list[Callable[[Floats], Floats]]:
    """Return an estimator of each pair: from noisy counts to the posterior means of its cells, of the same shape.

    ordered: attributes whose codes have an order; an attribute of two codes needs none.
    """
    read = [_read_pair(pair, ordered) for pair in pairs]
    by_kind: dict[int, list[tuple[Floats, Floats]]] = {}
    for pair, coefficients in zip(pairs, read, strict=True):
        found = coefficients.read(pair.counts)
        for kind in np.unique(coefficients.kind):
            chosen = coefficients.kind == kind
            by_kind.setdefault(int(kind), []).append((found[chosen], coefficients.variance[chosen]))
    shares = {
        kind: fit_scales(*(np.concatenate(part) for part in zip(*found, strict=True)))
        for kind, found in by_kind.items()
    }
    return [_build_estimator(coefficients, shares) for coefficients in read]


def _build_estimator(coefficients: _Coefficients, shares: dict[int, Floats]) -> Callable[[Floats], Floats]:
    def estimate(counts: Floats) -> Floats:
        found = coefficients.read(counts)
        for kind in np.unique(coefficients.kind):
            chosen = coefficients.kind == kind
            found[chosen] = compute_posterior_mean(found[chosen], coefficients.variance[chosen], shares[int(kind)])
        return coefficients.rebuild(found)

    return estimate


def _read_pair(pair: NoisyPair, ordered: AbstractSet[str]) -> _Coefficients:
    first, second = (
        _build_basis(pair.expected.sum(axis=1 - axis), is_ordered=a in ordered)
        for axis, a in enumerate(pair.attributes)
    )
    total = float(pair.expected.sum())
    variance = pair.variance / total**2 * np.outer(first.spread, second.spread)
    low, high = np.minimum.outer(first.level, second.level), np.maximum.outer(first.level, second.level)
    octave = np.floor(2 * np.log2(np.maximum(low, 1) * np.maximum(high, 1))).astype(np.int64)
    kind = np.where(low == _NOMINAL, np.where(high == _NOMINAL, -1, -2 - octave), octave)
    return _Coefficients(first, second, pair.expected, variance, kind)


def _build_basis(counts: Floats, *, is_ordered: bool) -> _Basis:
    share = np.maximum(counts / counts.sum(), LEAST_SHARE)
    share = share / share.sum()
    codes = len(share)
    if is_ordered or codes == 2:
        rank = np.cumsum(share) - share / 2
        raw = np.cos(np.pi * np.multiply.outer(rank, np.arange(codes)))
        level = np.arange(1, codes)
    else:
        by_share = np.argsort(-share, kind="stable")
        raw = np.concatenate([np.ones((codes, 1)), np.eye(codes)[:, by_share[: codes - 1]]], axis=1)
        level = np.full(codes - 1, _NOMINAL)
    weight = np.sqrt(share)[:, None]
    functions = np.linalg.qr(weight * raw)[0] / weight
    return _Basis(functions[:, 1:], share, level)


def _compute_likelihoods(coefficients: Floats, variance: Floats) -> Floats:
    """Return how likely each is under each scale, 1 at its best; shape (scales, coefficients)."""
    total = SCALES[:, None] + variance
    logs = -0.5 * (np.log(total) + coefficients**2 / total)
    return np.asarray(np.exp(logs - logs.max(axis=0)))


def fit_scales(coefficients: Floats, variance: Floats, before: Floats | None = None) -> Floats:
    """Return the shares of the scales of most likelihood, shape (scales,).

    ``before``: how many coefficients of each scale count as seen elsewhere, shape (scales,); none by default.
    """
    seen = np.zeros(len(SCALES)) if before is None else before
    every = max(1, -(-coefficients.size // FITTED_COEFFICIENTS))
    likelihood = _compute_likelihoods(coefficients[::every], variance[::every])
    shares = np.full(len(SCALES), 1.0 / len(SCALES))
    for _ in range(_ROUNDS):
        last, counted = shares, shares * (likelihood @ (1.0 / (shares @ likelihood)))
        shares = (counted + seen) / (likelihood.shape[1] + seen.sum())
        if np.abs(shares - last).max() < _CLOSE:
            break
    return shares


def compute_posterior_mean(coefficients: Floats, variance: Floats, shares: Floats) -> Floats:
    """Return what is expected of coefficients with noise of this variance; ``shares``: of the scales."""
    chance = shares[:, None] * _compute_likelihoods(coefficients, variance)
    follows = (chance * (SCALES[:, None] / (SCALES[:, None] + variance))).sum(axis=0) / chance.sum(axis=0)
    return np.asarray(follows * coefficients)
