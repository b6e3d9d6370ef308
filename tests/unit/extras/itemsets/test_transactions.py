"""Transactions as lists of codes, and their counts, against brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from privsyn.extras.itemsets.algorithm import transactions
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
