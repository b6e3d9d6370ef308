"""Step *item counts* (release): how many transactions there are, how many hold each item, and how frequent is frequent.

PrivBasis, steps 1 and 2: the number lambda of items to look at, and which.  The paper draws both with the exponential
mechanism; here all are integer counts with discrete Gaussian noise, which the estimates use again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.extras.itemsets.algorithm.transactions import Transactions

TOTAL, RANK, ITEMS = "transactions", "count at the rank", "items"
"""What stands for the attributes of a query."""

RANK_MARGIN = Fraction(11, 10)
"""eta: the rank whose count bounds what is frequent, as a multiple of the itemsets asked for (PrivBasis: 1.1)."""

_TOTAL_SHARE, _RANK_SHARE = Fraction(1, 20), Fraction(1, 10)


def compute_root(number: int) -> int:
    """Return the smallest whole number whose square is at least ``number``."""
    return math.isqrt(number - 1) + 1 if number > 0 else 0


def compute_margin_rank(top: int) -> int:
    """Return the rank of the itemset whose count bounds what is frequent."""
    return math.ceil(RANK_MARGIN * top)


def plan(items: int, limit: int, top: int | None, rho: Fraction, persons: int) -> list[Query]:
    """Return the total, (with ``top``) the count at the rank, and the vector of ``items`` counts.

    ``limit`` = m: items of a transaction at most; ``persons`` = K: transactions of one person at most.
    Privacy: together rho-zCDP for adding or removing one person.  One transaction changes the total by 1,
    and every itemset's count by at most 1.  So it changes the count at a rank by at most 1: an order statistic moves no
    further than its numbers.  It changes at most m of the item counts by 1, an L2 change of sqrt(m).
    K transactions change each figure by at most K times as much (triangle inequality).
    The mechanisms' instances, two or three, add up (Theorem 1).
    """
    shares = [(TOTAL, 1, persons, _TOTAL_SHARE)]
    if top is not None:
        shares.append((RANK, 1, persons, _RANK_SHARE))
    rest = 1 - sum((share for *_, share in shares), start=Fraction(0))
    shares.append((ITEMS, items, persons * compute_root(min(limit, items)), rest))
    return [Query((name,), cells, bound, compute_sigma(rho * share, bound)) for name, cells, bound, share in shares]


def count_exactly(
    rows: Transactions, queries: list[Query], top: int | None, largest: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact answers, in order.  Private until the run has added the noise."""
    for query in queries:
        (name,) = query.attributes
        if name == TOTAL:
            yield np.array([len(rows)], dtype=np.int64)
        elif name == RANK and top is not None:
            yield np.array([rows.find_support_at_rank(compute_margin_rank(top), largest)], dtype=np.int64)
        else:
            yield rows.count_items()


def compute_threshold(
    queries: Sequence[Query], answers: Sequence[NDArray[np.int64]], at_least: float | None
) -> tuple[float, float]:
    """Return the noisy count from which an itemset is frequent, and the noisy number of transactions, at least 1.

    The count is that at the rank, or ``at_least`` (a share) of the transactions.
    """
    noisy = {q.attributes[0]: float(y[0]) for q, y in zip(queries, answers, strict=True) if q.attributes[0] != ITEMS}
    total = max(noisy[TOTAL], 1.0)
    return (noisy[RANK] if at_least is None else at_least * total), total


def raise_above_noise(count: float, sigma: float, compared: int) -> float:
    """Return ``count``, raised to about the largest of ``compared`` draws of noise where that is larger."""
    return max(count, sigma * math.sqrt(2 * math.log(max(compared, 2))))


def choose_frequent_items(
    queries: Sequence[Query],
    answers: Sequence[NDArray[np.int64]],
    at_least: float | None,
    limit: int,
    margin: float = 1.0,
) -> list[int]:
    """Return codes of at most ``limit`` items, by noisy count, the largest first: lambda of PrivBasis is their number.

    ``margin``: the part of the frequent count from which an item is looked at.
    """
    count = margin * compute_threshold(queries, answers, at_least)[0]
    (query,) = [q for q in queries if q.attributes == (ITEMS,)]
    noisy = answers[queries.index(query)]
    order = np.argsort(-noisy, kind="stable")[:limit]
    least = raise_above_noise(count, query.sigma, query.cells)
    return [int(code) for code in order if noisy[code] >= least]
