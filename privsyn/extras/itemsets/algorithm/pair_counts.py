"""Step *pair counts* (release): how many transactions hold both of two frequent items, for every pair of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.extras.itemsets.algorithm.item_counts import compute_root
from privsyn.extras.itemsets.algorithm.transactions import Transactions

ALL_PAIRS = "pairs of frequent items"
"""What stands for the attributes of the query."""


def plan(frequent: int, limit: int, rho: Fraction, persons: int) -> list[Query]:
    """Return one vector with a count for every pair of ``frequent`` items; none for fewer than two items.

    Privacy: rho-zCDP for adding or removing one person, the items being fixed by released counts.  A transaction holds
    at most j = min(m, frequent) of the items, so it changes at most j (j - 1) / 2 counts by 1.  The L2 change is at
    most sqrt(j (j - 1) / 2), and at most K times as much for K transactions.  One mechanism instance.
    """
    if frequent < 2:
        return []
    bound = persons * max(compute_root(math.comb(min(limit, frequent), 2)), 1)
    return [Query((ALL_PAIRS,), math.comb(frequent, 2), bound, compute_sigma(rho, bound))]


def count_exactly(rows: Transactions, frequent: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """Yield the exact counts, the upper triangle row by row.  Private until the run has added the noise."""
    yield rows.count_pairs(frequent)
