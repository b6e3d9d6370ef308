"""Step *make consistent* (postprocess): make noisy marginals non-negative and consistent on shared attributes.

Paper: section 4.3; the weights follow "Consistency under Uneven Privacy Budget Allocation".  All paid answers are used:
the first stage's one-ways take part, weighted by their own noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from privsyn.data_contracts.domain import Clique, Domain, Merge, Merges
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.known_zeros import KnownZeros, label_blocks
from privsyn.tasks.estimation.marginals import Marginal, apply_norm_sub, fit_to_sums, rake
from privsyn.tasks.estimation.merged_codes import merge_counts
from privsyn.tasks.estimation.pooled_coefficients import NoisyPair, PooledEstimator, fit_pooled_coefficients
from privsyn.tasks.estimation.shrink_departures import shrink_marginal
from privsyn.tasks.knowledge.totals import KnownTotals

Floats = NDArray[np.float64]

Codes = NDArray[np.int64]

OrderedCodes = Mapping[str, NDArray[np.bool_]]
"""Attribute -> which of its codes are ordered; attributes without ordered codes are left out."""

TOLERANCE = 0.5
"""Rounds end early once marginals differ by at most half a record on every shared count."""

COUNT_RESOLUTION = 2.0**-10
"""Shrunken counts and probabilities are rounded to multiples of this, because the last bits of linear algebra differ
between CPUs and the rows must not."""

ZERO_VARIANCE_SHARE = 1e-6
"""Variance of a known zero, as a share of the marginal's least cell variance: small, but safe to divide by."""

FAINT_PAIR_NOISE_SHARE = 0.02
"""If a pair's cell noise is above this share of all rows, the shrunken pair keeps its row and column sums."""

FAINT_PAIR_INDEPENDENCE_SHARE = 1e-6
"""Share of independence mixed into every cell of such a pair, so that each row and column can reach its sum."""

LEAST_CELL_VARIANCE_SHARE = 0.01
"""A cell keeps at least this share of its noise variance, however likely it is to be empty."""


@dataclass
class _Estimate:
    """One noisy marginal while it is adjusted.

    Attributes:
    attributes: In the domain's order; one axis each.
    counts: The current counts.
    variance: The noise variance of each cell, of the same shape.
    zero: Which cells are known to be 0; None if none is.
    public_counts: The counts, if they are public.
    merges: As in :class:`Marginal`.
    is_pair: Whether it is shrunk together with all other pairs.
    codes: For each attribute, the codes that the counts cover, in order; empty if they cover all.
    """

    attributes: Clique
    counts: Floats
    variance: Floats
    zero: NDArray[np.bool_] | None = None
    public_counts: Floats | None = None
    merges: Merges = ()
    is_pair: bool = False
    codes: tuple[Codes, ...] = ()

    def get_merge(self, attribute: str) -> Merge | None:
        """Return the merge of an attribute, or None if the counts use the attribute's own codes."""
        return self.merges[self.attributes.index(attribute)] if self.merges else None

    def leave_null_out(self, nulls: Mapping[str, int]) -> _Estimate:
        """Return a pair's estimate without null codes that occur only with null; otherwise return it unchanged.

        A null code is left out if known zeros forbid it with every value of the other column.  ``nulls``: attribute ->
        code of null.
        """
        if self.zero is None or len(self.attributes) != 2 or not set(self.attributes) <= nulls.keys():
            return self
        first, second = (nulls[a] for a in self.attributes)
        alone = np.delete(self.zero[first], second).all(), np.delete(self.zero[:, second], first).all()
        codes = tuple(
            np.delete(np.arange(size), null) if gone else np.arange(size)
            for size, null, gone in zip(self.counts.shape, (first, second), alone, strict=True)
        )
        here = np.ix_(*codes)
        return replace(self, counts=self.counts[here], variance=self.variance[here], zero=None, codes=codes)

    def take_back(self, shrunk: _Estimate) -> None:
        """Copy back the counts and variances of the estimate that :meth:`leave_null_out` returned."""
        if shrunk is not self:
            here = np.ix_(*shrunk.codes)
            self.counts[here], self.variance[here] = shrunk.counts, shrunk.variance

    def keep_zeros(self) -> None:
        """Set known zeros to 0, dropping the counts of rows that break a rule."""
        if self.zero is not None:
            self.counts[self.zero] = 0.0

    def project(self, total: float) -> None:
        """Make the counts non-negative with sum ``total``; known zeros and public counts stay."""
        if self.public_counts is not None:
            self.counts = self.public_counts.copy()
        elif self.zero is None:
            self.counts = apply_norm_sub(self.counts, total)
        else:
            self.counts[self.zero], self.counts[~self.zero] = 0.0, apply_norm_sub(self.counts[~self.zero], total)


class _Member:
    """One of the estimates that share a set of attributes, with the values that stay constant between rounds.

    ``merges``: for each shared attribute, from the estimate's codes to the shared ones, None if they are equal; empty
    if all are.

    Attributes:
        precision: 1 / variance of the estimate of each shared count.
        share: The part of a shared count's change that each cell takes, in proportion to the cell's noise variance.
            One number if all cells take the same part.
    """

    def __init__(self, estimate: _Estimate, shared: Clique, merges: Merges = ()) -> None:
        self.estimate = estimate
        self.axes = tuple(i for i, a in enumerate(estimate.attributes) if a not in shared)
        by_attribute = dict(zip((a for a in estimate.attributes if a in shared), merges, strict=bool(merges)))
        self.merges = [by_attribute.get(a) for a in estimate.attributes] if merges else []
        total = merge_counts(estimate.variance.sum(axis=self.axes, keepdims=True), self.merges)
        share = estimate.variance / self._split(total)
        self.precision = 1.0 / total.squeeze(self.axes)
        self.shape = total.shape
        self.share = share.flat[0] if share.size and (share == share.flat[0]).all() else share

    def _split(self, counts: Floats) -> Floats:
        for axis, merge in enumerate(self.merges):
            counts = counts if merge is None else counts.take(merge, axis=axis)
        return counts

    def project(self) -> Floats:
        """Return the counts on the shared attributes, in domain order, by the shared codes."""
        if not self.merges:
            return np.add.reduce(self.estimate.counts, axis=self.axes)
        return merge_counts(self.estimate.counts.sum(axis=self.axes, keepdims=True), self.merges).squeeze(self.axes)

    def shift(self, change: Floats) -> None:
        """Spread ``change``, of the shape of :meth:`project`, over the cells."""
        self.estimate.counts += self._split(change.reshape(self.shape)) * self.share


class _BlockMember:
    """One of two one-ways that must have equal counts in each block; ``labels``: the block of each code."""

    def __init__(self, estimate: _Estimate, labels: Codes, number: int) -> None:
        self.estimate, self.labels, self.number = estimate, labels, number
        total = np.bincount(labels, estimate.variance, number)
        self.precision = 1.0 / np.maximum(total, 1e-6 * estimate.variance.min())  # a block without codes is empty
        self.share = estimate.variance / total[labels]

    def project(self) -> Floats:
        """Return the counts of the blocks."""
        return np.asarray(np.bincount(self.labels, self.estimate.counts, self.number), np.float64)

    def shift(self, change: Floats) -> None:
        """Spread ``change``, one number a block, over the codes in proportion to their variances."""
        self.estimate.counts += change[self.labels] * self.share


Member = _Member | _BlockMember


def make_consistent(
    one_way: Sequence[Marginal],
    one_way_variance: Sequence[Floats],
    measured: Sequence[Marginal],
    sigmas: Sequence[float],
    rounds: int,
    one_way_weight: float = 1.0,
    *,
    shrink: bool = False,
    zeros: KnownZeros | None = None,
    expected: Callable[[Clique], Floats] | None = None,
    known: KnownTotals | None = None,
    pooled: OrderedCodes | None = None,
    trend_deviations: Mapping[Clique, float] = MappingProxyType({}),
    named_pairs: AbstractSet[Clique] = frozenset(),
    nulls: Mapping[str, int] = MappingProxyType({}),
) -> list[Marginal]:
    """Return consistent, non-negative marginals with one common total: the one-ways, then the measured cliques.

    A round averages every shared attribute set, the smallest first (the empty set is the total).  The weights w_i are
    proportional to 1 / (variance of the estimate), which is rho_i / g_i for a marginal that sums g_i cells into one.
    The round then projects each marginal on the non-negative counts of the common total (norm-sub).

    With ``one_way_weight`` above 1 or ``shrink``, as many rounds that only average come first.

    Args:
    one_way: One marginal of each attribute, counts of shape (size,).
    one_way_variance: The noise variance of every cell of each one-way, of the same shapes.
    measured: Marginals of two or more attributes.  A marginal of merged codes agrees with the others on sums over its
        codes of one attribute.  It agrees on sums over codes of several attributes if the other marginal's codes are
        parts of its own.
    sigmas: The noise standard deviation in every cell of each measured marginal.
    rounds: The most rounds.
    one_way_weight: Factor on the one-ways' weight once counts are cut at 0.  Cutting moves counts from the large cells
        of a large marginal to its small ones; the one-ways, averaged before, resist that.
    shrink: Whether every larger marginal is shrunk after averaging.  Its departure then loses the part that its noise
        explains (:mod:`shrink_departures`).  The departure is from independence, or from its pairs' fit with three or
        more attributes.  Cells that are probably empty then take fewer of the counts that averaging moves.
    zeros: Cells that no row can be in.  Their variance is tiny (ZERO_VARIANCE_SHARE), so averages move the other cells,
        and they stay 0 when counts are cut and shrunk.  They are not looked for in merged codes.
    expected: Pair -> shares of its shape that a public table expects; noisy counts are shrunk towards these or
        independence, whichever is nearer.
    known: Public totals.  Marginals of these attributes and pairs stay as they are, and all marginals get the total's
        number of rows.
    pooled: Attribute -> which of its codes are ordered.  Pairs without known zeros are then also shrunk by coefficients
        pooled over all pairs (:mod:`pooled_coefficients`), and keep their trends.  None: no pooling.
    trend_deviations: Pair -> standard deviation of the trend that was pooled into its counts.
    named_pairs: Pairs in merged codes that are shrunk as pairs; other merged pairs are shrunk alone.
    nulls: Attribute -> code of null, for attributes whose only zeros pair null with values.  A pair of such attributes
        is shrunk without a null code that occurs with no value.

    Returns:
        The marginals, each with its measurement noise as ``sigma`` (root mean square over the cells).
    """
    singles = [
        _Estimate(m.attributes, m.counts.astype(np.float64), v) for m, v in zip(one_way, one_way_variance, strict=True)
    ]
    larger = [
        _Estimate(
            m.attributes,
            m.counts.astype(np.float64),
            np.full(m.counts.shape, s**2),
            merges=m.merges,
            is_pair=len(m.attributes) == 2 and (not m.merges or m.attributes in named_pairs),
        )
        for m, s in zip(measured, sigmas, strict=True)
    ]
    estimates = singles + larger
    noise = [float(np.sqrt(e.variance.mean())) for e in estimates]  # before zeros and shrinking change variances
    for e in estimates:
        _set_public_facts(e, zeros, known)
    groups = _group_all(estimates, singles, zeros)
    if one_way_weight > 1 or shrink:
        _average(groups, rounds)  # without the cut at 0, negative noise cancels positive noise
    if shrink:
        _shrink_all([e for e in larger if e.public_counts is None], expected, pooled, trend_deviations, nulls)
    if one_way_weight != 1:  # the cut at 0 flattens large marginals, and one-ways would follow
        for e in singles:
            e.variance = e.variance / one_way_weight
        groups = _group_all(estimates, singles, zeros)  # weights follow from variances

    def cut() -> None:
        # any estimate will do: the round has just averaged the total, a set that all share
        total = max(float(estimates[0].counts.sum()), 0.0) if known is None else float(known.rows)
        for e in estimates:
            e.project(total)

    _average(groups, rounds, cut if estimates else None)
    return [Marginal(e.attributes, e.counts, s, e.merges) for e, s in zip(estimates, noise, strict=True)]


def _set_public_facts(estimate: _Estimate, zeros: KnownZeros | None, known: KnownTotals | None) -> None:
    """Set public counts and known zeros; merged codes have neither."""
    if estimate.merges:
        return
    if known is not None and known.has(estimate.attributes):
        estimate.public_counts = estimate.counts.copy()
    if zeros is None:
        return
    estimate.zero = zeros.on(estimate.attributes, estimate.counts.shape)
    estimate.keep_zeros()
    if estimate.zero is not None:  # with a tiny variance, averages move the other cells only
        least = ZERO_VARIANCE_SHARE * estimate.variance.min()
        estimate.variance = np.where(estimate.zero, least, estimate.variance)


def _average(groups: Sequence[Sequence[Member]], rounds: int, cut: Callable[[], None] | None = None) -> None:
    """Average every shared attribute set, then ``cut`` the counts if given, until all agree or ``rounds`` times."""
    for _ in range(rounds):
        _average_all(groups)
        if cut is not None:
            cut()
        if _measure_inconsistency(groups) <= TOLERANCE:
            break


def _shrink_all(
    estimates: Sequence[_Estimate],
    expected: Callable[[Clique], Floats] | None,
    ordered: OrderedCodes | None,
    trend_deviations: Mapping[Clique, float],
    nulls: Mapping[str, int],
) -> None:
    """Shrink each marginal; ``ordered``: ordered codes for pooled coefficients, or None to shrink without them."""
    with threadpool_limits(1, "blas"):  # the same order of sums on any number of cores
        without_null = [e.leave_null_out(nulls) for e in estimates]
        estimators: list[PooledEstimator | None] = [None] * len(estimates)
        if ordered is not None:
            estimators = _fit_pooled(without_null, ordered, trend_deviations)
        for e, inner, estimator in zip(estimates, without_null, estimators, strict=True):
            shares = expected(e.attributes) if expected and e.is_pair else None
            if shares is not None:
                shares = merge_counts(shares, e.merges)[np.ix_(*inner.codes) if inner.codes else ...]
            _shrink(inner, shares, estimator)
            e.take_back(inner)


def _fit_pooled(
    estimates: Sequence[_Estimate], ordered: OrderedCodes, trend_deviations: Mapping[Clique, float]
) -> list[PooledEstimator | None]:
    """Return each pair's pooled-coefficients estimator, or None for pairs without noise or rows or with known zeros."""
    fitted = [
        len(e.attributes) == 2 and e.zero is None and e.counts.sum() > 0 and e.variance.max() > 0 for e in estimates
    ]
    pairs = [
        NoisyPair(
            e.attributes,
            e.counts,
            remove_interaction(e.counts, float(e.counts.sum())),
            float(e.variance.mean()),
            trend_deviations.get(e.attributes, np.inf),
            (_mark_ordered(e, 0, ordered), _mark_ordered(e, 1, ordered)),
        )
        for e, fits in zip(estimates, fitted, strict=True)
        if fits
    ]
    estimators = iter(fit_pooled_coefficients(pairs))
    return [next(estimators) if fits else None for fits in fitted]


def _mark_ordered(estimate: _Estimate, axis: int, ordered: OrderedCodes) -> NDArray[np.bool_] | None:
    """Return which codes of an axis are ordered, or None; a merged code is ordered if all its codes are."""
    attribute = estimate.attributes[axis]
    marks, merge = ordered.get(attribute), estimate.get_merge(attribute)
    if marks is None:
        return None
    if merge is not None:
        return np.bincount(merge, weights=~marks) == 0
    return marks[estimate.codes[axis]] if estimate.codes else marks


def _shrink(estimate: _Estimate, expected_shares: Floats | None = None, pooled: PooledEstimator | None = None) -> None:
    """Shrink a marginal, measured with equal noise in all cells, towards independence or its ``expected_shares``.

    For three or more attributes, "independence" is the fit to their pairs.  ``pooled``: another estimator of a pair's
    cells, which also keeps the pair's trend.

    A faint pair (FAINT_PAIR_NOISE_SHARE) keeps its averaged row and column sums.  Otherwise its seemingly empty cells
    would lower the sum of a rare value, and that adds up over the many pairs of an attribute.
    """
    total = max(float(estimate.counts.sum()), 0.0)
    if total > 0:
        independent = remove_interaction(estimate.counts, total, estimate.zero)
        parts = [apply_norm_sub(estimate.counts.sum(axis=axis), total) for axis in range(estimate.counts.ndim)]
        variance = float(estimate.variance.mean() if estimate.zero is None else estimate.variance.max())
        alternative = None if expected_shares is None or variance <= 0 else fit_to_sums(expected_shares, parts[::-1])
        shrunk = shrink_marginal(estimate.counts, independent, variance, pooled, alternative)
        mean = shrunk.mean if pooled is None else pooled.keep_trend(estimate.counts, shrunk.mean)
        if mean.ndim == 2 and variance > (FAINT_PAIR_NOISE_SHARE * total) ** 2:
            mean = np.maximum(mean, 0.0) + FAINT_PAIR_INDEPENDENCE_SHARE * independent
            mean = rake(
                mean if estimate.zero is None else np.where(estimate.zero, 0.0, mean),
                parts,
                FAINT_PAIR_INDEPENDENCE_SHARE,
            )
        estimate.counts = np.rint(mean / COUNT_RESOLUTION) * COUNT_RESOLUTION
        estimate.keep_zeros()
        filled = np.rint((1 - shrunk.empty) / COUNT_RESOLUTION) * COUNT_RESOLUTION
        estimate.variance = estimate.variance * np.maximum(filled, LEAST_CELL_VARIANCE_SHARE)


def remove_interaction(counts: Floats, total: float, zero: NDArray[np.bool_] | None = None) -> Floats:
    """Return counts of sum ``total`` > 0, of the same shape, that match all marginals of one attribute less.

    They have no interaction beyond these parts, which are made non-negative first.  A pair's counts are the product of
    its one-ways.  With more attributes or known zeros (``zero``), iterative proportional fitting starts from equal
    counts outside the zeros.
    """
    axes = range(counts.ndim)
    parts = [apply_norm_sub(counts.sum(axis=axis), total) for axis in axes]
    if counts.ndim == 2 and zero is None:
        return np.outer(parts[1], parts[0]) / total
    fitted = np.full(counts.shape, total / counts.size)
    if zero is not None:
        fitted[zero] = 0.0
    return rake(fitted, parts)


def _list_shared_sets(cliques: Sequence[Clique]) -> list[tuple[Clique, list[int]]]:
    """Return the attribute sets shared by at least two cliques, smallest first, each with its cliques' positions.

    The sets are the empty set, single attributes, and the intersections of two overlapping cliques.
    """
    holders: dict[str, list[int]] = {}
    for i, clique in enumerate(cliques):
        for a in clique:
            holders.setdefault(a, []).append(i)
    shared: set[Clique] = {(), *((a,) for a in holders)}
    for clique in (c for c in cliques if len(c) > 2):
        for other in cliques:
            common = tuple(a for a in clique if a in other)
            if len(common) >= 2 and other is not clique:
                shared.add(common)
    order = {a: i for i, a in enumerate(holders)}
    sets = []
    for attributes in sorted(shared, key=lambda s: (len(s), [order[a] for a in s])):
        members = set(range(len(cliques)))
        for a in attributes:
            members &= set(holders[a])
        if len(members) >= 2:
            sets.append((attributes, sorted(members)))
    return sets


def _group_all(
    estimates: Sequence[_Estimate], one_ways: Sequence[_Estimate], zeros: KnownZeros | None
) -> list[Sequence[Member]]:
    """Return the members of every shared attribute set, with their current variances, smallest sets first."""
    unmerged, merged = [e for e in estimates if not e.merges], [e for e in estimates if e.merges]
    plan = _list_shared_sets([e.attributes for e in unmerged])
    groups: list[tuple[int, Sequence[Member]]]
    groups = [(len(shared), [_Member(unmerged[i], shared) for i in members]) for shared, members in plan]
    if merged:
        groups += _group_by_merged_codes(merged, estimates)
        groups.sort(key=lambda group: group[0])
    estimate_of = {o.attributes[0]: o for o in one_ways}
    for pair, forbidden in zeros.implied if zeros is not None else ():
        labels = label_blocks(forbidden)
        if labels is not None and estimate_of.keys() >= {*pair}:
            number = 1 + max(int(side.max()) for side in labels)
            tied = zip(pair, labels, strict=True)
            groups.append((2, [_BlockMember(estimate_of[a], side, number) for a, side in tied]))
    return [members for _, members in groups]


def _group_by_merged_codes(
    merged: Sequence[_Estimate], estimates: Sequence[_Estimate]
) -> Iterator[tuple[int, list[_Member]]]:
    """Yield the members that share attributes with each ``merged`` estimate, with the number of shared attributes.

    Members are all estimates that have the shared attributes and whose codes are equal to or parts of the merged codes.
    """
    yield 0, [_Member(e, ()) for e in estimates]
    for estimate in merged:
        sets: dict[Clique, None] = {(a,): None for a in estimate.attributes}
        for other in estimates:
            common = tuple(a for a in estimate.attributes if a in other.attributes)
            if other is not estimate and len(common) > 1:
                sets[common] = None
        for shared in sets:
            members = []
            for e in estimates:
                if set(shared) <= set(e.attributes):
                    merges = [find_merge(e.get_merge(a), estimate.get_merge(a)) for a in shared]
                    if all(is_merge for is_merge, _ in merges):
                        members.append(_Member(e, shared, tuple(merge for _, merge in merges)))
            if len(members) > 1:
                yield len(shared), members


def find_merge(merge: Merge | None, target: Merge | None) -> tuple[bool, Merge | None]:
    """Return whether the codes of ``merge`` are parts of the codes of ``target``, and the merge between the two.

    Both map the attribute's codes, None for the codes themselves.  The returned merge is None if both are equal.
    """
    if target is None or merge is None:
        return merge is None or target is not None, target if merge is None else None
    if np.array_equal(merge, target):
        return True, None
    between = np.zeros(int(merge.max()) + 1, dtype=np.int64)
    between[merge] = target
    return bool((between[merge] == target).all()), between


def _average_all(groups: Iterable[Sequence[Member]]) -> None:
    """Move every member of every shared set to the members' inverse-variance average, set by set."""
    for members in groups:
        projections = [m.project() for m in members]
        weighted = [p * m.precision for p, m in zip(projections, members, strict=True)]
        mean = np.sum(weighted, axis=0) / np.sum([m.precision for m in members], axis=0)
        for m, p in zip(members, projections, strict=True):
            m.shift(mean - p)


def _measure_inconsistency(groups: Iterable[Sequence[Member]]) -> float:
    """Return the largest difference, in records, between two estimates of the same shared count."""
    worst = 0.0
    for members in groups:
        projections = [m.project() for m in members]
        low, high = np.minimum.reduce(projections), np.maximum.reduce(projections)
        worst = max(worst, float(np.max(high - low)))
    return worst


def build_measured_marginals(
    queries: Sequence[Query], answers: Sequence[NDArray[Any]], domain: Domain
) -> list[Marginal]:
    """Return the measured cliques of two or more attributes, with their shapes and noise.

    The one-ways are pooled elsewhere.
    """
    return [
        Marginal(q.attributes, y.astype(np.float64).reshape(domain.shape(q.attributes)), q.sigma)
        for q, y in zip(queries, answers, strict=True)
        if len(q.attributes) > 1
    ]
