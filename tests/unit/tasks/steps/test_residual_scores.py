"""The distances of rows made so far: candidates by hand, scores against brute force, and their sensitivity."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import sum_rho
from privsyn.tasks.estimation.expected_error import TargetWeights
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.score_columns import (
    MOST_ROWS,
    OVERSAMPLE,
    count_residuals,
    count_rows_so_far,
    derive_seed,
    list_candidates,
    plan_residuals,
)

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 2, "d": 5})
PAIRS = list(combinations("abcd", 2))


def table(rows: list[tuple[int, ...]], domain: Domain = DOMAIN, *, padded: bool = False) -> CodeTable:
    codes = np.array(rows, np.uint8).reshape(-1, len(domain.attributes))
    return CodeTable(domain, tuple(np.ascontiguousarray(c) for c in codes.T), padded=padded)


def random_rows(rng: np.random.Generator, n: int) -> list[tuple[int, ...]]:
    return [tuple(int(rng.integers(s)) for s in DOMAIN.sizes) for _ in range(n)]


def test_candidates_are_all_pairs_and_as_many_of_the_most_related_triples() -> None:
    scores = dict(zip(PAIRS, [9.0, 8.0, 1.0, 7.0, 2.0, -3.0], strict=True))  # ab ac ad bc bd cd
    found = list_candidates(scores, DOMAIN, 1_000, triples=True)
    assert found[:6] == PAIRS
    assert found[6:] == [("a", "b", "c"), ("a", "b", "d")]  # no triple of c and d, whose score says nothing
    assert list_candidates(scores, DOMAIN, 12, triples=True)[6:] == [("a", "b", "c")]
    assert list_candidates(scores, DOMAIN, 1_000, triples=False) == PAIRS


def test_what_has_no_score_is_no_candidate_nor_part_of_a_triple() -> None:
    scores = dict(zip(PAIRS, [9.0, 8.0, 1.0, 7.0, 2.0, -3.0], strict=True))
    without_d = {pair: score for pair, score in scores.items() if "d" not in pair}
    named = TargetWeights(named=((frozenset("abcd"), 2.0),))
    found = list_candidates(without_d, DOMAIN, 1_000, triples=True, targets=named)
    assert found == [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")]


def test_triples_inside_a_named_set_come_first_and_weights_order_the_others() -> None:
    scores = dict(zip(PAIRS, [9.0, 8.0, 1.0, 7.0, 2.0, -3.0], strict=True))  # ab ac ad bc bd cd
    named = TargetWeights(named=((frozenset("acd"), 2.0),))
    found = list_candidates(scores, DOMAIN, 1_000, triples=True, targets=named)
    assert found[6:] == [("a", "c", "d"), ("a", "b", "c"), ("a", "b", "d")]
    focus = TargetWeights(frozenset("d"), 10.0)
    assert list_candidates(scores, DOMAIN, 1_000, triples=True, targets=focus)[6:] == [
        ("a", "b", "d"),
        ("a", "b", "c"),
    ]


def test_there_are_no_more_triples_than_pairs() -> None:
    domain = Domain.of({f"x{i}": 2 for i in range(9)})
    scores = {pair: float(i) for i, pair in enumerate(combinations(domain.attributes, 2), start=1)}
    found = list_candidates(scores, domain, 100, triples=True)
    assert [len(c) for c in found] == [2] * 36 + [3] * 36
    best = max(combinations(domain.attributes, 3), key=lambda t: sum(scores[p] for p in combinations(t, 2)))
    assert found[36] == best


def test_the_budget_is_shared_evenly_and_a_persons_records_count() -> None:
    queries = plan_residuals([("a", "b"), ("a", "b", "c")], Fraction(1, 50), 3)
    assert [(q.attributes, q.cells, q.sensitivity) for q in queries] == [(("a", "b"), 1, 3), (("a", "b", "c"), 1, 3)]
    assert Fraction(1, 50) * (1 - Fraction(1, 10**9)) <= sum_rho(queries) <= Fraction(1, 50)
    assert plan_residuals([], Fraction(1, 50), 3) == []


@pytest.mark.parametrize("seed", range(2))
def test_scores_are_distances_to_the_scaled_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    real, made = random_rows(rng, 60), random_rows(rng, 90)
    queries = plan_residuals([("a", "b"), ("b", "d"), ("a", "c", "d")], Fraction(1), 1)
    scale = 62.5 / 90
    for query, (score,) in zip(queries, count_residuals(table(real), table(made), 62.5, queries, 1), strict=True):
        place = [DOMAIN.index(a) for a in query.attributes]
        here, there = (Counter(tuple(r[i] for i in place) for r in rows) for rows in (real, made))
        distance = sum(abs(here[cell] - there[cell] * scale) for cell in {*here, *there})
        assert score in {int(np.floor(distance - 1e-3)), int(np.floor(distance + 1e-3))}


@pytest.mark.parametrize("seed", range(20))
def test_one_record_moves_every_score_by_at_most_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    real, made = random_rows(rng, int(rng.integers(0, 20))), random_rows(rng, 30)
    queries = plan_residuals([*PAIRS, ("a", "b", "d")], Fraction(1), 1)
    more = [*real, *random_rows(rng, 1)]
    before, after = (list(count_residuals(table(r), table(made), 11.3, queries, 1)) for r in (real, more))
    assert max(abs(int(x[0]) - int(y[0])) for x, y in zip(before, after, strict=True)) <= 1


def test_filtered_values_are_in_neither_count() -> None:
    real = table([(0, 0, 0, 0), (2, 1, 1, 1)], padded=True)  # the second row's a was filtered
    made = table([(0, 0, 0, 0)])
    queries = plan_residuals([("a", "b"), ("b", "c")], Fraction(1), 1)
    assert [int(s[0]) for s in count_residuals(real, made, 1.0, queries, 1)] == [0, 1]


def test_nothing_made_is_a_distance_of_all_rows() -> None:
    queries = plan_residuals([("a", "b")], Fraction(1), 1)
    assert [int(s[0]) for s in count_residuals(table([(0, 0, 0, 0)] * 3), table([]), -4.0, queries, 1)] == [3]


def test_rows_so_far_are_not_those_that_are_released_nor_those_of_another_round() -> None:
    for seed in (0, 7, 2**63 - 1):
        seeds = [seed, *(derive_seed(seed, number) for number in (2, 3, 4))]
        assert len(set(seeds)) == 4
        assert all(0 <= s < 2**63 for s in seeds)


def test_rows_so_far_follow_the_noisy_total_up_to_a_public_limit() -> None:
    assert count_rows_so_far(100.4) == 100 * OVERSAMPLE
    assert count_rows_so_far(-7.0) == 0
    assert count_rows_so_far(1e12) == MOST_ROWS
