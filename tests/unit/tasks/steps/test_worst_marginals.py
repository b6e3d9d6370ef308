"""What a round of `aim` measures, by hand-made distances."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Aim
from privsyn.tasks.estimation.expected_error import TargetWeights
from privsyn.tasks.steps.score_columns import choose_worst_marginals

DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 4, 50))
PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]
RHO = 0.5  # sigma 1 for one marginal of one record a person


def test_the_largest_less_the_noise_that_measuring_has() -> None:
    distances = [100.0, 90.0, 80.0, 200.0]  # c, d has 200 cells: 200 sqrt(2 / pi) = 159.6 of noise
    assert choose_worst_marginals(PAIRS, distances, 0.0, DOMAIN, 1, RHO, 1) == [("a", "b")]
    assert choose_worst_marginals(PAIRS, distances, 0.0, DOMAIN, 2, 2 * RHO, 1) == PAIRS[:2]
    assert choose_worst_marginals(PAIRS, distances, 0.0, DOMAIN, 1, 100 * RHO, 1) == [("c", "d")]


def test_none_is_chosen_where_all_are_below_their_noise() -> None:
    noise = math.sqrt(2 / math.pi) * 3 * 6  # three records a person, six cells
    assert choose_worst_marginals([("a", "b")], [noise + 0.1], 0.0, DOMAIN, 1, RHO, 3) == [("a", "b")]
    assert choose_worst_marginals([("a", "b")], [noise - 0.1], 0.0, DOMAIN, 1, RHO, 3) == []
    assert choose_worst_marginals([], [], 0.0, DOMAIN, 3, RHO, 1) == []


def test_what_the_noise_of_the_distances_may_have_made_is_no_reason() -> None:
    chosen = [
        choose_worst_marginals(PAIRS[:2], [100.0, 50.0], noise, DOMAIN, 2, RHO, 1) for noise in (10.0, 22.0, 50.0)
    ]
    assert chosen == [PAIRS[:2], PAIRS[:1], []]


def test_weights_are_sizes_times_those_of_targets() -> None:
    cliques, distances = [("a", "b"), ("a", "b", "c")], [100.0, 85.0]  # less 4.8 and 19.1
    assert choose_worst_marginals(cliques, distances, 0.0, DOMAIN, 1, RHO, 1) == [
        ("a", "b", "c")
    ]  # 190.4 against 197.6
    focus = TargetWeights(named=((frozenset({"a", "b"}), 2.0),))
    assert choose_worst_marginals(cliques, distances, 0.0, DOMAIN, 1, RHO, 1, focus) == [("a", "b")]


@pytest.mark.parametrize(("rounds", "annealing", "scores"), [(1, 2.0, 0.1), (3, 1.0, 0.3), (16, 3.7, 0.9)])
def test_the_shares_of_all_rounds_are_the_whole_and_grow_as_said(rounds: int, annealing: float, scores: float) -> None:
    options = Aim(rounds=rounds, annealing=annealing, scores_share=scores, one_way_share=0.17)
    shares = [sum(each) for each in options.exact_rounds()]
    assert options.exact_one_ways() + sum(shares) == 1 and len(shares) == rounds
    assert all(float(b / a) == pytest.approx(annealing) for a, b in pairwise(shares))
    assert [Aim().at_once(d) for d in (1, 2, 5, 14)] == [1, 1, 3, 7]
