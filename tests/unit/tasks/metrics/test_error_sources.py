"""Errors after each stage, on tables small enough to work out by hand."""

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.error_sources import (
    compute_clique_errors,
    compute_dependency,
    compute_expected_l1,
    compute_pair_errors,
    recode_codes,
    sum_bin_noise,
)

FINE = Domain.of({"a": 3, "b": 2})


def recode(coarse: list[int], kept: list[bool], variance: float = 4.0) -> AttributeRecode:
    n = len(coarse)
    return AttributeRecode(
        np.array(coarse, np.int32), np.array(kept), np.ones(n), np.ones(n), np.full(n, variance)
    )  # fmt: skip


RECODE = {"a": recode([0, 1, 2], [True, True, False]), "b": recode([0, 1], [True, True])}
"""The third value of a is filtered: its coarse code is 2, the size of the compressed attribute."""


def table(*rows: tuple[int, int]) -> CodeTable:
    columns = np.array(rows, np.uint8).reshape(-1, 2)
    return CodeTable(FINE, tuple(np.ascontiguousarray(columns[:, i]) for i in range(2)))


REAL = recode_codes(table((0, 0), (0, 1), (1, 1), (2, 1)), RECODE)
MADE = recode_codes(table((0, 0), (0, 0), (1, 1), (1, 1)), RECODE)
CLIQUE = ("a", "b")


def test_each_stage_by_hand() -> None:
    # real shares: 00 1/4, 01 1/4, 11 1/4 and the filtered row 1/4; synthetic: 00 1/2, 11 1/2
    noisy = Marginal(CLIQUE, np.array([[2.0, -1.0], [0.0, 3.0]]))  # over the total 4: 1/2, -1/4, 0, 3/4
    consistent = Marginal(CLIQUE, np.array([[1.0, 1.0], [0.0, 2.0]]))  # 1/4, 1/4, 0, 1/2
    (error,) = compute_clique_errors(REAL, MADE, [noisy], [consistent])
    assert error.measured == pytest.approx(1 / 4 + 2 / 4 + 0 + 2 / 4 + 1 / 4)
    assert error.consistent == pytest.approx(0 + 0 + 0 + 1 / 4 + 1 / 4)
    assert error.synthetic == pytest.approx(1 / 4 + 1 / 4 + 0 + 1 / 4 + 1 / 4)


def test_a_pair_inside_a_larger_marginal_is_projected() -> None:
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    recodes = {n: recode([0, 1], [True, True]) for n in domain.attributes}
    rows = np.array([[0, 0, 0], [1, 1, 1]], np.uint8)
    real = recode_codes(CodeTable(domain, tuple(np.ascontiguousarray(rows[:, i]) for i in range(3))), recodes)
    counts = np.zeros((2, 2, 2))
    counts[0, 0, 1] = counts[1, 1, 0] = 1.0  # right on (a, b), wrong on the pairs with c
    errors = compute_pair_errors(real, real, [Marginal(("a", "b", "c"), counts), Marginal(("a",), counts.sum((1, 2)))])
    assert set(errors) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert errors["a", "b"].consistent == 0.0
    assert errors["a", "c"].consistent == errors["a", "c"].synthesis == pytest.approx(2.0)


def test_dependency_is_the_distance_to_independence() -> None:
    # shares .5 on the diagonal against .25 everywhere: 4 x .25
    diagonal = recode_codes(table((0, 0), (1, 1)), RECODE)
    assert compute_dependency(diagonal, [CLIQUE]) == pytest.approx([1.0])
    independent = recode_codes(table((0, 0), (0, 1), (1, 0), (1, 1)), RECODE)
    assert compute_dependency(independent, [CLIQUE]) == pytest.approx([0.0])


def test_noise_of_a_bin_is_that_of_its_cells_together() -> None:
    noise = sum_bin_noise(RECODE, {"a": np.array([0, 0, 1], np.int32), "b": np.array([0, 1], np.int32)})
    assert noise["a"] == pytest.approx([np.sqrt(8.0), 2.0])
    draws = np.random.default_rng(0).standard_normal((40_000, 2)) * noise["a"]
    assert compute_expected_l1(noise["a"]) == pytest.approx(np.abs(draws).sum(axis=1).mean(), rel=0.02)


def test_no_rows_and_no_marginals() -> None:
    empty = recode_codes(table(), RECODE)
    assert compute_clique_errors(empty, empty, [], []) == []
    assert compute_pair_errors(empty, empty, []) == {}
    nothing = Marginal(CLIQUE, np.zeros((2, 2)))
    (error,) = compute_clique_errors(empty, empty, [nothing], [nothing])
    assert error.synthetic == error.measured == 0.0
