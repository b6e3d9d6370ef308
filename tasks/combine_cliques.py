"""Step *combine cliques* (postprocess): merge selected pairs into small multi-way marginals.

Belongs here: finding cliques in the graph of selected pairs and the overlap rule.  Does not belong
here: choosing pairs (select_pairs.py) and splitting the budget (measure_marginals.py).
Paper: section 4.2, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import networkx as nx
import pyarrow as pa

from data_contracts.domain import Clique, Domain
from data_contracts.tables import CLIQUES

MAX_CLIQUES_A_SIZE = 100_000
"""Cliques kept a size while enumerating.  Algorithm 2 looks at all cliques, of which a dense graph has
exponentially many; above this number only those with the highest scores are extended (a public limit)."""


def combine_cliques(pairs: Mapping[tuple[str, str], float], domain: Domain, gamma: int) -> list[Clique]:
    """Algorithm 2: cliques taken by descending size, then the selected pairs that no taken clique holds.

    ``pairs`` maps each selected pair to its noisy score; among cliques of one size those with the larger
    summed score come first (the paper leaves the order open).  A clique is taken if it has at least 3
    attributes, at most ``gamma`` cells, and at most 2 attributes in common with those already taken.
    Where no pair was selected, all single attributes are returned, so that the third stage's budget
    sharpens the one-ways instead of lying idle (the paper is silent; at small budgets this is best).
    """
    seen: set[str] = set()
    taken: list[Clique] = []
    for clique in _by_size(pairs, domain, gamma):
        if len(seen.intersection(clique)) <= 2:
            taken.append(clique)
            seen.update(clique)
    inside = {pair for clique in taken for pair in combinations(clique, 2)}
    rest = [domain.ordered(pair) for pair in pairs if domain.ordered(pair) not in inside]
    return taken + rest or [(a,) for a in domain.attributes]


def _by_size(pairs: Mapping[tuple[str, str], float], domain: Domain, gamma: int) -> list[Clique]:
    """Every clique of at least 3 attributes and at most ``gamma`` cells: largest first, then highest score."""
    graph = nx.Graph()
    graph.add_edges_from((*pair, {"score": score}) for pair, score in pairs.items())
    position = {a: i for i, a in enumerate(domain.attributes)}
    later = {a: {b for b in graph[a] if position[b] > position[a]} for a in graph}
    level: list[tuple[Clique, float]] = [
        ((a, b) if b in later[a] else (b, a), graph[a][b]["score"]) for a, b in graph.edges
    ]
    level = [(c, s) for c, s in level if domain.cells(c) <= gamma]
    found: list[list[Clique]] = []
    while level:
        level.sort(key=lambda item: (-item[1], [position[a] for a in item[0]]))
        level = level[:MAX_CLIQUES_A_SIZE]
        if len(level[0][0]) >= 3:
            found.append([c for c, _ in level])
        level = _extend(level, graph, later, domain, gamma)
    return [clique for size in reversed(found) for clique in size]


def _extend(
    level: list[tuple[Clique, float]], graph: nx.Graph, later: Mapping[str, set[str]], domain: Domain, gamma: int
) -> list[tuple[Clique, float]]:
    """Each clique with one more attribute that follows in domain order and is adjacent to all of it."""
    larger = []
    for clique, score in level:
        common = set.intersection(*(later[a] for a in clique))
        room = gamma // domain.cells(clique)
        for b in sorted(common, key=domain.index):
            if domain.size(b) <= room:
                larger.append(((*clique, b), score + sum(graph[a][b]["score"] for a in clique)))
    return larger


def cliques_to_table(cliques: list[Clique], domain: Domain) -> pa.Table:
    """The contract CLIQUES."""
    rows = [{"clique": i, "attributes": list(c), "cells": domain.cells(c)} for i, c in enumerate(cliques)]
    return pa.Table.from_pylist(rows, schema=CLIQUES.schema)


def cliques_from_table(table: pa.Table) -> list[Clique]:
    """The cliques of a CLIQUES table, in order."""
    return [tuple(row) for row in table["attributes"].to_pylist()]
