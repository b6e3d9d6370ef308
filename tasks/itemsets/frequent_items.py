"""Step *frequent items* (post-processing): the items whose itemsets are looked at, from their noisy counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.tasks.itemsets.item_counts import ITEMS, RANK, TOTAL


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
    most: int,
    margin: float = 1.0,
) -> list[int]:
    """Return codes of at most ``most`` items, by noisy count, the largest first: lambda of PrivBasis is their number.

    ``margin``: the part of the frequent count from which an item is looked at.
    """
    count = margin * compute_threshold(queries, answers, at_least)[0]
    (query,) = [q for q in queries if q.attributes == (ITEMS,)]
    noisy = answers[queries.index(query)]
    order = np.argsort(-noisy, kind="stable")[:most]
    least = raise_above_noise(count, query.sigma, query.cells)
    return [int(code) for code in order if noisy[code] >= least]
