"""Trends: what is asked, at what price, and that sums are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import sum_rho
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.score_columns import MOST_AGAIN, choose_top, count_trends, get_top, plan_again, plan_trends


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


def test_ranks_are_asked_for_where_their_noise_is_clear_and_signs_elsewhere() -> None:
    assert choose_top(21, 20_000, Fraction(1, 500), 1, 64) == 64
    assert choose_top(21, 2_000, Fraction(1, 500), 1, 64) == 1
    assert choose_top(21, 20_000, Fraction(1, 500), 10, 64) == 1, "a person's records make it less clear"


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
