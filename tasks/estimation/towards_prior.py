"""Noisy one-ways shrunk towards a public table, as far as the noisy counts show that the two tables are alike.

Not in the paper.  Empirical Bayes: a cell's true count departs from the public table's expectation.  The departure
comes from the sampling of both tables and from a relative departure on one of a few scales, mixed in unknown shares.
Expectation maximization fits the shares to the noisy counts, each attribute's around the common ones, and each cell
gets its posterior mean and variance.  If the tables are unalike, the widest scale wins, and the noisy counts stay.
Post-processing of released counts with a public table costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.pooled_coefficients import fit_mixture

Floats = NDArray[np.float64]

SCALES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Standard deviations of a count's departure, as shares of the expected count."""

UNINFORMATIVE_SCALE = 0.25
"""Standard deviation of a departure if the public table is uninformative, as a share of all rows."""

POOLING_CELLS = 4.0
"""Weight of the common shares in an attribute's own, in cells."""

MIN_PRIOR_PROBABILITY = 0.5
"""Probability above which the public table counts as informative about an attribute."""

_ROUNDS = 25


def expect_shares(public: NDArray[np.integer], size: int) -> Floats:
    """Return the share of each of ``size`` codes among the ``public`` rows' codes; shares are above 0 and sum to 1.

    One extra row is spread evenly over all codes.
    """
    counts = np.bincount(public, minlength=size) + 1.0 / size
    return np.asarray(counts / counts.sum())


class ShrunkCounts(NamedTuple):
    """Posterior means and variances of an attribute's counts, both in the noisy counts' shape.

    ``follows``: the sum over cells of the weight of the noisy count in the mean.
    """

    mean: Floats
    variance: Floats
    follows: float


def shrink_towards_prior(
    noisy: Mapping[str, Floats], sigma: Mapping[str, float], public: Mapping[str, NDArray[np.integer]]
) -> dict[str, ShrunkCounts]:
    """Return the shrunk counts of the attributes that the public table predicts better than an even spread does.

    noisy: attribute -> noisy counts; sigma: attribute -> their noise, in counts; public: attribute -> codes of the
    public table's rows, at least one row.
    """
    rows = max(count_noisy_rows(list(noisy.values()), list(sigma.values())), 1.0)
    public_rows = len(next(iter(public.values())))
    expected = {a: rows * expect_shares(public[a], len(y)) for a, y in noisy.items()}
    even = {a: np.full(len(y), rows / len(y)) for a, y in noisy.items()}
    fits = {}
    for name, centre in (("public", expected), ("even", even)):
        variances = {a: _compute_variances(e, rows, public_rows) for a, e in centre.items()}
        fits[name] = _fit_counts({a: y - centre[a] for a, y in noisy.items()}, variances, sigma)
    odds = _compute_odds({a: fits["public"][a].evidence - fits["even"][a].evidence for a in noisy})
    shrunk = {}
    for a, y in noisy.items():
        if odds[a] > MIN_PRIOR_PROBABILITY:
            follows = fits["public"][a].follows
            mean = expected[a] + follows * (y - expected[a])
            shrunk[a] = ShrunkCounts(mean, follows * sigma[a] ** 2, float(follows.sum()))
    return shrunk


class _DepartureFit(NamedTuple):
    """``follows``: share of each cell's departure that is kept; ``evidence``: the attribute's log likelihood."""

    follows: Floats
    evidence: float


def _fit_counts(
    departures: Mapping[str, Floats], variances: Mapping[str, Floats], sigma: Mapping[str, float]
) -> dict[str, _DepartureFit]:
    logs = {}
    for a, departure in departures.items():
        total = variances[a] + sigma[a] ** 2
        logs[a] = -0.5 * (np.log(total) + departure**2 / total)
    best = {a: values.max(axis=0) for a, values in logs.items()}
    likelihood = {a: np.exp(values - best[a]) for a, values in logs.items()}
    fits = {}
    for a, shares in _fit_shares(likelihood).items():
        chance = shares[:, None] * likelihood[a]
        chance_of_all = chance.sum(axis=0)
        follows = (chance / chance_of_all * (variances[a] / (variances[a] + sigma[a] ** 2))).sum(axis=0)
        fits[a] = _DepartureFit(follows, float((np.log(chance_of_all) + best[a]).sum()))
    return fits


def _compute_odds(log_odds: Mapping[str, float]) -> dict[str, float]:
    """Return the probability that the public table informs each attribute, from its log odds and their common share."""
    factor = np.exp(np.clip(np.array(list(log_odds.values())), -50.0, 50.0))
    share = 0.5
    for _ in range(_ROUNDS):
        chance = share * factor / (share * factor + 1 - share)
        share = float((chance.sum() + 1) / (len(factor) + 2))
    return dict(zip(log_odds, (share * factor / (share * factor + 1 - share)).tolist(), strict=True))


def count_noisy_rows(noisy: Sequence[Floats], sigma: Sequence[float]) -> float:
    """Return the number of rows: the inverse-variance mean of the one-ways' totals."""
    precision = [1.0 / (len(y) * s**2) for y, s in zip(noisy, sigma, strict=True)]
    return float(np.dot(precision, [y.sum() for y in noisy]) / np.sum(precision))


def _compute_variances(expected: Floats, rows: float, public_rows: int) -> Floats:
    """Return the variance of each true count's departure by scale, shape (scales + 1, cells), above 0."""
    sampling = np.maximum(expected, rows / public_rows / 2) * (1 + rows / public_rows)
    scaled = np.multiply.outer(np.array(SCALES) ** 2, expected**2) + sampling
    return np.vstack([scaled, np.full(len(expected), (UNINFORMATIVE_SCALE * rows) ** 2)])


def _fit_shares(likelihood: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the shares of the scales by attribute, drawn towards the common shares (POOLING_CELLS)."""

    def fit(cells: Floats, centre: Floats, weight: float) -> Floats:  # a Dirichlet prior around the centre
        return fit_mixture(cells, _ROUNDS, start=centre, seen=weight * centre, weight=weight)

    parts = len(next(iter(likelihood.values())))
    common = fit(np.concatenate(list(likelihood.values()), axis=1), np.full(parts, 1.0 / parts), 1.0)
    return {a: fit(cells, common, POOLING_CELLS) for a, cells in likelihood.items()}
