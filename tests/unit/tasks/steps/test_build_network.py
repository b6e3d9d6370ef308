"""The greedy network: its order, its bounds, and theta-usefulness as the paper defines it."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import compute_sigma
from privsyn.tasks.steps.draw_rows import build_bayesian_network, count_useful_cells

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 4, "d": 5, "e": 6})
SCORES = {
    ("a", "b"): 50.0,
    ("a", "c"): 30.0,
    ("b", "c"): 20.0,
    ("c", "d"): 10.0,
    ("a", "d"): 5.0,
    ("b", "d"): -4.0,
    ("d", "e"): -1.0,
}


def test_columns_join_by_the_summed_scores_of_their_parents() -> None:
    """By hand: a begins, b joins it (50), c joins both (50), d joins c and a (15); e is related to none."""
    assert build_bayesian_network(SCORES, DOMAIN, 3, 10**6) == [("a", "b"), ("a", "b", "c"), ("a", "c", "d")]


def test_the_degree_and_the_cells_bound_every_family() -> None:
    assert build_bayesian_network(SCORES, DOMAIN, 1, 10**6) == [("a", "b"), ("a", "c"), ("c", "d")]
    assert build_bayesian_network(SCORES, DOMAIN, 3, 12) == [
        ("a", "b"),
        ("a", "c"),
        ("a", "d"),
    ]  # b x c would fit, a is first
    assert build_bayesian_network(SCORES, DOMAIN, 3, 5) == []
    assert build_bayesian_network({}, DOMAIN, 3, 10**6) == []


def test_two_groups_without_a_relation_between_them_each_begin() -> None:
    scores = {("a", "b"): 1.0, ("d", "e"): 2.0, ("b", "d"): -1.0}
    assert build_bayesian_network(scores, DOMAIN, 2, 10**6) == [("d", "e"), ("a", "b")]


@pytest.mark.parametrize("seed", range(2))
def test_every_family_brings_one_new_column_and_no_cycle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    domain = Domain.of({f"x{i}": int(n) for i, n in enumerate(rng.integers(2, 9, 9))})
    pairs = list(combinations(domain.attributes, 2))
    scores = {p: float(s) for p, s in zip(pairs, rng.normal(2, 3, len(pairs)), strict=True)}
    families = build_bayesian_network(scores, domain, 2, 100)
    drawn: set[str] = set()
    for family in families:
        new = set(family) - drawn
        assert len(new) == 1 or (len(new) == 2 and len(family) == 2)  # a pair begins
        assert 2 <= len(family) <= 3 and domain.cells(family) <= 100
        drawn |= new
    assert len(set(families)) == len(families)
    assert families == build_bayesian_network(scores, domain, 2, 100)


def test_useful_cells_are_those_of_the_definition() -> None:
    """Mean count n / cells at least theta times the mean absolute noise, sqrt(2 / pi) sigma."""
    rho, families = Fraction(7, 100), 14
    sigma = compute_sigma(rho / families, 2)
    cells = count_useful_cells(30_000.0, families, rho, 2, 4.0)
    noise = np.sqrt(2 / np.pi) * sigma
    assert 30_000 / cells >= 4 * noise > 30_000 / (cells + 1)
    assert count_useful_cells(-5.0, families, rho, 1, 4.0) == 0
    assert count_useful_cells(30_000.0, 0, rho, 1, 4.0) > 0  # one column: there is no family
