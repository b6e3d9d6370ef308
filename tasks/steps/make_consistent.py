"""Step *make consistent* (postprocess): noisy marginals become non-negative and agree on all that they share.

Paper: section 4.3; the weights follow "Consistency under Uneven Privacy Budget Allocation".  Everything paid for is
used: the one-ways of the first stage take part with the weight of their own noise.
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
from privsyn.tasks.estimation.known_zeros import BlockMember, KnownZeros, list_tied_blocks
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.merged_codes import merge_counts
from privsyn.tasks.estimation.pooled_coefficients import NoisyPair, PooledEstimator, fit_pooled_coefficients
from privsyn.tasks.estimation.projection import apply_norm_sub, fit_to_sums, rake
from privsyn.tasks.estimation.shrink_departures import shrink_marginal
from privsyn.tasks.knowledge.totals import KnownTotals

Floats = NDArray[np.float64]

Codes = NDArray[np.int64]

OrderedCodes = Mapping[str, NDArray[np.bool_]]
"""Attribute -> which of its codes have an order; attributes without such codes are left out."""

TOLERANCE = 0.5
"""Rounds end early once no shared count differs by more than half a record between marginals."""

COUNT_RESOLUTION = 2.0**-10
"""Shrunken counts, and chances, are whole multiples of it: last bits of linear algebra differ between CPUs, and rows
must not."""

ZERO_VARIANCE_SHARE = 1e-6
"""Variance of a known zero, as a share of that of the marginal's cells: small, and large enough to divide by."""

FAINT_PAIR_NOISE_SHARE = 0.02
"""Noise of a pair's cell, as a share of all rows, above which the shrunken pair keeps the sums of its parts."""

FAINT_PAIR_INDEPENDENCE_SHARE = 1e-6
"""Share of independence in every cell of such a pair, so that each row and column can be given its sum."""

LEAST_CELL_VARIANCE_SHARE = 0.01
"""Part of its noise variance that a cell keeps at least, however surely its noisy count says that it is empty."""


@dataclass
class _Estimate:
    """One noisy marginal while it is being adjusted.

    Attributes:
        attributes: In the domain's order; one axis each.
        counts: The counts so far.
        variance: The noise variance of each cell, of the same shape.
        zero: Which cells are known to be 0; None: none is.
        public_counts: The counts, where they are public.
        merges: As of :class:`Marginal`.
        is_pair: Whether it is shrunk with all other pairs.
        codes: The codes of each attribute that the counts are of, in order; empty: they are of all.
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
        """Return the merge of one of its attributes, None where the counts are by the attribute's codes."""
        return self.merges[self.attributes.index(attribute)] if self.merges else None

    def leave_null_out(self, nulls: Mapping[str, int]) -> _Estimate:
        """Return the estimate of a pair without codes of null that go with null only; else return it unchanged.

        A code of null is left out if known zeros forbid it beside every value of the other column.  ``nulls``: the
        code of null by attribute.
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
        """Take the counts and variances of what :meth:`leave_null_out` returned."""
        if shrunk is not self:
            here = np.ix_(*shrunk.codes)
            self.counts[here], self.variance[here] = shrunk.counts, shrunk.variance

    def keep_zeros(self) -> None:
        """Set the known zeros; what was counted there, by rows that break a rule, is left out."""
        if self.zero is not None:
            self.counts[self.zero] = 0.0

    def project(self, total: float) -> None:
        """Make the counts non-negative and of sum ``total``; known zeros and known counts stay."""
        if self.public_counts is not None:
            self.counts = self.public_counts.copy()
        elif self.zero is None:
            self.counts = apply_norm_sub(self.counts, total)
        else:
            self.counts[self.zero], self.counts[~self.zero] = 0.0, apply_norm_sub(self.counts[~self.zero], total)


class _Member:
    """One of the estimates that share a set of attributes, with what stays the same from round to round.

    ``precision``: 1 / variance of its estimate of each shared count; ``share``: the part of a change of that count that
    each cell takes, in proportion to its noise variance (one number where all cells take the same).
    """

    def __init__(self, estimate: _Estimate, shared: Clique) -> None:
        self.estimate = estimate
        self.axes = tuple(i for i, a in enumerate(estimate.attributes) if a not in shared)
        total = estimate.variance.sum(axis=self.axes, keepdims=True)
        share = estimate.variance / total
        self.precision = 1.0 / total.squeeze(self.axes)
        self.shape = total.shape
        self.share = share.flat[0] if share.size and (share == share.flat[0]).all() else share

    def project(self) -> Floats:
        """Return counts on the shared attributes, whose order is the domain's."""
        return np.add.reduce(self.estimate.counts, axis=self.axes)

    def shift(self, change: Floats) -> None:
        """Spread ``change``, of the shape of :meth:`project`, over the cells."""
        self.estimate.counts += change.reshape(self.shape) * self.share


class _MergedMember:
    """As :class:`_Member`, of a set of attributes that is shared by merged codes, which its own codes are parts of.

    ``merges``: of each shared attribute, from the estimate's own codes to the shared ones, None where these are the
    same.
    """

    def __init__(self, estimate: _Estimate, shared: Clique, merges: Merges) -> None:
        self.estimate = estimate
        self.gone = tuple(i for i, a in enumerate(estimate.attributes) if a not in shared)
        by_attribute = dict(zip((a for a in estimate.attributes if a in shared), merges, strict=True))
        self.merges = [by_attribute.get(a) for a in estimate.attributes]
        total = merge_counts(estimate.variance.sum(axis=self.gone, keepdims=True), self.merges)
        self.precision = 1.0 / total.squeeze(self.gone)
        self.shape = total.shape
        self.share = estimate.variance / self._split(total)

    def _split(self, counts: Floats) -> Floats:
        for axis, merge in enumerate(self.merges):
            counts = counts if merge is None else counts.take(merge, axis=axis)
        return counts

    def project(self) -> Floats:
        """Return counts on the shared attributes, by the shared codes."""
        return merge_counts(self.estimate.counts.sum(axis=self.gone, keepdims=True), self.merges).squeeze(self.gone)

    def shift(self, change: Floats) -> None:
        """Spread ``change``, of the shape of :meth:`project`, over the cells."""
        self.estimate.counts += self._split(change.reshape(self.shape)) * self.share


Member = _Member | _MergedMember | BlockMember


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

    A round averages every shared attribute set, the smallest first (the empty set is the total), with weights w_i
    proportional to 1 / (variance of the estimate), which is rho_i / g_i for a marginal whose g_i cells are summed into
    one; then it projects each marginal on the non-negative counts of the common total (norm-sub).

    With ``one_way_weight`` above 1 or ``shrink``, as many rounds that only average come first.

    Args:
        one_way: One marginal of each attribute, counts of shape (size,).
        one_way_variance: The noise variance of every cell of each, of the same shapes.
        measured: Marginals of two attributes and more.  One of merged codes agrees with the others on what both know:
            sums over its codes of an attribute, and of several where another holds these by codes that are parts of its
            own.
        sigmas: The standard deviation of the noise in every cell of each.
        rounds: Rounds at most.
        one_way_weight: How many times as much the one-ways weigh once counts are cut at 0, which moves counts from the
            large cells of a large marginal to its small ones: one-ways that were averaged before hold against that.
        shrink: Whether, once averaged, every larger marginal loses what its noise explains of its departure from
            independence, or with three attributes and more from what their pairs say (:mod:`shrink_departures`).  Cells
            that are probably empty then take that much less of what averaging moves.
        zeros: Cells that no row can be in.  They have next to no variance (ZERO_VARIANCE_SHARE), so that averages move
            the other cells, and stay 0 when counts are cut and shrunk.  They are not looked for in merged codes.
        expected: Pair -> what a public table expects of it, shares of its shape: noisy counts are shrunk to that or to
            independence, whichever they are nearer to.
        known: Public totals.  Marginals of these attributes and pairs stay as they are, and all have the total's rows.
        pooled: Attribute -> which of its codes have an order: pairs without known zeros are also shrunk by what all
            pairs together say of their coefficients (:mod:`pooled_coefficients`), and keep their trends.  None: no.
        trend_deviations: Pair -> standard deviation of the trend that was pooled into its counts.
        named_pairs: Pairs that are shrunk as pairs also in merged codes; others in such codes are shrunk alone.
        nulls: The code of null, by attribute, of those whose zeros are of null beside values and no others.  A pair of
            them is shrunk without a null that no value goes with.

    Returns:
        The marginals, each with the noise that it was measured with as ``sigma`` (root mean square over the cells).
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
    noise = [float(np.sqrt(e.variance.mean())) for e in estimates]  # before known zeros and shrinking change variances
    for e in estimates:
        _set_public_facts(e, zeros, known)
    groups = _group_all(estimates, singles, zeros)
    if one_way_weight > 1 or shrink:
        _average(groups, rounds)  # without a cut at 0, noise below 0 still cancels noise above
    if shrink:
        _shrink_all([e for e in larger if e.public_counts is None], expected, pooled, trend_deviations, nulls)
    if one_way_weight != 1:  # cutting at 0 draws large marginals towards even, and one-ways would follow them
        for e in singles:
            e.variance = e.variance / one_way_weight
        groups = _group_all(estimates, singles, zeros)  # weights follow from variances

    def cut() -> None:
        # of any estimate: a round has just averaged the total, the smallest set that all share
        total = max(float(estimates[0].counts.sum()), 0.0) if known is None else float(known.rows)
        for e in estimates:
            e.project(total)

    _average(groups, rounds, cut if estimates else None)
    return [Marginal(e.attributes, e.counts, s, e.merges) for e, s in zip(estimates, noise, strict=True)]


def _set_public_facts(estimate: _Estimate, zeros: KnownZeros | None, known: KnownTotals | None) -> None:
    """Set the counts that are public, and the cells that no row can be in; neither is known of merged codes."""
    if estimate.merges:
        return
    if known is not None and known.has(estimate.attributes):
        estimate.public_counts = estimate.counts.copy()
    if zeros is None:
        return
    estimate.zero = zeros.on(estimate.attributes, estimate.counts.shape)
    estimate.keep_zeros()
    if estimate.zero is not None:  # with next to no variance, averages move the other cells and not these
        least = ZERO_VARIANCE_SHARE * estimate.variance.min()
        estimate.variance = np.where(estimate.zero, least, estimate.variance)


def _average(groups: Sequence[Sequence[Member]], rounds: int, cut: Callable[[], None] | None = None) -> None:
    """Average every shared attribute set, and ``cut`` the counts where that is asked for, until all agree.

    At most ``rounds`` times.
    """
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
    """Shrink each marginal; ``ordered``: the codes in order for pooled coefficients, None: these are not used."""
    with threadpool_limits(1, "blas"):  # sums in one order, whatever the number of cores
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
    """Return the estimator of each pair by pooled coefficients; None without noise or rows, or with known zeros."""
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
    """Return which codes of an axis have an order, of merged ones those of such codes alone; None where none has."""
    attribute = estimate.attributes[axis]
    marks, merge = ordered.get(attribute), estimate.get_merge(attribute)
    if marks is None:
        return None
    if merge is not None:
        return np.bincount(merge, weights=~marks) == 0
    return marks[estimate.codes[axis]] if estimate.codes else marks


def _shrink(estimate: _Estimate, expected_shares: Floats | None = None, pooled: PooledEstimator | None = None) -> None:
    """Shrink a marginal, measured with equal noise in all cells, towards independence, or its ``expected_shares``.

    Of three attributes and more independence is what their pairs say.

    ``pooled``: a further estimator of a pair's cells, by which the pair also keeps its trend.

    A faint pair (FAINT_PAIR_NOISE_SHARE) keeps the sums of its rows and columns, which averaging has settled: cells
    that pass for empty would draw those of a rare value off, and in the many pairs of its attribute that adds up.
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
    """Return counts of sum ``total`` > 0, of the same shape, that agree with all marginals of one attribute less.

    They have no interaction beyond these parts, which are made non-negative first: of a pair, the product of its
    one-ways; of more attributes, and of any with known zeros (``zero``), what iterative proportional fitting finds
    from equal counts outside these.
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
    """Return attribute sets shared by at least two cliques, smallest first, each with its cliques' positions.

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
    """Return the members of every set that estimates share, at their present variances, smallest sets first."""
    unmerged, merged = [e for e in estimates if not e.merges], [e for e in estimates if e.merges]
    plan = _list_shared_sets([e.attributes for e in unmerged])
    groups: list[tuple[int, Sequence[Member]]]
    groups = [(len(shared), [_Member(unmerged[i], shared) for i in members]) for shared, members in plan]
    if merged:
        groups += _group_by_merged_codes(merged, estimates)
        groups.sort(key=lambda group: group[0])
    return [*(members for _, members in groups), *list_tied_blocks(one_ways, zeros)]


def _group_by_merged_codes(
    merged: Sequence[_Estimate], estimates: Sequence[_Estimate]
) -> Iterator[tuple[int, list[_MergedMember]]]:
    """Yield what each ``merged`` estimate shares with others, by its own codes, with the number of shared attributes.

    Members are all estimates with the shared attributes whose codes of each are the same or parts of its own.
    """
    yield 0, [_MergedMember(e, (), ()) for e in estimates]
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
                        members.append(_MergedMember(e, shared, [merge for _, merge in merges]))
            if len(members) > 1:
                yield len(shared), members


def find_merge(merge: Merge | None, target: Merge | None) -> tuple[bool, Merge | None]:
    """Return whether the codes of ``merge`` are parts of those of ``target``, and the merge between the two.

    Both by the attribute's codes, None for these themselves; the merge is None where both are the same.
    """
    if target is None or merge is None:
        return merge is None or target is not None, target if merge is None else None
    if np.array_equal(merge, target):
        return True, None
    between = np.zeros(int(merge.max()) + 1, dtype=np.int64)
    between[merge] = target
    return bool((between[merge] == target).all()), between


def _average_all(groups: Iterable[Sequence[Member]]) -> None:
    """Move every member of every shared set, set by set, to the inverse-variance average of their estimates of it."""
    for members in groups:
        projections = [m.project() for m in members]
        weighted = [p * m.precision for p, m in zip(projections, members, strict=True)]
        mean = np.sum(weighted, axis=0) / np.sum([m.precision for m in members], axis=0)
        for m, p in zip(members, projections, strict=True):
            m.shift(mean - p)


def _measure_inconsistency(groups: Iterable[Sequence[Member]]) -> float:
    """Return largest difference, in records, between two estimates of the same shared count."""
    worst = 0.0
    for members in groups:
        projections = [m.project() for m in members]
        low, high = np.minimum.reduce(projections), np.maximum.reduce(projections)
        worst = max(worst, float(np.max(high - low)))
    return worst


def build_measured_marginals(
    queries: Sequence[Query], answers: Sequence[NDArray[Any]], domain: Domain
) -> list[Marginal]:
    """Return the measured cliques of two attributes and more, with their shapes and noise.

    One-ways are pooled elsewhere.
    """
    return [
        Marginal(q.attributes, y.astype(np.float64).reshape(domain.shape(q.attributes)), q.sigma)
        for q, y in zip(queries, answers, strict=True)
        if len(q.attributes) > 1
    ]
