"""Step *one-way marginals* (release, rho1): the noisy count of every fine code of every attribute.

Belongs here: which one-ways are asked, at what noise, and their exact counts.  Does not belong here:
adding the noise (the shell does, with tasks/privacy/noise.py), using the counts (compress_domain.py).
Paper: Algorithm 3, line 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from data_contracts.domain import Domain
from data_contracts.receipts import Query, sigma_for
from tasks.kernels.counting import Countable, count_all


def plan(domain: Domain, rho: Fraction, records: int, *, equal: bool = True) -> list[Query]:
    """One query an attribute, each at rho_i = ``rho / d``, or at shares proportional to its cells^(2/3).

    The second is equation (1) for the one-ways: the least summed L1 noise for the same budget.
    Privacy: all d answers together are rho-zCDP for adding or removing one person with at most
    ``records`` = k records: each one-way has L2 sensitivity k (all k records may fall into one cell;
    Theorem 6 for k = 1) and costs k^2 / (2 sigma^2) <= rho_i (Theorem 3); the rho_i sum to ``rho`` and depend on the
    public domain only; d mechanism instances add up (Theorem 1).
    """
    shares = [rho / len(domain.sizes)] * len(domain.sizes) if equal else allocate(domain.sizes, rho)
    sigmas = {size: sigma_for(share, records) for size, share in dict(zip(domain.sizes, shares, strict=True)).items()}
    return [Query((a,), size, records, sigmas[size]) for a, size in zip(domain.attributes, domain.sizes, strict=True)]


def allocate(cells: Sequence[int], rho: Fraction) -> list[Fraction]:
    """Equation (1): rho_i = rho c_i^(2/3) / sum_j c_j^(2/3), exact and summing to exactly ``rho``.

    Minimizes the summed expected L1 noise, sum_i c_i / sqrt(pi rho_i).  ``cells`` are public sizes >= 1.
    """
    return split_by_weight([c ** (2 / 3) for c in cells], rho)


def split_by_weight(weights: Sequence[float], rho: Fraction) -> list[Fraction]:
    """rho_i = rho w_i / sum_j w_j for positive weights, exact and summing to exactly ``rho``; equal ones once.

    Weights count with nine digits: the last ones of a power or a logarithm differ from CPU to CPU.
    """
    rounded = [float(f"{w:.8e}") for w in weights]
    times = Counter(rounded)
    total = sum((Fraction(w) * n for w, n in times.items()), Fraction(0))
    shares = {w: rho * Fraction(w) / total for w in times}
    return [shares[w] for w in rounded]


def exact(rows: Countable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """Exact counts of each query, flat, in order.  Private until the shell has added the noise."""
    for counts in count_all(rows, [q.attributes for q in queries], threads=threads):
        yield counts.ravel()
