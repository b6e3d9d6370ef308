"""What to measure, chosen from a public table: cliques of related columns, and nearly independent single columns.

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
"""Nats of mutual information from which two columns have an edge."""

MAX_INDEPENDENT_INFORMATION = 0.05
"""Nats of mutual information up to which two columns are nearly independent."""

Information = Mapping[Clique, float]
"""Mutual information, in nats, by pair of columns in domain order."""


def compute_mutual_information(public: CodeTable, attributes: Clique, threads: int = 0) -> dict[Clique, float]:
    """Return the score of every pair of ``attributes`` (in domain order) in the public rows."""
    pairs = list(combinations(attributes, 2))
    return {
        p: sum_information(counts) for p, counts in zip(pairs, count_all(public, pairs, threads=threads), strict=True)
    }


def sum_information(counts: NDArray[np.int64]) -> float:
    """Return the mutual information of a table of counts, shape (n, m), in nats; 0 without rows."""
    shares = counts / max(1, counts.sum())
    product = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    seen = shares > 0
    return max(0.0, float((shares[seen] * np.log(shares[seen] / product[seen])).sum()))


def choose_related_cliques(
    information: Information, domain: Domain, most_cells: int, *, edge: float = MIN_RELATED_INFORMATION
) -> list[Clique]:
    """Return cliques of the graph of pairs with ``edge`` nats or more; a column without an edge is a clique alone.

    From the most informative edge that no clique holds yet, a clique grows by the column that brings most information
    with its members, among those that have edges to all of them, up to ``most_cells`` cells.  An edge of more cells is
    left out.
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
    information: Information, domain: Domain, *, most: float = MAX_INDEPENDENT_INFORMATION
) -> list[Clique]:
    """Single columns of which no two share more than ``most`` nats: each next tells most of all the columns.

    What a column tells is the sum of its mutual information with every other one.
    """
    names = domain.ordered({a for p in information for a in p})
    summed_information = {a: sum(i for p, i in information.items() if a in p) for a in names}
    chosen: list[str] = []
    for a in sorted(names, key=lambda a: (-summed_information[a], domain.index(a))):
        if all(information[domain.ordered((a, b))] <= most for b in chosen):
            chosen.append(a)
    return [(a,) for a in domain.ordered(chosen)]
