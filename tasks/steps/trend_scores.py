"""Step *trend scores* (release): one signed number per pair of ordered columns, for how they rise together.

Not in the paper.  A distance from independence has no sign, and a table of a few thousand rows is too small for counts
of every pair.  But every record has a score in every ordered column: above or below the middle, or by how much.  The
sum over the records of the product of two scores is a trend.  It is twice as precise as a trend from 2 x 2 or 3 x 3
counts with the same budget.  The sum of one column's scores locates its true middle.  With signs, the two sums are the
2 x 2 counts of all pairs in the basis of their shared parts (Barak and others, "Privacy, Accuracy, and Consistency
Too", PODS 2007).
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
from privsyn.tasks.codecs.cells import Binning
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.estimation.trends import Ranks, rank_codes
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.steps.indif_scores import plan_score_queries

Scores = Mapping[str, NDArray[np.int64]]
"""Attribute -> score of each coarse code and, last, of filtered values: integers, shape (codes + 1,)."""

CLEAR_NOISE = 0.02
"""Up to this noise of a sum, as a share of all rows, scores are ranks; above it, signs, which are twice as precise."""

UNCLEAR_NOISE = 0.05
"""Above this noise of a sum of signs, as a share of all rows, trends are asked again: a correlation to about .08."""

MOST_WIDE_NOISE = 0.1
"""The most noise of a sum of signs in a wide table, as a share of all rows; fewer trends are asked to keep it."""

MOST_AGAIN = Fraction(1, 4)
"""The most of the one-ways' second look that goes to trends instead."""


def list_pairs(attributes: Sequence[str], near: Sequence[Clique] | None = None) -> list[Clique]:
    """Return the pairs of attributes whose trends are asked.

    ``near``: the public pairs to ask in a wide table; None for all.
    """
    ordered = {*attributes}
    return list(combinations(attributes, 2)) if near is None else [pair for pair in near if ordered.issuperset(pair)]


def plan_queries(
    attributes: Sequence[str], top: int, rho: Fraction, records: int, pairs: Sequence[Clique] | None = None
) -> list[Query]:
    """Return one single-cell query per attribute and per pair; none without any pair.

    ``top``: the largest score, so a product of two is at most its square; ``pairs``: the public pairs of
    :func:`list_pairs`; None for all.

    Privacy: all m answers together, d (d + 1) / 2 of them for all pairs, are rho-zCDP for adding or removing one person
    with at most ``records`` = k records.  A record adds at most ``top`` to an attribute's sum and at most top^2 to a
    pair's sum, whatever the other records are.  So the sensitivities are k top and k top^2, and each query costs rho /
    m.  Scores follow from noisy one-ways, released before the look, and pairs from names alone.  m mechanism instances
    add up (Theorem 1, adaptive composition with the one-ways).
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
    """Return queries that ask unclear trends of pairs again, none if all are clear, and the remaining weights.

    first: the queries of the first look at trends; weights: clique -> positive number, its weight in the measurement's
    budget ``rho``; ``total``: noisy number of rows.  If a sum's noise is above UNCLEAR_NOISE of the rows, correlations
    are lost.  The one-ways, which have nearly all of ``rho`` then, give up the part that brings the noise down to it,
    at most MOST_AGAIN.  Measured pairs are not asked.

    Privacy: the queries are rho_again-zCDP, as in :func:`plan_queries`: a sum of products of two signs has sensitivity
    k = ``records``.  rho_again <= MOST_AGAIN ``rho`` follows from released answers and public numbers, and the rest of
    ``rho`` is for the marginals.
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
    """Return the largest score to ask with: ``top`` if the noise of a pair's sum is clear (CLEAR_NOISE), else 1.

    ``sums``: the number of asked columns and pairs.
    """
    noise = records * (sums / (2 * float(rho))) ** 0.5
    return top if noise <= CLEAR_NOISE * total else 1


def count_clear_pairs(attributes: int, total: float, rho: Fraction, records: int) -> int:
    """Return the number of pairs of a wide table whose trends are asked: as many as MOST_WIDE_NOISE allows.

    At least the number of ordered ``attributes``; ``total``: noisy number of rows.  Only released and public numbers
    decide.
    """
    sums = 2 * float(rho) * (MOST_WIDE_NOISE * max(total, 0.0) / records) ** 2
    return max(attributes, math.floor(sums) - attributes)


def get_top(queries: Sequence[Query]) -> int:
    """Return the largest score that these queries ask with."""
    sensitivities = [q.sensitivity for q in queries]
    return max(sensitivities, default=1) // min(sensitivities, default=1)


def rank_asked_codes(recode: Recode, binning: Binning, queries: Sequence[Query]) -> dict[str, Ranks]:
    """Return the ranks of codes that ``queries`` use, from the noisy one-ways that rows were recoded by.

    Exactly the asked attributes are ranked: a simulation has other one-ways than the ones that chose what to ask.
    """
    asked = {a for query in queries for a in query.attributes}
    asked_codes = {a: r for a, r in recode.items() if a in asked}
    return rank_codes(asked_codes, binning, get_top(queries), asked, least_codes=0)


def count_exactly(
    rows: Countable, queries: Sequence[Query], threads: int, scores: Scores
) -> Iterator[NDArray[np.int64]]:
    """Yield each query's exact sum of scores, or of products of two scores, one cell each, in order.

    Counts and scores are integers, so sums do not depend on where the rows are.  Private until the run adds noise.
    """
    tables = rows.counts([q.attributes for q in queries], threads=threads, padded_result=True)
    for query, counts in zip(queries, tables, strict=True):
        total = counts
        for a in reversed(query.attributes):
            total = total @ scores[a]
        yield np.array([total], dtype=np.int64)
