"""Estimates of itemsets from noisy marginals: exact without noise, without bias, and as sure as they say."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from privsyn.extras.itemsets.algorithm.basis_set import build_pair_graph
from privsyn.extras.itemsets.algorithm.estimates import (
    estimate_itemsets,
    iterate_basis_estimates,
    keep_frequent,
    sum_supersets,
)
from privsyn.extras.itemsets.algorithm.transactions import Transactions

BASKETS = [[0, 1, 2], [0, 2], [], [1, 2, 3], [0, 1, 2, 3], [3], [0, 1, 2]]


def test_superset_sums_are_supports() -> None:
    rows = Transactions.of(BASKETS, 4)
    basis = (0, 2, 3)
    found = dict(iterate_basis_estimates(basis, rows.count_subsets(basis), 2.0, 3))
    assert len(found) == 7
    for itemset, (count, variance) in found.items():
        assert count == sum(set(itemset) <= set(b) for b in BASKETS)
        assert variance == 4.0 * 2 ** (3 - len(itemset))
    assert sum_supersets(rows.count_subsets(basis))[0] == len(BASKETS)


def whole_graph(items: int) -> nx.Graph:
    return build_pair_graph(np.full(items * (items - 1) // 2, 9.0), items, 1.0)


def test_noise_leaves_no_bias_and_has_the_stated_variance() -> None:
    """400 draws: the mean error is within four standard errors of 0, and the variance as stated."""
    rows, rng, bases = Transactions.of(BASKETS, 4), np.random.default_rng(0), [(0, 1, 2), (0, 1, 2, 3)]
    errors, stated = [], 0.0
    for _ in range(400):
        noisy = [
            iterate_basis_estimates(
                b, rows.count_subsets(b) + np.rint(rng.normal(0, 8, 1 << len(b))).astype(int), 8.0, 3
            )
            for b in bases
        ]
        count, stated = estimate_itemsets({}, {}, noisy, whole_graph(4))[0, 1, 2]
        errors.append(count - 3)
    assert stated == pytest.approx(64 / 1.5)
    assert abs(np.mean(errors)) < 4 * np.sqrt(stated / 400)
    assert 0.8 < np.var(errors) / stated < 1.25


def test_only_cliques_of_frequent_pairs_are_estimated() -> None:
    rows, graph = Transactions.of(BASKETS, 4), whole_graph(4)
    graph.remove_edge(0, 3)
    found = estimate_itemsets({(0,): (4.0, 1.0)}, {(0, 3): (1.0, 1.0), (1, 2): (4.0, 1.0)},
                [iterate_basis_estimates((0, 1, 2, 3), rows.count_subsets((0, 1, 2, 3)), 1.0, 4)], graph)  # fmt: skip
    assert not any({0, 3} <= set(s) for s in found)
    assert {(0,), (1, 2), (0, 1, 2), (1, 2, 3)} <= set(found)


def test_a_set_ranks_no_higher_than_its_subsets() -> None:
    found = {(0,): (50.0, 1.0), (1,): (40.0, 1.0), (2,): (39.0, 1.0), (0, 1): (45.0, 900.0)}
    assert keep_frequent(found, 0.0, 3) == [(0,), (1,), (0, 1)]
    assert keep_frequent(found, 40.0, None) == [(0,), (1,), (0, 1)]
    assert all(len(s) < 2 or all((i,) in found for i in s) for s in keep_frequent(found, 0.0, None))
    assert [s for s in combinations((0, 1, 2), 2) if s in found] == [(0, 1)]
