"""Noisy one-ways drawn towards a public table, as far as they themselves say that it is like the private one.

Not in the paper.  Empirical Bayes: a cell's true count departs from what the public table expects, by sampling of both
tables and by a relative departure of one of a few scales, mixed in unknown shares.  The shares are fitted to the noisy
counts by expectation maximization, of each attribute around those of all, and each cell gets its posterior mean and
variance.  Where the public table is unlike the private one, the widest scale takes all, and the noisy counts stay.
Post-processing of released counts with a public table costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SCALES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Standard deviations of a count's departure, as shares of what is expected."""

UNINFORMATIVE_SCALE = 0.25
"""Standard deviation of the departure of a count of which the public table says nothing, as a share of all rows."""

POOLING_CELLS = 4.0
"""So many cells of its own weigh as much for an attribute's shares as all attributes together."""

MIN_PRIOR_PROBABILITY = 0.5
"""Chance above which the public table is taken to tell of an attribute."""

_ROUNDS = 25


def expect_shares(public: NDArray[np.integer], size: int) -> Floats:
    """Return share of each of ``size`` codes by the public table's ``public`` codes, none of them 0; sums to 1.

    One row more is spread evenly over all codes.
    """
    counts = np.bincount(public, minlength=size) + 1.0 / size
    return np.asarray(counts / counts.sum())


class ShrunkCounts(NamedTuple):
    """Posterior means and variances of the counts of an attribute, both of the noisy counts' shape.

    ``follows``: the sum of how much each mean follows its own noisy count.
    """

    mean: Floats
    variance: Floats
    follows: float


def shrink_towards_prior(
    noisy: Mapping[str, Floats], sigma: Mapping[str, float], public: Mapping[str, NDArray[np.integer]]
) -> dict[str, ShrunkCounts]:
    """Return the counts drawn towards the public table, of attributes in which it tells more than an even spread does.

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
    """``follows``: of each cell's departure, the part that is kept; ``evidence``: the attribute's log likelihood."""

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


def _compute_odds(ahead: Mapping[str, float]) -> dict[str, float]:
    """Return chance of each attribute that the public table tells of it, by its log odds and how many it tells of."""
    factor = np.exp(np.clip(np.array(list(ahead.values())), -50.0, 50.0))
    share = 0.5
    for _ in range(_ROUNDS):
        chance = share * factor / (share * factor + 1 - share)
        share = float((chance.sum() + 1) / (len(factor) + 2))
    return dict(zip(ahead, (share * factor / (share * factor + 1 - share)).tolist(), strict=True))


def count_noisy_rows(noisy: Sequence[Floats], sigma: Sequence[float]) -> float:
    """Return the inverse-variance mean of the totals."""
    precision = [1.0 / (len(y) * s**2) for y, s in zip(noisy, sigma, strict=True)]
    return float(np.dot(precision, [y.sum() for y in noisy]) / np.sum(precision))


def _compute_variances(expected: Floats, rows: float, public_rows: int) -> Floats:
    """Return the variance of a true count's departure from what is expected, by scale.

    Shape (scales + 1, cells), above 0.
    """
    sampling = np.maximum(expected, rows / public_rows / 2) * (1 + rows / public_rows)
    scaled = np.multiply.outer(np.array(SCALES) ** 2, expected**2) + sampling
    return np.vstack([scaled, np.full(len(expected), (UNINFORMATIVE_SCALE * rows) ** 2)])


def _fit_shares(likelihood: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the shares of the scales by attribute, drawn towards those of all cells (POOLING_CELLS)."""
    parts = len(next(iter(likelihood.values())))
    everything = np.concatenate(list(likelihood.values()), axis=1)
    common = _maximize_expectation(everything, np.full(parts, 1.0 / parts), 1.0)
    return {a: _maximize_expectation(cells, common, POOLING_CELLS) for a, cells in likelihood.items()}


def _maximize_expectation(likelihood: Floats, centre: Floats, weight: float) -> Floats:
    """Return the shares of a mixture with a Dirichlet prior of ``weight`` cells around ``centre``."""
    shares = centre
    for _ in range(_ROUNDS):
        expected = shares * (likelihood @ (1.0 / (shares @ likelihood)))
        shares = (expected + weight * centre) / (likelihood.shape[1] + weight)
    return shares
