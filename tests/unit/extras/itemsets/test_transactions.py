"""Transactions, the basis set and estimates of itemsets, against brute force and by their stated variance."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from privsyn.extras.itemsets.algorithm import transactions
from privsyn.extras.itemsets.algorithm.basis_set import build_pair_graph, choose_basis_set
from privsyn.extras.itemsets.algorithm.estimates import (
    estimate_itemsets,
    iterate_basis_estimates,
    keep_frequent,
    sum_supersets,
)
from privsyn.extras.itemsets.algorithm.transactions import ROW_SCHEMA, Transactions, gather_transactions

BASKETS = [[0, 1, 2], [0, 2], [], [1, 2, 3], [0, 1, 2, 3], [3]]


def baskets_of(batch: pa.RecordBatch) -> list[list[int]]:
    assert batch.schema == ROW_SCHEMA
    return batch.column(0).to_pylist()


def random_baskets(seed: int) -> tuple[list[list[int]], int]:
    rng = np.random.default_rng(seed)
    items = int(rng.integers(1, 8))
    sizes = rng.integers(0, items + 1, rng.integers(0, 12))
    return [sorted(rng.choice(items, size, replace=False).tolist()) for size in sizes], items


def support(baskets: list[list[int]], itemset: tuple[int, ...]) -> int:
    return sum(set(itemset) <= set(basket) for basket in baskets)


def test_items_are_gathered_once_each_in_order_and_empty_transactions_stay() -> None:
    rows, codes = np.array([2, 0, 0, 2, 0]), np.array([3, 4, 1, 3, 4])
    batch, cut = gather_transactions(rows, codes, 4, 5, 10)
    assert (baskets_of(batch), cut) == ([[1, 4], [], [3], []], 0)


def test_a_long_transaction_is_cut_by_its_own_items_alone() -> None:
    rows, codes = np.repeat([0, 1], [9, 2]), np.concatenate([np.arange(9), [3, 5]])
    whole, cut = gather_transactions(rows, codes, 2, 9, 4)
    alone, _ = gather_transactions(rows[:9][::-1].copy(), codes[:9][::-1].copy(), 1, 9, 4)
    assert cut == 1
    assert baskets_of(whole)[0] == baskets_of(alone)[0]
    assert [len(b) for b in baskets_of(whole)] == [4, 2]
    assert baskets_of(whole)[1] == [3, 5]


def test_cuts_prefer_no_item() -> None:
    """Of the 1,287 baskets of 5 of 13 items, cut to 2, each item is kept about as often."""
    baskets = list(combinations(range(13), 5))
    batch, _ = gather_transactions(
        np.repeat(np.arange(len(baskets)), 5), np.array(baskets).ravel(), len(baskets), 13, 2
    )
    kept = Transactions.from_arrow([batch], 13).count_items()
    assert kept.sum() == 2 * len(baskets)
    assert abs(kept / kept.mean() - 1).max() < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_brute_force(seed: int) -> None:
    baskets, items = random_baskets(seed)
    rows = Transactions.of(baskets, items)
    assert rows.count_items().tolist() == [support(baskets, (i,)) for i in range(items)]
    chosen = list(range(items))[::-1]
    assert rows.count_pairs(chosen).tolist() == [support(baskets, p) for p in combinations(chosen, 2)]
    basis = chosen[: min(4, items)]
    cells = [[sum(1 << j for j, i in enumerate(basis) if i in b)] for b in baskets]
    assert rows.count_subsets(basis).tolist() == [cells.count([c]) for c in range(1 << len(basis))]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Transactions.of(BASKETS * 5, 4)
    whole = (rows.count_pairs([0, 2, 3]).tolist(), rows.count_subsets([1, 2]).tolist(), rows.find_support_at_rank(6, 3))
    monkeypatch.setattr(transactions, "_BLOCK", 8)
    assert (
        rows.count_pairs([0, 2, 3]).tolist(),
        rows.count_subsets([1, 2]).tolist(),
        rows.find_support_at_rank(6, 3),
    ) == whole


@pytest.mark.parametrize("seed", range(20))
def test_the_support_at_a_rank_is_that_of_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_FIRST_ITEMS", 1 + seed % 5)
    baskets, items = random_baskets(seed)
    largest, rank = 1 + seed % 4, 1 + seed % 37
    every = [support(baskets, s) for size in range(1, largest + 1) for s in combinations(range(items), size)]
    wanted = (sorted(every, reverse=True) + [0] * 40)[rank - 1]
    assert Transactions.of(baskets, items).find_support_at_rank(rank, largest) == wanted


def test_equal_transactions_of_many_items_are_no_trouble() -> None:
    """All 2^60 itemsets have one count; their search ends once the rank is full."""
    assert Transactions.of([list(range(60))] * 3, 60).find_support_at_rank(500, 8) == 3


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


MORE_BASKETS = [*BASKETS, [0, 1, 2]]


def test_superset_sums_are_supports() -> None:
    rows = Transactions.of(MORE_BASKETS, 4)
    basis = (0, 2, 3)
    found = dict(iterate_basis_estimates(basis, rows.count_subsets(basis), 2.0, 3))
    assert len(found) == 7
    for itemset, (count, variance) in found.items():
        assert count == sum(set(itemset) <= set(b) for b in MORE_BASKETS)
        assert variance == 4.0 * 2 ** (3 - len(itemset))
    assert sum_supersets(rows.count_subsets(basis))[0] == len(MORE_BASKETS)


def whole_graph(items: int) -> nx.Graph:
    return build_pair_graph(np.full(items * (items - 1) // 2, 9.0), items, 1.0)


def test_noise_leaves_no_bias_and_has_the_stated_variance() -> None:
    """400 draws: the mean error is within four standard errors of 0, and the variance as stated."""
    rows, rng, bases = Transactions.of(MORE_BASKETS, 4), np.random.default_rng(0), [(0, 1, 2), (0, 1, 2, 3)]
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
    rows, graph = Transactions.of(MORE_BASKETS, 4), whole_graph(4)
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
