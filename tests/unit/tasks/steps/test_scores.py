"""Scores of pairs, trends and triples: what is asked, at what price, and exact sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.tasks.estimation.pair_departures import MAX_ROWS, IndependentCounts
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import score_columns
from privsyn.tasks.steps.measure_marginals import build_set_domain, merge_rows, name_columns
from privsyn.tasks.steps.score_columns import (
    MOST_AGAIN,
    REFERENCE_SENSITIVITY,
    compute_indif,
    compute_l1_distance,
    count_trends,
    get_top,
    plan_again,
    plan_trends,
)
from tests.support.code_tables import make_recode


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


def test_a_score_against_one_way_noise_costs_a_sixteenth() -> None:
    domain = Domain(("a", "b", "c"), (2, 3, 2))
    indif_noise, ours = (score_columns.plan_indif(domain, Fraction(1, 50), 2, s)[0] for s in (4, REFERENCE_SENSITIVITY))
    assert ours.sensitivity == 2 and ours.sigma == pytest.approx(indif_noise.sigma / 4, rel=1e-12)
    assert ours.rho == pytest.approx(indif_noise.rho, rel=1e-9)


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


def test_every_column_and_pair_is_asked_once_within_the_budget() -> None:
    queries = plan_trends(["a", "b", "c"], 64, Fraction(1, 100), 3)
    assert [q.attributes for q in queries] == [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")]
    assert [q.sensitivity for q in queries] == [192] * 3 + [3 * 64**2] * 3
    assert Fraction(999, 1000) * Fraction(1, 100) <= sum_rho(queries) <= Fraction(1, 100)
    assert get_top(queries) == 64
    assert plan_trends(["a"], 64, Fraction(1), 1) == []
    assert get_top([]) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_sums_are_those_of_the_rows(threads: int) -> None:
    rng = np.random.default_rng(3)
    columns = rng.integers(0, [4, 5, 3], (1_000, 3)).astype(np.uint8).T  # the last code of each is a filtered value
    rows = CodeTable(Domain(("a", "b", "c"), (3, 4, 2)), tuple(np.ascontiguousarray(c) for c in columns), padded=True)
    scores = {"a": np.array([-9, 0, 9, 0]), "b": np.array([-4, -1, 2, 9, 0]), "c": np.array([-9, 9, 0])}
    queries = plan_trends(["a", "b", "c"], 9, Fraction(1), 1)
    of_rows = {a: scores[a][rows.column(a)] for a in scores}
    wanted = [int(np.prod([of_rows[a] for a in q.attributes], axis=0).sum()) for q in queries]
    assert [int(y[0]) for y in count_trends(rows, queries, threads, scores)] == wanted


WEIGHTS = {("a", "b"): 0.2, ("a",): 0.3, ("b",): 0.1, ("c",): 0.4}
"""Of a measurement of one pair, and of one-ways once more."""


def test_unclear_trends_are_asked_again_of_pairs_that_are_not_measured_and_one_ways_pay() -> None:
    first, rho = plan_trends(["a", "b", "c"], 1, Fraction(1, 10_000), 2), Fraction(1, 1_000)
    again, left = plan_again(first, WEIGHTS, 1_000, rho, 2)
    assert [q.attributes for q in again] == [("a", "c"), ("b", "c")]
    assert {q.sensitivity for q in again} == {2}
    assert Fraction(999, 1000) * MOST_AGAIN * Fraction(8, 10) * rho <= sum_rho(again) <= rho
    assert left["a", "b"] == 0.2, "a measured pair keeps its part"
    assert sum(left.values()) == pytest.approx(1 - 0.8 * float(MOST_AGAIN))
    assert left["a",] / left["c",] == pytest.approx(3 / 4)


def test_trends_are_asked_again_for_no_more_than_brings_their_noise_down_to_what_is_clear() -> None:
    first, rho = plan_trends(["a", "b", "c"], 1, Fraction(1, 10_000), 1), Fraction(1, 1_000)
    total = first[-1].sigma / 0.1
    again, _ = plan_again(first, WEIGHTS, total, rho, 1)
    pooled = (first[-1].sigma ** -2 + again[-1].sigma ** -2) ** -0.5
    assert pooled / total == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize(
    ("top", "total", "weights"),
    [(1, 30_000, WEIGHTS), (64, 3_000, WEIGHTS), (1, 3_000, {("a", "b"): 1.0, ("a", "c"): 1.0, ("b", "c"): 1.0})],
    ids=["clear", "ranks", "every pair measured"],
)
def test_nothing_is_asked_again_otherwise(top: int, total: float, weights: dict[tuple[str, ...], float]) -> None:
    first = plan_trends(["a", "b", "c"], top, Fraction(1, 10_000), 1)
    assert plan_again(first, weights, total, Fraction(1, 1_000), 1) == ([], weights)
    assert plan_again([], weights, total, Fraction(1, 1_000), 1) == ([], weights)


RECODE = {
    "a": make_recode([100.0, 100.0, 100.0, 100.0]),
    "b": make_recode([200.0, 200.0]),
    "c": make_recode([400.0]),
    "y": make_recode([300.0, 100.0]),
}
ORDERED = {"a"}


def test_candidates_hold_a_focus_and_no_column_of_one_code() -> None:
    halves = score_columns.halve_attributes({**RECODE, "z": RECODE["b"]}, ORDERED)
    assert score_columns.list_triples(["y"], halves) == [("a", "b", "y"), ("a", "y", "z"), ("b", "y", "z")]
    many = score_columns.halve_attributes({str(i): RECODE["b"] for i in range(120)}, set())
    assert score_columns.list_triples(["0"], many) == []
    assert score_columns.plan_triples([], 1, 1) == []  # type: ignore[arg-type]


def test_scores_are_sums_of_products_over_rows_in_whole_records() -> None:
    rng = np.random.default_rng(0)
    domain = Domain.of({a: r.size for a, r in RECODE.items()})
    columns = tuple(rng.integers(0, r.size + 1, 300).astype(np.uint8) for r in RECODE.values())
    rows = CodeTable(domain, columns, padded=True)
    halves = score_columns.halve_attributes(RECODE, ORDERED)
    values = score_columns.compute_values(RECODE, halves)
    merged = list(merge_rows(rows.to_arrow().to_batches(), [halves]))
    in_parts = CodeTable.from_arrow(merged, build_set_domain([halves]), padded=True)
    names = dict(zip(halves.attributes, name_columns(0, halves), strict=True))
    query = Query(("a", "b", "y"), 1, 1, 1.0)
    (found,) = score_columns.count_triples(in_parts, names, values, [query], 1)
    by_hand = 0
    for a, b, _, y in zip(*columns, strict=True):
        if a < 4 and b < 2 and y < 2:
            by_hand += int(values["a"][a // 2] * values["b"][b] * values["y"][y])
    assert found.tolist() == [by_hand // score_columns.UNIT**3]


@pytest.mark.parametrize("score", [90.0, -90.0])
def test_triples_that_stand_out_are_measured_and_else_pairs_of_the_focus(score: float) -> None:
    queries = [Query(("a", "b", "y"), 1, 1, 20.0), Query(("a", "c", "y"), 1, 1, 20.0)]
    pairs = {("a", "b"): 99.0, ("a", "y"): 5.0, ("b", "y"): 7.0}

    def choose(scores: list[float]) -> list[tuple[str, ...]]:
        return score_columns.choose_sets(queries, scores, 400.0, ["y"], pairs, RECODE)

    assert choose([score, 10.0]) == [("a", "b", "y")]
    assert choose([score, 2 * score]) == [("a", "c", "y"), ("a", "b", "y")]
    assert choose([59.0, -59.0]) == [("b", "y"), ("a", "y")]  # three standard deviations are 60
    assert score_columns.choose_sets([], [], 400.0, ["y"], {}, RECODE) == [("a", "b")]


def test_parts_are_halves_and_their_values_have_no_mean() -> None:
    halves = score_columns.halve_attributes(RECODE, ORDERED)
    assert [m.tolist() for m in halves.merges] == [[0, 0, 1, 1], [0, 1], [0], [0, 1]]
    values = score_columns.compute_values(RECODE, halves)
    assert values["a"].tolist() == [256, -256] and values["y"].tolist() == [85, -256]
    assert max(int(np.abs(v).max()) for v in values.values()) <= score_columns.UNIT
