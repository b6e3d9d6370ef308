"""Blocks that rules tie, and one-ways that agree on them."""

from __future__ import annotations

import numpy as np

from privsyn.tasks.estimation.known_zeros import KnownZeros, label_blocks
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.steps.make_consistent import make_consistent


def test_blocks_are_the_connected_parts() -> None:
    allowed = np.array([[1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 0, 0]], bool)
    found = label_blocks(~allowed)
    assert found is not None
    assert [side.tolist() for side in found] == [[0, 1, 1, 2], [0, 1, 1]]
    assert label_blocks(np.array([[False, True], [False, False]])) is None


def test_one_ways_that_no_pair_joins_agree_on_their_blocks() -> None:
    """Below 15 (the first two ages) the status is null (code 0): 50 rows by one column, 40 by the other, as sure."""
    nulls = np.array([[0, 1, 1], [0, 1, 1], [1, 0, 0]], bool)
    zeros = KnownZeros((), ((("age", "status"), nulls),))
    ages, statuses = np.array([20.0, 30.0, 50.0]), np.array([40.0, 30.0, 30.0])
    ones = [Marginal(("age",), ages), Marginal(("status",), statuses)]
    variance = [np.array([1.0, 1.0, 2.0]), np.array([2.0, 1.0, 1.0])]
    age, status = (m.counts for m in make_consistent(ones, variance, [], [], 50, zeros=zeros))
    np.testing.assert_allclose(age, [17.5, 27.5, 55.0])
    np.testing.assert_allclose(status, [45.0, 27.5, 27.5])
    age, status = (m.counts for m in make_consistent(ones, variance, [], [], 50))
    np.testing.assert_allclose(age, ages)
