"""Further rounds: candidates and scores of the rows made so far, and what is measured then."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Aim
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.tasks.estimation.expected_error import TargetWeights
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps.score_columns import (
    choose_worst_marginals,
    count_residuals,
    derive_seed,
    list_candidates,
    plan_residuals,
    reselect_cliques,
)
from tests.support.code_tables import write_rows
from tests.unit.tasks.estimation.test_pair_departures import recoded

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 2, "d": 5})
table = partial(write_rows, DOMAIN)
PAIRS = list(combinations("abcd", 2))


def random_rows(rng: np.random.Generator, n: int) -> list[tuple[int, ...]]:
    return [tuple(int(rng.integers(s)) for s in DOMAIN.sizes) for _ in range(n)]


def test_candidates_are_all_pairs_and_as_many_of_the_most_related_triples() -> None:
    scores = dict(zip(PAIRS, [9.0, 8.0, 1.0, 7.0, 2.0, -3.0], strict=True))  # ab ac ad bc bd cd
    found = list_candidates(scores, DOMAIN, 1_000, triples=True)
    assert found[:6] == PAIRS
    assert found[6:] == [("a", "b", "c"), ("a", "b", "d")]  # no triple of c and d, whose score says nothing
    assert list_candidates(scores, DOMAIN, 12, triples=True)[6:] == [("a", "b", "c")]
    assert list_candidates(scores, DOMAIN, 1_000, triples=False) == PAIRS


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


def test_rows_so_far_are_not_those_that_are_released_nor_those_of_another_round() -> None:
    for seed in (0, 7, 2**63 - 1):
        seeds = [seed, *(derive_seed(seed, number) for number in (2, 3, 4))]
        assert len(set(seeds)) == 4
        assert all(0 <= s < 2**63 for s in seeds)


COUNTS = {"a": [600, 400], "b": [500, 300, 200], "c": [700, 300], "d": [250, 250, 250, 250]}
FINE = Domain.of({a: len(c) for a, c in COUNTS.items()})
CLIQUES = [("a", "b"), ("a", "c"), ("b", "c"), ("b", "c", "d")]


def known(sigma: float = 1e-3) -> Recode:
    return recoded(COUNTS, sigma)


def asked(sigma: float = 5.0) -> list[Query]:
    return [Query(c, 1, 1, sigma) for c in CLIQUES]


def test_the_marginal_that_departs_is_measured_and_the_others_are_not() -> None:
    weights = reselect_cliques(asked(), [2.0, 300.0, 1.0, 2.0], known(), FINE, 0.5, 1, remeasure_one_ways=True)
    assert next(iter(weights)) == ("a", "c")
    assert {c for c in weights if len(c) > 1} == {("a", "c")}
    triple = reselect_cliques(asked(), [2.0, 3.0, 1.0, 400.0], known(), FINE, 0.5, 1, remeasure_one_ways=True)
    assert {c for c in triple if len(c) > 1} == {("b", "c", "d")}


def test_weights_sum_to_one_and_larger_cliques_come_first() -> None:
    weights = reselect_cliques(
        asked(), [200.0, 300.0, 250.0, 400.0], known(15.0), FINE, 0.05, 1, remeasure_one_ways=True
    )
    sizes = [len(c) for c in weights]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert sizes[0] > 1 and sizes[-4:] == [1] * 4 and sizes == [s for s in sizes if s > 1] + [1] * 4
    alone = reselect_cliques(
        asked(), [200.0, 300.0, 250.0, 400.0], known(15.0), FINE, 0.05, 1, remeasure_one_ways=False
    )
    assert sum(alone.values()) == pytest.approx(1.0)
    assert min(map(len, alone)) > 1


def test_a_target_has_more_of_the_budget() -> None:
    plain, aimed = (
        reselect_cliques(asked(), [300.0] * 4, known(), FINE, 0.01, 1, remeasure_one_ways=False, targets=targets)
        for targets in (TargetWeights(), TargetWeights(frozenset("d"), 5.0))
    )
    assert aimed["b", "c", "d"] > 1.2 * plain["b", "c", "d"]


SIZES = Domain(("a", "b", "c", "d"), (2, 3, 4, 50))
FOUR = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]
RHO = 0.5  # sigma 1 for one marginal of one record a person


def test_the_largest_less_the_noise_that_measuring_has() -> None:
    distances = [100.0, 90.0, 80.0, 200.0]  # c, d has 200 cells: 200 sqrt(2 / pi) = 159.6 of noise
    assert choose_worst_marginals(FOUR, distances, 0.0, SIZES, 1, RHO, 1) == [("a", "b")]
    assert choose_worst_marginals(FOUR, distances, 0.0, SIZES, 2, 2 * RHO, 1) == FOUR[:2]
    assert choose_worst_marginals(FOUR, distances, 0.0, SIZES, 1, 100 * RHO, 1) == [("c", "d")]


def test_none_is_chosen_where_all_are_below_their_noise() -> None:
    noise = math.sqrt(2 / math.pi) * 3 * 6  # three records a person, six cells
    assert choose_worst_marginals([("a", "b")], [noise + 0.1], 0.0, SIZES, 1, RHO, 3) == [("a", "b")]
    assert choose_worst_marginals([("a", "b")], [noise - 0.1], 0.0, SIZES, 1, RHO, 3) == []
    assert choose_worst_marginals([], [], 0.0, SIZES, 3, RHO, 1) == []


@pytest.mark.parametrize(("rounds", "annealing", "scores"), [(1, 2.0, 0.1), (3, 1.0, 0.3), (16, 3.7, 0.9)])
def test_the_shares_of_all_rounds_are_the_whole_and_grow_as_said(rounds: int, annealing: float, scores: float) -> None:
    options = Aim(rounds=rounds, annealing=annealing, scores_share=scores, one_way_share=0.17)
    shares = [sum(each) for each in options.exact_rounds()]
    assert options.exact_one_ways() + sum(shares) == 1 and len(shares) == rounds
    assert all(float(b / a) == pytest.approx(annealing) for a, b in pairwise(shares))
    assert [Aim().at_once(d) for d in (1, 2, 5, 14)] == [1, 1, 3, 7]


def test_what_the_noise_of_the_distances_may_have_made_is_no_reason() -> None:
    chosen = [choose_worst_marginals(FOUR[:2], [100.0, 50.0], noise, SIZES, 2, RHO, 1) for noise in (10.0, 22.0, 50.0)]
    assert chosen == [FOUR[:2], FOUR[:1], []]


def test_weights_are_sizes_times_those_of_targets() -> None:
    cliques, distances = [("a", "b"), ("a", "b", "c")], [100.0, 85.0]  # less 4.8 and 19.1
    assert choose_worst_marginals(cliques, distances, 0.0, SIZES, 1, RHO, 1) == [("a", "b", "c")]  # 190.4 against 197.6
    focus = TargetWeights(named=((frozenset({"a", "b"}), 2.0),))
    assert choose_worst_marginals(cliques, distances, 0.0, SIZES, 1, RHO, 1, focus) == [("a", "b")]
