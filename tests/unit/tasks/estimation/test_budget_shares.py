"""Shares by size: equation (1) against brute force, and exact sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from privsyn.tasks.estimation.expected_error import compute_size_weight, split_by_weight


def test_allocation_is_the_lagrangian_solution() -> None:
    """Equation (1) beats every perturbation that keeps the sum: the stationary point is the minimum."""
    cells = [4, 100, 2_500, 30]
    shares = split_by_weight([compute_size_weight(c) for c in cells], Fraction(7, 10))
    assert sum(shares) == Fraction(7, 10)

    def noise(rhos: np.ndarray) -> float:
        return float(sum(c / math.sqrt(math.pi * r) for c, r in zip(cells, rhos, strict=True)))

    best = np.array([float(s) for s in shares])
    gradients = np.array(cells) * best**-1.5  # equal at the optimum: the Lagrange multiplier
    assert gradients == pytest.approx(np.full(4, gradients[0]), rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(100):
        step = rng.normal(size=4)
        step -= step.mean()
        assert noise(best) <= noise(best + 1e-3 * step * best.min())


def test_equal_weights_share_equally_and_any_weights_sum_exactly() -> None:
    assert split_by_weight([3.0, 3.0, 3.0], Fraction(1, 7)) == [Fraction(1, 21)] * 3
    weights = np.random.default_rng(1).random(50) + 1e-3
    shares = split_by_weight(weights.tolist(), Fraction(3, 11))
    assert sum(shares) == Fraction(3, 11)
    assert [float(s) for s in shares] == pytest.approx(weights / weights.sum() * 3 / 11, rel=1e-8)
