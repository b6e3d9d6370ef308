"""Correlations of ordered columns from released trends, and the pair counts of a normal model with them.

Not in the paper.  Post-processing of released sums with a public sigma costs no budget.

The model treats a row's ordered codes as a binned normal vector (Pearson's polychoric model, as in
tasks/synthesis/fine_codes.py).  The expected product of two signs is then a known integral over the correlation
(Plackett, "A Reduction Formula for Normal Multivariate Integrals", Biometrika 41, 1954).  Trends are first shrunk
towards 0 with a prior fitted to all of them (empirical Bayes, as in tasks/estimation/pooled_coefficients.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Merge
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import Binning
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal, fit_to_sums, list_one_ways, rake
from privsyn.tasks.estimation.pooled_coefficients import SCALES, compute_posterior_mean, fit_scales
from privsyn.tasks.estimation.recode import Recode, estimate_total, mark_ordered_codes

Floats = NDArray[np.float64]

MIDDLE_SCORE = 0.1
"""A code with a smaller absolute mean normal score gets the sign 0."""

LEAST_CORRELATION = 0.02
"""Smaller absolute correlations count as 0."""

MOST_CORRELATION = 0.98
"""Larger absolute correlations are cut to this."""

LEAST_SLOPE = 0.01
"""Least growth of a usable trend with the correlation, in units of the largest product of two scores."""

SEEN = np.where((SCALES >= 4.0**-4) & (SCALES < 0.5), 2.0, 0.0)
"""Pseudo-counts of trends on each scale, for correlations from .06 to .5: few pairs cannot show that all are weak."""

NODES = 16
"""Quadrature points in a code's interval."""

TOP = 64
"""Largest absolute score of a code by rank."""

_TWO_VALUES = ((0, 2),)
_ANGLES = np.arcsin(MOST_CORRELATION) * np.linspace(-1, 1, 201)
_SINES, _SPREADS = np.sin(_ANGLES), 2 * np.cos(_ANGLES) ** 2
_LEAST_EIGENVALUE = 0.01
COUNT_RESOLUTION = 2.0**-10
"""Counts by trend are rounded to multiples of this: last bits differ between CPUs, and rows must not."""

_RESOLUTION = 2.0**-12  # last bits of linear algebra differ between CPUs
_EDGE = 8.0
_CELLS_AT_A_TIME = 1 << 20  # quadrature points of pairs of one shape in a batch


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of an attribute's ordered codes, among the rows with an ordered code.

    Attributes:
        score: The integer score of each code and, last, of filtered values, shape (codes + 1,).
        width: The share of each code among these rows, shape (codes,), 0 for codes without an order.
        ordered: The mask of the ordered codes.
        there: The share of all rows with an ordered code.
    """

    score: NDArray[np.int64]
    width: Floats
    ordered: NDArray[np.bool_]
    there: float

    @property
    def mean(self) -> float:
        """The mean score of a row with an ordered code."""
        return float(self.score[:-1] @ self.width)

    @property
    def steps(self) -> tuple[Floats, Floats]:
        """The normal quantiles where the score changes from one ordered code to the next, and the changes."""
        from scipy.special import ndtri  # here: it loads slowly

        width, score = self.width[self.ordered], self.score[:-1][self.ordered]
        at = np.cumsum(width)[:-1].clip(1e-12, 1 - 1e-12)
        rise = np.diff(score).astype(np.float64)
        return np.clip(ndtri(at), -_EDGE, _EDGE)[rise != 0], rise[rise != 0]

    @cached_property
    def intervals(self) -> tuple[Floats, Floats, Floats]:
        """The ordered codes as intervals of a standard normal: their shares, NODES points in each, and their ends.

        Shapes: (ordered codes,), (ordered codes, NODES) and (ordered codes + 1,).
        """
        from scipy.special import ndtri  # here: it loads slowly

        width = self.width[self.ordered]
        low = np.cumsum(width) - width
        nodes = low[:, None] + width[:, None] * (np.arange(NODES) + 0.5) / NODES
        ends = np.append(0.0, np.cumsum(width)).clip(max=1.0)  # rounding may take the sum above 1
        ends[-1] = 1.0
        points = np.clip(ndtri(nodes.clip(1e-12, 1 - 1e-12)), -_EDGE, _EDGE)
        return width, points, np.clip(ndtri(ends), -_EDGE, _EDGE)


def _share_out(counts: Floats, ordered: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Return each code's share of the ordered rows, and the share of ordered rows among all rows."""
    mass = np.maximum(counts, 0.0)
    ordered_mass = np.where(ordered, mass[: len(ordered)], 0.0)
    whole = float(ordered_mass.sum())
    return ordered_mass / max(whole, 1e-9), whole / max(float(mass.sum()), 1e-9)


def _choose_scores(width: Floats, ordered: NDArray[np.bool_], top: int) -> NDArray[np.int64]:
    """Return integer scores from -``top`` to ``top`` for codes with shares ``width``, and last 0 for filtered values.

    ``top`` 1: signs by the code's mean normal score; larger: ranks.
    """
    from scipy.special import ndtri  # here: it loads slowly

    high = np.cumsum(width).clip(max=1.0)
    low = high - width
    if top == 1:
        density = lambda u: np.exp(-(ndtri(u.clip(1e-12, 1 - 1e-12)) ** 2) / 2) / np.sqrt(2 * np.pi)  # noqa: E731
        score = np.divide(density(low) - density(high), width, out=np.zeros(len(width)), where=width > 0)
        score = np.where(np.abs(score) >= MIDDLE_SCORE, np.sign(score), 0.0)
    else:
        score = low + high - 1
    score = np.where(ordered & (width > 0), score, 0.0)
    most = float(np.abs(score).max())
    whole = np.rint(score * (top / most)) if most > 0 else score
    return np.append(whole, 0).astype(np.int64)


def rank_codes(
    recode: Recode, binning: Binning, top: int, two_valued: Collection[str] = (), least_codes: int = 2
) -> dict[str, Ranks]:
    """Return the ranks of every attribute with several ordered codes with rows, from its noisy one-way.

    ``top``: largest score, 1 or TOP.  ``two_valued``: attributes whose first two codes are listed values; these codes
    count as ordered (any order of two values is valid).  ``least_codes``: least ordered codes with rows.
    """
    ranks = {}
    for a, bins in binning.items():
        sections = bins.in_order or (_TWO_VALUES if a in two_valued else ())
        if sections and a in recode:
            ordered = mark_ordered_codes(recode[a], replace(bins, in_order=sections))
            width, there = _share_out(recode[a].sum_codes(recode[a].estimate), ordered)
            if np.count_nonzero(width) >= least_codes:
                ranks[a] = Ranks(_choose_scores(width, ordered, top), width, ordered, there)
    return ranks


def _pool_sum(counts: Floats, variance: Floats, score: NDArray[np.int64], looked: float, noise: float) -> Floats:
    """Return the counts with a noisy score-weighted sum pooled in by inverse variance."""
    residual = looked - float(score @ counts)
    return np.asarray(counts + variance * score * (residual / (float(variance @ score**2) + noise**2)))


@dataclass(frozen=True, eq=False)
class Trends:
    """Correlations of pairs, estimated from their released trends.

    ``one_ways``: counts of codes with the released sums pooled in; ``correlation``: pair -> correlation of the normal
    model; ``deviation``: its standard deviation; ``sums``: pair -> noisy sum and its sigma.
    """

    one_ways: Mapping[str, Floats]
    total: float
    ranks: Mapping[str, Ranks]
    correlation: Mapping[Clique, float]
    deviation: Mapping[Clique, float]
    sums: Mapping[Clique, tuple[float, float]]

    @classmethod
    def of(
        cls, recode: Recode, ranks: Mapping[str, Ranks], queries: Sequence[Query], answers: Sequence[NDArray[Any]]
    ) -> Trends:
        """Return the trends in the noisy sums; ``ranks``: the ranks whose scores the sums used."""
        sums = {q.attributes: (float(y[0]), q.sigma) for q, y in zip(queries, answers, strict=True)}
        total = max(estimate_total(recode), 1.0)
        one_ways = {a: r.sum_codes(r.estimate) for a, r in recode.items()}
        updated, doubt = dict(ranks), {}
        for a, r in ranks.items():
            looked, noise = sums[(a,)]
            variance = recode[a].sum_codes(recode[a].variance)
            one_ways[a] = _pool_sum(one_ways[a], variance, r.score, looked, noise)
            width, there = _share_out(one_ways[a], r.ordered)
            doubt[a] = 1 / (1 / max(float(variance @ r.score**2), 1e-9) + 1 / noise**2) / max(total * there, 1.0) ** 2
            updated[a] = Ranks(r.score, width, r.ordered, there)
        pairs = [pair for pair in sums if len(pair) == 2]
        asked_all = len(pairs) == math.comb(len(ranks), 2)
        steps = {a: r.steps for a, r in updated.items()}
        integrals = {(a, b): _integrate(steps[a], steps[b]) for a, b in pairs}
        most = {a: float(np.abs(r.score).max()) for a, r in updated.items()}
        pairs = [(a, b) for a, b in pairs if integrals[a, b][0] > LEAST_SLOPE * most[a] * most[b]]
        if not pairs:
            return cls(one_ways, total, updated, {}, {}, {})
        slope = np.array([integrals[pair][0] for pair in pairs])
        rows = np.array([max(total * updated[a].there * updated[b].there, 1.0) for a, b in pairs])
        means = {a: r.mean for a, r in updated.items()}
        mean = np.array([means[a] * means[b] for a, b in pairs])
        trend = np.array([sums[pair][0] for pair in pairs]) / rows - mean
        middle = [means[a] ** 2 * doubt[b] + means[b] ** 2 * doubt[a] + doubt[a] * doubt[b] for a, b in pairs]
        variance = ((np.array([sums[pair][1] for pair in pairs]) / rows) ** 2 + np.array(middle)) / slope**2
        drawn = slope * compute_posterior_mean(trend / slope, variance, fit_scales(trend / slope, variance, SEEN))
        angles = [np.interp(d, integrals[pair][1], _ANGLES) for d, pair in zip(drawn, pairs, strict=True)]
        fitted = np.sin(np.array(angles))
        if asked_all:  # in a wide table, pairs not asked are unknown, not 0, so correlations stay as they are
            fitted = _make_definite(fitted, pairs, list(updated))
        correlation = np.rint(fitted / _RESOLUTION) * _RESOLUTION
        return cls(
            one_ways,
            total,
            updated,
            dict(zip(pairs, correlation.tolist(), strict=True)),
            dict(zip(pairs, np.sqrt(variance).tolist(), strict=True)),
            {pair: sums[pair] for pair in pairs},
        )

    def pool_in(self, measured: Marginal) -> Marginal:
        """Return a noisy one-way or pair with its trend pooled in by inverse variance; other marginals are unchanged.

        A pair with merged codes is unchanged unless all codes in each merged code have one score.
        """
        if len(measured.attributes) == 1:
            (a,) = measured.attributes
            return replace(measured, counts=self.one_ways[a][:-1]) if a in self.ranks else measured
        looked = self.sums.get(measured.attributes)
        if looked is None or measured.sigma <= 0:
            return measured
        trend, noise = looked
        first, second = (self._read_scores(a, measured.get_merge(a)) for a in measured.attributes)
        if first is None or second is None:
            return measured
        product = np.outer(first, second)
        variance = measured.sigma**2
        gain = variance / (variance * float((product**2).sum()) + noise**2)
        residual = trend - float((product * measured.counts).sum())
        return replace(measured, counts=measured.counts + product * (residual * gain))

    def _read_scores(self, attribute: str, merge: Merge | None) -> Floats | None:
        """Return the scores of an attribute's codes or merged codes; None if a merged code has several scores."""
        score = self.ranks[attribute].score[:-1].astype(np.float64)
        if merge is None:
            return score
        merged = np.zeros(int(merge.max()) + 1)
        merged[merge] = score
        return merged if (merged[merge] == score).all() else None

    def is_known(self, pair: Clique) -> bool:
        """Return whether the pair has a trend of at least LEAST_CORRELATION."""
        return abs(self.correlation.get(pair, 0.0)) >= LEAST_CORRELATION

    def coarse(self, pair: Clique) -> Floats:
        """Return the shares of a pair's cells without filtered values; they sum to 1 together with filtered ones."""
        if not self.is_known(pair):
            first, second = (_compute_shares(self.one_ways[x]) for x in pair)
            return np.outer(first, second)[:-1, :-1]
        ((_, shares),) = self.iterate_shares([pair])
        return np.asarray(shares[0, :-1, :-1])

    def iterate_shares(self, pairs: Sequence[Clique]) -> Iterator[tuple[list[Clique], Floats]]:
        """Yield the shares of the cells of known pairs in batches of one shape, filtered values last.

        Each batch is its pairs and an array of shape (pairs, codes + 1, codes + 1) that sums to 1 in each pair.
        """
        alike: dict[tuple[bytes, bytes], list[Clique]] = {}
        for a, b in pairs:
            alike.setdefault((self.ranks[a].ordered.tobytes(), self.ranks[b].ordered.tobytes()), []).append((a, b))
        for group in alike.values():
            cells = math.prod(len(self.one_ways[a]) for a in group[0])
            size = max(1, _CELLS_AT_A_TIME // (cells * NODES))
            for start in range(0, len(group), size):
                yield group[start : start + size], self._build_shares(group[start : start + size])

    def _build_shares(self, pairs: Sequence[Clique]) -> Floats:
        """Return the shares of pairs that have the same numbers of codes and the same ordered codes."""
        first, second = (np.stack([_compute_shares(self.one_ways[p[i]]) for p in pairs]) for i in (0, 1))
        built = first[:, :, None] * second[:, None, :]
        one, other = ([self.ranks[p[i]] for p in pairs] for i in (0, 1))
        joint = _build_joints(one, other, np.array([self.correlation[p] for p in pairs]))
        rows, columns = np.flatnonzero(one[0].ordered)[:, None], np.flatnonzero(other[0].ordered)
        inside = np.ascontiguousarray(built[:, rows, columns])
        there, whole = (x.reshape(len(pairs), -1).sum(axis=1) for x in (inside, joint))
        fits = (there > 0) & (whole > 0)
        scale = np.divide(there, whole, out=np.zeros_like(there), where=fits)
        built[:, rows, columns] = np.where(fits[:, None, None], joint * scale[:, None, None], inside)
        return built

    def explain(self) -> dict[Clique, float]:
        """Return each known pair's departure from independence by its trend alone, as L1 distance in records."""
        departures: dict[Clique, float] = {}
        for pairs, shares in self.iterate_shares([pair for pair in self.correlation if self.is_known(pair)]):
            independent = shares.sum(axis=2)[:, :, None] * shares.sum(axis=1)[:, None, :]
            moved = np.abs(shares - independent).reshape(len(pairs), -1).sum(axis=1)
            departures.update(zip(pairs, (self.total * moved).tolist(), strict=True))
        return departures


def _compute_shares(counts: Floats) -> Floats:
    """Return the shares of noisy counts, with negative counts as 0."""
    positive = np.maximum(counts, 0.0)
    return positive / max(float(positive.sum()), 1e-9)


def _integrate(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> tuple[float, Floats]:
    """Return the slope at correlation 0 of two scores' covariance, and the covariance at each of _ANGLES.

    first, second: the :attr:`Ranks.steps` of the two attributes.
    """
    h, k = np.repeat(first[0], len(second[0]))[:, None], np.tile(second[0], len(first[0]))[:, None]
    rise = np.outer(first[1], second[1]).ravel()
    density = rise @ np.exp(-(h**2 + k**2 - 2 * h * k * _SINES) / _SPREADS) / (2 * np.pi)
    between = (density[1:] + density[:-1]) * ((_ANGLES[1] - _ANGLES[0]) / 2)
    table = np.append(0.0, np.cumsum(between))
    middle = len(_ANGLES) // 2
    return float(density[middle]), table - table[middle]


def _make_definite(correlations: Floats, pairs: Sequence[Clique], names: Sequence[str]) -> Floats:
    """Return the correlations as a positive definite matrix: small eigenvalues are raised, then its diagonal set to 1.

    Results are at most MOST_CORRELATION: rescaling takes nearly equal columns to 1, where the normal model has no
    density.
    """
    number = {a: i for i, a in enumerate(names)}
    at = np.array([[number[a], number[b]] for a, b in pairs])
    matrix = np.eye(len(names))
    matrix[at[:, 0], at[:, 1]] = matrix[at[:, 1], at[:, 0]] = correlations
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= _LEAST_EIGENVALUE:
        return correlations
    positive = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(positive))
    correlations_again = (positive / np.multiply.outer(scale, scale))[at[:, 0], at[:, 1]]
    return np.clip(correlations_again, -MOST_CORRELATION, MOST_CORRELATION)


def _build_joints(first: Sequence[Ranks], second: Sequence[Ranks], correlations: Floats) -> Floats:
    """Return the joint probabilities of ordered codes in the normal model, shape (pairs, codes, codes).

    first, second: the two attributes of each pair; all firsts, and all seconds, have the same number of ordered codes.
    """
    from scipy.special import ndtr

    width, points = (np.stack([r.intervals[i] for r in first]) for i in (0, 1))
    cuts = np.stack([r.intervals[2] for r in second])
    slope, spread = correlations[:, None, None, None], np.sqrt(1 - correlations**2)[:, None, None, None]
    below = ndtr((cuts[:, None, None, :] - slope * points[:, :, :, None]) / spread).mean(axis=2)
    below[:, :, 0], below[:, :, -1] = 0.0, 1.0
    return np.asarray(width[:, :, None] * np.diff(below, axis=2))


def list_missing_pairs(
    trends: Trends, consistent: Sequence[Marginal], zeros: KnownZeros | None = None
) -> list[Marginal]:
    """Return the pairs with a trend and without a consistent marginal, as counts that agree with the one-ways.

    ``zeros``: cells that no row can be in.  A pair's ``sigma`` is its root mean square error from its trend's noise.
    """
    ones = list_one_ways(consistent)
    held = {frozenset(pair) for m in consistent for pair in combinations(m.attributes, 2)}
    missing = [p for p in trends.correlation if trends.is_known(p) and frozenset(p) not in held]
    by_pair: dict[Clique, Marginal] = {}
    for pairs, whole in trends.iterate_shares(missing):
        parts = [np.stack([ones[p[i]] for p in pairs]) for i in (0, 1)]
        shares = whole[:, :-1, :-1]
        fitted = fit_to_sums(shares, parts)
        for i, pair in enumerate(pairs):
            rows, columns, counts = parts[0][i], parts[1][i], fitted[i]
            zero = None if zeros is None else zeros.on(pair, counts.shape)
            if zero is not None:
                counts = rake(np.where(zero, 0.0, np.maximum(shares[i], 1e-9) * rows.sum()), [columns, rows])
            moved = counts - np.outer(rows, columns) / max(float(rows.sum()), 1e-9)
            sigma = float(np.sqrt((moved**2).mean())) * trends.deviation[pair] / abs(trends.correlation[pair])
            by_pair[pair] = Marginal(pair, np.rint(counts / COUNT_RESOLUTION) * COUNT_RESOLUTION, sigma)
    return [by_pair[pair] for pair in missing]
