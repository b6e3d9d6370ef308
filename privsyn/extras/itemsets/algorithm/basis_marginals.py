"""Step *basis marginals* (release): for every basis, how many transactions hold exactly each of its subsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.extras.itemsets.algorithm.transactions import Transactions


def plan(bases: Sequence[Sequence[str]], rho: Fraction, persons: int) -> list[Query]:
    """Return one marginal a basis, each at ``rho`` / number of bases; ``bases`` names the items of each.

    Privacy: together rho-zCDP for adding or removing one person, the bases being fixed by released counts.  A
    transaction is in one cell of each marginal, so K of them change it by at most K in L2.  One mechanism instance a
    basis; they add up (Theorem 1; PrivBasis, BasisFreq).
    """
    sigma = compute_sigma(rho / max(len(bases), 1), persons)
    return [Query(tuple(names), 1 << len(names), persons, sigma) for names in bases]


def count_exactly(rows: Transactions, bases: Sequence[Sequence[int]]) -> Iterator[NDArray[np.int64]]:
    """Yield the exact marginals, in order.  Private until the run has added the noise."""
    for basis in bases:
        yield rows.count_subsets(basis)
