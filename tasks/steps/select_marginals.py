"""Steps *select pairs*, *select tree* and *combine cliques* (postprocess): choose marginals, and share the budget.

**Select tree** is McKenna, Miklau, Sheldon: *Winning the NIST Contest*, Journal of Privacy and Confidentiality 11(3),
2021, section 4 (MST).  MST adds one pair after another, each by the exponential mechanism.  Here all scores have noise
already, so the maximum spanning tree is a function of released numbers and costs no budget.

A further release of the same data equals, with the earlier ones, one release of their sum (not in the paper).  Prices
add up, and so do precisions: two measurements of a marginal at rho_1 and rho_2, pooled by inverse variance, have the
noise of one at rho_1 + rho_2.  So the shares are decided for the total budget, past and new, from everything released
so far, and each marginal gets what it still lacks.

**Combine cliques** merges selected pairs into small multi-way marginals (paper: section 4.2, Algorithm 2).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Selection
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import CLIQUES, PAIRS
from privsyn.tasks.estimation.expected_error import (
    NO_TARGETS,
    Departures,
    TargetWeights,
    choose_worth_measuring,
    compute_size_weight,
)
from privsyn.tasks.estimation.pair_departures import estimate_one_way_departures, estimate_pair_departures
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain

if TYPE_CHECKING:
    import networkx as nx


MAX_CLIQUES_A_SIZE = 20_000
"""Cliques kept per size while enumerating (a public limit).  Algorithm 2 enumerates all cliques, exponentially many in
a dense graph; above this number only the cliques with the highest scores are extended."""


def select_dense_marg(
    scores: Sequence[float], cells: Sequence[int], rho: float, records: int = 1
) -> list[tuple[int, float]]:
    """Choose pairs by Algorithm 1, incrementally: one vectorised argmin over the sizes of pairs per choice.

    Returns each chosen pair's position in the input, and the total error after taking it, in the order of choice.
    ``scores`` are noisy dependency errors phi_i in records (negative ones are never taken), ``cells`` the sizes c_i,
    ``rho`` the budget of the measurement stage.  Let s_i = c_i^(2/3) and K = k / sqrt(pi rho), with k = ``records``.
    The optimal split gives a set X a noise error of K (sum_X s_i)^(3/2) records.  Let S be the sum of s_i over the
    chosen pairs.  Taking i then changes the total by K ((S + s_i)^(3/2) - S^(3/2)) - phi_i.  Stops when the best change
    is not negative.
    """
    phi = np.asarray(scores, dtype=np.float64)
    scale = records / math.sqrt(math.pi * rho)
    # among pairs of one size only the largest score can be the best choice, so a choice compares sizes, not pairs
    numbers, sized = np.unique(np.asarray(cells, dtype=np.float64), return_inverse=True)
    order = np.lexsort((-phi, sized))
    queues = np.split(order, np.searchsorted(sized[order], np.arange(1, len(numbers)))) if len(numbers) else []
    size, next_in_queue = numbers ** (2 / 3), [0] * len(queues)
    best_phi = np.array([phi[queue[0]] for queue in queues])
    taken, error = 0.0, float(phi.sum())
    chosen: list[tuple[int, float]] = []
    while len(chosen) < len(phi):
        change = scale * ((taken + size) ** 1.5 - taken**1.5) - best_phi
        group = int(np.argmin(change))
        if change[group] >= 0:
            break
        error += float(change[group])
        chosen.append((int(queues[group][next_in_queue[group]]), error))
        taken += float(size[group])
        next_in_queue[group] += 1
        best_phi[group] = (
            phi[queues[group][next_in_queue[group]]] if next_in_queue[group] < len(queues[group]) else -np.inf
        )
    return chosen


def select(
    queries: Sequence[Query],
    scores: Sequence[float],
    recode: Recode,
    rho: float,
    records: int,
    settings: Selection,
    *,
    remeasure_one_ways: bool,
    targets: TargetWeights = NO_TARGETS,
    pooled: bool = False,
    rounding: Collection[str] = (),
    all_one_ways: Recode | None = None,
    explained: Mapping[Clique, float] | None = None,
) -> pa.Table:
    """Return the contract PAIRS by ``settings.criterion``.

    Args:
        queries: The score queries, one per pair.
        scores: Their noisy answers, in records, in the same order.
        recode: The coarse codes, with the noisy one-ways that the scores were taken against.
        rho: The budget of the third stage, > 0.
        records: k, the largest number of records of one person.
        settings: The criterion, and the most cells of a pair.
        remeasure_one_ways: Whether one-ways compete for the budget (``expected_error`` only).
        targets: Pairs whose errors count more (``expected_error`` only).
        pooled: As in :func:`privsyn.tasks.estimation.pair_departures.estimate_pair_departures`.
        rounding: Heaping attributes, whose one-ways do not compete.
        all_one_ways: The recode with more one-ways pooled in than ``recode``; None if there are no more.
        explained: As for ``pooled``.
    """
    pairs = [(q.attributes[0], q.attributes[1]) for q in queries]
    domain = build_coarse_domain(recode)
    cells = [domain.cells(pair) for pair in pairs]
    if settings.criterion == "dense_marg" or not pairs:
        return select_pairs(pairs, scores, cells, rho, records, settings.max_cells)
    noisy_reference = settings.scores == "one_ways"
    departures = estimate_pair_departures(
        pairs,
        scores,
        [query.sigma for query in queries],
        recode,
        noisy_reference=noisy_reference,
        pooled=pooled,
        explained=explained,
    )
    departures = targets.weighted(departures, pairs)
    again = {a: r for a, r in (recode if all_one_ways is None else all_one_ways).items() if a not in rounding}
    one_ways = estimate_one_way_departures(again, pooled=pooled) if remeasure_one_ways else None
    return select_by_expected_error(pairs, scores, cells, departures, rho, records, settings.max_cells, one_ways)


def select_pairs(
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    cells: Sequence[int],
    rho: float,
    records: int,
    max_cells: int,
) -> pa.Table:
    """Return the contract PAIRS: DenseMarg's choice among pairs of at most ``max_cells`` cells, in its order.

    A pair's weight is c^(2/3), equation (1).
    """
    candidates = [i for i, c in enumerate(cells) if c <= max_cells]
    chosen = select_dense_marg([scores[i] for i in candidates], [cells[i] for i in candidates], rho, records)
    taken = [candidates[index] for index, _ in chosen]
    weights = [compute_size_weight(cells[i]) for i in taken]
    return _tabulate(pairs, scores, cells, taken, [error for _, error in chosen], weights)


def select_by_expected_error(
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    cells: Sequence[int],
    departures: Departures,
    rho: float,
    records: int,
    max_cells: int,
    one_ways: Departures | None = None,
) -> pa.Table:
    """Return the contract PAIRS: the pairs, and their shares of ``rho``, that minimise the total expected error.

    departures: one row per pair (tasks/estimation/pair_departures.py).  A pair's weight is its share.  ``one_ways``
    compete for the budget if given; they are measured again with the remaining weight, up to 1.
    """
    unmeasured_error = departures.error(np.zeros(len(pairs)))
    candidates = np.flatnonzero((unmeasured_error > 0) & (np.asarray(cells) <= max_cells))
    taken, shares, gains = choose_worth_measuring(departures, candidates, rho, records, one_ways)
    errors = unmeasured_error.sum() - np.cumsum(gains)
    return _tabulate(pairs, scores, cells, taken.tolist(), errors.tolist(), (shares / rho).tolist())


def _tabulate(
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    cells: Sequence[int],
    taken: Sequence[int],
    errors: Sequence[float],
    weights: Sequence[float],
) -> pa.Table:
    first, second = ([pairs[i][side] for i in taken] for side in (0, 1))
    of_pairs = [float(scores[i]) for i in taken], [int(cells[i]) for i in taken]
    return pa.table([[*range(len(taken))], first, second, *of_pairs, [*errors], [*weights]], schema=PAIRS.schema)


def find_spanning_tree(scores: Mapping[tuple[str, str], float], domain: Domain) -> list[Clique]:
    """Return the attributes' maximum spanning tree under ``scores``, which may be negative; pairs in domain order.

    scores: pair -> noisy distance from independence, in records.  If the scored pairs do not connect all attributes,
    the result is a forest.  Ties go to the pair that is first in domain order.
    """
    from networkx.utils import UnionFind  # here: a release that is found again makes no graph

    def place(pair: Clique) -> list[int]:
        return [domain.index(a) for a in pair]

    linked, tree = UnionFind(domain.attributes), list[Clique]()
    for pair in sorted(scores, key=lambda pair: (-scores[pair], place(pair))):  # Kruskal
        if linked[pair[0]] != linked[pair[1]]:
            linked.union(*pair)
            tree.append(domain.ordered(pair))
    return sorted(tree, key=place)


LEAST_LACKING = 0.05
"""A marginal that lacks less than this part of its share is not measured again: so noisy a look would add nothing."""


def list_lacking(weights: Mapping[Clique, float], spent: Mapping[Clique, float], rho: float) -> dict[Clique, float]:
    """Return what each clique lacks of its share of ``rho``, in rho, positive: its new weight, in the same order.

    weights: the weights that divide ``rho``; spent: rho already spent on each clique.  Cliques that lack almost nothing
    (LEAST_LACKING) are left out; if none remains, all are measured again by their weights.
    """
    total = sum(weights.values())
    lacking = {}
    for clique, weight in weights.items():
        share = weight / total * rho
        missing = share - spent.get(clique, 0.0)
        if missing > LEAST_LACKING * share:
            lacking[clique] = missing
    return lacking or dict(weights)


def map_spent(queries: Sequence[Query]) -> dict[Clique, float]:
    """Return the total rho of the measurements of each clique."""
    rho_by_clique: dict[Clique, float] = {}
    for query in queries:
        rho_by_clique[query.attributes] = rho_by_clique.get(query.attributes, 0.0) + float(query.rho)
    return rho_by_clique


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
    cliques: Sequence[Clique], domain: Domain, fine: Domain, weights: Mapping[tuple[str, str], float] | None
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
