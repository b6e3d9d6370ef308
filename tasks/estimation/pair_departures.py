"""What noisy scores and one-ways say of each pair's departure from independence, and of their own errors.

Not in the paper. A function of released counts and public noise, so it costs no budget.

A score is the L1 distance of a pair from independence.  Two things make it too large.  The noise of the one-ways moves
the reference itself: the expected distance that this alone would make is taken off in squares, as errors add.  And the
pairs of largest score are, among many, those whose noise was largest: half a standard deviation is taken off all, more
where that noise is above a quarter of the table, and scores whose noise is larger than half the table are not used.
What is left is spread over the cells in proportion to their expected counts.

One-ways are in every marginal of their attribute, measured or not, so an error of theirs is worth more than one of a
pair.  With few rows or a small epsilon little can be known of pairs, and the third stage's budget is better spent on
measuring one-ways once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.estimation.expected_error import NORMAL_MEAN_ABSOLUTE, Departures
from privsyn.tasks.estimation.recode import Recode, estimate_total, sum_coarse_one_ways

Floats = NDArray[np.float64]

MIN_SCORE_CAUTION = 0.5
"""Standard deviations of a score's noise that are taken off it, at least."""

MAX_CLEAR_SCORE_NOISE = 0.25
"""Noise of a score, as a share of all records, above which more is taken off it."""

MAX_SCORE_CAUTION = 2.0
"""Standard deviations that are taken off where the noise is at MAX_USABLE_SCORE_NOISE; they rise evenly up to there."""

MAX_USABLE_SCORE_NOISE = 0.5
"""Scores whose noise is above this share of all records say nothing: with them, pairs would be chosen by noise."""

REFERENCE_SCORE_COUNT = 1_000
"""Scores at a time above which both limits of the noise rise by the square root of their number, up to twice.

The more pairs, the further the most related stand out."""

ONE_WAY_ERROR_WEIGHT = 0.3
"""In how many of the pairs of its attribute an error of a one-way shows, as a share of them."""

POOLED_ONE_WAY_ERROR_WEIGHT = 0.5
"""The same where pooled coefficients are to tell weak relations from noise: else pairs would have all of the budget."""

_GROUPS = 6  # of one attribute's codes, each a quarter as large as the one before; a last one holds those at 0


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
    """Return a row per pair: expected L1 departure (rho 0), the score less what noise explains of it, at least 0.

    scores: in records, with noise of standard deviation ``sigma``, of each or of all; ``noisy_reference``: whether they
    were taken against the noisy one-ways of ``recode`` (whose own noise then is in them) or the exact ones (InDif);
    ``pooled``: whether pooled coefficients will tell weak relations from noise; then nothing is taken off for the
    noise of a score, for a pair that is measured in vain does no harm.  ``explained``: pair -> the L1 departure, in
    records, that is known already, by its trend; None where no trends were asked: then that of weak relations is not.
    """
    reference = IndependentCounts.of(recode)
    _, noise = sum_coarse_one_ways(recode)
    # the last share, that of filtered values, is in no measured pair
    grouped = {a: _group_codes(reference.shares[a][:-1], v) for a, v in zip(recode, noise, strict=True)}
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
    """Return a row per clique, all of one size: expected L1 departure, the score less what its noise explains.

    scores: distances of cliques from rows made so far, with noise of standard deviation ``sigma``; they are spread over
    the cells in proportion to the counts expected of independence, as a pair's are.
    """
    reference = IndependentCounts.of(recode)
    _, noise = sum_coarse_one_ways(recode)
    table = np.stack([_group_codes(reference.shares[a][:-1], v) for a, v in zip(recode, noise, strict=True)])
    number = {a: i for i, a in enumerate(recode)}
    share = cells = np.ones((len(cliques), 1))
    for members in zip(*cliques, strict=True):  # the first attribute of every clique, the second, ...
        columns = table[[number[a] for a in members]]
        share = (share[:, :, None] * columns[:, None, 0]).reshape(len(cliques), -1)
        cells = (cells[:, :, None] * columns[:, None, 1]).reshape(len(cliques), -1)
    return _spread(_shrink_scores(scores, sigma, reference), share, cells)


def _spread(departure: Floats, share: Floats, cells: Floats) -> Departures:
    """Return an L1 departure per row, spread over its cells by ``share``; ``cells``: how many have each share."""
    mass = (cells * share).sum(axis=1)
    scale = np.divide(departure, NORMAL_MEAN_ABSOLUTE * mass, out=np.zeros_like(departure), where=mass > 0)
    return Departures(scale[:, None] * share, cells)


def _shrink_scores(scores: Sequence[float], sigma: float | Sequence[float], reference: IndependentCounts) -> Floats:
    """Return the scores less a multiple of their noise (:func:`compute_caution`, of as many as have it), at least 0.

    0 where that hides all (MAX_USABLE_SCORE_NOISE).
    """
    noise, number = np.unique(np.broadcast_to(sigma, len(scores)), return_inverse=True)
    counts = np.bincount(number)
    times = [compute_caution(float(s), reference.total, int(n)) for s, n in zip(noise, counts, strict=True)]
    off = np.array([t * s if math.isfinite(t) else math.inf for t, s in zip(times, noise, strict=True)])
    return np.maximum(np.asarray(scores, dtype=np.float64) - off[number], 0.0)


def compute_caution(sigma: float, total: float, scores: int) -> float:
    """Return how many standard deviations to take off ``scores`` scores of noise ``sigma`` for ``total`` records.

    MIN_SCORE_CAUTION up to MAX_CLEAR_SCORE_NOISE of all records, from there evenly up to MAX_SCORE_CAUTION at
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
    """Return a row per attribute: the error of its noisy one-way, which shows in ONE_WAY_ERROR_WEIGHT of its pairs."""
    others = (POOLED_ONE_WAY_ERROR_WEIGHT if pooled else ONE_WAY_ERROR_WEIGHT) * (len(recode) - 1)
    tau = [[math.sqrt(r.noise)] for r in recode.values()]
    cells = [[len(r.coarse) * others] for r in recode.values()]
    return Departures(np.array(tau), np.array(cells, dtype=np.float64))


def _group_codes(share: Floats, variance: Floats) -> Floats:
    """Return mean share, number of codes and mean variance of each group of codes of like share, shape (3, groups)."""
    largest = float(share.max())
    with np.errstate(divide="ignore", invalid="ignore"):
        quarters = np.log(largest / share) / math.log(4.0)
    group = np.where(share > 0, np.minimum(quarters, _GROUPS - 1), _GROUPS).astype(np.int64)
    cells = np.bincount(group, minlength=_GROUPS + 1).astype(np.float64)
    divisor = np.maximum(cells, 1.0)
    return np.stack(
        [
            np.bincount(group, weights=share, minlength=_GROUPS + 1) / divisor,
            cells,
            np.bincount(group, weights=variance, minlength=_GROUPS + 1) / divisor,
        ]
    )


def _stack_columns(grouped: Mapping[str, Floats], attributes: Sequence[str], axis: int) -> Floats:
    """Return groups of each attribute of a list, shape (3, attributes, groups) with one more axis to multiply along."""
    number = {a: i for i, a in enumerate(grouped)}
    table = np.stack(list(grouped.values()), axis=1)
    return np.expand_dims(table[:, [number[a] for a in attributes]], axis + 1)


FRACTION_BITS = 16  # a reference count is a whole number of 2^-16 records
MAX_ROWS = 3_000_000_000
"""Above this, the exact 64-bit arithmetic of :func:`indif` could overflow."""


@dataclass(frozen=True)
class IndependentCounts:
    """The counts of each pair if it were independent, by the noisy one-ways: public once these are released.

    ``shares``: attribute -> share of every coarse code and, last, of the filtered values; they sum to 1, or are 0
    where the noisy counts are.  ``total``: noisy number of rows.
    """

    shares: Mapping[str, NDArray[np.float64]]
    total: float

    @classmethod
    def of(cls, recode: Recode) -> IndependentCounts:
        """Return the reference that the released recoding implies; negative noisy counts become 0."""
        shares = {}
        for attribute, r in recode.items():
            counts = np.bincount(np.where(r.kept, r.coarse, r.size), weights=r.estimate, minlength=r.size + 1)
            positive = np.maximum(counts, 0.0)
            shares[attribute] = positive / max(float(positive.sum()), 1.0)
        return cls(shares, max(estimate_total(recode), 0.0))

    def counts(self, a: str, b: str) -> NDArray[np.int64]:
        """Return the pair's independent counts in units of 2^-16 records, rounded.

        Shape (size of a + 1, size of b + 1).
        """
        expected = np.multiply.outer(self.shares[a], self.shares[b]) * min(self.total, MAX_ROWS)
        return np.rint(np.ldexp(expected, FRACTION_BITS)).astype(np.int64)


class ExpectedCounts(Protocol):
    """What counts of pairs are compared with: public once the one-ways are released."""

    def counts(self, a: str, b: str) -> NDArray[np.int64]:
        """Return the pair's expected counts in units of 2^-16 records; shape (size of a + 1, size of b + 1)."""
        ...
