"""Projections by hand."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.marginals import rake


def test_raked_counts_have_the_sums_and_keep_zeros_and_odds() -> None:
    counts = np.array([[8.0, 0.0, 2.0], [4.0, 6.0, 4.0]])
    parts = [np.array([30.0, 20.0, 10.0]), np.array([24.0, 36.0])]
    found = rake(counts, parts, 1e-9)
    for axis, part in enumerate(parts):
        assert found.sum(axis=axis) == pytest.approx(part, rel=1e-6)
    assert found[0, 1] == 0
    odds = counts[0, 0] * counts[1, 2] / (counts[0, 2] * counts[1, 0])
    assert found[0, 0] * found[1, 2] / (found[0, 2] * found[1, 0]) == pytest.approx(odds)


def test_raked_counts_of_three_attributes_have_the_sums_over_each() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.gamma(2.0, 50.0, (2, 3, 4))
    found = rake(np.ones((2, 3, 4)), [wanted.sum(axis=axis) for axis in range(3)])
    for axis in range(3):
        assert found.sum(axis=axis) == pytest.approx(wanted.sum(axis=axis), rel=1e-2)
