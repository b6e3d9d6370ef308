"""Rows along a network: the product of its conditional shares, from counts as they were measured."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps.draw_rows import draw_ancestral_rows

DOMAIN = Domain.of({"a": 2, "b": 3, "c": 2, "d": 4})
ONES = {"a": np.array([300.0, 100.0]), "b": np.ones(3), "c": np.ones(2), "d": np.array([10.0, 0.0, 30.0, -5.0])}
ROWS = 40_000


def shares(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum()


def families(seed: int = 0) -> list[Marginal]:
    rng = np.random.default_rng(seed)
    return [Marginal(("a", "b"), rng.uniform(1, 9, (2, 3))), Marginal(("a", "b", "c"), rng.uniform(1, 9, (2, 3, 2)))]


def test_rows_have_the_network_s_distribution() -> None:
    ab, abc = families()
    made = draw_ancestral_rows([ab, abc], ONES, DOMAIN, ROWS, 1)
    given_a = ab.counts / ab.counts.sum(axis=1, keepdims=True)
    given_ab = abc.counts / abc.counts.sum(axis=2, keepdims=True)
    joint = (shares(ONES["a"])[:, None] * given_a)[:, :, None] * given_ab
    assert count(made, ("a", "b", "c")) / ROWS == pytest.approx(joint, abs=1e-3)
    apart = joint.sum(axis=(1, 2))[:, None] * shares(np.maximum(ONES["d"], 0))
    assert count(made, ("a", "d")) / ROWS == pytest.approx(apart, abs=0.01)  # d is in no family


def test_negative_counts_are_none_and_a_row_without_counts_follows_the_one_way() -> None:
    family = Marginal(("c", "d"), np.array([[-4.0, 8.0, -1.0, 0.0], [-9.0, -1.0, -2.0, 0.0]]))
    made = draw_ancestral_rows([family], ONES, DOMAIN, 4_000, 2)
    found = count(made, ("c", "d"))
    assert found[0].tolist() == [0, 2_000, 0, 0]
    assert found[1].tolist() == [500, 0, 1_500, 0]


def test_two_new_columns_of_one_family_keep_their_joint_shares() -> None:
    three = families()[1]
    chain = [Marginal(("a", "d"), np.array([[1.0, 2, 3, 4], [4, 3, 2, 1]])), three]
    made = draw_ancestral_rows(chain, ONES, DOMAIN, ROWS, 3)
    given_a = three.counts / three.counts.sum(axis=(1, 2), keepdims=True)
    joint = shares(ONES["a"])[:, None, None] * given_a
    assert count(made, ("a", "b", "c")) / ROWS == pytest.approx(joint, abs=1e-3)


def test_a_seed_gives_one_table_and_no_rows_are_no_error() -> None:
    def made(seed: int, rows: int = 500) -> CodeTable:
        return draw_ancestral_rows(families(), ONES, DOMAIN, rows, seed)

    assert all(np.array_equal(x, y) for x, y in zip(made(1).columns, made(1).columns, strict=True))
    assert not np.array_equal(made(1).columns[1], made(2).columns[1])
    assert made(1, 0).rows == 0
