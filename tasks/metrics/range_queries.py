"""Random range queries: PrivSyn's mean error, and NIST 2018's score.

Papers: PrivSyn, section 6.1; DPSyn report, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count

NIST_INCLUSION = 0.33
"""Probability that an attribute is in a NIST query."""

NIST_FLOOR = 1e-6
"""Smallest share that the NIST formula distinguishes from zero."""

_BLOCK_ROWS = 1 << 15


@dataclass(frozen=True, eq=False)
class RangeQuery:
    """A conjunction: for every named attribute, the row's code is allowed.

    ``allowed``: attribute -> bool array over its codes.  Every row satisfies a query without conditions.
    """

    allowed: Mapping[str, NDArray[np.bool_]]


def draw_privsyn_queries(
    domain: Domain, number: int = 1_000, attributes: int = 3, seed: int = 0
) -> tuple[RangeQuery, ...]:
    """Return PrivSyn's workload: each query has ``attributes`` random attributes and a range of codes for each.

    A range lies between two codes drawn uniformly and independently, both included; codes keep their public order, also
    for nominal attributes.  In a domain with fewer attributes, queries use all of them.  No data is read.  Query i
    depends on the seed and i only.  Raises ValueError for a negative number.
    """
    generators = (np.random.default_rng([seed, i]) for i in _check_number(number))
    return tuple(_draw_privsyn_query(domain, attributes, rng) for rng in generators)


def _draw_privsyn_query(domain: Domain, attributes: int, rng: np.random.Generator) -> RangeQuery:
    width = len(domain.attributes)
    chosen = sorted(rng.choice(width, min(attributes, width), replace=False)) if width else []
    allowed = {}
    for a in chosen:
        low, high = sorted(rng.integers(domain.sizes[a], size=2))
        allowed[domain.attributes[a]] = _match_between(domain.sizes[a], low, high)
    return RangeQuery(allowed)


def draw_nist_queries(
    real: CodeTable, ordered: Collection[str], number: int = 300, seed: int = 0
) -> tuple[RangeQuery, ...]:
    """Return NIST 2018's workload: each attribute is in a query with probability 0.33, and a real row satisfies it.

    As in the challenge's scorer, a query is built around one random real row, so at least that row satisfies the query.
    Redrawing until a row fits would never end in a wide table.  Ordered attribute: a range drawn uniformly among the
    ranges that contain the row's code.  Nominal: the row's code and 0 or more random other codes.  A table without rows
    uses a random code instead, so nothing satisfies its queries.  The queries are private.  Query i depends on the
    table, the seed and i only.  Raises ValueError for a negative number.
    """
    return tuple(_draw_nist_query(real, ordered, np.random.default_rng([seed, i])) for i in _check_number(number))


def _draw_nist_query(real: CodeTable, ordered: Collection[str], rng: np.random.Generator) -> RangeQuery:
    domain = real.domain
    row = int(rng.integers(real.rows)) if real.rows else None
    included = rng.random(len(domain.attributes)) < NIST_INCLUSION
    allowed = {}
    for a in np.flatnonzero(included):
        name, size = domain.attributes[a], domain.sizes[a]
        code = int(rng.integers(size)) if row is None else int(real.columns[a][row])
        if name in ordered:
            allowed[name] = _match_between(size, int(rng.integers(code + 1)), int(rng.integers(code, size)))
        else:
            others = rng.permutation(np.delete(np.arange(size), code))[: rng.integers(size)]
            allowed[name] = np.isin(np.arange(size), [code, *others])
    return RangeQuery(allowed)


def _check_number(number: int) -> range:
    if number < 0:
        raise ValueError(f"the number of queries must be 0 or more, not {number}")
    return range(number)


def _match_between(size: int, low: int, high: int) -> NDArray[np.bool_]:
    codes = np.arange(size)
    return (codes >= low) & (codes <= high)


@njit(nogil=True, cache=True)
def _keep_first(codes, allowed, kept):  # type: ignore[no-untyped-def]
    """Write the rows with an allowed code (uint8, by code) into ``kept`` (uint32); returns their number."""
    number = 0
    for i in range(codes.shape[0]):
        kept[number] = i
        number += allowed[codes[i]]
    return number


@njit(nogil=True, cache=True)
def _keep_on(codes, allowed, kept, rows):  # type: ignore[no-untyped-def]
    """Keep, among the first ``rows`` rows in ``kept``, those with an allowed code; returns their number."""
    number = 0
    for i in range(rows):
        row = kept[i]
        kept[number] = row
        number += allowed[codes[row]]
    return number


def answer_queries(table: CodeTable, queries: Sequence[RangeQuery], threads: int = 0) -> NDArray[np.int64]:
    """Return the exact number of rows that satisfy each query; the same on any number of threads.

    Rows with a filtered value (padded tables) satisfy no condition on that attribute.  Narrow conditions are tried
    first, each on the remaining rows only.  Raises KeyError for an unknown attribute, ValueError for a condition that
    does not fit the attribute's codes or for negative ``threads`` (0: all cores).
    """
    threads = choose_thread_count(threads)
    size = -(-len(queries) // (4 * threads)) or 1  # one query is too little work for a thread
    batches = [queries[first : first + size] for first in range(0, len(queries), size)]
    with ThreadPoolExecutor(threads) as pool:
        answers = pool.map(lambda batch: [_answer(table, query) for query in batch], batches)
        return np.array([answer for batch in answers for answer in batch], dtype=np.int64)


def _answer(table: CodeTable, query: RangeQuery) -> int:
    conditions = sorted(_list_conditions(table, query), key=lambda condition: float(condition[1].mean()))
    if not conditions:
        return table.rows
    kept = np.empty(min(_BLOCK_ROWS, table.rows) + 1, dtype=np.uint32)
    total = 0
    for first in range(0, table.rows, _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        number = _keep_first(conditions[0][0][block], conditions[0][1], kept)
        for codes, allowed in conditions[1:]:
            if not number:
                break
            number = _keep_on(codes[block], allowed, kept, number)
        total += number
    return total


def _list_conditions(table: CodeTable, query: RangeQuery) -> list[tuple[np.ndarray, NDArray[np.uint8]]]:
    """Return (codes, 1 for every allowed code) of each condition; filtered values are never allowed."""
    conditions = []
    for attribute, allowed in query.allowed.items():
        size = table.domain.size(attribute)
        if allowed.shape != (size,) or allowed.dtype != np.bool_:
            raise ValueError(f"{attribute}: a condition must say yes or no for each of the {size} codes")
        conditions.append((table.column(attribute), np.append(allowed, False).astype(np.uint8)))
    return conditions


def _compute_shares(table: CodeTable, queries: Sequence[RangeQuery], threads: int) -> NDArray[np.float64]:
    if not queries:
        raise ValueError("there are no queries to compare the tables by")
    return answer_queries(table, queries, threads) / max(table.rows, 1)


def compute_range_query_error(
    real: CodeTable, synthetic: CodeTable, queries: Sequence[RangeQuery], threads: int = 0
) -> float:
    """Return the mean over queries of |share of real rows - share of synthetic rows|; 0 (same) to 1.

    PrivSyn, section 6.1 ("average L1 error").  A table without rows has shares of 0.  Raises ValueError without
    queries.
    """
    return float(np.abs(_compute_shares(real, queries, threads) - _compute_shares(synthetic, queries, threads)).mean())


def compute_nist_range_score(
    real: CodeTable, synthetic: CodeTable, queries: Sequence[RangeQuery], threads: int = 0
) -> float:
    """Return NIST 2018's score of range queries; 0 (worst) to 1,000,000 (same answers).

    DPSyn report, section 5.1: f_o and f_p are a query's shares of the real and synthetic rows, and d = ln(max(f_p,
    1e-6) / f_o).  The score is 1e6 max(0, 1 - sqrt(mean d^2) / ln 1e3).  f_o > 0 holds for :func:`draw_nist_queries`; a
    query that no real row satisfies takes f_o = 1e-6.  A table without rows has shares of 0.  In a wide table, often
    only the row behind a query satisfies it: then 1 / rows is near the floor, and a table that satisfies no query
    scores high too.  Raises ValueError without queries.
    """
    original, private = _compute_shares(real, queries, threads), _compute_shares(synthetic, queries, threads)
    d = np.log(np.maximum(private, NIST_FLOOR) / np.where(original > 0, original, NIST_FLOOR))
    return 1e6 * max(0.0, 1.0 - math.sqrt(float((d**2).mean())) / math.log(1e3))
