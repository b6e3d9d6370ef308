"""Step *itemsets* (post-processing): the count of every set that may be frequent, with its standard deviation.

PrivBasis, BasisFreq: a set's count is the sum of the cells of a basis that hold the set.  The estimates from several
bases, and from the counts of items and pairs, are combined by inverse variance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsyn.extras.itemsets.algorithm.basis_set import Basis

if TYPE_CHECKING:
    import networkx as nx

Measured = tuple[float, float]
"""A count without bias, and its variance, both in transactions."""


def sum_supersets(cells: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return for every subset of a basis, the sum of the cells of its supersets: int64, the cells' shape.

    Bit j of a cell's number is the basis's item j (:meth:`Transactions.count_subsets`).
    """
    sums = cells.astype(np.int64)
    size = cells.size.bit_length() - 1
    shaped = sums.reshape((2,) * size) if size else sums
    for axis in range(size):
        shaped[(slice(None),) * axis + (0,)] += shaped[(slice(None),) * axis + (1,)]
    return sums


def iterate_basis_estimates(
    basis: Basis, cells: NDArray[np.integer], sigma: float, largest: int
) -> Iterable[tuple[Basis, Measured]]:
    """Yield each subset of 1 to ``largest`` items of a basis with its noisy count, of variance 2^(l - s) sigma^2.

    ``sigma``: of a cell's noise, in transactions; the basis has l items, the subset s.
    """
    sums = sum_supersets(cells)
    for size in range(1, min(largest, len(basis)) + 1):
        for places in combinations(range(len(basis)), size):
            cell = sum(1 << p for p in places)
            yield tuple(basis[p] for p in places), (float(sums[cell]), 2.0 ** (len(basis) - size) * sigma**2)


def combine_estimates(measured: Iterable[Measured]) -> Measured:
    """Return the combination by inverse variance of independent measurements, one or more."""
    counts, variances = np.array(list(measured)).T
    precision = 1 / variances
    return float(counts @ precision / precision.sum()), float(1 / precision.sum())


def estimate_itemsets(
    items: Mapping[Basis, Measured],
    pairs: Mapping[Basis, Measured],
    bases: Iterable[Iterable[tuple[Basis, Measured]]],
    graph: nx.Graph,
) -> dict[Basis, Measured]:
    """Return the estimate of every frequent item, every frequent pair and every clique of ``graph`` inside a basis."""
    estimates: dict[Basis, list[Measured]] = {s: [m] for s, m in items.items()}
    estimates.update({s: [m] for s, m in pairs.items() if graph.has_edge(*s)})
    for subsets in bases:
        for subset, estimate in subsets:
            if subset in estimates or all(graph.has_edge(*pair) for pair in combinations(subset, 2)):
                estimates.setdefault(subset, []).append(estimate)
    return {s: combine_estimates(m) for s, m in estimates.items()}


def keep_frequent(estimates: Mapping[Basis, Measured], count: float, top: int | None) -> list[Basis]:
    """Return the sets to publish: the ``top`` most frequent sets, or all sets in at least ``count`` transactions.

    A set is ranked by the smallest estimate among it and its subsets: it is held no more often than any of them.
    """
    rank: dict[Basis, float] = {}
    for subset in sorted(estimates, key=lambda s: (len(s), s)):
        smaller = [rank[s] for s in combinations(subset, len(subset) - 1) if s in rank]
        rank[subset] = min([estimates[subset][0], *smaller])
    ordered: Sequence[Basis] = sorted(rank, key=lambda s: (-rank[s], len(s), s))
    return list(ordered[:top]) if top is not None else [s for s in ordered if rank[s] >= count]
