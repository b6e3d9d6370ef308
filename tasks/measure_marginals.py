"""Step *measure marginals* (release, rho3): weighted-Gaussian counts of the chosen cliques.

Belongs here: the plan of the measured cliques; the optimal split and the exact counts are those of the one-ways.
Does not belong here: choosing the cliques (select_pairs.py, combine_cliques.py), making them consistent.
Paper: section 4.2, equation (1), and Theorem 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from data_contracts.domain import Clique, Domain
from data_contracts.receipts import Query, sigma_for
from tasks.one_way_marginals import allocate, exact

__all__ = ["allocate", "exact", "plan"]


def plan(cliques: Sequence[Clique], domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """One query a clique.

    Privacy: all answers together are rho-zCDP for adding or removing one person with at most
    ``records`` = k records: each marginal has L2 sensitivity k (Theorem 6 for k = 1) and costs
    k^2 / (2 sigma_i^2) <= rho_i; the rho_i sum to rho whatever stage 2 selected, so the bound holds
    for every outcome of the earlier stages (adaptive composition, Theorem 1).  One mechanism
    instance a clique.
    """
    cells = [domain.cells(c) for c in cliques]
    shares = dict(zip(cells, allocate(cells, rho), strict=True))  # cliques of one size have one share
    sigmas = {n: sigma_for(share, records) for n, share in shares.items()}
    return [Query(c, n, records, sigmas[n]) for c, n in zip(cliques, cells, strict=True)]
