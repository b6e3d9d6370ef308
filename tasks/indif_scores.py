"""Step *InDif scores* (release, rho2): how far each pair of attributes is from independence.

Belongs here: the score, its exact integer form and its noise level.  Does not belong here: using the
scores (select_pairs.py).
Paper: section 4.1, Lemma 4 and Theorem 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from data_contracts.domain import Domain
from data_contracts.receipts import Query, sigma_for
from tasks.kernels.counting import CodeTable, count_all

SENSITIVITY = 4
"""Lemma 4: adding or removing one record moves InDif by at most 4 (not valid for replace-one)."""

MAX_ROWS = 3_000_000_000
"""Above this, the exact 64-bit arithmetic of :func:`indif` could overflow."""


def plan(domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """One single-cell query a pair of attributes, all m = d (d - 1) / 2 of them, each at ``rho / m``.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most
    ``records`` = k records: each score has sensitivity 4 k (Lemma 4, k times; rounding down keeps it, see
    :func:`indif`) and costs (4 k)^2 / (2 sigma^2) <= rho / m, that is N(0, 8 m k^2 / rho) (Theorem 5);
    m mechanism instances add up (Theorem 1).
    """
    pairs = list(combinations(domain.attributes, 2))
    if not pairs:
        return []
    sigma = sigma_for(rho / len(pairs), SENSITIVITY * records)
    return [Query(pair, 1, SENSITIVITY * records, sigma) for pair in pairs]


def indif(counts: NDArray[np.int64]) -> int:
    """InDif of one 2-way table of counts, in records, rounded down: floor(|M_ab - M_a x M_b / n|_1).

    In integers: floor(sum_ij |n alpha_ij - a_i b_j| / n), exact, range [0, 2 n), 0 for an empty table.
    Rounding down keeps the sensitivity: if |x - y| <= 4 k with 4 k whole, then
    |floor(x) - floor(y)| <= 4 k.  Exact integers also close the floating-point side channel.
    ValueError above MAX_ROWS rows.
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


def exact(rows: CodeTable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """The exact score of each pair, one cell each, in order; pairs are counted and dropped one by one.

    Filtered values count as one value more (the padded table), so that every row is in every table and
    Lemma 4 applies as proven.  Private until the shell has added the noise.
    """
    tables = count_all(rows, [q.attributes for q in queries], threads=threads, padded_result=True)
    for counts in tables:
        yield np.array([indif(counts)], dtype=np.int64)
