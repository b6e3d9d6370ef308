"""Step *one-way marginals* (release, rho1): the noisy count of every fine code of every attribute.

Paper: Algorithm 3, line 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.tasks.estimation.budget_shares import allocate
from privsyn.tasks.kernels.counting import Countable, count_all


def plan_queries(domain: Domain, rho: Fraction, records: int, *, equal: bool = True) -> list[Query]:
    """Return one query per attribute: each at rho_i = ``rho / d`` if ``equal`` (the paper), otherwise by equation (1).

    Equation (1) makes the summed L1 noise of the one-ways least.
    Privacy: all d answers together are rho-zCDP for adding or removing one person with at most
    ``records`` = k records: each one-way has L2 sensitivity k (all k records may fall into one cell;
    Theorem 6 for k = 1) and costs k^2 / (2 sigma^2) <= rho_i (Theorem 3); the rho_i sum to ``rho`` and depend on the
    public domain only; d mechanism instances add up (Theorem 1).
    """
    shares = [rho / len(domain.sizes)] * len(domain.sizes) if equal else allocate(domain.sizes, rho)
    sigmas = {
        size: compute_sigma(share, records) for size, share in dict(zip(domain.sizes, shares, strict=True)).items()
    }
    return [Query((a,), size, records, sigmas[size]) for a, size in zip(domain.attributes, domain.sizes, strict=True)]


def count_exactly(rows: Countable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """Yield exact counts of each query, flat, in order.  Private until the run has added the noise."""
    for counts in count_all(rows, [q.attributes for q in queries], threads=threads):
        yield counts.ravel()
