"""Step *measure marginals* (release, rho3): weighted-Gaussian counts of the chosen cliques.

Belongs here: the optimal split of rho3 over the cliques and their exact counts.  Does not belong here:
choosing the cliques (select_pairs.py, combine_cliques.py), making them consistent.
Paper: section 4.2, equation (1), and Theorem 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from data_contracts.domain import Clique, Domain
from data_contracts.receipts import Query, sigma_for
from tasks.one_way_marginals import exact

__all__ = ["allocate", "exact", "plan"]


def allocate(cells: Sequence[int], rho: Fraction) -> list[Fraction]:
    """Equation (1): rho_i = rho c_i^(2/3) / sum_j c_j^(2/3), exact and summing to exactly ``rho``.

    Minimizes the summed expected L1 noise, sum_i c_i / sqrt(pi rho_i).  ``cells`` are public sizes >= 1.
    """
    weights = [Fraction(c ** (2 / 3)) for c in cells]
    total = sum(weights, Fraction(0))
    return [rho * w / total for w in weights]


def plan(cliques: Sequence[Clique], domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """One query a clique.

    Privacy: all answers together are rho-zCDP for adding or removing one person with at most
    ``records`` = k records: each marginal has L2 sensitivity k (Theorem 6 for k = 1) and costs
    k^2 / (2 sigma_i^2) <= rho_i; the rho_i sum to rho whatever stage 2 selected, so the bound holds
    for every outcome of the earlier stages (adaptive composition, Theorem 1).  One mechanism
    instance a clique.
    """
    cells = [domain.cells(c) for c in cliques]
    shares = allocate(cells, rho)
    return [Query(c, n, records, sigma_for(r, records)) for c, n, r in zip(cliques, cells, shares, strict=True)]
