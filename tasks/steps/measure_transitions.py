"""Step *measure transitions* (release): of every column that changes, noisy counts of a row's code and the next one's.

Not in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.panels import name_next
from privsyn.data_contracts.receipts import Query, compute_sigma


def plan_queries(
    attributes: Sequence[str], domain: Domain, rho: Fraction, records: int, kinds: Sequence[str] = ()
) -> list[Query]:
    """Return one query per attribute: its codes by those of the next row, each at rho_i = ``rho`` / d.

    ``domain``: of the pairs (tasks/steps/pair_rows.py); ``kinds``: the attribute that says of which kind a pair of
    members of a household is, by which all are counted, too; a household is then what a person is below.
    Privacy: all answers together are rho-zCDP for adding or removing one person with all rows.  A person is at most
    ``records`` = 1 record of the pairs, since one pair is drawn from each person by a rule that depends on that person
    alone.  So each table of transitions has L2 sensitivity 1 and costs 1 / (2 sigma_i^2) <= rho_i (Theorem 3); the
    rho_i sum to ``rho`` and depend on the public columns only.  One mechanism instance an attribute (Theorem 1).
    """
    cliques = [(*kinds, a, name_next(a)) for a in attributes]
    cells = [domain.cells(c) for c in cliques]
    sigma = compute_sigma(rho / max(len(cliques), 1), records)
    return [Query(c, n, records, sigma) for c, n in zip(cliques, cells, strict=True)]
