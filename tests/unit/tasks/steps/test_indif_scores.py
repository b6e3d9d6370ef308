"""InDif against the paper's Figure 1 and against its definition in floating point."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import sum_rho
from privsyn.tasks.estimation.pair_departures import MAX_ROWS, IndependentCounts
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import score_columns
from privsyn.tasks.steps.score_columns import REFERENCE_SENSITIVITY, compute_indif, compute_l1_distance


def test_definition_in_floating_point() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        counts = rng.integers(0, 40, size=rng.integers(1, 6, size=2))
        n = max(counts.sum(), 1)
        expected = np.abs(counts - np.multiply.outer(counts.sum(1), counts.sum(0)) / n).sum()
        assert expected - 1 - 1e-9 < compute_indif(counts) <= expected + 1e-9


def test_exact_arithmetic_near_its_limit() -> None:
    """Two perfectly dependent binary attributes: InDif = n exactly, at a billion rows and more."""
    n = 2_900_000_000
    assert compute_indif(np.diag([n // 2, n // 2])) == n
    with pytest.raises(ValueError, match="rows"):
        compute_indif(np.diag([n, n]))


def test_noise_is_theorem_5() -> None:
    domain = Domain(("a", "b", "c", "d"), (2, 3, 2, 5))
    queries = score_columns.plan_indif(domain, Fraction(1, 100), records=3)
    m = 6
    assert len(queries) == m
    assert all(q.sigma == pytest.approx(3 * np.sqrt(8 * m / 0.01), rel=1e-12) for q in queries)
    assert Fraction(1, 100) * Fraction(999_999, 10**6) < sum_rho(queries) <= Fraction(1, 100)


def test_pairs_of_a_focus_have_half_of_the_budget_where_they_are_the_fewer() -> None:
    domain, rho = Domain(tuple("abcdefg"), (2,) * 7), Fraction(1, 100)
    even, queries = (score_columns.plan_indif(domain, rho, 1, scored_more=more) for more in ((), ("c",)))
    own = [q for q in queries if "c" in q.attributes]
    assert [q.attributes for q in queries] == [q.attributes for q in even]
    assert rho / 2 * Fraction(999_999, 10**6) < sum_rho(own) <= rho / 2
    assert sum_rho(queries) <= rho and own[0].sigma < even[0].sigma < max(q.sigma for q in queries)
    assert score_columns.plan_indif(domain, rho, 1, scored_more=("a", "b", "c")) == even  # 15 of 21 pairs


def recode(*estimates: float, kept: tuple[bool, ...] = ()) -> AttributeRecode:
    """Every fine code its own coarse one; those that are not kept have the code behind the last."""
    keep = np.array(kept or [True] * len(estimates))
    coarse = np.where(keep, np.cumsum(keep) - 1, keep.sum()).astype(np.int32)
    ones = np.ones(len(estimates))
    return AttributeRecode(coarse, keep, ones, np.array(estimates, float), ones)


def test_the_reference_is_independence_by_the_noisy_one_ways() -> None:
    # a: 30 and 10 kept; b: 25, a filtered 15 and a negative count that becomes 0; noisy total 40
    reference = IndependentCounts.of({"a": recode(30, 10), "b": recode(25, 15, -0.0, kept=(True, False, True))})
    expected = 40 * np.outer([0.75, 0.25, 0], [25 / 40, 0, 15 / 40])
    assert reference.total == pytest.approx(40)
    assert reference.counts("a", "b") / 2**16 == pytest.approx(expected, abs=2**-16)
    assert reference.counts("a", "b").dtype == np.int64


def test_distance_to_the_reference_by_hand() -> None:
    reference = np.array([[3.5, 0.25], [1.0, 2.0]]) * 2**16
    counts = np.array([[5, 0], [0, 2]])  # 1.5 + .25 + 1 + 0
    assert compute_l1_distance(counts, reference.astype(np.int64)) == 2
    with pytest.raises(ValueError, match="rows"):
        compute_l1_distance(np.array([[MAX_ROWS + 1]]), np.zeros((1, 1), np.int64))
    assert compute_l1_distance(np.array([[MAX_ROWS]]), np.zeros((1, 1), np.int64)) == MAX_ROWS


def test_negative_totals_and_no_rows_are_no_reference() -> None:
    reference = IndependentCounts.of({"a": recode(-3, -1), "b": recode(-2, -2)})
    assert reference.total == 0 and not reference.counts("a", "b").any()


def test_a_score_against_one_way_noise_costs_a_sixteenth() -> None:
    domain = Domain(("a", "b", "c"), (2, 3, 2))
    indif_noise, ours = (score_columns.plan_indif(domain, Fraction(1, 50), 2, s)[0] for s in (4, REFERENCE_SENSITIVITY))
    assert ours.sensitivity == 2 and ours.sigma == pytest.approx(indif_noise.sigma / 4, rel=1e-12)
    assert ours.rho == pytest.approx(indif_noise.rho, rel=1e-9)


def test_a_single_attribute_asks_nothing() -> None:
    assert score_columns.plan_indif(Domain(("a",), (2,)), Fraction(1), 1) == []


def test_pairs_too_large_to_be_measured_are_not_scored_and_leave_their_budget_to_the_others() -> None:
    domain = Domain(("a", "b", "c"), (50_000, 50_000, 2))
    queries = score_columns.plan_indif(domain, Fraction(1), 1, REFERENCE_SENSITIVITY, max_cells=100_000)
    assert [q.attributes for q in queries] == [("a", "c"), ("b", "c")]
    alone = score_columns.plan_indif(Domain.of({"a": 2, "b": 2}), Fraction(1, 2), 1, REFERENCE_SENSITIVITY)
    assert queries[0].sigma == alone[0].sigma
    assert score_columns.plan_indif(domain, Fraction(1), 1, max_cells=4) == []


def test_filtered_values_count_as_a_value_of_their_own() -> None:
    """Rows with the padding code stay in the table: every row is in every score."""
    domain = Domain(("a", "b"), (1, 1))
    rows = CodeTable(domain, (np.array([0, 0, 1, 1], np.uint8), np.array([0, 0, 1, 1], np.uint8)), padded=True)
    queries = score_columns.plan_indif(domain, Fraction(1), 1)
    assert [int(a[0]) for a in score_columns.count_indif(rows, queries, 1)] == [4]
