"""The greedy network, theta-usefulness as the paper defines it, and rows along the network."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import compute_sigma
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps.draw_rows import build_bayesian_network, count_useful_cells, draw_ancestral_rows

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


def test_useful_cells_are_those_of_the_definition() -> None:
    """Mean count n / cells at least theta times the mean absolute noise, sqrt(2 / pi) sigma."""
    rho, families = Fraction(7, 100), 14
    sigma = compute_sigma(rho / families, 2)
    cells = count_useful_cells(30_000.0, families, rho, 2, 4.0)
    noise = np.sqrt(2 / np.pi) * sigma
    assert 30_000 / cells >= 4 * noise > 30_000 / (cells + 1)
    assert count_useful_cells(-5.0, families, rho, 1, 4.0) == 0
    assert count_useful_cells(30_000.0, 0, rho, 1, 4.0) > 0  # one column: there is no family


DRAWN = Domain.of({"a": 2, "b": 3, "c": 2, "d": 4})
ONES = {"a": np.array([300.0, 100.0]), "b": np.ones(3), "c": np.ones(2), "d": np.array([10.0, 0.0, 30.0, -5.0])}
ROWS = 40_000


def shares(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum()


def families(seed: int = 0) -> list[Marginal]:
    rng = np.random.default_rng(seed)
    return [Marginal(("a", "b"), rng.uniform(1, 9, (2, 3))), Marginal(("a", "b", "c"), rng.uniform(1, 9, (2, 3, 2)))]


def test_rows_have_the_network_s_distribution() -> None:
    ab, abc = families()
    made = draw_ancestral_rows([ab, abc], ONES, DRAWN, ROWS, 1)
    given_a = ab.counts / ab.counts.sum(axis=1, keepdims=True)
    given_ab = abc.counts / abc.counts.sum(axis=2, keepdims=True)
    joint = (shares(ONES["a"])[:, None] * given_a)[:, :, None] * given_ab
    assert count(made, ("a", "b", "c")) / ROWS == pytest.approx(joint, abs=1e-3)
    apart = joint.sum(axis=(1, 2))[:, None] * shares(np.maximum(ONES["d"], 0))
    assert count(made, ("a", "d")) / ROWS == pytest.approx(apart, abs=0.01)  # d is in no family


def test_negative_counts_are_none_and_a_row_without_counts_follows_the_one_way() -> None:
    family = Marginal(("c", "d"), np.array([[-4.0, 8.0, -1.0, 0.0], [-9.0, -1.0, -2.0, 0.0]]))
    made = draw_ancestral_rows([family], ONES, DRAWN, 4_000, 2)
    found = count(made, ("c", "d"))
    assert found[0].tolist() == [0, 2_000, 0, 0]
    assert found[1].tolist() == [500, 0, 1_500, 0]


def test_a_seed_gives_one_table_and_no_rows_are_no_error() -> None:
    def made(seed: int, rows: int = 500) -> CodeTable:
        return draw_ancestral_rows(families(), ONES, DRAWN, rows, seed)

    assert all(np.array_equal(x, y) for x, y in zip(made(1).columns, made(1).columns, strict=True))
    assert not np.array_equal(made(1).columns[1], made(2).columns[1])
    assert made(1, 0).rows == 0
