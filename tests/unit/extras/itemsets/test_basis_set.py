"""The basis set: what it covers, and that merges pay."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from privsyn.extras.itemsets.algorithm.basis_set import build_pair_graph, choose_basis_set


def triangles(graph: nx.Graph) -> list[tuple[int, ...]]:
    return [t for t in combinations(sorted(graph), 3) if all(graph.has_edge(*p) for p in combinations(t, 2))]


def random_graph(seed: int, items: int, share: float) -> nx.Graph:
    rng = np.random.default_rng(seed)
    counts = np.where(rng.random(items * (items - 1) // 2) < share, 100 + rng.random(items * (items - 1) // 2), 0.0)
    return build_pair_graph(counts, items, 50.0)


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_every_triangle_lies_in_a_basis_of_at_most_so_many_items(seed: int, share: float) -> None:
    graph = random_graph(seed, 11, share)
    bases = choose_basis_set(graph, 6)
    assert all(3 <= len(b) <= 6 and list(b) == sorted(b) for b in bases)
    assert all(any(set(t) <= set(b) for b in bases) for t in triangles(graph))


def test_the_papers_example() -> None:
    """DPSyn report, section 3.1: the maximal sets abc, bd, ce, abg, gh; without pairs, two bases of three items."""
    graph = nx.Graph()
    for maximal in ("abc", "bd", "ce", "abg", "gh"):
        graph.add_edges_from(combinations(["abcdefgh".index(i) for i in maximal], 2), count=9.0)
    bases = choose_basis_set(graph, 3)
    assert sorted(bases) == [(0, 1, 2), (0, 1, 6)]
    assert choose_basis_set(graph, 8) in ([(0, 1, 2, 6)], [(0, 1, 2), (0, 1, 6)])


def test_without_triangles_there_is_no_basis() -> None:
    assert choose_basis_set(build_pair_graph(np.array([9.0, 9.0, 0.0]), 3, 5.0), 8) == []
    assert choose_basis_set(build_pair_graph(np.empty(0), 1, 5.0), 8) == []


def compute_expected_variance(bases: list[tuple[int, ...]], targets: list[tuple[int, ...]]) -> float:
    """By hand: a cell's variance is the number of bases; bases that hold a target are combined by inverse variance."""
    variances = [
        len(bases) / sum(2.0 ** (len(target) - len(base)) for base in bases if {*target} <= {*base})
        for target in targets
    ]
    return sum(variances) / len(variances)


def test_a_merge_happens_only_where_it_pays() -> None:
    """Triangles 012 and 013: as one basis of four, variance 2 each; as two bases, 2 each, so they stay apart; but the
    four triangles of a missing clique are better in one."""
    apart = nx.Graph()
    apart.add_edges_from(combinations((0, 1, 2), 2), count=9.0)
    apart.add_edges_from(combinations((0, 1, 3), 2), count=9.0)
    bases = choose_basis_set(apart, 8)
    merged = compute_expected_variance([(0, 1, 2, 3)], triangles(apart))
    assert compute_expected_variance(bases, triangles(apart)) <= merged
    fan = nx.Graph()
    for outer in range(2, 8):
        fan.add_edges_from(combinations((0, 1, outer), 2), count=9.0)
    single = [t for t in triangles(fan) if t[:2] == (0, 1)]
    assert compute_expected_variance(choose_basis_set(fan, 8), single) <= compute_expected_variance(single, single)
