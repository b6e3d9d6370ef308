"""Grids: the multiples of a step, as exact fractions, so that 3 steps of 0.1 are exactly the number 0.3."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_EXACT_STEPS = 2.0**52
"""Numbers of steps below this are exact as floats."""


@lru_cache(maxsize=1 << 16)
def _compute_first_step(numerator: int, denominator: int, low: float, above: bool) -> int:
    """Return :meth:`Grid.first`, cached because a release asks for the same edges again and again.

    Takes the step as two integers, because hashing a fraction takes longer than the rest of a cached call.
    """
    steps = Fraction(repr(low)) * Fraction(denominator, numerator)
    return floor(steps) + 1 if above else ceil(steps)


@dataclass(frozen=True)
class Grid:
    """The multiples of ``step`` > 0, counted from 0."""

    step: Fraction

    @classmethod
    def of(cls, step: float) -> Grid:
        """Return the grid of a decimal step."""
        return cls(Fraction(repr(step)))

    def first(self, low: float, *, above: bool = False) -> int:
        """Return the number of the first multiple at or above ``low``; with ``above``, strictly above."""
        return _compute_first_step(self.step.numerator, self.step.denominator, float(low), above)

    def value(self, number: Any) -> Any:
        """Return the multiples with these numbers (one, or an array of floats), each as its nearest float."""
        return number * float(self.step.numerator) / float(self.step.denominator)

    def below(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest multiple at or below each number; numbers too large for one stay."""
        with np.errstate(all="ignore"):
            steps = np.floor(numbers * float(self.step.denominator) / float(self.step.numerator))
            steps = np.where(self.value(steps + 1) <= numbers, steps + 1, steps)
            steps = np.where(self.value(steps) > numbers, steps - 1, steps)
            return np.where(np.abs(steps) < MAX_EXACT_STEPS, self.value(steps), numbers)

    def divides(self, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether each number is a multiple; NaN is not."""
        return np.asarray(self.below(numbers) == numbers) & (np.abs(numbers) < MAX_EXACT_STEPS)


def find_next_value(value: float, grid: Grid | None) -> float:
    """Return the next multiple of the grid, or the next float."""
    return float(np.nextafter(value, np.inf) if grid is None else grid.value(grid.first(value, above=True)))
