"""Bug classes 2, 5 and 6 where single values are counted: what is counted, its sensitivity, and what comes out.

It does not see person_id: one column under records_per_person is counted, so that no choice among the rows of a person
stands before the count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.receipts import sum_rho
from privsyn.tasks.codecs import encode_rows
from privsyn.tasks.estimation import frequent_values
from privsyn.tasks.estimation.frequent_values import CountedValues, find_frequent_values, list_values_to_count
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import encode, measure_marginals
from tests.unit.tasks.estimation.test_frequent_values import ROUNDED, noisy_counts, recode_of
from tests.unit.tasks.estimation.test_single_values import WAGE, plan_one

PLAN = plan_one(WAGE)
VALUES = (0, 3, 4, 700, 99_999)
COUNTED = [CountedValues("x", np.ones(4, dtype=np.int64), np.array([3, 4, 5, 6]))]


def count(rows: Sequence[int], counted: Sequence[CountedValues] = COUNTED, records: int = 1) -> np.ndarray:
    """The exact counts of the counted values among these rows."""
    batch = pa.record_batch({"x": pa.array(rows, pa.int64())})
    unit = Unit(records_per_person=records)
    stored = encode.encode_with_numbers(lambda *_: [batch], PLAN, unit, encode_rows.Repairs())
    located = measure_marginals.locate_rows((numbers for _, numbers in stored), PLAN, counted)
    table = CodeTable.from_arrow(list(located), measure_marginals.build_located_domain(counted))
    queries = measure_marginals.plan_values(counted, Fraction(1), records)
    (counts,) = measure_marginals.count_exactly(table, queries, 1)
    return counts


@pytest.mark.parametrize("records", [1, 2])
def test_05_counts_of_values(records: int) -> None:
    """The declared k is never exceeded, and is reached."""
    (query,) = measure_marginals.plan_values(COUNTED, Fraction(1), records)
    assert (query.sensitivity, query.cells) == (records, 5)
    moved = [
        float(np.linalg.norm(count([*rows, *added]) - count(rows)))
        for rows in combinations_with_replacement(VALUES, 2)
        for added in combinations_with_replacement(VALUES, records)
    ]
    assert max(moved) == records


def test_05_mutant_a_value_counted_in_its_cell_as_well() -> None:
    """Planted mutant: the counts of values and of their cells, at the price of one."""
    (query,) = measure_marginals.plan_values(COUNTED, Fraction(1), 1)
    with_cell = [np.append(counts, counts[:4].sum()) for counts in (count([3]), count([3, 4]))]
    assert np.linalg.norm(with_cell[1] - with_cell[0]) > query.sensitivity


def test_06_all_columns_together_cost_their_budget() -> None:
    three = [c._replace(attribute=name) for name in "abc" for c in COUNTED]
    spent = sum_rho(measure_marginals.plan_values(three, Fraction(1, 100), 2))
    assert Fraction(99, 10_000) < spent <= Fraction(1, 100)


def test_02_mutant_counted_values_by_the_rows() -> None:
    """Planted mutant: the values to count follow from exact counts, so that one row shows in what is asked."""
    rho = Fraction(1, 2 * 16**2)
    least = math.ceil(frequent_values.compute_least_count(16.0, frequent_values.MOST_VALUES))
    exact = [{"x": noisy_counts(PLAN, {700: n})} for n in (least - 1, least)]
    before, after = (list_values_to_count(PLAN.wide_celled, counts, rho, 1) for counts in exact)
    assert not before and after


def test_02_mutant_a_value_of_three_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: any count above 0 makes a value of its own, where three rows make none even without noise."""
    looks = {"x": (measure_marginals.plan_values(COUNTED, Fraction(1, 2), 1)[0], count([3, 3, 3]))}
    recode = {"x": recode_of(noisy_counts(PLAN, {3: 3.0}), 1.0), ROUNDED: recode_of(np.ones(5), 1.0)}
    assert find_frequent_values(COUNTED, looks, recode, PLAN) == {}
    monkeypatch.setattr(frequent_values, "compute_least_count", lambda sigma, values: 0.0)
    assert 3 in find_frequent_values(COUNTED, looks, recode, PLAN)["x"].number
