"""Transitions: the codes by which pairs of rows are counted, and the probability of each code of a person's next row.

A column's relation with itself is strong and measured in one table, so it can use finer codes than the relations of all
pairs of columns.  An ordered column has as many as its table's noise allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.fine_weights import count_cells_to
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, estimate_total
from privsyn.tasks.estimation.shrink_departures import compute_posterior_means, shrink_counts

MOST_CODES = 16
"""The most codes of an ordered column in its transition table."""

RECORDS_A_CELL = 4.0
RECORDS_OF_MEMBERS = 0.7
"""Records per cell, if all cells had as many, in noise standard deviations: for rows of persons, and for members.

Members need fewer: relations between couples, or parents and children, need narrow codes with few rows.
"""

Floats: TypeAlias = NDArray[np.float64]

SELECTION = 0.1
"""Relative error of the shares of codes caused by persons with one row; limits the trust in noisy row sums."""


MOST_CORRELATION = 0.98
"""The largest correlation between differing codes of a row and the next."""

CORRELATIONS = (-0.8, -0.5, -0.2, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, MOST_CORRELATION)
"""Correlations to try for the moves of an ordered column."""

FITTING_ROUNDS = 20
"""Rounds of fitting moves to their row and column sums."""


@dataclass(frozen=True, eq=False)
class TransitionCodes:
    """The codes of one attribute in its transition table.

    Attributes:
        recode: The recoding from fine to coarse codes.
        split: How each coarse code's records are shared among the codes, shape (coarse size, size).
        ordered: How many of the codes, from the first on, are ordered.
    """

    recode: AttributeRecode
    split: NDArray[np.float64]
    ordered: int

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.split.shape[1]

    def measure_apart(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the chance that two values drawn from each code differ; ``values``: the number in each fine code."""
        coded, weight = self.recode.kept, self.recode.weight
        alike = np.bincount(self.recode.coarse[coded], weights=(weight**2 / values)[coded], minlength=self.size)
        return np.asarray(np.where(alike < 1 - 1e-9, 1 - alike, 0.0))


def build_transition_codes(plan: EncodingPlan, recode: Recode, rho: Fraction) -> dict[str, TransitionCodes]:
    """Return the codes of every followed attribute, from released counts alone.

    ``rho``: the budget of all transition tables, which gives their approximate noise.
    """
    following, panel = plan.following, plan.get_order()[0]
    looks = len(following) * (2 if panel.counts_later else 1)  # for members: with the next, and with the first
    sigma = np.sqrt(looks / (2 * float(rho))) if following else 1.0
    rows = max(estimate_total(recode), 1.0)
    wanted = RECORDS_OF_MEMBERS if panel.household else RECORDS_A_CELL
    most = int(np.clip(np.sqrt(rows / (wanted * sigma)), 1, MOST_CODES))
    codes_by_attribute = {}
    for a in following:
        codec = plan.get_codec(a)
        if isinstance(codec, OrderedCodec):
            bins = codec.groups
            sections = [(int(np.searchsorted(bins, s)), int(np.searchsorted(bins, e))) for s, e in codec.in_order]
            codes_by_attribute[a] = _cut(recode[a], sections, most, len(codec.cells.fine))
        else:
            codes_by_attribute[a] = _keep(recode[a])
    return codes_by_attribute


def refine_weights(codes: Mapping[str, TransitionCodes], recode: Recode) -> dict[str, TransitionCodes]:
    """Return the same codes with inner weights from the finer counts of ``recode``."""
    return {a: _weigh(c.recode.coarse, c.size, recode[a], c.ordered) for a, c in codes.items()}


def _weigh(code: NDArray[np.integer], size: int, recode: AttributeRecode, ordered: int) -> TransitionCodes:
    """Return codes by fine code, weighted by the counts and weights of ``recode``."""
    coded = recode.kept
    total = np.maximum(np.bincount(recode.coarse[coded], weights=recode.estimate[coded], minlength=recode.size), 1e-9)
    split = np.zeros((recode.size, size))
    np.add.at(split, (recode.coarse[coded], code[coded]), recode.weight[coded])
    mass = np.zeros(len(code))
    mass[coded] = recode.weight[coded] * total[recode.coarse[coded]]
    mass[coded] += (
        1e-12 * 1e-3 ** count_cells_to(mass > 0)[coded]
    )  # a code without rows: its cell nearest to filled ones
    sums = np.bincount(code[coded], weights=mass[coded], minlength=size)
    weight = np.where(coded, mass / np.maximum(sums[np.minimum(code, size - 1)], 1e-300), 0.0)
    return TransitionCodes(replace(recode, coarse=code.astype(np.int32), weight=weight), split, ordered)


def _keep(recode: AttributeRecode) -> TransitionCodes:
    """Return the coarse codes."""
    return _weigh(recode.coarse, recode.size, recode, 0)


def _cut(recode: AttributeRecode, sections: Sequence[tuple[int, int]], codes: int, cells: int) -> TransitionCodes:
    """Return about ``codes`` codes, each of neighbours in one section, or of fine codes that share a coarse code.

    ``sections``: (first fine code, first fine code after it) of each; ``cells``: how many fine codes, from the first
    on, are ordered.  Codes are equally spaced in the arcsine of the root of the cumulative share: smaller towards both
    ends, where the values of skewed columns lie far apart.  Codes of neighbours come in the order of their values,
    others last.
    """
    mass = np.maximum(recode.estimate, 0.0) * recode.kept
    group = np.full(len(mass), -1, np.int64)
    for start, end in sections:
        part = mass[start:end]
        wanted = max(1, round(codes * float(part.sum()) / max(float(mass.sum()), 1e-9)))
        place = np.floor(_stabilize_variance((np.cumsum(part) - part / 2) / max(float(part.sum()), 1e-9)) * wanted)
        group[start:end] = (start + 1) * len(mass) + np.minimum(place, wanted - 1).astype(np.int64)
    ungrouped = recode.kept & (group < 0)
    for code in np.unique(recode.coarse[ungrouped]):
        members = np.flatnonzero(ungrouped & (recode.coarse == code))
        neighbours = members[-1] < cells and len(members) == members[-1] - members[0] + 1
        group[members] = (members[0] + 1 + (0 if neighbours else len(mass))) * len(mass)
    known = np.unique(group[recode.kept], return_inverse=True)
    code = np.full(len(mass), len(known[0]), np.int64)
    code[recode.kept] = known[1]
    ordered = int((known[0] < (len(mass) + 1) * len(mass)).sum())
    return _weigh(code, len(known[0]), recode, ordered)


def _stabilize_variance(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2 / np.pi * np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))


@dataclass(frozen=True, eq=False)
class Transition:
    """The transitions of one attribute of k coarse codes.

    Attributes:
        shares: The share of persons by the row's code, shape (k,).
        moves: The probability of each next code, given the row's code, shape (k, k).
        same: The probability of the same value, given the row's code, shape (k,).  Each row of ``moves`` and its
            ``same`` sum to 1.
        sigma: A cell's noise, as a share of all pairs.
        apart: The chance that two values drawn from a code differ, shape (k,).
    """

    shares: Floats
    moves: Floats
    same: Floats
    sigma: float
    apart: Floats

    @property
    def next_codes(self) -> Floats:
        """The probability of each next code, shape (k, k), with unchanged fine codes included."""
        return self.moves + np.diag(self.same)

    def reverse(self) -> Transition:
        """Return the transitions from a row to the row before."""
        joint = self.shares[:, None] * self.moves
        same = self.shares * self.same
        arrive = joint.sum(axis=0) + same
        arrivals = np.maximum(arrive, 1e-12)
        moves, stays = joint.T / arrivals[:, None], same / arrivals
        lost = arrive <= 1e-12
        moves[lost], stays[lost] = 0.0, 1.0
        return Transition(arrive / max(arrive.sum(), 1e-12), moves, stays, self.sigma, self.apart)


def estimate_transition(
    counts: Floats, sigma: float, shares: Floats, pairs: float, apart: Floats, ordered: int = 0
) -> Transition:
    """Estimate transitions from noisy ``counts``, shape (k, k + 1); the last column counts the same value.

    ``shares``: of all rows by code; ``pairs``: the number of pairs; both from released counts.  The number of changes
    is known in two ways: as the sum of many noisy cells, and as the pairs minus the few counts of the same value.
    Counts are shrunk towards a simple model, more if they are noisier.  In this model, every code has the same share
    that stays, and moves follow :func:`model_moves` (the first ``ordered`` codes are ordered).  Moves are then fitted
    to the estimated sums of rows and columns, which differ in a column that grows or falls.  ``apart``: the chance that
    two values drawn from a code differ; no value moves inside a code of one value.
    """
    k = len(shares)
    pairs = max(pairs, 1.0)
    possible = np.ones((k, k), bool)
    np.fill_diagonal(possible, apart > 0)
    moved, same = np.where(possible, counts[:, :k], 0.0), counts[:, k]
    total = float(np.clip(_average(moved.sum(), possible.sum(), pairs - same.sum(), k), 0.0, pairs))
    expected = pairs * shares
    spread = (SELECTION * expected / sigma) ** 2 if sigma > 0 else np.zeros(k)
    by_row = _average(moved.sum(axis=1), possible.sum(axis=1), expected - same, 1 + spread)
    rows = project_to_sum(by_row, total)
    stays = _average(same, 1, expected - rows, 1 + spread)
    alike = (pairs - total) / pairs * (rows + np.maximum(stays, 0.0))
    stays = project_to_sum(shrink_counts(stays, alike, sigma), pairs - total)
    growth = shrink_counts(moved.sum(axis=0) - moved.sum(axis=1), np.zeros(k), sigma * np.sqrt(2 * (k - 1)))
    columns = project_to_sum(rows + growth, total)
    model = model_moves(moved, rows, columns, ordered, apart=apart)
    if sigma > 0:
        moved = compute_posterior_means(moved, model, sigma**2).mean
    moved = np.where(possible, np.maximum(moved, 1e-3 * model), 0.0)
    _fit_to_sums(moved, rows, columns)
    sums = moved.sum(axis=1) + stays
    row_sums = np.maximum(sums, 1e-9)
    next_codes, stays = moved / row_sums[:, None], stays / row_sums
    unseen = sums <= 1e-9
    next_codes[unseen], stays[unseen] = 0.0, 1.0
    return Transition(sums / sums.sum(), next_codes, stays, sigma / pairs, apart)


ALIKE = (0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 50.0)
"""Tried factors by which two household members are likelier to share a code than by chance."""


def estimate_pairs(
    counts: Floats,
    sigma: float,
    pairs: float,
    first: Floats,
    second: Floats,
    relative: tuple[float, float],
    ordered: int,
) -> Transition:
    """Estimate the transitions in one kind of pair of members from noisy ``counts``, shape (k, k).

    ``pairs``: their number; ``first`` and ``second``: both members' expected shares of codes, from released counts,
    with ``relative`` errors; codes without a share stay empty.  Counts are shrunk towards the nearest model, more if
    they are noisier, and fitted to sums that average counts and expected shares.
    """
    pairs, k = max(pairs, 1.0), len(first)
    sums = []
    for axis, shares, off in ((1, first, relative[0]), (0, second, relative[1])):
        expected = pairs * shares
        average = _average(counts.sum(axis=axis), k * sigma**2, expected, (off * expected) ** 2 + 1.0)
        possible = shares > 0 if shares.any() else np.ones(k, bool)
        sums.append(np.zeros(k))
        sums[-1][possible] = project_to_sum(average[possible], pairs)
    rows, columns = sums
    model = model_moves(counts, rows, columns, ordered, ALIKE)
    next_codes = np.maximum(_shrink_by_size(counts, model, sigma), 1e-3 * model)
    _fit_to_sums(next_codes, rows, columns)
    unseen = rows <= 1e-9
    next_codes /= np.maximum(next_codes.sum(axis=1, keepdims=True), 1e-300)
    next_codes[unseen] = columns / pairs
    return Transition(rows / pairs, next_codes, np.zeros(k), sigma / pairs, np.ones(k))


def _shrink_by_size(counts: Floats, expected: Floats, sigma: float) -> Floats:
    """Return counts shrunk towards ``expected``; each departure has a variance in proportion to its expected count."""
    beyond = float(((counts - expected) ** 2).sum()) - counts.size * sigma**2
    variance = max(beyond, 0.0) * expected / max(float(expected.sum()), 1e-9)
    signal_share = variance / np.maximum(variance + sigma**2, 1e-9)
    return np.asarray(expected + signal_share * (counts - expected))


def model_moves(
    moved: Floats,
    rows: Floats,
    columns: Floats,
    ordered: int,
    stay_factors: Sequence[float] = (1.0,),
    apart: Floats | None = None,
) -> Floats:
    """Return the model's moves nearest to ``moved``, with the sums ``rows`` and ``columns``.

    Among the first ``ordered`` codes, a share of the moves follows a copula and the rest independence.  The copula is
    normal, or one by which high values persist more than others; its correlation and share are fitted by least squares.
    For the other codes, staying is more likely than by chance by one of the factors ``stay_factors``, 1 for
    independence.  ``apart``: the chance that two values drawn from a code differ, by which moves inside it are rarer;
    None: 1.
    """
    total = float(rows.sum())
    if total <= 0:
        return np.zeros_like(moved)
    anywhere = np.outer(rows, columns) / total
    if apart is not None:
        anywhere[np.diag_indices(len(apart))] *= apart
        _fit_to_sums(anywhere, rows, columns)
    inner = (rows[:ordered], columns[:ordered])
    in_order = ordered > 1 and all((part > 0).sum() > 1 for part in inner)
    best, least = anywhere, float(((moved - anywhere) ** 2).sum())
    scores = list_scores(*inner) if in_order else [inner]
    tried = [
        (pair, r, times)
        for pair, r, times in product(scores, CORRELATIONS if in_order else (0.0,), stay_factors)
        if r != 0 or times != 1
    ]
    candidates = np.ones((len(tried), *moved.shape))
    for kernel, (pair, r, times) in zip(candidates, tried, strict=True):
        np.fill_diagonal(kernel[ordered:, ordered:], times)
        if in_order:
            kernel[:ordered, :ordered] = _copula(*pair, r)
    candidates *= anywhere
    _fit_to_sums(candidates, rows, columns)
    for moves in candidates:
        away = moves - anywhere
        share = float(np.clip(((moved - anywhere) * away).sum() / max(float((away**2).sum()), 1e-300), 0.0, 1.0))
        mixed = anywhere + share * away
        distance = float(((moved - mixed) ** 2).sum())
        if distance < least:
            best, least = mixed, distance
    return best


def _fit_to_sums(counts: Floats, rows: Floats, columns: Floats) -> None:
    """Fit counts, or each of several tables, to their sums, in place, by proportional fitting."""
    for _ in range(FITTING_ROUNDS):
        counts *= (rows / np.maximum(counts.sum(axis=-1), 1e-300))[..., :, None]
        counts *= (columns / np.maximum(counts.sum(axis=-2), 1e-300))[..., None, :]


def list_scores(rows: Floats, columns: Floats) -> list[tuple[Floats, Floats]]:
    """Return the scores of rows and columns in each copula: normal, and exponential, which grow in the upper tail."""
    from scipy.special import ndtri  # here: it loads slowly, and most releases have no linked rows

    by_copula: list[tuple[Floats, Floats]] = []
    for score in (ndtri, lambda rank: -np.log1p(-rank)):
        first, second = (score(_find_middles(shares)) for shares in (rows, columns))
        by_copula.append((first - rows @ first / rows.sum(), second - columns @ second / columns.sum()))
    return by_copula


def _find_middles(shares: Floats) -> Floats:
    """Return the rank in the middle of each code."""
    return np.clip((np.cumsum(shares) - shares / 2) / shares.sum(), 1e-6, 1 - 1e-6)


def _copula(first: Floats, second: Floats, r: float) -> Floats:
    """Return the density of a copula at these scores, up to factors of rows and of columns."""
    x, y = first[:, None], second[None, :]
    return np.exp((2 * r * x * y - r**2 * (x**2 + y**2)) / (2 * (1 - r**2)))


def _average(first: Any, variance: Any, second: Any, second_variance: Any) -> Any:
    """Return the inverse-variance mean of two measurements."""
    return (first * second_variance + second * variance) / (variance + second_variance)


def project_to_sum(values: Floats, total: float) -> Floats:
    """Return the nearest nonnegative vector that sums to ``total`` (nonnegative)."""
    if total <= 0:
        return np.zeros(len(values))
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(falling > excess)[-1]
    return np.maximum(values - excess[last], 0.0)


Transitions = Mapping[str, Transition]
"""Attribute -> its transitions."""


def count_pairs(plan: EncodingPlan, recode: Recode, one_ways: Mapping[str, Floats]) -> float:
    """Return the number of persons with two or more rows, from released counts."""
    name = plan.get_order()[0].rows
    r, counts = recode[name], one_ways[name]
    shares = np.where(r.kept, r.weight, 0.0) * counts[np.minimum(r.coarse, r.size - 1)]
    return float(shares[1:].sum())
