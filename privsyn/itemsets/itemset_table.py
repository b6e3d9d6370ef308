"""The released table of itemsets: counts, shares of the transactions, and what noise makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import pyarrow as pa

from privsyn.data_contracts.itemset_tables import ITEMSETS

_Z = NormalDist().inv_cdf(0.975)


def build_itemset_table(
    found: Sequence[tuple[Sequence[int], float, float]], names: Sequence[str], total: float, sigma: float
) -> pa.Table:
    """Return the contract ITEMSETS from (places, count, variance of its noise) in order of rank.

    ``names``: of the items by place; ``total``: the noisy number of transactions, at least 1; ``sigma``: of its noise.
    The share's variance is that of a ratio to first order, (v + s^2 sigma^2) / total^2; its 95 % interval is cut to
    what a share can be, 0 to 1.
    """
    rows = []
    for rank, (places, count, variance) in enumerate(found, 1):
        share = count / total
        error = math.sqrt(variance + (share * sigma) ** 2) / total
        rows.append(
            {
                "rank": rank,
                "items": sorted(names[p] for p in places),
                "size": len(places),
                "count": count,
                "count_std_error": math.sqrt(variance),
                "support": share,
                "std_error": error,
                "low": min(max(share - _Z * error, 0.0), 1.0),
                "high": max(min(share + _Z * error, 1.0), 0.0),
            }
        )
    return pa.Table.from_pylist(rows, schema=ITEMSETS.schema)
