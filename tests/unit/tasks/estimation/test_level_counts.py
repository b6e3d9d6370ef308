"""Counts of all levels as one set of counts: least squares, and sums that agree level by level."""

from __future__ import annotations

import numpy as np

from privsyn.tasks.estimation.recode import combine_by_levels, make_levels_agree

COUNTY = np.array([0, 0, 1, 1, 1, 2, 3, 3])
STATE = np.array([0, 0, 0, 0, 0, 1, 1, 1])


def test_counts_agree_level_by_level_and_are_the_least_squares() -> None:
    rng = np.random.default_rng(0)
    streets, counties, states = rng.normal(50, 30, 8), rng.normal(150, 40, 4), rng.normal(300, 50, 2)
    found = make_levels_agree(streets, 9.0, [(STATE, states, 25.0), (COUNTY, counties, 4.0)])
    rows = [np.eye(8) / 3.0, (np.arange(2)[:, None] == STATE) / 5.0, (np.arange(4)[:, None] == COUNTY) / 2.0]
    wanted = np.concatenate([streets / 3.0, states / 5.0, counties / 2.0])
    assert np.allclose(found, np.linalg.lstsq(np.vstack(rows), wanted, rcond=None)[0])


def test_a_sure_level_is_kept_and_what_is_missing_is_shared_below() -> None:
    found = make_levels_agree(np.arange(8.0), 1.0, [(STATE, np.array([100.0, 40.0]), 1e-9), (COUNTY, np.zeros(4), 1e9)])
    assert np.allclose(np.bincount(STATE, weights=found), [100, 40])
    assert np.allclose(np.diff(found[STATE == 0]), 1), "every street of a state takes as much"


def test_few_values_share_a_code_with_their_county_else_with_their_state() -> None:
    counts = np.array([90.0, 5, 30, 30, 9, 20, 15, 20])
    shared = combine_by_levels(counts, counts < 50, 50.0, [STATE, COUNTY])
    assert shared.tolist() == [-1, -1, 0, 0, 0, 1, 1, 1]
    assert (combine_by_levels(counts, counts < 50, 50.0, []) == -1).all()
