"""Low intervals combined with their neighbours."""

from __future__ import annotations

import numpy as np

from privsyn.tasks.estimation.recode import mark_first_of_intervals


def _firsts(total: list[float], theta: float, worth_a_code: float = 0.0) -> list[bool]:
    counts = np.array(total)
    return mark_first_of_intervals(counts, counts < theta, theta, np.ones(len(counts)), worth_a_code).tolist()


def test_intervals_that_reach_the_threshold_begin_codes() -> None:
    assert _firsts([10, 20, 30], theta=5) == [True, True, True]


def test_low_neighbours_are_combined_until_they_reach_the_threshold() -> None:
    assert _firsts([3, 3, 3, 3, 20], theta=5) == [True, False, True, False, True]


def test_what_is_left_of_a_run_goes_with_those_before() -> None:
    assert _firsts([3, 3, 3, 20], theta=5) == [True, False, False, True]


def test_low_intervals_below_the_worth_of_a_code_join_the_nearest() -> None:
    assert _firsts([20, 3, 20], theta=5, worth_a_code=4) == [True, False, True]


def test_a_section_without_a_code_of_its_own_is_one_code() -> None:
    assert _firsts([0, 0, 0], theta=5) == [True, False, False]
