"""Step *combine cliques* (postprocess): merge selected pairs into small multi-way marginals.

Paper: section 4.2, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations
from typing import TYPE_CHECKING

import pyarrow as pa

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Selection
from privsyn.data_contracts.tables import CLIQUES
from privsyn.tasks.estimation.expected_error import compute_size_weight

if TYPE_CHECKING:
    import networkx as nx

MAX_CLIQUES_A_SIZE = 20_000
"""Cliques kept per size while enumerating (a public limit).  Algorithm 2 enumerates all cliques, exponentially many in
a dense graph; above this number only the cliques with the highest scores are extended."""


def combine_cliques(pairs: Mapping[tuple[str, str], float], domain: Domain, gamma: int) -> list[Clique]:
    """Return Algorithm 2's cliques by descending size, then the selected pairs that no taken clique contains.

    ``pairs`` maps each selected pair to its noisy score.  Among cliques of one size, a larger summed score comes first
    (the paper leaves the order open).  A clique is taken if it has at least 3 attributes, at most ``gamma`` cells, and
    at most 2 attributes in common with the cliques taken before.  If no pair was selected, all single attributes are
    returned.  The third stage's budget then measures the one-ways again (:func:`weigh`).  The paper is silent on this
    case; measuring again is best at small budgets.
    """
    covered: set[str] = set()
    taken: list[Clique] = []
    for clique in _group_by_size(pairs, domain, gamma):
        if len(covered.intersection(clique)) <= 2:
            taken.append(clique)
            covered.update(clique)
    inside = {pair for clique in taken for pair in combinations(clique, 2)}
    rest = [domain.ordered(pair) for pair in pairs if domain.ordered(pair) not in inside]
    return taken + rest or [(a,) for a in domain.attributes]


LEAST_REMEASURED = 1e-3
"""The one-ways are measured again only if at least this share of the third stage's budget is left."""


@dataclass(frozen=True)
class _GrowingClique:
    """A clique as ascending attribute positions; ``room`` has a bit per later attribute adjacent to all members."""

    members: tuple[int, ...]
    score: float
    cells: int
    room: int


def _group_by_size(pairs: Mapping[tuple[str, str], float], domain: Domain, gamma: int) -> list[Clique]:
    """Return every clique of 3 or more attributes and at most ``gamma`` cells: largest first, then highest score."""
    import networkx as nx  # here: a release that is found again makes no graph

    graph = nx.Graph()
    for (a, b), score in pairs.items():
        graph.add_edge(domain.index(a), domain.index(b), score=score)
    later = {a: sum(1 << b for b in graph[a] if b > a) for a in graph}
    level = [_GrowingClique((a,), 0.0, domain.sizes[a], later[a]) for a in graph]
    by_size: list[list[Clique]] = []
    while level := _extend(level, graph, later, domain, gamma):
        if len(level[0].members) >= 3:
            by_size.append([tuple(domain.attributes[i] for i in c.members) for c in level])
    return [clique for size in reversed(by_size) for clique in size]


def _extend(
    level: Iterable[_GrowingClique], graph: nx.Graph, later: Mapping[int, int], domain: Domain, gamma: int
) -> list[_GrowingClique]:
    """Return each clique extended by one attribute, highest scores first, at most MAX_CLIQUES_A_SIZE."""

    def larger() -> Iterator[_GrowingClique]:
        for c in level:
            most = gamma // c.cells
            for b in _iterate_positions(c.room):
                size = domain.sizes[b]
                if size <= most:
                    score = c.score + sum(graph[a][b]["score"] for a in c.members)
                    yield _GrowingClique((*c.members, b), score, c.cells * size, c.room & later[b])

    return nsmallest(MAX_CLIQUES_A_SIZE, larger(), key=lambda c: (-c.score, c.members))


def _iterate_positions(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def weigh_cliques(pairs: pa.Table, domain: Domain, fine: Domain, settings: Selection) -> dict[Clique, float]:
    """Return the cliques to measure with their weights, from the contract PAIRS.

    Applies :func:`combine_cliques`, then :func:`weigh`.
    """
    rows = pairs.to_pylist()
    gamma = settings.gamma if settings.combine_cliques else 0
    cliques = combine_cliques({(p["a"], p["b"]): p["score"] for p in rows}, domain, gamma)
    by_share = settings.criterion == "expected_error"
    return weigh(cliques, domain, fine, {(p["a"], p["b"]): p["weight"] for p in rows} if by_share else None)


def weigh(
    cliques: Sequence[Clique],
    domain: Domain,
    fine: Domain,
    weights: Mapping[tuple[str, str], float] | None,
) -> dict[Clique, float]:
    """Return every clique to measure, in order, with its weight in the third stage's budget.

    weights: the selected pairs' weights; a clique gets the sum of its pairs' weights.  The rest, up to 1, goes to the
    one-ways, measured again on the ``fine`` codes and weighted by equation (1).  None: equation (1) weights the cliques
    alone.  If ``cliques`` are one-ways only (no pair was selected), the one-ways get everything.
    """
    larger = {c: _compute_weight(c, domain, weights) for c in cliques if len(c) > 1}
    return with_one_ways(larger, 0.0 if weights is None else 1 - sum(weights.values()), fine)


def with_one_ways(larger: Mapping[Clique, float], remaining: float, fine: Domain) -> dict[Clique, float]:
    """Return ``larger``, then the one-ways, which share the weight ``remaining`` by equation (1).

    The one-ways are left out if less than LEAST_REMEASURED remains, and returned alone if ``larger`` is empty.
    """
    one_ways: dict[Clique, float] = {(a,): compute_size_weight(fine.size(a)) for a in fine.attributes}
    if not larger or remaining < LEAST_REMEASURED:
        return dict(larger) or one_ways
    total = sum(one_ways.values())
    return {**larger, **{c: w / total * remaining for c, w in one_ways.items()}}


def _compute_weight(clique: Clique, domain: Domain, weights: Mapping[tuple[str, str], float] | None) -> float:
    if weights is None:
        return compute_size_weight(domain.cells(clique))
    return sum(weights.get(pair, 0.0) + weights.get(pair[::-1], 0.0) for pair in combinations(clique, 2))


def tabulate_cliques(weighed: Mapping[Clique, float], domain: Domain, fine: Domain) -> pa.Table:
    """Return the contract CLIQUES; the cells of a single attribute are its ``fine`` codes."""
    rows = [
        {"clique": i, "attributes": list(c), "cells": (fine if len(c) == 1 else domain).cells(c), "weight": w}
        for i, (c, w) in enumerate(weighed.items())
    ]
    return pa.Table.from_pylist(rows, schema=CLIQUES.schema)


def read_cliques(table: pa.Table) -> dict[Clique, float]:
    """Return the cliques of a CLIQUES table and their weights, in order."""
    attributes = [tuple(row) for row in table["attributes"].to_pylist()]
    return dict(zip(attributes, table["weight"].to_pylist(), strict=True))
