"""Bug class 5 for itemsets: the sensitivity of every look, by brute force over all neighbours of small tables.

It does not see files and layouts other than pairs, nor which items of a transaction with too many are kept when their
order changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.extras.itemsets.algorithm import basis_marginals, item_counts, pair_counts
from privsyn.extras.itemsets.algorithm.transactions import Transactions, gather_transactions
from privsyn.extras.itemsets.itemset_spec import PairsLayout
from privsyn.extras.itemsets.transaction_source import _read_pairs
from tests.support.examples import keep_first

ITEMS, MOST = 4, 3
EVERY = [s for size in range(MOST + 1) for s in combinations(range(ITEMS), size)]
"""Every transaction of at most MOST items."""

Counts = Callable[[Transactions], Sequence[np.ndarray]]


def worst(exact: Counts, persons: int, rows: int, every: Sequence[Sequence[int]] = EVERY) -> list[float]:
    """The largest L2 change of each answer over all tables of up to ``rows`` transactions and all added persons."""
    cached = {}
    tables = [t for n in range(rows + persons + 1) for t in combinations_with_replacement(range(len(every)), n)]
    for table in tables:
        cached[table] = exact(Transactions.of([list(every[i]) for i in table], ITEMS))
    change = [0.0] * len(cached[()])
    for table in tables:
        if len(table) > rows:
            continue
        for added in combinations_with_replacement(range(len(every)), persons):
            more = cached[tuple(sorted((*table, *added)))]
            for i, (x, y) in enumerate(zip(cached[table], more, strict=True)):
                change[i] = max(change[i], float(np.linalg.norm(x - y)))
    return change


def looks(persons: int) -> Iterator[tuple[list[Query], Counts]]:
    queries = item_counts.plan(ITEMS, MOST, 5, Fraction(1), persons)
    yield queries, lambda rows: list(item_counts.count_exactly(rows, queries, 5, 3))
    yield pair_counts.plan(4, MOST, Fraction(1), persons), lambda rows: list(pair_counts.count_exactly(rows, range(4)))
    yield pair_counts.plan(2, MOST, Fraction(1), persons), lambda rows: list(pair_counts.count_exactly(rows, [1, 3]))
    names = [("a", "b", "c"), ("b", "d")]
    yield (
        basis_marginals.plan(names, Fraction(1), persons),
        lambda rows: list(basis_marginals.count_exactly(rows, [(0, 1, 2), (1, 3)])),
    )


@pytest.mark.parametrize("persons", [1, 2])
def test_05_no_answer_moves_by_more_than_is_declared(persons: int) -> None:
    for queries, exact in looks(persons):
        for query, found in zip(queries, worst(exact, persons, 3 - persons), strict=True):
            assert 0 < found <= query.sensitivity, query.attributes
            assert query.sensitivity < found + persons, query.attributes  # but for rounding up


@pytest.mark.parametrize("rank", keep_first([1, 2, 5, 11, 3, 4, *range(6, 11)], 4))
def test_05_the_count_at_a_rank_moves_by_one_at_most(rank: int) -> None:
    (found,) = worst(lambda rows: [np.array([rows.find_support_at_rank(rank, 3)])], 1, 2)
    assert found <= 1


def test_05_mutant_pairs_at_the_price_of_an_item() -> None:
    """Planted mutant: the counts of pairs declared with the sensitivity of one count."""
    (found,) = worst(lambda rows: list(pair_counts.count_exactly(rows, range(4))), 1, 2)
    assert found > 1


def test_09_mutant_a_bound_on_items_that_is_not_kept() -> None:
    """Planted mutant: transactions with all their items, at the price of those that were cut."""
    queries = item_counts.plan(12, 4, None, Fraction(1), 1)
    whole = [list(range(12))]
    change = float(np.linalg.norm(Transactions.of(whole, 12).count_items()))
    assert change > queries[-1].sensitivity == 2
    batch, _ = gather_transactions(np.zeros(12, np.int64), np.arange(12), 1, 12, 4)
    kept = float(np.linalg.norm(Transactions.from_arrow([batch], 12).count_items()))
    assert kept <= queries[-1].sensitivity


def test_06_noise_is_priced_for_what_is_declared() -> None:
    for rho, persons in product((Fraction(1, 100), Fraction(3)), (1, 2)):
        for plan in (
            item_counts.plan(1_000, 20, 100, rho, persons),
            item_counts.plan(1_000, 20, None, rho, persons),
            pair_counts.plan(30, 20, rho, persons),
            basis_marginals.plan([("a", "b", "c"), ("b", "d")], rho, persons),
        ):
            assert rho * Fraction(999_999, 10**6) <= sum_rho(plan) <= rho
    assert pair_counts.plan(1, 20, Fraction(1), 1) == basis_marginals.plan([], Fraction(1), 1) == []


@pytest.mark.parametrize(
    "nameless",
    [
        pa.array([1.0, 2.0, float("nan")]),
        pa.array(["1", "2", "  "]),
        pa.array(["1", "2", ""]),
        pa.array(["1", "2", None]),
    ],
    ids=["NaN", "spaces", "empty", "null"],
)
def test_05_rows_without_a_transaction_are_nobody_s(nameless: pa.Array) -> None:
    """Taken for one transaction, rows of many persons would be one that a person changes but does not remove."""
    layout = PairsLayout(kind="pairs", transaction="t", item="i")
    batch = pa.record_batch({"t": nameless, "i": ["a", "b", "a"]})
    rows, codes, transactions, _ = _read_pairs([batch], layout, pa.array(["a", "b"], pa.large_string()))
    assert (rows.tolist(), codes.tolist(), transactions) == ([0, 1], [0, 1], 2)
