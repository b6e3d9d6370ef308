"""Step *one-way marginals* (release, rho1): count every fine code of every attribute, with noise.

Paper: Algorithm 3, line 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.tasks.estimation.expected_error import compute_size_weight, split_by_weight
from privsyn.tasks.kernels.counting import Countable

ROUNDING_WEIGHT = 0.2
"""Budget weight of a heaping attribute; other columns have cells^(2/3), so this is 1 % of a column of 66 cells."""

MEMBERS_PART = 0.4
"""The composition of households gets this part of the one-ways' budget."""


def plan_queries(
    domain: Domain,
    rho: Fraction,
    records: int,
    *,
    equal: bool = True,
    rounding: Collection[str] = (),
    members: Collection[str] = (),
) -> list[Query]:
    """Return one query per attribute, at rho_i = ``rho / d`` each if ``equal`` (the paper), else by equation (1).

    Equation (1) minimises the summed L1 noise of the one-ways.  ``rounding``: heaping attributes, with weight
    ROUNDING_WEIGHT unless ``equal``: a rough answer is enough.  ``members``: the household composition attribute, which
    gets the part MEMBERS_PART because all rows follow from it.

    Privacy: all d answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each one-way has L2 sensitivity k (all k records may fall into one cell; Theorem 6 for k = 1) and costs k^2 / (2
    sigma^2) <= rho_i (Theorem 3).  The rho_i sum to ``rho`` and depend only on the public domain.  d mechanism
    instances add up (Theorem 1).
    """
    sized = list(zip(domain.attributes, domain.sizes, strict=True))
    weights = [ROUNDING_WEIGHT if a in rounding else compute_size_weight(size) for a, size in sized]
    rest = sum(w for (a, _), w in zip(sized, weights, strict=True) if a not in members)
    most = rest * MEMBERS_PART / (1 - MEMBERS_PART)
    weights = [most if a in members else w for (a, _), w in zip(sized, weights, strict=True)]
    shares = [rho / len(sized)] * len(sized) if equal else split_by_weight(weights, rho)
    sigmas = {share: compute_sigma(share, records) for share in set(shares)}
    return [Query((a,), size, records, sigmas[share]) for (a, size), share in zip(sized, shares, strict=True)]


def count_exactly(rows: Countable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """Yield exact counts of each query, flat, in order.  Private until the run adds noise."""
    for counts in rows.counts([q.attributes for q in queries], threads=threads):
        yield counts.ravel()
