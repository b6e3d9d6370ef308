"""Pairs of a public table: joint counts that agree with the private one-ways, and whether to trust them.

Not in the paper.  With a public table, noisy scores are distances from its pairs instead of from independence: a pair
that it predicts well needs no budget.  Post-processing with a public table costs none either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.marginals import Marginal, compute_factors
from privsyn.tasks.estimation.pair_departures import FRACTION_BITS, MAX_ROWS, IndependentCounts
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain
from privsyn.tasks.estimation.towards_prior import shrink_towards_prior
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.synthesis.implied_pairs import IMPLIED_SIGMA_FACTOR, list_missing_pairs

Floats = NDArray[np.float64]

DISTANCE_FACTOR_DEVIATION = 0.5
"""Prior standard deviation, around 1, of the factor between actual and expected distances from chance and noise."""

_FITTING = 8  # passes of iterative proportional fitting


@dataclass(frozen=True, eq=False)
class PriorPairs:
    """The pairs of the public ``rows`` (coarse codes; the code ``size`` for a filtered value).

    ``informed``: the attributes for which the public table is informative; it is ignored for all others.
    ``independent``: the reference without a public table; the pairs are fitted to its shares.
    ``errors``: attribute -> expected L1 error of its noisy one-way, in records.
    """

    rows: CodeTable
    independent: IndependentCounts
    informed: frozenset[str]
    errors: Mapping[str, float]

    @classmethod
    def of(cls, public: CodeTable, recode: Recode) -> PriorPairs:
        """Return the pairs of public rows in fine codes, under a released recoding."""
        informed = frozenset(a for a, r in recode.items() if r.by_prior) | _find_attributes_covered(public, recode)
        errors = {a: float(np.sqrt(2 * r.sum_codes(r.variance) / math.pi).sum()) for a, r in recode.items()}
        return cls(_coarsen(public, recode), IndependentCounts.of(recode), informed, errors)

    def counts(self, a: str, b: str) -> NDArray[np.int64]:
        """Return the public table's expected counts of a pair (``ExpectedCounts.counts``)."""
        (table,) = self.compute_shares([(a, b)])
        return np.rint(np.ldexp(table * min(self.independent.total, MAX_ROWS), FRACTION_BITS)).astype(np.int64)

    def coarse(self, pair: Clique) -> Floats:
        """Return the pair's shares without filtered values."""
        (table,) = self.compute_shares([pair])
        return table[:-1, :-1]

    def compute_shares(self, pairs: Sequence[Clique]) -> list[Floats]:
        """Return the shares of every pair, shape (size + 1, size + 1) with filtered values last; each sums to 1."""
        shares = self.independent.shares
        informed_pairs = [p for p in pairs if self.informed.issuperset(p)]
        counted = dict(zip(informed_pairs, self.rows.counts(informed_pairs, threads=1), strict=True))
        return [
            fit_shares(smooth_counts(counted[p].astype(np.float64)), shares[p[0]], shares[p[1]])
            if p in counted
            else np.outer(shares[p[0]], shares[p[1]])
            for p in pairs
        ]

    def distances(self, pairs: Sequence[Clique]) -> tuple[Floats, Floats, Floats]:
        """Return three L1 distances in records, shape (pairs,) each.

        They are the expected distances from sampling and from the noise of the one-ways, and the public table's own
        departure from independence.
        """
        total, shares = self.independent.total, self.independent.shares
        chance, departure = np.zeros(len(pairs)), np.zeros(len(pairs))
        for i, ((a, b), table) in enumerate(zip(pairs, self.compute_shares(pairs), strict=True)):
            expected = total * table
            chance[i] = np.minimum(np.sqrt(2 * expected / math.pi), 2 * expected).sum()
            departure[i] = np.abs(expected - total * np.outer(shares[a], shares[b])).sum()
        return chance, np.array([math.hypot(self.errors[a], self.errors[b]) for a, b in pairs]), departure


def _coarsen(public: CodeTable, recode: Recode) -> CodeTable:
    """Return public rows in coarse codes, with the code ``size`` for filtered values."""
    sizes = {a: r.size + 1 for a, r in recode.items()}
    columns = tuple(recode[a].coarse[public.column(a)].astype(choose_code_dtype(n)) for a, n in sizes.items())
    return CodeTable(Domain.of(sizes), columns)


def _find_attributes_covered(public: CodeTable, recode: Recode) -> frozenset[str]:
    """Return the attributes, among those not shrunk towards the prior, for which the prior is informative.

    Their noisy counts gain nothing from shrinkage, but the prior still informs their pairs.
    """
    noisy = {a: r.estimate for a, r in recode.items() if not r.by_prior}
    sigma = {a: float(np.sqrt(recode[a].noise)) for a in noisy}
    rows = {a: public.column(a) for a in noisy}
    return frozenset(shrink_towards_prior(noisy, sigma, rows)) if noisy else frozenset()


def smooth_counts(counts: Floats) -> Floats:
    """Return a pair's shares, their departure from independence shrunk by what sampling explains; they sum to 1.

    The departure keeps the share 1 - (degrees of freedom) / chi squared (positive-part James-Stein).
    """
    total = max(float(counts.sum()), 1.0)
    first, second = counts.sum(axis=1) + 1e-9, counts.sum(axis=0) + 1e-9
    independent = np.outer(first, second) / total
    chi = float(((counts - independent) ** 2 / independent).sum())
    degrees = (np.count_nonzero(first > 0.5) - 1) * (np.count_nonzero(second > 0.5) - 1)
    keep = max(0.0, 1.0 - degrees / chi) if chi > 0 else 0.0
    smoothed = np.maximum(independent + keep * (counts - independent), 1e-6 * independent)
    return np.asarray(smoothed / smoothed.sum())


def fit_shares(shares: Floats, first: Floats, second: Floats) -> Floats:
    """Fit ``shares`` to these one-ways by iterative proportional fitting: the nearest shares in relative entropy."""
    fitted = shares
    for _ in range(_FITTING):
        fitted = fitted * compute_factors(first, fitted.sum(axis=1))[:, None]
        fitted = fitted * compute_factors(second, fitted.sum(axis=0))
    total = fitted.sum()
    return fitted / total if total > 0 else np.outer(first, second)


def is_better(prior: PriorPairs, pairs: Sequence[Clique], scores: Sequence[float], sigma: float) -> bool:
    """Return whether the public table's pairs are nearer to the private ones than independence, by the noisy scores.

    scores: distances in records from the public table's pairs, with noise of standard deviation ``sigma``.  Sampling
    and the noise of the one-ways add distances that are known up to a common factor.  Least squares fits the scores as
    this factor times those distances, plus a share of the distance that independence would add: 0 if the public table
    is right, 1 if independence is.  The public table wins within one standard error.  A table whose departures are
    smaller than sampling noise is not informative.
    """
    total = prior.independent.total
    if not pairs or total <= 0:
        return False
    chance, noise, departure = prior.distances(pairs)
    if np.square(departure).sum() <= np.square(chance).sum():
        return False
    chance_and_noise = np.hypot(chance, noise)
    parts = np.stack([chance_and_noise, np.hypot(chance_and_noise, departure) - chance_and_noise], axis=1)
    halfway = np.hypot(chance_and_noise, departure / 2) - chance_and_noise
    precision = parts.T @ parts / max(sigma, 1.0) ** 2
    weighed = parts.T @ np.asarray(scores) / max(sigma, 1.0) ** 2
    precision[0, 0] += DISTANCE_FACTOR_DEVIATION**-2
    weighed[0] += DISTANCE_FACTOR_DEVIATION**-2
    covariance = np.linalg.inv(precision)
    share = float(covariance[1] @ weighed)
    threshold = float(halfway @ parts[:, 1] / np.square(parts[:, 1]).sum())
    return share < threshold + math.sqrt(covariance[1, 1])


def is_trusted(
    prior: PriorPairs | None, read_scores: Callable[[], tuple[list[Query], list[NDArray[np.int64]]]]
) -> bool:
    """Return whether there is a prior whose pairs fit better than independence, by the noisy scores.

    ``read_scores``: returns the scored queries and their answers; called if there is a prior.
    """
    if prior is None:
        return False
    queries, answers = read_scores()
    scores = [float(y[0]) for y in answers]
    return bool(queries) and is_better(prior, [q.attributes for q in queries], scores, queries[0].sigma)


@dataclass(frozen=True, eq=False)
class PriorGuide:
    """The parts of a public table that synthesis uses: its ``rows`` in coarse codes, and its unmeasured ``pairs``."""

    rows: CodeTable
    pairs: list[Marginal]


def choose_followed(prior: PriorPairs, recode: Recode, consistent: Sequence[Marginal]) -> PriorGuide | None:
    """Return the public rows without filtered values, and the pairs outside ``consistent``; None if no rows remain."""
    domain = build_coarse_domain(recode)
    inside = np.ones(prior.rows.rows, dtype=bool)
    for a, size in zip(domain.attributes, domain.sizes, strict=True):
        inside &= prior.rows.column(a) < size
    if not inside.any():
        return None
    columns = (prior.rows.column(a)[inside] for a in domain.attributes)
    codes = tuple(c.astype(choose_code_dtype(n)) for c, n in zip(columns, domain.sizes, strict=True))
    total = float(consistent[0].counts.sum())
    sigma = float(np.median([m.sigma for m in consistent]))
    missing = list_missing_pairs([m.attributes for m in consistent if len(m.attributes) > 1], domain)
    pairs = []
    for pair, shares in zip(missing, prior.compute_shares(missing), strict=True):
        counts = total * shares[: domain.size(pair[0]), : domain.size(pair[1])]
        chance = total / math.sqrt(len(codes[0]) * counts.size)
        pairs.append(Marginal(pair, counts, math.hypot(IMPLIED_SIGMA_FACTOR * sigma, chance)))
    return PriorGuide(CodeTable(domain, codes), pairs)


def list_absent_pairs(public: CodeTable, recode: Recode) -> tuple[tuple[Clique, NDArray[np.bool_]], ...]:
    """Return the joint codes that no public row has, as declared by ``prior.zeros``: (pair, mask).

    Codes that no public row has are left alone.
    """
    rows, pairs = _coarsen(public, recode), list(combinations(recode, 2))
    absent_pairs = []
    for pair, counts in zip(pairs, rows.counts(pairs, threads=1), strict=True):
        inside = counts[:-1, :-1]
        seen = (inside.sum(axis=1) > 0)[:, None] & (inside.sum(axis=0) > 0)
        absent = (inside == 0) & seen
        if absent.any():
            absent_pairs.append((pair, absent))
    return tuple(absent_pairs)
