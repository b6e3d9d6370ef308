"""Step *residual scores* (release, a part of rho3): where the rows made so far are farthest from the private ones.

Belongs here: which marginals are candidates of a further round, and their noisy distances.  Does not belong here:
making the rows so far (flows/rounds.py), choosing by the scores (select_again.py).
Not in the paper; the idea of asking the present model for its worst marginals is AIM's (McKenna and others 2022), which
asks for one at a time by the exponential mechanism.  Here all candidates are scored at once, and rows stand in for the
model, so that no candidate is too large for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import nlargest
from itertools import combinations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from data_contracts.domain import Clique, Domain
from data_contracts.receipts import Query, sigma_for
from tasks.indif_scores import BITS, apart
from tasks.kernels.counting import CodeTable, Countable, count_all

SENSITIVITY = 1
"""The rows made so far are fixed before the look, so one record moves the L1 distance to them by at most 1."""

OVERSAMPLE = 4
"""Rows so far are made for so many times the noisy total, so that their own chance is small beside the distance."""

MOST_ROWS = 4_000_000
"""But no more than these: a public limit on time and memory."""

_STRONGEST = 10
"""Triples are looked for among so many of the strongest pairs a column (a public limit on time)."""

_SEED = 0x9E3779B9


def candidates(
    scores: Mapping[tuple[str, str], float], domain: Domain, max_cells: int, gamma: int, *, triples: bool
) -> list[Clique]:
    """All pairs of at most ``max_cells`` cells; then triples of at most ``gamma`` cells, no more of them than pairs.

    scores: the noisy InDif score of every pair, released before.  The triples are those whose three pairs' scores have
    the largest sums (ties: domain order), of pairs that are among the strongest and above 0.
    """
    pairs = [p for p in combinations(domain.attributes, 2) if domain.cells(p) <= max_cells]
    if not triples:
        return list(pairs)
    known = {domain.ordered(pair): score for pair, score in scores.items() if score > 0}
    strongest = nlargest(_STRONGEST * len(domain.attributes), known, key=lambda p: known[p])
    graph = nx.Graph(strongest)
    found = {
        domain.ordered((a, b, c))
        for a, b in graph.edges
        for c in nx.common_neighbors(graph, a, b)
        if domain.cells((a, b, c)) <= gamma
    }
    order = {a: i for i, a in enumerate(domain.attributes)}
    ranked = sorted(found, key=lambda t: (-sum(known[p] for p in combinations(t, 2)), [order[a] for a in t]))
    return [*pairs, *ranked[: len(pairs)]]


def plan(cliques: Sequence[Clique], rho: Fraction, records: int) -> list[Query]:
    """One single-cell query a candidate, all m of them at ``rho / m``.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records:
    the candidates and the rows that they are compared with are functions of what was released before, so each score has
    sensitivity k (:func:`tasks.indif_scores.apart`) and costs k^2 / (2 sigma^2) <= rho / m; m mechanism instances add
    up (Theorem 1, adaptive composition with all earlier looks).
    """
    if not cliques:
        return []
    sigma = sigma_for(rho / len(cliques), SENSITIVITY * records)
    return [Query(tuple(c), 1, SENSITIVITY * records, sigma) for c in cliques]


def rows_so_far(total: float) -> int:
    """How many rows are made to be compared, from the noisy total of the private ones."""
    return min(OVERSAMPLE * max(round(total), 0), MOST_ROWS)


def seed_of(seed: int, number: int) -> int:
    """The seed of the rows so far of round ``number``: they are not those that are released."""
    return (seed + number * _SEED) % 2**63


def exact(
    rows: Countable, made: CodeTable, total: float, queries: Sequence[Query], threads: int
) -> Iterator[NDArray[np.int64]]:
    """The exact score of each query, one cell each, in order: floor(|M - M' total / (rows of M')|_1) in records.

    rows: private, coarse codes; made: the rows so far, of the same domain; ``total``: the noisy number of private
    rows.  Filtered values are in neither count.  Private until the shell has added the noise.
    """
    cliques = [q.attributes for q in queries]
    scale = max(total, 0.0) / max(made.rows, 1)
    here, so_far = count_all(rows, cliques, threads=threads), count_all(made, cliques, threads=threads)
    for counts, reference in zip(here, so_far, strict=True):
        wanted = np.rint(np.ldexp(reference * scale, BITS)).astype(np.int64)
        yield np.array([apart(counts, wanted)], dtype=np.int64)
