"""Step *one-way marginals* (release, rho1): the noisy count of every fine code of every attribute.

Belongs here: which one-ways are asked, at what noise, and their exact counts.  Does not belong here:
adding the noise (the shell does, with tasks/privacy/noise.py), using the counts (compress_domain.py).
Paper: Algorithm 3, line 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from data_contracts.domain import Domain
from data_contracts.receipts import Query, sigma_for
from tasks.kernels.counting import CodeTable, count_all


def plan(domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """One query an attribute, each at ``rho / d``.

    Privacy: all d answers together are rho-zCDP for adding or removing one person with at most
    ``records`` = k records: each one-way has L2 sensitivity k (all k records may fall into one cell;
    Theorem 6 for k = 1) and costs k^2 / (2 sigma^2) <= rho / d (Theorem 3); d mechanism instances add
    up (Theorem 1).
    """
    sigma = sigma_for(rho / len(domain.attributes), records)
    return [Query((a,), size, records, sigma) for a, size in zip(domain.attributes, domain.sizes, strict=True)]


def exact(rows: CodeTable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """Exact counts of each query, flat, in order.  Private until the shell has added the noise."""
    for counts in count_all(rows, [q.attributes for q in queries], threads=threads):
        yield counts.ravel()
