"""Marginals, their table form, raking, and pooling of answers on the same attributes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import MARGINALS
from privsyn.tasks.estimation.marginals import Marginal, from_table, rake, sum_to_one_ways, to_table
from privsyn.tasks.estimation.noisy import (
    count_marginals,
    list_all_measured,
    pool_answers,
    tabulate_answers,
    tabulate_receipts,
)

DOMAIN = Domain.of({"a": 2, "one": 1, "b": 3})


def example() -> list[Marginal]:
    rng = np.random.default_rng(0)
    return [Marginal(c, rng.random(DOMAIN.shape(c))) for c in [("a",), ("one",), ("b",), ("a", "one", "b"), ("a", "b")]]


def test_table_round_trip_keeps_order_shape_and_every_count() -> None:
    table = to_table(example())
    assert table.schema == MARGINALS.schema
    assert table.column("clique").to_pylist() == [0, 1, 2, 3, 4]
    sliced = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    for back in (from_table(table, DOMAIN), from_table(sliced, DOMAIN)):
        for ours, theirs in zip(example(), back, strict=True):
            assert ours.attributes == theirs.attributes
            np.testing.assert_array_equal(ours.counts, theirs.counts)


def test_project_sums_the_others_out() -> None:
    cube = Marginal(("a", "b", "c"), np.arange(24.0).reshape(2, 3, 4))
    assert cube.project(("c", "a")).attributes == ("a", "c")
    np.testing.assert_array_equal(cube.project(("c", "a")).counts, cube.counts.sum(axis=1))
    assert cube.project(()).counts == cube.counts.sum()


def test_by_code_has_a_column_for_each_code_and_a_row_for_each_cell_of_the_others() -> None:
    cube = Marginal(("a", "b", "c"), np.arange(24.0).reshape(2, 3, 4))
    np.testing.assert_array_equal(cube.by_code("c"), cube.counts.reshape(6, 4))
    np.testing.assert_array_equal(cube.by_code("b"), [cube.counts[a, :, c] for a in range(2) for c in range(4)])
    np.testing.assert_array_equal(Marginal(("a",), np.array([3.0, 4.0])).by_code("a"), [[3.0, 4.0]])


def test_one_ways_are_found_by_attribute_and_missing_ones_named() -> None:
    assert list(sum_to_one_ways(example(), DOMAIN)) == ["a", "one", "b"]
    with pytest.raises(ValueError, match="the one-way marginal of one is missing"):
        sum_to_one_ways([m for m in example() if m.attributes != ("one",)], DOMAIN)


def test_counts_that_do_not_fit_the_clique_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        Marginal(("a", "b"), np.zeros(6))
    with pytest.raises(ValueError, match="a, b: there are 6 counts for 8 cells"):
        from_table(to_table([Marginal(("a", "b"), np.zeros((2, 3)))]), Domain.of({"a": 2, "b": 4}))


def test_the_noise_goes_through_the_table_and_adds_up_when_cells_are_summed() -> None:
    cube = Marginal(("a", "b"), np.ones((2, 3)), sigma=5.0)
    assert from_table(to_table([cube, Marginal(("a",), np.ones(2))]), DOMAIN)[0].sigma == 5.0
    assert cube.project(["a"]).sigma == pytest.approx(5 * 3**0.5)  # three cells a sum
    assert cube.project([]).sigma == pytest.approx(5 * 6**0.5)
    assert cube.project(["a", "b"]).sigma == 5.0
    assert Marginal(("a",), np.ones(2)).project([]).sigma == 0.0


def test_raked_counts_have_the_sums_and_keep_zeros_and_odds() -> None:
    counts = np.array([[8.0, 0.0, 2.0], [4.0, 6.0, 4.0]])
    parts = [np.array([30.0, 20.0, 10.0]), np.array([24.0, 36.0])]
    found = rake(counts, parts, 1e-9)
    for axis, part in enumerate(parts):
        assert found.sum(axis=axis) == pytest.approx(part, rel=1e-6)
    assert found[0, 1] == 0
    odds = counts[0, 0] * counts[1, 2] / (counts[0, 2] * counts[1, 0])
    assert found[0, 0] * found[1, 2] / (found[0, 2] * found[1, 0]) == pytest.approx(odds)


def test_answers_on_the_same_attributes_are_averaged_by_inverse_variance() -> None:
    queries = [Query(("a", "b"), 2, 1, 3.0), Query(("a",), 2, 1, 5.0), Query(("a", "b"), 2, 1, 4.0)]
    answers = [np.array([10, 20]), np.array([1, 2]), np.array([35, -5])]
    found, means = pool_answers(queries, answers)
    assert [q.attributes for q in found] == [("a", "b"), ("a",)]
    assert means[0] == pytest.approx([(16 * 10 + 9 * 35) / 25, (16 * 20 - 9 * 5) / 25])
    assert found[0].sigma == pytest.approx(12 / 5)  # 1 / sqrt(1/9 + 1/16)
    assert means[1] is answers[1]
    assert found[1] is queries[1]


def test_sums_after_the_single_columns_are_no_marginals() -> None:
    first = [
        Query(("a", "b"), 4, 1, 2.0),
        Query(("a",), 2, 1, 2.0),
        Query(("b",), 2, 1, 2.0),
        Query(("a", "c"), 1, 1, 4.0),
    ]
    other = [Query(("b", "c"), 1, 1, 2.0)]  # two columns of one code each, measured as a pair
    answers = [[np.arange(q.cells) + i for i, q in enumerate(queries)] for queries in (first, other)]
    receipts, noisy = [tabulate_receipts(q) for q in (first, other)], [tabulate_answers(y) for y in answers]
    assert [count_marginals([q.attributes for q in queries]) for queries in (first, other, [])] == [3, 1, 0]
    asked, told = list_all_measured(receipts, noisy)
    assert [q.attributes for q in asked] == [("a", "b"), ("b", "c"), ("a",), ("b",)]
    assert [y.tolist() for y in told] == [[0, 1, 2, 3], [0], [1, 2], [2, 3]]
    asked, told = list_all_measured(receipts, noisy, sums=True)
    assert ([q.attributes for q in asked], [y.tolist() for y in told]) == ([("a", "c")], [[3]])
