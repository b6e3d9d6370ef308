"""The recoding of a domain: which fine codes of an attribute share a coarse code, and their noisy counts.

Paper: section 5.3, "Filter and Combine Low-count Values".

Not in the paper: ordered columns get codes of about equal noisy mass, and pairs are scored and measured on these.  A
pair whose cells have fewer rows than noise loses the relation; a few cells of many rows each keep it.  Inside a code,
values follow the fine one-way.  A function of released counts and public noise, so it costs no budget.

Counts of values and of their public groups are made to agree level by level (DPSyn report, section 5.3, "Attributes
with Large Domains").  The estimate for levels with separate noise is by Hay, Rastogi, Miklau and Suciu, Boosting the
Accuracy of Differentially Private Histograms Through Consistency (VLDB 2010).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain, Merge
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import RECODE
from privsyn.tasks.codecs.cells import AttributeBins, Binning, list_counted_alone, list_level_attributes
from privsyn.tasks.estimation.fine_weights import (
    STANDS_OUT,
    empty_doubtful,
    find_faint_points,
    join_points,
    weigh_inside,
)
from privsyn.tasks.estimation.marginals import Marginal, apply_norm_sub

Floats = NDArray[np.float64]


def make_levels_agree(
    counts: Floats, variance: float, levels: Sequence[tuple[NDArray[np.int64], Floats, float]]
) -> Floats:
    """Return the weighted least-squares estimate of fine counts, shape (fine size,), from the counts of all levels.

    counts, variance: noisy fine counts and their noise variance; levels, top one first: the group of every fine code,
    the noisy counts of the groups, and their noise variance.  The estimate of a level is the sum of the result over its
    groups, so counts agree level by level.
    """
    below, spread = counts, np.full(len(counts), variance)
    code = np.arange(len(counts))
    climbed = []
    for group, noisy, noise in reversed(levels):
        up = np.zeros(len(below), dtype=np.int64)
        up[code] = group
        sums = np.bincount(up, weights=below)
        variances = np.bincount(up, weights=spread)
        climbed.append((up, below, spread, sums, variances))
        spread = 1.0 / (1.0 / variances + 1.0 / noise)
        below = spread * (sums / variances + noisy / noise)
        code = group
    for up, level_counts, level_spread, sums, variances in reversed(climbed):
        below = level_counts + level_spread * ((below - sums) / variances)[up]
    return below


def with_levels(counts: Mapping[str, Floats], sigmas: Mapping[str, float], binning: Binning) -> dict[str, Floats]:
    """Return the counts of all attributes; counts of attributes with levels, and of their levels, agree."""
    agreed: dict[str, Floats] = dict(counts)
    for a, levels in ((a, bins.levels) for a, bins in binning.items() if bins.levels):
        noisy_levels = [(level.groups, counts[level.attribute], sigmas[level.attribute] ** 2) for level in levels]
        agreed[a] = make_levels_agree(counts[a], sigmas[a] ** 2, noisy_levels)
        for level in levels:
            agreed[level.attribute] = np.bincount(level.groups, weights=agreed[a]).astype(np.float64)
    return agreed


def combine_by_levels(
    counts: Floats, low: NDArray[np.bool_], least: float, levels: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the set of combined codes that each low code is in, from 0, shape (size,); -1 for codes in no set.

    From the lowest level up, the remaining low codes of a group form a set if they count at least ``least`` together.
    levels: the group of every code, the top level first.
    """
    set_of = np.full(len(counts), -1, dtype=np.int64)
    sets = 0
    for group_of in reversed(levels):
        open_codes = low & (set_of < 0)
        sums = np.bincount(group_of[open_codes], weights=counts[open_codes], minlength=int(group_of.max()) + 1)
        enough = np.flatnonzero(sums >= least)
        number = np.full(len(sums), -1, dtype=np.int64)
        number[enough] = sets + np.arange(len(enough))
        set_of[open_codes] = number[group_of[open_codes]]
        sets += len(enough)
    return set_of


WORTH_A_CODE = 0.001
"""Low neighbours with a smaller share of the noisy total get no code of their own: a code costs cells in every pair."""


@dataclass(frozen=True)
class AttributeRecode:
    """The recoding of one attribute; every array has shape (fine size,).

    Attributes:
        coarse: The coarse code of each fine code, ``size`` if the value was filtered (``kept`` false).
        weight: Each fine code's share of its coarse code, >= 0, with sum 1.
        estimate: The noisy fine counts.
        variance: The noise variance of each noisy fine count.
    """

    coarse: NDArray[np.int32]
    kept: NDArray[np.bool_]
    weight: Floats
    estimate: Floats
    variance: Floats

    @property
    def size(self) -> int:
        """Number of coarse codes, at least 1."""
        return int(self.coarse[self.kept].max()) + 1

    def sum_codes(self, fine: Floats) -> Floats:
        """Return the sums of fine counts by coarse code, filtered values last, shape (size + 1,)."""
        code = np.where(self.kept, self.coarse, self.size)
        return np.asarray(np.bincount(code, weights=fine, minlength=self.size + 1), dtype=np.float64)

    @property
    def noise(self) -> float:
        """Noise variance of a fine count; the mean variance if a public table lowered some of them."""
        return float(self.variance.mean() if self.by_prior else self.variance[0])

    @property
    def by_prior(self) -> bool:
        """Whether the counts were shrunk towards a public table, which makes their variances differ."""
        return bool((self.variance != self.variance[0]).any())


Recode = dict[str, AttributeRecode]


def as_one_code(recode: AttributeRecode) -> AttributeRecode:
    """Return the recoding of a level: one code, since a level is counted but has no relations of its own."""
    counts = np.maximum(recode.estimate, 0.0) + 1e-9
    same = np.zeros(len(counts), dtype=np.int32)
    return replace(recode, coarse=same, kept=same == 0, weight=counts / counts.sum())


def weigh_by_chance(recode: AttributeRecode, chances: Floats) -> AttributeRecode:
    """Return the same counts in one code, with shares by chance, or by the noisy counts if some stand out from chance.

    ``chances``: expected share of each fine code by chance, shape (fine size,), 0 for null and exact values.
    """
    same = np.zeros(len(chances), dtype=np.int32)
    counted, sd = recode.estimate.copy(), np.sqrt(recode.variance)
    counted[chances == 0] = 0.0
    total = max(float(counted.sum()), 0.0)
    excess = counted - total * chances
    clear = excess[1:] > STANDS_OUT * sd[1:]  # the first code holds numbers that were not rounded
    if total <= 0 or not clear.any():
        return replace(recode, coarse=same, kept=same == 0, weight=chances)
    settled = apply_norm_sub(np.where(np.append(True, clear) | (excess < 0), counted, total * chances), total)
    return replace(recode, coarse=same, kept=same == 0, weight=settled / settled.sum())


def compress_attribute(
    noisy: NDArray[Any],
    sigma: float,
    attribute: AttributeBins,
    settings: Compression,
    codes: int | None = None,
    least: Sequence[int] = (),
) -> AttributeRecode:
    """Keep, combine or filter each bin of one attribute.

    The threshold theta is ``settings.sigmas`` times the noise of one fine count (paper: 3 sigma), and at least
    ``settings.least_count`` (DPSyn report, 5.3: 4.5 sigma and 800).  A bin (the sum of its fine codes) is kept if its
    noisy count reaches theta; bins of intervals are combined (:func:`_begin_codes`).  All other low bins share one
    combined code, the last.  With ``settings.filter`` (the paper) they are filtered instead, with count 0, if their sum
    is below theta too; that loses the rows of many rare values.  The bin of unlisted values (``attribute.added``) is
    filtered whenever it is low: noise alone must not create it.  At least one code always remains.

    With ``attribute.levels`` (not in the paper), a bin also needs WORTH_A_CODE for a code of its own.  Low bins share a
    code within their group of the lowest level, or of the level above if they are too few.  A cell of one value
    (``attribute.points``) that does not stand out shares the code of the cell beside it.

    ``codes``: number of codes that the ordered bins are joined into; None: theta decides.  ``least``: least codes of
    each section of ordered bins; empty: 1.
    """
    counts, groups, added = noisy.astype(np.float64), attribute.groups, attribute.added
    levels = [level.groups for level in attribute.levels]
    clear = empty_doubtful(counts, sigma, attribute)
    faint = find_faint_points(clear, sigma, attribute.points)
    total = np.bincount(groups, weights=join_points(clear, faint), minlength=attribute.size).astype(np.float64)
    theta = settings.threshold(sigma)
    if levels:
        theta = max(theta, WORTH_A_CODE * float(total.sum()))
    low = total < theta if settings.enabled else np.zeros(attribute.size, dtype=bool)
    first = _begin_codes(total, low, theta, sigma, attribute, settings, codes, least)
    for start, end in attribute.in_order if codes is not None or settings.neighbours else ():
        low[start:end] = False  # every interval has a code now
    # a faint cell shares the code of the cell beside it; the pair begins a code if either of them did
    for cell, neighbour in zip(groups[faint.cell], groups[faint.neighbour], strict=True):
        first[max(cell, neighbour)], first[min(cell, neighbour)] = False, first[cell] or first[neighbour]
    gone = np.zeros(attribute.size, dtype=bool)
    if added is not None and low[added] and (bool(levels) or not low.all()):  # filtering all would leave no code
        gone[added], low[added] = True, False
    starts = np.unique(groups, return_index=True)[1]
    shared = combine_by_levels(total, low, theta, [group_of[starts] for group_of in levels])
    low &= shared < 0
    # order of codes: kept and ordered bins, then combined codes of levels, then the combined code; filtered bins last
    last_code = int(first.sum()) + int(shared.max()) + 1
    combine = bool(low.any()) and (not settings.filter or last_code == 0 or total[low].sum() >= theta)
    target = np.where(shared < 0, np.cumsum(first) - 1, int(first.sum()) + shared)
    target[low] = last_code
    target[gone] = last_code + int(combine)
    coarse = target[groups].astype(np.int32)
    has_code = (~low[groups] | combine) & ~gone[groups]
    weight = weigh_inside(clear, sigma, groups, coarse, levels[-1] if levels else None, attribute.points)
    return AttributeRecode(coarse, has_code, weight, counts, np.full(len(counts), sigma**2))


def _begin_codes(
    total: Floats,
    low: NDArray[np.bool_],
    theta: float,
    sigma: float,
    attribute: AttributeBins,
    settings: Compression,
    codes: int | None,
    least: Sequence[int] = (),
) -> NDArray[np.bool_]:
    """Return which bins begin a code, shape (bins,): bins that are not low, and the codes of each section of intervals.

    Bins are never combined across sections.  With ``settings.neighbours`` (not in the paper), low intervals are
    combined with low neighbours until they reach ``theta`` and WORTH_A_CODE together, or no low neighbour is left.
    They get a code of their own if their sum reaches one standard deviation of its noise and WORTH_A_CODE; else each
    joins the nearest code of its section.  A section without codes becomes one code.  With ``codes`` (not in the
    paper), ordered bins are joined into that many codes of about equal noisy mass, whether low or not.  Each section
    gets its share of the codes by mass, and at least ``least``.
    """
    first, cells, mass = ~low, np.bincount(attribute.groups), np.maximum(total, 0.0)
    worth_a_code = WORTH_A_CODE * float(total.sum())
    for (start, end), fewest in zip(attribute.in_order, least or (1,) * len(attribute.in_order), strict=True):
        part = slice(start, end)
        if codes is not None:
            share = mass[part].sum() / max(mass.sum(), 1.0)
            first[part] = mark_first_of_equal_mass(total[part], max(fewest, round(codes * share)))
        elif settings.neighbours:
            noise = sigma * np.sqrt(cells[part])  # a bin sums fine cells with independent noise
            first[part] = mark_first_of_intervals(total[part], low[part], max(theta, worth_a_code), noise, worth_a_code)
    return first


def drop_unlisted(recode: Recode, binning: Binning, settings: Compression) -> Recode:
    """Return the same codes without shares of unlisted values that may be noise alone (not in the paper).

    If unlisted values share a code with listed ones and have a low noisy count, the listed values get their share:
    in proportion, or evenly if their own shares are 0.
    """
    changed = dict(recode)
    for a, r in recode.items():
        unlisted = binning[a].added
        if unlisted is None:
            continue
        others = r.kept & (r.coarse == r.coarse[unlisted]) & (np.arange(len(r.coarse)) != unlisted)
        if (
            not r.kept[unlisted]
            or not others.any()
            or r.estimate[unlisted] >= settings.threshold(math.sqrt(r.variance[unlisted]))
        ):
            continue
        weight = r.weight.copy()
        code_weight, listed_weight = weight[others].sum() + weight[unlisted], weight[others].sum()
        weight[unlisted], weight[others] = (
            0.0,
            weight[others] * code_weight / listed_weight if listed_weight > 0 else code_weight / others.sum(),
        )
        changed[a] = replace(r, weight=weight)
    return changed


def with_one_ways(
    recode: Recode, answers: Mapping[str, NDArray[Any]], sigmas: Mapping[str, float], binning: Binning
) -> Recode:
    """Return the same codes with new noisy one-ways, for simulations.

    ``answers``: attribute -> fine counts; attributes without an entry (with known totals) stay as they are.
    ``sigmas``: attribute -> noise of the counts.
    """
    replaced = {}
    for a, r in recode.items():
        if a not in answers:
            replaced[a] = r
            continue
        estimate = np.asarray(answers[a], dtype=np.float64)
        weight = np.zeros(len(r.coarse))
        weight[r.kept] = weigh_inside(estimate[r.kept], sigmas[a], binning[a].groups[r.kept], r.coarse[r.kept])
        replaced[a] = AttributeRecode(r.coarse, r.kept, weight, estimate, np.full(len(estimate), sigmas[a] ** 2))
    return replaced


def pool_one_ways(
    recode: Recode, queries: Sequence[Query], answers: Sequence[NDArray[Any]], binning: Binning
) -> Recode:
    """Return the recode with later noisy one-ways on fine codes pooled in by inverse variance; skips larger queries.

    Codes stay, since rows were recoded with them.  Fine weights are shrunk towards an even spread in their code, unless
    a public table informs the attribute.  Counts of levels are made to agree.
    """
    pooled = dict(recode)
    for query, noisy in zip(queries, answers, strict=True):
        if len(query.attributes) == 1:
            a = query.attributes[0]
            r, bins = pooled[a], binning[a]
            variance = 1.0 / (1.0 / r.variance + 1.0 / query.sigma**2)
            estimate = variance * (r.estimate / r.variance + noisy / query.sigma**2)
            pooled_recode = AttributeRecode(r.coarse, r.kept, r.weight, estimate, variance)
            if bins.chances is not None:
                pooled[a] = weigh_by_chance(pooled_recode, bins.chances)
                continue
            noise = 0.0 if r.by_prior else float(np.sqrt(pooled_recode.noise))
            weight = weigh_inside(estimate, noise, bins.groups, r.coarse, points=bins.points)
            pooled[a] = replace(pooled_recode, weight=weight)
    return pooled | _recode_levels(pooled, binning)


def _recode_levels(pooled: Recode, binning: Binning) -> Recode:
    """Return the recodes of attributes with levels, and of the levels, with counts that agree."""
    named = [*(a for a, bins in binning.items() if bins.levels), *list_level_attributes(binning)]
    sigma = {a: float(np.sqrt(pooled[a].noise)) for a in named}
    recoded = {}
    for a, y in with_levels({a: pooled[a].estimate for a in named}, sigma, binning).items():
        below = binning[a].levels[-1].groups if binning[a].levels else None
        weight = weigh_inside(y, sigma[a], binning[a].groups, pooled[a].coarse, below)
        recoded[a] = replace(pooled[a], estimate=y, weight=weight)
    return recoded


def mark_ordered_codes(recode: AttributeRecode, bins: AttributeBins) -> NDArray[np.bool_]:
    """Return which codes stand for intervals, shape (codes,)."""
    ordered = np.zeros(recode.size, dtype=bool)
    for start, end in bins.in_order:
        inside = recode.kept & (bins.groups >= start) & (bins.groups < end)
        ordered[recode.coarse[inside]] = True
    return ordered


def mark_all_ordered_codes(recode: Recode, binning: Binning) -> dict[str, NDArray[np.bool_]]:
    """Return the mask of codes that stand for intervals, for each attribute with such codes."""
    return {a: mark_ordered_codes(recode[a], bins) for a, bins in binning.items() if bins.in_order and a in recode}


def merge_coarse(recode: AttributeRecode, merge: Merge) -> AttributeRecode:
    """Return the recoding with coarse codes merged; shares inside merged codes follow the noisy counts."""
    merged = np.append(merge, int(merge.max()) + 1)[recode.coarse].astype(np.int32)
    mass = np.where(recode.kept, np.maximum(recode.estimate, 0.0) + 1e-9, 0.0)
    sums = np.bincount(recode.coarse, weights=mass, minlength=recode.size + 1)
    within = np.where(recode.kept, recode.weight * sums[recode.coarse], 0.0)
    total = np.bincount(merged, weights=within)
    weight = np.divide(within, total[merged], out=np.zeros_like(within), where=total[merged] > 0)
    return replace(recode, coarse=merged, weight=weight)


def build_coarse_domain(recode: Recode) -> Domain:
    """Return the compressed domain, in the recode's attribute order."""
    return Domain.of({a: r.size for a, r in recode.items()})


def estimate_total(recode: Recode) -> float:
    """Return an estimate of the number of private rows: the inverse-variance mean of the one-ways' totals.

    Totals include filtered fine codes, since every row has a code in every attribute; coarse marginals leave filtered
    values out and would give too few rows.
    """
    precision = np.array([1.0 / r.variance.sum() for r in recode.values()])
    totals = np.array([r.estimate.sum() for r in recode.values()])
    return float((precision * totals).sum() / precision.sum())


def recode_to_table(recode: Recode, labels: Mapping[str, Sequence[str]]) -> pa.Table:
    """Return the recoding as a table of the contract RECODE; ``labels`` name every fine code of every attribute."""
    parts = [
        pa.table(
            [
                pa.array([a] * len(r.coarse), pa.string()),
                np.arange(len(r.coarse), dtype=np.int32),
                pa.array(labels[a], pa.string()),
                r.coarse,
                r.kept,
                r.weight,
                r.estimate,
                r.variance,
            ],
            schema=RECODE.schema,
        )
        for a, r in recode.items()
    ]
    return pa.concat_tables(parts)


def recode_from_table(table: pa.Table) -> Recode:
    """Return the recoding of a RECODE table, in the table's attribute order."""
    names = table["attribute"].combine_chunks().dictionary_encode()
    index = names.indices.to_numpy()
    starts = np.flatnonzero(np.diff(index, prepend=-1))
    stops = np.append(starts[1:], len(index))
    column = {n: table[n].to_numpy() for n in ("coarse", "kept", "weight", "estimate", "variance")}
    return {
        names.dictionary[int(index[lo])].as_py(): AttributeRecode(**{n: v[lo:hi] for n, v in column.items()})
        for lo, hi in zip(starts, stops, strict=True)
    }


def sum_coarse_one_ways(recode: Recode) -> tuple[list[Marginal], list[Floats]]:
    """Return the stage-1 one-ways on coarse codes and the noise variance of each cell, without filtered codes."""
    marginals = [Marginal((a,), r.sum_codes(r.estimate)[:-1]) for a, r in recode.items()]
    return marginals, [r.sum_codes(r.variance)[:-1] for r in recode.values()]


def map_coarse_one_ways(recode: Recode) -> dict[str, tuple[Floats, Floats]]:
    """Return attribute -> noisy counts of its coarse codes and their noise variances (:func:`sum_coarse_one_ways`)."""
    one_ways, variances = sum_coarse_one_ways(recode)
    return {m.attributes[0]: (m.counts, variance) for m, variance in zip(one_ways, variances, strict=True)}


ROWS_A_CELL = 3.0
"""Mean rows of a pair's cell, in standard deviations of its noise."""

LEAST_CODES = 4
"""Least codes of a column: with fewer, a label with a few heavy values would put them in one code."""

ENOUGH_CODES = 8
"""Codes that preserve a relation well: a column with up to half as many more keeps its own, which are finer."""

PAIRS_BUDGET = 3.0
"""Assumed budget of the pairs relative to the one-ways' when codes are counted: about the default split."""


def count_codes(noisy: Mapping[str, Floats], queries: Sequence[Query]) -> int:
    """Return the number of codes of equal mass per column: at least LEAST_CODES, and even from ENOUGH_CODES up.

    An even number puts one cut at the median, where sets of columns merge codes in two.

    If all pairs were measured, each would have noise of standard deviation s; two columns of k codes then have
    rows / k^2 = ROWS_A_CELL x s rows a cell.  ``noisy``: fine counts by attribute; ``queries``: their queries.
    """
    rows = float(np.mean([y.sum() for y in noisy.values()]))
    pairs = max(len(noisy) * (len(noisy) - 1) / 2, 1.0)
    rho = PAIRS_BUDGET * sum(1 / (2 * q.sigma**2) for q in queries)
    noise = math.sqrt(pairs / (2 * rho))
    codes = max(LEAST_CODES, round(math.sqrt(max(rows, 0.0) / (ROWS_A_CELL * noise))))
    return codes if codes < ENOUGH_CODES else codes + codes % 2


def are_worth_joining(size: int, codes: int) -> bool:
    """Return whether an attribute of ``size`` codes is better measured in ``codes`` codes of equal mass."""
    return codes < size if codes < ENOUGH_CODES else 3 * codes <= 2 * size


def mark_first_of_equal_mass(total: Floats, codes: int) -> NDArray[np.bool_]:
    """Return which bins of a section of intervals begin a code; ``total``: their noisy counts, shape (bins,).

    The middle of a bin's mass decides which of ``codes`` equal parts it joins, so a heavy bin is a code alone.
    """
    mass = np.maximum(total, 0.0)
    all_mass = float(mass.sum())
    if all_mass <= 0:
        return np.arange(len(total)) == 0
    middle = (np.cumsum(mass) - mass / 2) / all_mass
    part = np.minimum(np.floor(middle * codes), codes - 1)
    return np.diff(part, prepend=-1.0) != 0


def mark_first_of_intervals(
    total: Floats, low: NDArray[np.bool_], theta: float, noise: Floats, worth_a_code: float
) -> NDArray[np.bool_]:
    """Return which bins of a section of intervals begin a code; ``noise``: standard deviation of each noisy count."""
    first = _mark_first_of_neighbours(total, low, theta)
    code = np.cumsum(first) - 1
    sums, sd = np.bincount(code, weights=total), np.sqrt(np.bincount(code, weights=noise**2))
    begins = ~low | (sums >= np.maximum(sd, worth_a_code))[code]
    beginnings = np.flatnonzero(begins)
    if not beginnings.size:
        return np.arange(len(total)) == 0
    places = np.arange(len(total))
    after = np.searchsorted(beginnings, places).clip(max=len(beginnings) - 1)
    before = (after - (beginnings[after] > places)).clip(min=0)
    nearest = np.where(
        np.abs(beginnings[before] - places) <= np.abs(beginnings[after] - places), beginnings[before], beginnings[after]
    )
    joined = code[nearest]
    return np.diff(joined, prepend=-1) != 0


def _mark_first_of_neighbours(total: Floats, low: NDArray[np.bool_], theta: float) -> NDArray[np.bool_]:
    """Return which bins of a row of intervals begin a code.

    Every bin that is not low begins one.  In a run of low bins, a new code begins once the last code reached ``theta``.
    A rest below ``theta`` at the end of the run joins the code before it.
    """
    first = np.ones(len(total), dtype=bool)
    begun: list[int] = []  # the bins that begin a code in this run of low bins
    count = 0.0  # the noisy count of the last of these codes
    for i in range(len(total) + 1):
        if i < len(total) and low[i]:
            if not begun or count >= theta:
                begun.append(i)
                count = 0.0
            else:
                first[i] = False
            count += total[i]
        else:
            if len(begun) > 1 and count < theta:
                first[begun[-1]] = False
            begun = []
    return first


def recompress(pooled: Recode, queries: Sequence[Query], binning: Binning, settings: Compression) -> Recode:
    """Return the recode with fine weights by a new compression of all one-ways, for attributes measured again.

    Not in the paper.  Codes stay, since rows were recoded by the first look; but a value that was low in that look's
    noise may stand out after a second measurement.  If no larger marginal was measured, the counts, too, come from the
    new compression.

    pooled: codes of the first look with all one-ways pooled in (:func:`privsyn.tasks.estimation.recode.pool_one_ways`);
    queries: of all later looks.  Without ``settings.neighbours`` (the paper) nothing changes.
    """
    total = estimate_total(pooled)
    if not settings.enabled or not settings.neighbours or total <= 0:
        return pooled
    only_one_ways = all(len(q.attributes) == 1 for q in queries)
    recompressed = dict(pooled)
    again = dict.fromkeys(q.attributes[0] for q in queries if len(q.attributes) == 1)
    counted_alone = set(list_counted_alone(binning))
    for a in (a for a in again if not pooled[a].by_prior and a not in counted_alone):
        decided = compress_attribute(pooled[a].estimate, math.sqrt(pooled[a].noise), binning[a], settings)
        counts = _smooth_inside(decided, pooled[a], total)
        estimate = counts if only_one_ways else pooled[a].estimate
        recompressed[a] = replace(pooled[a], weight=share_by_counts(pooled[a], counts), estimate=estimate)
    return recompressed


def _smooth_inside(decided: AttributeRecode, recode: AttributeRecode, total: float) -> Floats:
    """Return fine counts >= 0 that sum to ``total``, smoothed inside the codes of ``decided``."""
    code, counts = decided.coarse[decided.kept], np.zeros(len(decided.coarse))
    sums, cells = np.bincount(code, weights=recode.estimate[decided.kept]), np.bincount(code)
    missing = (total - sums.sum()) * cells / cells.sum()  # in proportion to each code's noise variance
    counts[decided.kept] = decided.weight[decided.kept] * apply_norm_sub(sums + missing, total)[code]
    return counts


def share_by_counts(recode: AttributeRecode, counts: Floats) -> Floats:
    """Return each fine code's share of its code by ``counts``; a code without counts keeps its weights."""
    mass = np.where(recode.kept, counts, 0.0)
    sums = np.bincount(recode.coarse, weights=mass, minlength=recode.size)[recode.coarse]
    return np.divide(mass, sums, out=recode.weight.copy(), where=sums > 0)
