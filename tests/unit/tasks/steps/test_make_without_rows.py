"""Persons without rows: weights of those that they are made like."""

from __future__ import annotations

import warnings

import numpy as np

from privsyn.tasks.steps.draw_records import _limit_weight, rake


def test_of_nobody_there_are_no_weights_and_no_warning() -> None:
    """Where no person has rows, none can be like another."""
    nobody = np.empty(0, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rake([nobody], [np.array([2.0, 3.0])], _limit_weight).size == 0


def test_weights_sum_to_what_is_wanted_of_each_code() -> None:
    weights = rake([np.array([0, 0, 1])], [np.array([1.0, 4.0])], _limit_weight)
    assert np.allclose(np.bincount([0, 0, 1], weights=weights), [1.0, 4.0])
