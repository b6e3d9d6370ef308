"""What released trends say of pairs of ordered columns: correlations, and the counts of a normal model with them.

Not in the paper.  Post-processing of released sums with a public sigma costs no budget.

The ordered codes of a row are taken for cuts of a normal vector (Pearson's polychoric model, as in
tasks/synthesis/related_places.py).  Then the expected product of two signs grows with the correlation by a known
integral over it (Plackett, "A Reduction Formula for Normal Multivariate Integrals", Biometrika 41, 1954).  Trends are
first drawn towards 0 by what all of them together say of how strong trends are (empirical Bayes, as in
tasks/estimation/pooled_coefficients.py).
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
from privsyn.tasks.codecs.binning import Binning
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.pooled_coefficients import SCALES, compute_posterior_mean, fit_scales
from privsyn.tasks.estimation.projection import fit_to_sums, rake
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, estimate_total, mark_ordered_codes

Floats = NDArray[np.float64]

MIDDLE_SCORE = 0.1
"""A code whose mean normal score is nearer to 0 has no sign: it is the middle."""

LEAST_CORRELATION = 0.02
"""Correlations that are nearer to 0 are taken for 0."""

MOST_CORRELATION = 0.98
"""Larger ones are taken for this."""

LEAST_SLOPE = 0.01
"""By how much, in units of the largest product of two scores, a trend must grow with the correlation to tell of it."""

SEEN = np.where((SCALES >= 4.0**-4) & (SCALES < 0.5), 2.0, 0.0)
"""Trends of each scale, from a correlation of .06 to one of .5, that count as seen: few pairs cannot tell that all are
weak."""

NODES = 16
"""Points at which a code's interval is looked at."""

TOP = 64
"""Largest score of a code by rank: one of the upper or lower end."""

_TWO_VALUES = ((0, 2),)
_ANGLES = np.arcsin(MOST_CORRELATION) * np.linspace(-1, 1, 201)
_SINES, _SPREADS = np.sin(_ANGLES), 2 * np.cos(_ANGLES) ** 2
_LEAST_EIGENVALUE = 0.01
COUNT_RESOLUTION = 2.0**-10
"""Counts by trend are whole multiples of it: last bits differ between CPUs, and rows must not."""

_RESOLUTION = 2.0**-12  # last bits of linear algebra differ between CPUs
_EDGE = 8.0
_CELLS_AT_A_TIME = 1 << 20  # points of pairs of one shape that are worked on together


@dataclass(frozen=True, eq=False)
class Ranks:
    """Where the ordered codes of an attribute lie among the rows that have one.

    ``score``: of each code and, last, of filtered values, shape (codes + 1,), whole numbers; ``width``: share of each
    code among those rows, shape (codes,), 0 for codes without an order; ``ordered``: which have one; ``there``: share
    of the rows that have an ordered code.
    """

    score: NDArray[np.int64]
    width: Floats
    ordered: NDArray[np.bool_]
    there: float

    @property
    def mean(self) -> float:
        """The mean score of a row that has an ordered code."""
        return float(self.score[:-1] @ self.width)

    @property
    def steps(self) -> tuple[Floats, Floats]:
        """The normal quantiles between ordered codes where the score rises, and by how much."""
        from scipy.special import ndtri  # here: it loads slowly

        width, score = self.width[self.ordered], self.score[:-1][self.ordered]
        at = np.cumsum(width)[:-1].clip(1e-12, 1 - 1e-12)
        rise = np.diff(score).astype(np.float64)
        return np.clip(ndtri(at), -_EDGE, _EDGE)[rise != 0], rise[rise != 0]

    @cached_property
    def intervals(self) -> tuple[Floats, Floats, Floats]:
        """The ordered codes as intervals of a standard normal: their shares, NODES points in each, and their ends.

        Of shapes (ordered codes,), (ordered codes, NODES) and (ordered codes + 1,).
        """
        from scipy.special import ndtri  # here: it loads slowly

        width = self.width[self.ordered]
        low = np.cumsum(width) - width
        nodes = low[:, None] + width[:, None] * (np.arange(NODES) + 0.5) / NODES
        ends = np.append(0.0, np.cumsum(width)).clip(max=1.0)  # shares may sum to 1 and a last bit
        ends[-1] = 1.0
        points = np.clip(ndtri(nodes.clip(1e-12, 1 - 1e-12)), -_EDGE, _EDGE)
        return width, points, np.clip(ndtri(ends), -_EDGE, _EDGE)


def _share_out(counts: Floats, ordered: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Return the shares of ordered codes among these, and that of these among all."""
    mass = np.maximum(counts, 0.0)
    ordered_mass = np.where(ordered, mass[: len(ordered)], 0.0)
    whole = float(ordered_mass.sum())
    return ordered_mass / max(whole, 1e-9), whole / max(float(mass.sum()), 1e-9)


def _choose_scores(width: Floats, ordered: NDArray[np.bool_], top: int) -> NDArray[np.int64]:
    """Return whole numbers from -``top`` to ``top`` by which codes of these shares count, filtered values last.

    ``top`` 1: signs, by the mean normal score of a code; more: ranks.
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
    """Return the ranks of every attribute that has several ordered codes with rows, by its noisy one-way.

    ``top``: the largest score of a code: 1 or TOP; ``two_valued``: attributes whose first two codes are listed values,
    which are in order, as either order of two is one; ``least_codes``: ordered codes with rows that an attribute needs.
    """
    ranks = {}
    for a, bins in binning.items():
        sections = bins.in_order or (_TWO_VALUES if a in two_valued else ())
        if sections and a in recode:
            ordered = mark_ordered_codes(recode[a], replace(bins, in_order=sections))
            width, there = _share_out(_sum_codes(recode[a], recode[a].estimate), ordered)
            if np.count_nonzero(width) >= least_codes:
                ranks[a] = Ranks(_choose_scores(width, ordered, top), width, ordered, there)
    return ranks


def _sum_codes(recode: AttributeRecode, fine: Floats) -> Floats:
    """Return sums of fine counts by code, filtered values last."""
    code = np.where(recode.kept, recode.coarse, recode.size)
    return np.asarray(np.bincount(code, weights=fine, minlength=recode.size + 1), dtype=np.float64)


def _pool_sum(counts: Floats, variance: Floats, score: NDArray[np.int64], looked: float, noise: float) -> Floats:
    """Return counts with a noisy sum of their products with ``score`` pooled in, by inverse variance."""
    residual = looked - float(score @ counts)
    return np.asarray(counts + variance * score * (residual / (float(variance @ score**2) + noise**2)))


@dataclass(frozen=True, eq=False)
class Trends:
    """Correlations of pairs by their released trends.

    ``one_ways``: counts of codes with the released sums pooled in; ``correlation``: pair -> what the normal model
    takes; ``deviation``: the standard deviation of each; ``sums``: pair -> its noisy sum, and the noise of it.
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
        """Return the trends in the noisy sums; ``ranks``: those of the recoding by which the sums were asked."""
        sums = {q.attributes: (float(y[0]), q.sigma) for q, y in zip(queries, answers, strict=True)}
        total = max(estimate_total(recode), 1.0)
        one_ways = {a: _sum_codes(r, r.estimate) for a, r in recode.items()}
        updated, doubt = dict(ranks), {}
        for a, r in ranks.items():
            looked, noise = sums[(a,)]
            variance = _sum_codes(recode[a], recode[a].variance)
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
        if asked_all:  # else a wide table's: what was not asked is unknown and not 0, and each pair is taken as it is
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
        """Return a noisy one-way or pair with what trends say pooled in, by inverse variance; others as they are.

        A pair of merged codes has it only where these are of one score each: of others a sum of scores is unknown.
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
        """Return the scores of an attribute's codes, or of merged ones; None where one has several."""
        score = self.ranks[attribute].score[:-1].astype(np.float64)
        if merge is None:
            return score
        merged = np.zeros(int(merge.max()) + 1)
        merged[merge] = score
        return merged if (merged[merge] == score).all() else None

    def is_known(self, pair: Clique) -> bool:
        """Return whether the pair has a trend."""
        return abs(self.correlation.get(pair, 0.0)) >= LEAST_CORRELATION

    def coarse(self, pair: Clique) -> Floats:
        """Return the shares of a pair's cells without filtered values; with these they sum to 1."""
        if not self.is_known(pair):
            first, second = (_compute_shares(self.one_ways[x]) for x in pair)
            return np.outer(first, second)[:-1, :-1]
        ((_, shares),) = self.iterate_shares([pair])
        return np.asarray(shares[0, :-1, :-1])

    def iterate_shares(self, pairs: Sequence[Clique]) -> Iterator[tuple[list[Clique], Floats]]:
        """Yield the shares of the cells of known pairs, many of one shape at a time, filtered values last.

        Each as pairs and an array of shape (pairs, codes + 1, codes + 1), where the cells of a pair sum to 1.
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
        """Return the shares of pairs whose codes are as many, and ordered alike."""
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
        """Return by pair how far its trend alone moves it from independence, L1 in records."""
        departures: dict[Clique, float] = {}
        for pairs, shares in self.iterate_shares([pair for pair in self.correlation if self.is_known(pair)]):
            independent = shares.sum(axis=2)[:, :, None] * shares.sum(axis=1)[:, None, :]
            moved = np.abs(shares - independent).reshape(len(pairs), -1).sum(axis=1)
            departures.update(zip(pairs, (self.total * moved).tolist(), strict=True))
        return departures


def _compute_shares(counts: Floats) -> Floats:
    """Return shares of noisy counts; negative ones become 0."""
    positive = np.maximum(counts, 0.0)
    return positive / max(float(positive.sum()), 1e-9)


def _integrate(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> tuple[float, Floats]:
    """Return the slope at 0 of the expected product of two scores, less the product of their means, and its values.

    first, second: steps of each; the values at _ANGLES.
    """
    h, k = np.repeat(first[0], len(second[0]))[:, None], np.tile(second[0], len(first[0]))[:, None]
    rise = np.outer(first[1], second[1]).ravel()
    density = rise @ np.exp(-(h**2 + k**2 - 2 * h * k * _SINES) / _SPREADS) / (2 * np.pi)
    between = (density[1:] + density[:-1]) * ((_ANGLES[1] - _ANGLES[0]) / 2)
    table = np.append(0.0, np.cumsum(between))
    middle = len(_ANGLES) // 2
    return float(density[middle]), table - table[middle]


def _make_definite(correlations: Floats, pairs: Sequence[Clique], names: Sequence[str]) -> Floats:
    """Return correlations of a matrix without negative eigenvalues: these are cut, and the diagonal is made 1 again.

    At most MOST_CORRELATION: making the diagonal 1 draws some of columns that are nearly the same to 1, which the
    normal model has no density for.
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
    """Return the chances of pairs of attributes' ordered codes in the normal model.

    first, second: the two attributes of each pair, all of as many ordered codes; shape (pairs, codes, codes).
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
    """Return the pairs with a trend that no consistent marginal holds, as counts that agree with the one-ways.

    ``zeros``: cells that no row can be in.  The ``sigma`` of a pair is its root mean square error by its trend's noise.
    """
    ones = {m.attributes[0]: m.counts for m in consistent if len(m.attributes) == 1}
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
