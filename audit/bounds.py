"""From evidence to a lower bound on epsilon: what many runs prove about the promise.

Two figures, each with a stated confidence, both by Clopper and Pearson's exact intervals of the two error rates:

- **epsilon**: an (epsilon, delta)-private release has P(T | one table) <= exp(epsilon) P(T | the other) + delta for
  every test T, so epsilon >= ln((lower bound of P - delta) / upper bound of the other P).  Whatever the mechanism is.
- **mu**: under mu-Gaussian privacy (Dong, Roth and Su 2022) false positives and false negatives of every test are on or
  above those of N(0, 1) against N(mu, 1), so mu >= -z(false positives) - z(false negatives), z the normal quantile.
  It needs fewer runs, because it looks at the middle of the evidence where epsilon at a delta looks at its tail.  It is
  a bound on what a release promises where the accountant proves mu = sqrt(2 rho) ("gaussian"); under the others it
  only says how much of the budget the audit has seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Evidence = Mapping[str, NDArray[np.float64]]
"""Statistic -> its value in every run, shape (runs,)."""

CONFIDENCE = 0.95
"""That a bound is right: of both error rates together."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon or mu, and the test that proves it: ``statistic`` at least ``threshold``.

    ``swapped``: the test speaks for the table *without* the canary where the statistic is below the threshold.
    """

    value: float
    statistic: str
    threshold: float
    swapped: bool = False


def bound_epsilon(without: Evidence, with_canary: Evidence, delta: float, confidence: float = CONFIDENCE) -> Bound:
    """Return a lower bound on epsilon at ``delta``; 0 if nothing is proven.

    ``without``, ``with_canary``: the evidence of independent runs on each of two neighbours.  The first quarter of
    the runs chooses statistic, threshold and direction, the rest is evaluated once: the confidence is the stated one.
    ValueError for fewer than 4 runs of either.
    """
    return _find_best_bound(without, with_canary, confidence, lambda high, low: _compute_log_ratio(high, low, delta))


def bound_mu(without: Evidence, with_canary: Evidence, confidence: float = CONFIDENCE) -> Bound:
    """Return a lower bound on mu; as :func:`bound_epsilon`."""
    return _find_best_bound(without, with_canary, confidence, _compute_mu)


def bound_mu_at(
    without: NDArray[np.float64], with_canary: NDArray[np.float64], threshold: float, confidence: float = CONFIDENCE
) -> float:
    """Return a lower bound on mu by one test that was chosen beforehand: the statistic is at least ``threshold``.

    All runs are evaluated.  For a log-likelihood ratio 0 is the threshold at which both error rates are alike.
    """
    each = 1 - (1 - confidence) / 2
    values = _measure_thresholds(without, with_canary, np.array([threshold]), False, each, _compute_mu)
    return max(float(values[0]), 0.0)


def merge_evidence(parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence of several chunks of runs as one."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compute_clopper_pearson(hits: NDArray[np.int64], runs: int, confidence: float) -> tuple[NDArray, NDArray]:
    """Return the lower and upper bounds of a rate after ``hits`` of ``runs``, each right with ``confidence``."""
    miss = 1 - confidence
    lower = np.where(hits > 0, stats.beta.ppf(miss, hits, runs - hits + 1), 0.0)
    upper = np.where(hits < runs, stats.beta.ppf(1 - miss, hits + 1, runs - hits), 1.0)
    return lower, upper


def _compute_log_ratio(high: NDArray[np.float64], low: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """Return ln((P - delta) / Q) from the lower bound of P and the upper bound of Q."""
    return np.log(np.maximum(high - delta, 1e-300) / low)


def _compute_mu(high: NDArray[np.float64], low: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -z(Q) - z(1 - P) from the lower bound of P and the upper bound of Q."""
    return np.asarray(stats.norm.ppf(high) - stats.norm.ppf(low))


def _find_best_bound(without: Evidence, with_canary: Evidence, confidence: float, measure) -> Bound:  # type: ignore[no-untyped-def]
    runs = min(len(next(iter(e.values()))) for e in (without, with_canary))
    if runs < 4:
        raise ValueError(f"a bound needs at least 4 runs of each table, not {runs}")
    each = 1 - (1 - confidence) / 2  # two rates, each wrong with half of what may go wrong
    best = Bound(-math.inf, "", 0.0)
    for name in without:
        a, b = (np.asarray(e[name][: len(e[name]) // 4]) for e in (without, with_canary))
        thresholds = np.unique(np.concatenate([a, b]))
        for swapped in (False, True):
            values = _measure_thresholds(a, b, thresholds, swapped, each, measure)
            at = int(np.argmax(values))
            if values[at] > best.value:
                best = Bound(float(values[at]), name, float(thresholds[at]), swapped)
    a, b = (np.asarray(e[best.statistic][len(e[best.statistic]) // 4 :]) for e in (without, with_canary))
    value = _measure_thresholds(a, b, np.array([best.threshold]), best.swapped, each, measure)[0]
    return Bound(max(float(value), 0.0), best.statistic, best.threshold, best.swapped)


def _measure_thresholds(  # type: ignore[no-untyped-def]
    without: NDArray[np.float64],
    with_canary: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    swapped: bool,
    each: float,
    measure,
) -> NDArray[np.float64]:
    """Return the measure of each threshold, shape (thresholds,)."""
    below = [np.searchsorted(np.sort(e), thresholds, side="left") for e in (without, with_canary)]
    sizes = [len(without), len(with_canary)]
    if swapped:  # the test says "without" below the threshold
        high, low, sizes = below[0], below[1], sizes
    else:  # the test says "with" from the threshold on
        high, low, sizes = sizes[1] - below[1], sizes[0] - below[0], sizes[::-1]
    lower, _ = compute_clopper_pearson(high, sizes[0], each)
    _, upper = compute_clopper_pearson(low, sizes[1], each)
    return np.asarray(measure(lower, upper))
