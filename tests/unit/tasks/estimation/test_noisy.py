"""Pooling of answers on the same attributes, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.noisy import (
    count_marginals,
    list_all_measured,
    list_all_sums,
    pool_answers,
    tabulate_answers,
    tabulate_receipts,
)


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
    asked, told = list_all_sums(receipts, noisy)
    assert ([q.attributes for q in asked], [y.tolist() for y in told]) == ([("a", "c")], [[3]])
