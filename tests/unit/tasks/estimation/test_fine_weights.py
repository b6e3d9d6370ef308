"""The share of each fine code inside its coarse code."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.fine_weights import weigh_inside

GROUPS = np.array([0, 1, 2, 3], dtype=np.int32)
COARSE = np.array([0, 0, 0, 1], dtype=np.int32)


def test_counts_without_noise_keep_their_shares() -> None:
    weights = weigh_inside(np.array([10.0, 30.0, 60.0, 5.0]), 0.0, GROUPS, COARSE)
    assert weights == pytest.approx([0.1, 0.3, 0.6, 1.0])


def test_residuals_no_larger_than_the_noise_are_spread_evenly() -> None:
    weights = weigh_inside(np.array([99.0, 100.0, 101.0, 5.0]), 50.0, GROUPS, COARSE)
    assert weights == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])


def test_a_bin_that_stands_out_takes_nothing_from_noise_below_zero() -> None:
    weights = weigh_inside(np.array([-4.0, 100.0, 4.0, 5.0]), 1.0, GROUPS, COARSE)
    assert weights[0] == 0
    assert weights[1] == pytest.approx(0.98)
