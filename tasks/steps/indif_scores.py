"""Step *InDif scores* (release, rho2): measure how far each pair of attributes is from independence.

Paper: section 4.1, Lemma 4 and Theorem 5.  Not in the paper: the distance to the independent counts that the *noisy*
one-ways imply has sensitivity 1 instead of 4, so the same noise costs a sixteenth of the budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.tasks.estimation.pair_departures import FRACTION_BITS, MAX_ROWS, ExpectedCounts
from privsyn.tasks.kernels.counting import Countable

SENSITIVITY = 4
"""Lemma 4: adding or removing one record moves InDif by at most 4 (not valid for replace-one)."""

REFERENCE_SENSITIVITY = 1
"""One record changes one count by 1, so it moves the L1 distance to a fixed table by at most 1."""


def plan_queries(
    domain: Domain,
    rho: Fraction,
    records: int,
    sensitivity: int = SENSITIVITY,
    *,
    max_cells: int | None = None,
    unscored: Collection[Clique] = (),
    scored_more: Collection[str] = (),
    asked_pairs: Sequence[Clique] | None = None,
) -> list[Query]:
    """Return one single-cell query per pair of attributes, all m of them, each at ``rho / m``.

    Args:
        domain: The coarse domain of d attributes.
        rho: The budget of all scores together, > 0.
        records: k, the largest number of records of one person.
        sensitivity: SENSITIVITY for InDif, REFERENCE_SENSITIVITY for distances to fixed counts of pairs.
        max_cells: Pairs with more cells are never measured and get no score; None for no limit.
        unscored: Other pairs without a score, because their counts are public or there is nothing to find.
        scored_more: Public.  If the n pairs with these attributes are fewer than the others, they share half of
            ``rho``, ``rho / 2 n`` each.
        asked_pairs: The pairs to score in a wide table, chosen by public facts; None for all d (d - 1) / 2.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each score has sensitivity 4 k (Lemma 4, k times; rounding down keeps it, see :func:`compute_indif`), or k against
    noisy one-ways, which are fixed before the look (:func:`compute_l1_distance`).  It costs (4 k)^2 / (2 sigma^2) <=
    its part of rho.  Without ``scored_more`` the part is rho / m, so the noise is N(0, 8 m k^2 / rho) (Theorem 5), with
    k instead of 4 k against one-ways.  The m mechanism instances add up to rho (Theorem 1, adaptive composition with
    the one-ways).
    """
    all_pairs = combinations(domain.attributes, 2) if asked_pairs is None else asked_pairs
    pairs = [p for p in all_pairs if (max_cells is None or domain.cells(p) <= max_cells) and p not in unscored]
    preferred = [p for p in pairs if not {*scored_more}.isdisjoint(p)]
    if not 0 < 2 * len(preferred) < len(pairs):
        return plan_score_queries(pairs, rho, sensitivity * records)
    others = [p for p in pairs if {*scored_more}.isdisjoint(p)]
    halves = (plan_score_queries(group, rho / 2, sensitivity * records) for group in (preferred, others))
    by_pair = {query.attributes: query for queries in halves for query in queries}
    return [by_pair[p] for p in pairs]


def plan_score_queries(cliques: Sequence[Clique], rho: Fraction, sensitivity: int) -> list[Query]:
    """Return one single-cell query for each of the m cliques, at ``rho / m``; an empty list without cliques.

    ``sensitivity``: the sensitivity of each answer to adding or removing one person with all their records.
    """
    if not cliques:
        return []
    sigma = compute_sigma(rho / len(cliques), sensitivity)
    return [Query(tuple(clique), 1, sensitivity, sigma) for clique in cliques]


def compute_indif(counts: NDArray[np.int64]) -> int:
    """Return InDif of one 2-way table of counts, in records, rounded down: floor(|M_ab - M_a x M_b / n|_1).

    In integers: floor(sum_ij |n alpha_ij - a_i b_j| / n), exact, range [0, 2 n), 0 for an empty table.  Rounding down
    keeps the sensitivity: if |x - y| <= 4 k with 4 k whole, then |floor(x) - floor(y)| <= 4 k.  Exact integers also
    close the floating-point side channel.  Raises ValueError above MAX_ROWS rows.
    """
    n = int(counts.sum())
    if n == 0:
        return 0
    if n > MAX_ROWS:
        raise ValueError(f"InDif's exact arithmetic holds up to {MAX_ROWS:,} rows")
    joint = counts.astype(np.uint64) * np.uint64(n)
    independent = np.multiply.outer(counts.sum(axis=1), counts.sum(axis=0)).astype(np.uint64)
    distance = np.maximum(joint, independent) - np.minimum(joint, independent)
    return int(distance.sum(dtype=np.uint64)) // n


def compute_l1_distance(counts: NDArray[np.int64], reference: NDArray[np.int64]) -> int:
    """Return floor(|M_ab - reference|_1), in records, exact; ``reference``: fixed before the look, in 2^-16 records.

    One record changes one count by 1, so k records change the distance by at most k.  Rounding down keeps a whole
    bound: if |x - y| <= k then |floor(x) - floor(y)| <= k.  Raises ValueError above MAX_ROWS rows.
    """
    if int(counts.sum()) > MAX_ROWS:
        raise ValueError(f"the scores' exact arithmetic holds up to {MAX_ROWS:,} rows")
    return int(np.abs((counts << FRACTION_BITS) - reference).sum()) >> FRACTION_BITS


def count_exactly(
    rows: Countable, queries: Sequence[Query], threads: int, reference: ExpectedCounts | None = None
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact score of each pair, one cell each, in order; each pair's table is dropped after its score.

    The score is InDif, or the distance to ``reference`` if given.  Filtered values count as one extra value (the padded
    table), so every row is in every table and Lemma 4 applies as proven.  The scores are private until the run adds
    noise.
    """
    tables = rows.counts([q.attributes for q in queries], threads=threads, padded_result=True)
    for query, counts in zip(queries, tables, strict=True):
        a, b = query.attributes
        score = compute_indif(counts) if reference is None else compute_l1_distance(counts, reference.counts(a, b))
        yield np.array([score], dtype=np.int64)
