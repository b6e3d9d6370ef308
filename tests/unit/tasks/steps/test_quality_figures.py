"""Quality figures: sums by hand, their sensitivity over all neighbours of small tables, planted mutants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.range_queries import RangeQuery
from privsyn.tasks.steps import quality_figures
from privsyn.tasks.steps.quality_figures import Figure, build_figures, count_exactly, divide_by_rows, plan_queries
from tests.support.code_tables import write_rows

DOMAIN = Domain.of({"a": 2, "b": 3})
table = partial(write_rows, DOMAIN)
ROWS = list(product(range(2), range(3)))


def sums(rows: Iterable[Sequence[int]], synthetic: CodeTable, asked: Sequence[Figure], threads: int = 1) -> list[int]:
    return [int(s[0]) for s in count_exactly(table(rows), synthetic, asked, threads)]


ASKED = (
    Figure("one_way", cliques=(("a",), ("b",))),
    Figure("pairs", cliques=(("a", "b"),)),
    Figure("range_queries", queries=(RangeQuery({"b": np.array([True, True, False])}), RangeQuery({}))),
)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_by_hand(threads: int) -> None:
    """Real: (0,0) (0,0) (1,2); synthetic: (0,0) (1,1).

    a: 2 1 against 1 1: 1.  b: 2 0 1 against 1 1 0: 3.  The pair: 2 at (0,0), 1 at (1,2) against 1 at (0,0), 1 at
    (1,1): 1 + 1 + 1 = 3.  Rows with b <= 1: 2 against 2; all rows: 3 against 2: 1.
    """
    assert sums([(0, 0), (0, 0), (1, 2)], table([(0, 0), (1, 1)]), ASKED, threads) == [4, 3, 1]


def test_sums_of_equal_tables_are_zero_and_an_empty_private_table_gives_the_synthetic_counts() -> None:
    rows = [(0, 0), (1, 2), (1, 2)]
    assert sums(reversed(rows), table(rows), ASKED) == [0, 0, 0]
    assert sums([], table(rows), ASKED) == [6, 3, 1 + 3]
    assert sums(rows, table([]), ASKED) == [6, 3, 1 + 3]


def test_tables_of_other_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="domain"):
        list(count_exactly(table([]), write_rows(Domain.of({"a": 2, "b": 4}), []), ASKED, 1))


# sensitivity: all neighbours


def worst(asked: Sequence[Figure], records: int, largest: int = 4) -> list[int]:
    """Largest change of each sum over all private tables up to ``largest`` rows, all sets of ``records`` added rows
    and three synthetic tables."""
    change = [0] * len(asked)
    for made in ([], [(0, 0), (1, 2)], [(0, 1)] * 5):
        synthetic = table(made)
        found = {
            rows: sums(rows, synthetic, asked)
            for n in range(largest + 1)
            for rows in combinations_with_replacement(ROWS, n)
        }
        for rows, before in found.items():
            if len(rows) + records <= largest:
                for added in combinations_with_replacement(ROWS, records):
                    after = found[tuple(sorted([*rows, *added]))]
                    change = [max(c, abs(x - y)) for c, x, y in zip(change, before, after, strict=True)]
    return change


@pytest.mark.parametrize("records", [1, 2])
def test_the_declared_sensitivity_is_the_worst_over_all_neighbours(records: int) -> None:
    asked = (*ASKED, *(f for f in build_figures(DOMAIN) if f.name != "range_queries"))
    declared = [q.sensitivity for q in plan_queries(asked, Fraction(1), records)]
    assert worst(asked, records) == declared == [2 * records, records, 2 * records, 2 * records, records]


def test_a_sensitivity_without_the_records_of_a_person_is_caught() -> None:
    """The planted mutant: k left out."""
    mutant = [Query((f.name,), 1, f.compared, 1.0) for f in ASKED]
    assert all(found > q.sensitivity for found, q in zip(worst(ASKED, 2), mutant, strict=True))


def test_a_sensitivity_of_one_marginal_is_caught() -> None:
    """The planted mutant: the number of marginals left out."""
    assert worst(ASKED, 1)[0] > 1


def test_the_number_of_private_rows_as_divisor_is_caught() -> None:
    """The planted mutant: sums divided by the exact number of private rows move by more than k / synthetic rows."""
    synthetic, asked = table([(0, 0)] * 4), ASKED[:1]
    bound = divide_by_rows(1 * asked[0].compared, asked[0], synthetic.rows)

    def step(divide: bool) -> float:
        before, after = [(1, 1)], [(1, 1), (1, 1)]
        values = [
            divide_by_rows(sums(rows, synthetic, asked)[0], asked[0], len(rows) if divide else synthetic.rows)
            for rows in (before, after)
        ]
        return abs(values[0] - values[1])

    assert step(divide=False) <= bound
    assert step(divide=True) > bound


def test_the_price_is_the_share_of_each_figure() -> None:
    for rho, records in ((Fraction(1, 7), 1), (Fraction(5, 3), 4)):
        queries = plan_queries(ASKED, rho, records)
        assert [q.attributes for q in queries] == [("one_way",), ("pairs",), ("range_queries",)]
        assert {q.cells for q in queries} == {1}
        for query in queries:
            assert rho / 3 * Fraction(999_999, 10**6) < query.rho <= rho / 3
        assert sum_rho(queries) <= rho


# the public workload


def test_small_domains_are_compared_whole_and_the_same_every_time() -> None:
    asked = build_figures(Domain.of({"a": 2, "b": 3, "c": 4}))
    assert [(f.name, f.compared) for f in asked] == [
        ("one_way", 3), ("pairs", 3), ("triples", 1), ("range_queries", 1_000),
    ]  # fmt: skip
    assert asked[1].cliques == (("a", "b"), ("a", "c"), ("b", "c"))
    again = build_figures(Domain.of({"a": 2, "b": 3, "c": 4}))
    assert [f.cliques for f in again] == [f.cliques for f in asked]
    for one, two in zip(asked[3].queries, again[3].queries, strict=True):
        assert list(one.allowed) == list(two.allowed)
        assert all(np.array_equal(one.allowed[a], two.allowed[a]) for a in one.allowed)


def test_wide_domains_are_sampled_without_repeats() -> None:
    domain = Domain.of({f"x{i}": 3 for i in range(97)})
    one_way, pairs, triples, queries = build_figures(domain)
    assert [f.compared for f in (one_way, pairs, triples, queries)] == [97, 1_000, 100, 1_000]
    for figure in (pairs, triples):
        assert len(set(figure.cliques)) == figure.compared
        assert all(domain.ordered(c) == c for c in figure.cliques)


def test_per_row() -> None:
    """A sum of 12 over 2 marginals and 3 synthetic rows: 12 / 6."""
    assert divide_by_rows(12, ASKED[0], 3) == 2.0
    with pytest.raises(ValueError, match="no rows"):
        divide_by_rows(12, ASKED[0], 0)


def test_marginals_too_large_to_count_and_too_narrow_domains_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality_figures, "MAX_CELLS", 1_000)
    wide = Domain.of({"a": 900, "b": 900, "c": 2})
    assert [(f.name, f.cliques) for f in build_figures(wide)[:-1]] == [("one_way", (("a",), ("b",), ("c",)))]
    assert [f.name for f in build_figures(Domain.of({"a": 5}))] == ["one_way", "range_queries"]
