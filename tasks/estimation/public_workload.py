"""The workload chosen from a public table: cliques of related columns, and nearly independent single columns.

Paper: "Public prior: distribution estimation", section 4.2.  It looks at public rows only, so it costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.kernels.counting import CodeTable, count_all

MIN_RELATED_INFORMATION = 0.1
"""Least mutual information of two columns with an edge, in nats."""

MAX_INDEPENDENT_INFORMATION = 0.05
"""Largest mutual information of two nearly independent columns, in nats."""

Information = Mapping[Clique, float]
"""Mutual information in nats by pair of columns, in domain order."""


def compute_mutual_information(public: CodeTable, attributes: Clique, threads: int = 0) -> dict[Clique, float]:
    """Return the mutual information, in nats, of every pair of ``attributes`` (in domain order) in the public rows."""
    pairs = list(combinations(attributes, 2))
    return {
        p: sum_information(counts) for p, counts in zip(pairs, count_all(public, pairs, threads=threads), strict=True)
    }


def sum_information(counts: NDArray[np.int64]) -> float:
    """Return the mutual information of a table of counts, shape (n, m), in nats; 0 if it has no rows."""
    shares = counts / max(1, counts.sum())
    product = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    seen = shares > 0
    return max(0.0, float((shares[seen] * np.log(shares[seen] / product[seen])).sum()))


def choose_related_cliques(
    information: Information, domain: Domain, most_cells: int, *, edge: float = MIN_RELATED_INFORMATION
) -> list[Clique]:
    """Return cliques of the graph of pairs with at least ``edge`` nats; a column without an edge is a clique alone.

    A clique begins with the most informative edge outside all cliques.  It grows by the column with the most summed
    information among the columns with edges to all members, up to ``most_cells`` cells.  Larger edges are left out.
    """
    edges = {p: i for p, i in information.items() if i >= edge and domain.cells(p) <= most_cells}
    names = domain.ordered({a for p in information for a in p})
    covered: set[Clique] = set()
    cliques: list[Clique] = []
    for pair in sorted(edges, key=lambda p: (-edges[p], p)):
        if pair not in covered:
            cliques.append(_grow_clique(pair, edges, names, domain, most_cells))
            covered |= set(combinations(cliques[-1], 2))
    return [*cliques, *((a,) for a in names if not any(a in clique for clique in cliques))]


def _grow_clique(pair: Clique, edges: Information, names: Clique, domain: Domain, most_cells: int) -> Clique:
    clique = pair
    while True:
        gains = {}
        for a in set(names) - set(clique):
            pairs = [domain.ordered((a, b)) for b in clique]
            if all(p in edges for p in pairs) and domain.cells((*clique, a)) <= most_cells:
                gains[a] = sum(edges[p] for p in pairs)
        if not gains:
            return clique
        clique = domain.ordered((*clique, max(sorted(gains), key=gains.__getitem__)))


def choose_independent_one_ways(
    information: Information, domain: Domain, *, limit: float = MAX_INDEPENDENT_INFORMATION
) -> list[Clique]:
    """Return single columns with at most ``limit`` nats of mutual information between any two.

    Columns are taken greedily by the sum of their mutual information with all others.
    """
    names = domain.ordered({a for p in information for a in p})
    summed_information = {a: sum(i for p, i in information.items() if a in p) for a in names}
    chosen: list[str] = []
    for a in sorted(names, key=lambda a: (-summed_information[a], domain.index(a))):
        if all(information[domain.ordered((a, b))] <= limit for b in chosen):
            chosen.append(a)
    return [(a,) for a in domain.ordered(chosen)]
