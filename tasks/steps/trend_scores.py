"""Step *trend scores* (release): one signed number a pair of ordered columns, which says how they rise together.

Not in the paper.  A distance from independence has no sign, and a table of a few thousand rows is too small for counts
of every pair.  But every record has a score in every ordered column: above the middle or below it, or by how much.  The
sum over the records of the product of two scores is a trend, twice as sure as the same from counts of 2 x 2 or 3 x 3
cells that have the same budget, and the sum of scores of one column says where its middle really is.  With signs the
two are the counts of 2 x 2 cells of all pairs, in the basis in which pairs share what they have in common (Barak and
others, "Privacy, Accuracy, and Consistency Too", PODS 2007).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.tasks.codecs.binning import Binning
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.estimation.trends import Ranks, rank_codes
from privsyn.tasks.kernels.counting import Countable, count_all
from privsyn.tasks.steps.indif_scores import plan_score_queries

Scores = Mapping[str, NDArray[np.int64]]
"""Attribute -> the score of each coarse code and, last, of filtered values: whole numbers, shape (codes + 1,)."""

CLEAR_NOISE = 0.02
"""Noise of a sum, as a share of all rows, up to which scores are ranks; above it they are signs, twice as sure."""

UNCLEAR_NOISE = 0.05
"""Noise of a sum of signs, as a share of all rows, above which trends are asked again: a correlation to about .08."""

MOST_WIDE_NOISE = 0.1
"""Noise of a sum of signs, as a share of all rows, that trends of a wide table have at most: fewer are asked then."""

MOST_AGAIN = Fraction(1, 4)
"""Part of the one-ways' second look, at most, that goes to trends in its place."""


def list_pairs(attributes: Sequence[str], near: Sequence[Clique] | None = None) -> list[Clique]:
    """Return the pairs of attributes whose trends are asked.

    ``near``, which is public: the pairs that are asked of a wide table; None: all.
    """
    ordered = {*attributes}
    return list(combinations(attributes, 2)) if near is None else [pair for pair in near if ordered.issuperset(pair)]


def plan_queries(
    attributes: Sequence[str], top: int, rho: Fraction, records: int, pairs: Sequence[Clique] | None = None
) -> list[Query]:
    """Return one single-cell query per attribute and per pair; none without any pair.

    ``top``: the largest score, so that of a product of two is its square; ``pairs``, which is public: those of
    :func:`list_pairs`; None: all.
    Privacy: all m answers together, d (d + 1) / 2 of them of all pairs, are rho-zCDP for adding or removing one person
    with at most ``records`` = k records: a record adds a score of at most ``top`` to the sum of an attribute and at
    most top^2 to that of a pair, whatever the others are, so the sensitivities are k top and k top^2, and each costs
    rho / m; scores follow from noisy one-ways, which are released before the look, and pairs from names alone.  m
    mechanism instances add up (Theorem 1, adaptive composition with the one-ways).
    """
    pairs = list_pairs(attributes) if pairs is None else pairs
    if not pairs:
        return []
    single = [(a,) for a in attributes]
    each = rho / (len(single) + len(pairs))
    return [
        *plan_score_queries(single, each * len(single), top * records),
        *plan_score_queries(pairs, each * len(pairs), top**2 * records),
    ]


def plan_again(
    first: Sequence[Query], weights: Mapping[Clique, float], total: float, rho: Fraction, records: int
) -> tuple[list[Query], dict[Clique, float]]:
    """Return queries that ask unclear trends of pairs once more, none where all are clear, and the weights left.

    first: of the look at trends; weights: clique -> positive number, in proportion to which it would share the
    measurement's budget ``rho``; ``total``: noisy number of rows.  Where the noise of a sum is above UNCLEAR_NOISE of
    the rows, correlations are lost, and one-ways, which have nearly all of ``rho`` there, give up as much of it as
    brings the noise down to that, MOST_AGAIN at most.  Pairs that are measured are not asked.
    Privacy: the queries are rho_again-zCDP, as those of :func:`plan_queries`: a sum of products of two signs has
    sensitivity k = ``records``.  rho_again <= MOST_AGAIN ``rho`` follows from released answers and public numbers, and
    what is left of ``rho`` is for the marginals.
    """
    pairs = [q for q in first if len(q.attributes) == 2 and q.attributes not in weights]
    if not pairs or get_top(first) > 1:
        return [], dict(weights)
    times = (pairs[0].sigma / (UNCLEAR_NOISE * max(total, 1.0))) ** 2
    whole, single = sum(weights.values()), sum(w for clique, w in weights.items() if len(clique) == 1)
    wanted = (times - 1) * float(sum_rho(pairs) / rho)
    part = Fraction(math.floor(min(wanted, float(MOST_AGAIN) * single / whole) * 1000), 1000)
    if part <= 0:
        return [], dict(weights)
    one_way_factor = 1 - float(part) * whole / single
    remaining = {clique: w * one_way_factor if len(clique) == 1 else w for clique, w in weights.items()}
    return plan_score_queries([q.attributes for q in pairs], rho * part, records), remaining


def choose_top(sums: int, total: float, rho: Fraction, records: int, top: int) -> int:
    """Return the largest score to ask with: ``top`` where the noise of a pair's sum is clear (CLEAR_NOISE), else 1.

    ``sums``: number of those that are asked, of columns and of pairs.
    """
    noise = records * (sums / (2 * float(rho))) ** 0.5
    return top if noise <= CLEAR_NOISE * total else 1


def count_clear_pairs(attributes: int, total: float, rho: Fraction, records: int) -> int:
    """Return of how many pairs of a wide table trends are asked: as many as MOST_WIDE_NOISE allows.

    At least as many as it has ``attributes`` with an order; ``total``: noisy number of rows.  What is released and
    public alone decides.
    """
    sums = 2 * float(rho) * (MOST_WIDE_NOISE * max(total, 0.0) / records) ** 2
    return max(attributes, math.floor(sums) - attributes)


def get_top(queries: Sequence[Query]) -> int:
    """Return the largest score that these queries ask with."""
    sensitivities = [q.sensitivity for q in queries]
    return max(sensitivities, default=1) // min(sensitivities, default=1)


def rank_asked_codes(recode: Recode, binning: Binning, queries: Sequence[Query]) -> dict[str, Ranks]:
    """Return the ranks of codes by which ``queries`` ask, by the noisy one-ways that rows were recoded by.

    Of every attribute that is asked and no other: simulations have other one-ways than those that chose what to ask.
    """
    asked = {a for query in queries for a in query.attributes}
    asked_codes = {a: r for a, r in recode.items() if a in asked}
    return rank_codes(asked_codes, binning, get_top(queries), asked, least_codes=0)


def count_exactly(
    rows: Countable, queries: Sequence[Query], threads: int, scores: Scores
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact sum of scores, or of products of two, of each query, one cell each, in order.

    Counts and scores are integers, so sums are, wherever the rows are.  Private until the run has added the noise.
    """
    tables = count_all(rows, [q.attributes for q in queries], threads=threads, padded_result=True)
    for query, counts in zip(queries, tables, strict=True):
        total = counts
        for a in reversed(query.attributes):
            total = total @ scores[a]
        yield np.array([total], dtype=np.int64)
