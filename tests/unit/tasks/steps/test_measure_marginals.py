"""The third stage: budget by weight, exactly; pairs on coarse codes, one-ways again on fine ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import sum_rho
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.measure_marginals import count_marginals, plan_marginals

COARSE, FINE = Domain.of({"a": 2, "b": 3}), Domain.of({"a": 4, "b": 3})
WEIGHTS = {("a", "b"): 0.5, ("a",): 0.3, ("b",): 0.2}


def table(domain: Domain, a: list[int], b: list[int]) -> CodeTable:
    return CodeTable(domain, (np.array(a, np.uint8), np.array(b, np.uint8)))


def test_the_budget_is_shared_by_weight_and_fine_codes_are_asked() -> None:
    queries = plan_marginals(WEIGHTS, COARSE, FINE, Fraction(1, 10), 2)
    assert [(q.attributes, q.cells, q.sensitivity) for q in queries] == [
        (("a", "b"), 6, 2),
        (("a",), 4, 2),
        (("b",), 3, 2),
    ]
    assert [float(q.rho) for q in queries] == pytest.approx([0.05, 0.03, 0.02])
    assert sum_rho(queries) <= Fraction(1, 10)


def test_pairs_are_counted_on_coarse_rows_and_single_attributes_on_fine_ones() -> None:
    coarse, fine = table(COARSE, [0, 0, 1], [0, 2, 2]), table(FINE, [0, 1, 3], [0, 2, 2])
    queries = plan_marginals(WEIGHTS, COARSE, FINE, Fraction(1), 1)
    found = [c.tolist() for c in count_marginals(coarse, lambda: fine, queries, 1)]
    assert found == [[1, 0, 1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 2]]


def test_fine_rows_are_read_only_where_they_are_asked_for() -> None:
    def unread() -> CodeTable:
        raise AssertionError("read")

    queries = plan_marginals({("a", "b"): 1.0}, COARSE, FINE, Fraction(1), 1)
    assert len(list(count_marginals(table(COARSE, [0], [0]), unread, queries, 1))) == 1


def test_single_attributes_come_last() -> None:
    queries = plan_marginals({("a",): 1.0, ("a", "b"): 1.0}, COARSE, FINE, Fraction(1), 1)
    with pytest.raises(ValueError, match="before single"):
        list(count_marginals(table(COARSE, [0], [0]), lambda: table(FINE, [0], [0]), queries, 1))
