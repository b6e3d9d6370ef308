"""Estimates of each pair's departure from independence from noisy scores and one-ways, and of the one-ways' errors.

Not in the paper.  A function of released counts and public noise, so it costs no budget.

A score is the L1 distance of a pair from independence, and two effects inflate it.  First, the noise of the one-ways
moves the reference: the expected distance from this noise alone is subtracted in squares, as errors add.  Second, the
largest of many scores tend to have the largest noise.  So half a standard deviation is subtracted from all scores, and
more if the noise is above a quarter of the table.  Scores with noise above half the table are not used.  The remaining
departure is spread over the cells in proportion to their expected counts.

One-ways enter every marginal of their attribute, measured or not, so their errors cost more than a pair's.  With few
rows or a small epsilon little can be learned about pairs, and the third stage's budget is better spent on measuring
one-ways again.

The pairs of a wide table that are scored: columns whose names form a block, or that are near in the table.

Not in the paper, which scores all pairs.  d attributes have d (d - 1) / 2 pairs, and each scored pair takes budget from
the others, time and memory.  The choice depends on the public names and order of the columns, and on no row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.presets import ALL_PAIRS_COLUMNS
from privsyn.tasks.estimation.expected_error import NORMAL_MEAN_ABSOLUTE, Departures
from privsyn.tasks.estimation.recode import Recode, estimate_total, map_coarse_one_ways

Floats = NDArray[np.float64]

MIN_SCORE_CAUTION = 0.5
"""Least standard deviations of noise subtracted from a score."""

MAX_CLEAR_SCORE_NOISE = 0.25
"""Noise of a score, as a share of all records, above which more is subtracted."""

MAX_SCORE_CAUTION = 2.0
"""Standard deviations subtracted at a noise of MAX_USABLE_SCORE_NOISE; they rise linearly up to there."""

MAX_USABLE_SCORE_NOISE = 0.5
"""Scores with more noise than this share of all records are not used: noise alone would select the pairs."""

REFERENCE_SCORE_COUNT = 1_000
"""Number of scores above which both noise limits rise with the square root of the number, up to twofold.

The more pairs, the further the most related stand out."""

ONE_WAY_ERROR_WEIGHT = 0.3
"""Share of an attribute's pairs that an error of its one-way affects."""

POOLED_ONE_WAY_ERROR_WEIGHT = 0.5
"""The same with pooled coefficients for weak relations; with the lower weight, pairs would get the whole budget."""

_GROUPS = 6  # groups of an attribute's codes, each with a quarter of the share of the one before; one more for share 0


def estimate_pair_departures(
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    sigma: float | Sequence[float],
    recode: Recode,
    *,
    noisy_reference: bool,
    pooled: bool = False,
    explained: Mapping[Clique, float] | None = None,
) -> Departures:
    """Return a row per pair: expected L1 departure (rho 0), the score minus what noise explains, at least 0.

    ``scores``: in records, with noise of standard deviation ``sigma``, which is one number for each score or for all.
    ``noisy_reference``: whether the reference is the noisy one-ways of ``recode`` or the exact ones (InDif).  If it is
    the noisy one-ways, their noise is in the scores.  ``pooled``: whether pooled coefficients will separate weak
    relations from noise.  With trends, nothing is then subtracted for a score's noise, since a pair measured in vain
    does no harm.  ``explained``: pair -> L1 departure, in records, that its trend explains; None if no trends were
    asked.
    """
    reference = IndependentCounts.of(recode)
    grouped = _group_all_codes(recode, reference)
    first = _stack_columns(grouped, [a for a, _ in pairs], axis=2)
    second = _stack_columns(grouped, [b for _, b in pairs], axis=1)
    share, cells = first[0] * second[0], first[1] * second[1]
    raw = np.maximum(np.asarray(scores, dtype=np.float64), 0.0)
    departure = raw if pooled and explained is None else _shrink_scores(scores, sigma, reference)
    if noisy_reference:
        by_noise = np.sqrt(first[2] * second[0] ** 2 + first[0] ** 2 * second[2])
        noise_departure = NORMAL_MEAN_ABSOLUTE * (cells * by_noise).sum(axis=(1, 2))
        departure = np.sqrt(np.maximum(departure**2 - noise_departure**2, 0.0))
    if explained:
        explained_departure = np.array([explained.get(pair, 0.0) for pair in pairs])
        departure = np.sqrt(np.maximum(departure**2 - explained_departure**2, 0.0))
    flat = (len(pairs), (_GROUPS + 1) ** 2)
    return _spread(departure, share.reshape(flat), cells.reshape(flat))


def estimate_clique_departures(
    cliques: Sequence[Clique], scores: Sequence[float], sigma: float, recode: Recode
) -> Departures:
    """Return a row per clique, all of one size: expected L1 departure, the score minus what its noise explains.

    scores: distances of cliques from the current synthetic rows, with noise of standard deviation ``sigma``; they are
    spread over the cells in proportion to the independent counts, as for pairs.
    """
    reference = IndependentCounts.of(recode)
    table = np.stack(list(_group_all_codes(recode, reference).values()))
    number = {a: i for i, a in enumerate(recode)}
    share = cells = np.ones((len(cliques), 1))
    for members in zip(*cliques, strict=True):  # the first attribute of every clique, the second, ...
        columns = table[[number[a] for a in members]]
        share = (share[:, :, None] * columns[:, None, 0]).reshape(len(cliques), -1)
        cells = (cells[:, :, None] * columns[:, None, 1]).reshape(len(cliques), -1)
    return _spread(_shrink_scores(scores, sigma, reference), share, cells)


def _spread(departure: Floats, share: Floats, cells: Floats) -> Departures:
    """Return an L1 departure per row, spread over its cells by ``share``; ``cells``: cells with each share."""
    mass = (cells * share).sum(axis=1)
    scale = np.divide(departure, NORMAL_MEAN_ABSOLUTE * mass, out=np.zeros_like(departure), where=mass > 0)
    return Departures(scale[:, None] * share, cells)


def _shrink_scores(scores: Sequence[float], sigma: float | Sequence[float], reference: IndependentCounts) -> Floats:
    """Return the scores minus a multiple of their noise (:func:`compute_caution`), at least 0.

    Scores with more noise than MAX_USABLE_SCORE_NOISE become 0.
    """
    noise, number = np.unique(np.broadcast_to(sigma, len(scores)), return_inverse=True)
    counts = np.bincount(number)
    times = [compute_caution(float(s), reference.total, int(n)) for s, n in zip(noise, counts, strict=True)]
    off = np.array([t * s if math.isfinite(t) else math.inf for t, s in zip(times, noise, strict=True)])
    return np.maximum(np.asarray(scores, dtype=np.float64) - off[number], 0.0)


def compute_caution(sigma: float, total: float, scores: int) -> float:
    """Return how many standard deviations to subtract from ``scores`` scores of noise ``sigma`` over ``total`` records.

    MIN_SCORE_CAUTION up to a noise of MAX_CLEAR_SCORE_NOISE of all records, rising linearly to MAX_SCORE_CAUTION at
    MAX_USABLE_SCORE_NOISE; infinite above.
    """
    noise = sigma / min(2.0, max(1.0, math.sqrt(scores / REFERENCE_SCORE_COUNT)))
    if noise <= MAX_CLEAR_SCORE_NOISE * total:
        return MIN_SCORE_CAUTION
    if noise > MAX_USABLE_SCORE_NOISE * total:
        return math.inf
    beyond = (noise / total - MAX_CLEAR_SCORE_NOISE) / (MAX_USABLE_SCORE_NOISE - MAX_CLEAR_SCORE_NOISE)
    return MIN_SCORE_CAUTION + (MAX_SCORE_CAUTION - MIN_SCORE_CAUTION) * beyond


def estimate_one_way_departures(recode: Recode, *, pooled: bool = False) -> Departures:
    """Return a row per attribute: the error of its noisy one-way, counted in ONE_WAY_ERROR_WEIGHT of its pairs."""
    others = (POOLED_ONE_WAY_ERROR_WEIGHT if pooled else ONE_WAY_ERROR_WEIGHT) * (len(recode) - 1)
    tau = [[math.sqrt(r.noise)] for r in recode.values()]
    cells = [[len(r.coarse) * others] for r in recode.values()]
    return Departures(np.array(tau), np.array(cells, dtype=np.float64))


def _group_all_codes(recode: Recode, reference: IndependentCounts) -> dict[str, Floats]:
    """Return the groups of every attribute's codes; filtered values, the last share, are in no measured pair."""
    return {a: _group_codes(reference.shares[a][:-1], v) for a, (_, v) in map_coarse_one_ways(recode).items()}


def _group_codes(share: Floats, variance: Floats) -> Floats:
    """Return mean share, size and mean variance of each group of codes with similar shares, shape (3, groups)."""
    largest = float(share.max())
    with np.errstate(divide="ignore", invalid="ignore"):
        quarters = np.log(largest / share) / math.log(4.0)
    group = np.where(share > 0, np.minimum(quarters, _GROUPS - 1), _GROUPS).astype(np.int64)
    cells = np.bincount(group, minlength=_GROUPS + 1).astype(np.float64)
    divisor = np.maximum(cells, 1.0)
    mean_share, mean_variance = (np.bincount(group, x, _GROUPS + 1) / divisor for x in (share, variance))
    return np.stack([mean_share, cells, mean_variance])


def _stack_columns(grouped: Mapping[str, Floats], attributes: Sequence[str], axis: int) -> Floats:
    """Return the groups of the listed attributes, shape (3, attributes, groups), with one more axis to broadcast."""
    number = {a: i for i, a in enumerate(grouped)}
    table = np.stack(list(grouped.values()), axis=1)
    return np.expand_dims(table[:, [number[a] for a in attributes]], axis + 1)


FRACTION_BITS = 16  # a reference count is a whole number of 2^-16 records
MAX_ROWS = 3_000_000_000
"""Above this, the exact 64-bit arithmetic of :func:`indif` could overflow."""


@dataclass(frozen=True)
class IndependentCounts:
    """The counts of each pair under independence, from the noisy one-ways: public once these are released.

    ``shares``: attribute -> share of every coarse code and, last, of filtered values; they sum to 1, or are all 0 if
    the noisy counts are.  ``total``: noisy number of rows.
    """

    shares: Mapping[str, NDArray[np.float64]]
    total: float

    @classmethod
    def of(cls, recode: Recode) -> IndependentCounts:
        """Return the independent counts from the released recoding; negative noisy counts become 0."""
        shares = {}
        for attribute, r in recode.items():
            positive = np.maximum(r.sum_codes(r.estimate), 0.0)
            shares[attribute] = positive / max(float(positive.sum()), 1.0)
        return cls(shares, max(estimate_total(recode), 0.0))

    def counts(self, a: str, b: str) -> NDArray[np.int64]:
        """Return the pair's independent counts in units of 2^-16 records, shape (size of a + 1, size of b + 1)."""
        expected = np.multiply.outer(self.shares[a], self.shares[b]) * min(self.total, MAX_ROWS)
        return np.rint(np.ldexp(expected, FRACTION_BITS)).astype(np.int64)


class ExpectedCounts(Protocol):
    """Reference counts for scores of pairs: public once the one-ways are released."""

    def counts(self, a: str, b: str) -> NDArray[np.int64]:
        """Return the pair's expected counts in units of 2^-16 records; shape (size of a + 1, size of b + 1)."""
        ...


MOST_PAIRS = ALL_PAIRS_COLUMNS * (ALL_PAIRS_COLUMNS - 1) // 2
"""Scored pairs of a wider table, besides pairs of focus columns: all pairs of ALL_PAIRS_COLUMNS attributes."""

BLOCK_PART = 0.75
"""Largest share of the pairs within name blocks: neighbouring columns are related across blocks, too."""

_LAST_PART = re.compile(r"([_.\- ]?[0-9]+|(?<=[0-9])[a-zA-Z]|[_.\- ][a-zA-Z])$")


def name_block(column: str) -> str:
    """Return the name without its last number or letter, which is the same within a block (q12_1 and q12_2)."""
    return _LAST_PART.sub("", column)


def is_wide(attributes: Collection[str]) -> bool:
    """Return whether the attributes have too many pairs to score all."""
    return len(attributes) > ALL_PAIRS_COLUMNS


def list_near_pairs(
    attributes: Sequence[str], columns: Mapping[str, str], focus: Collection[str] = (), limit: int = MOST_PAIRS
) -> list[Clique]:
    """Return the pairs to score, in attribute order: all pairs if there are at most ``limit``.

    ``columns``: attribute -> its source column; ``focus``: attributes whose pairs are all scored.  At most ``limit``
    other pairs follow.  Pairs within a block come first, nearest first, up to BLOCK_PART of them.  Then come the
    nearest pairs in the table, where attributes of one column are adjacent.
    """
    number = {a: i for i, a in enumerate(attributes)}
    chosen = {_sort_pair(number[f], i) for f in focus for i in range(len(attributes)) if i != number[f]}
    first = {column: i for i, column in reversed(list(enumerate(columns[a] for a in attributes)))}
    order = sorted(range(len(attributes)), key=lambda i: (first[columns[attributes[i]]], i))
    blocks: dict[str, list[int]] = {}
    for i in order:
        blocks.setdefault(name_block(columns[attributes[i]]), []).append(i)
    within_blocks = islice(
        (p for p in _pair_by_distance(list(blocks.values())) if p not in chosen), int(BLOCK_PART * limit)
    )
    pairs = list(within_blocks)
    chosen.update(pairs)
    chosen.update(islice((p for p in _pair_by_distance([order]) if p not in chosen), limit - len(pairs)))
    return [(attributes[i], attributes[j]) for i, j in sorted(chosen)]


def _pair_by_distance(lines: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of numbers within each line: neighbours first, then pairs two apart, and so on."""
    for apart in range(1, max(map(len, lines), default=0)):
        for line in lines:
            yield from map(_sort_pair, line, line[apart:])


def _sort_pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)
