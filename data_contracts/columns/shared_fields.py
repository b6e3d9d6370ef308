"""Fields shared by columns of several kinds, and grids.

A grid is the multiples of a step, as exact fractions, so that 3 steps of 0.1 are exactly the number 0.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor, inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel

MAX_EXACT_STEPS = 2.0**52
"""Numbers of steps below this are exact as floats."""


@lru_cache(maxsize=1 << 16)
def _compute_first_step(numerator: int, denominator: int, low: float, above: bool) -> int:
    """Return :meth:`Grid.first` of a step in two integers, which hash fast; edges are asked for again and again."""
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


DEFAULT_BINS = 32
"""Bins of a numeric column with neither ``bins`` nor ``edges`` in the spec."""


MOST_EXACT = 100
"""The most values of a column with their own bin."""

EXACT = "Values with their own bin, such as 0 or 99999, inside the bounds or not."


class Described(FrozenModel):
    """The fields of every column."""

    description: str = Field(default="", description="Free text for the release's note.")


class Nullable(Described):
    """The fields of every column with values."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"measured"})

    nullable: bool = Field(
        default=False,
        description="Null is a value. Otherwise nulls are repaired as the kind says.",
    )
    measured: bool = Field(
        default=True,
        description="`false`: the private column is never read; values are drawn evenly from the domain.",
    )


class Binned(Nullable):
    """Shared by the kinds with an order: numbers, dates and times."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = Nullable.OMITTED_AT_DEFAULT | {"exact"}

    unit: str = Field(default="", description="Unit of measurement, for the release's note.")
    bins: int | None = Field(default=None, ge=1, le=10_000, description="Number of equal-width bins in joint counts.")

    @property
    def leaves_bins_open(self) -> bool:
        """Whether the spec gives neither bins nor edges: joint counts may use the codes that the noise allows."""
        return self.bins is None and getattr(self, "edges", None) is None

    def edge_values(self) -> tuple[float, ...]:
        """Return the bin edges as numbers, ascending, length ``number of bins + 1`` (closed at the top)."""
        raise NotImplementedError

    def exact_values(self) -> tuple[float, ...]:
        """Return the values with their own bin, in the numbers of :meth:`edge_values`, ascending."""
        return ()

    def grid(self) -> Grid | None:
        """Return the grid of all released values except exact ones; None if there is none."""
        return None

    @property
    def closed(self) -> bool:
        """Whether the last bin includes its upper edge: on a grid, that is the first value after the largest."""
        return self.grid() is None

    @model_validator(mode="after")
    def _check_edges(self) -> Binned:
        edges = getattr(self, "edges", None)
        if edges is not None and self.bins is not None:
            raise FieldError("give either `bins` or `edges`, not both")
        values = self.edge_values()
        if edges is not None and len(values) < 2:
            raise FieldError("`edges` must name both ends, `min` first and `max` last")
        if not all(0 < b - a < inf for a, b in pairwise(values)):  # written so that NaN, from far bounds, is refused
            raise self._describe_bad_edges(values)
        low, high = (getattr(self, bound, None) for bound in ("min", "max"))
        if low is not None and high is not None and low > high:
            raise self._describe_bad_edges(values)
        if edges is not None and (edges[:1] != (low,) or edges[-1:] != (high,)):
            raise FieldError("`edges` must start at `min` and end at `max`")
        exact = getattr(self, "exact", ())
        if len(exact) > MOST_EXACT:
            raise FieldError(f"`exact` has at most {MOST_EXACT} values", "Use `edges` for the others")
        twice = next((value for i, value in enumerate(exact) if value in exact[:i]), None)
        if twice is not None:
            raise FieldError(f"`exact` names {twice} twice", "Remove one")
        return self

    def _describe_bad_edges(self, values: tuple[float, ...]) -> FieldError:
        low, high = getattr(self, "min", None), getattr(self, "max", None)
        if low is not None and low == high:
            return FieldError(
                f"`min` and `max` are both {_format_bound(low)}",
                "Widen them; a column that has one value only is `kind: categorical` with that value",
            )
        if low is not None and high is not None and low > high:
            return FieldError(
                f"`min` ({_format_bound(low)}) is greater than `max` ({_format_bound(high)})", "Swap them"
            )
        return FieldError("`edges` must be strictly ascending, `min` less than `max`, and no bin empty or endless")


def _format_bound(value: Any) -> str:
    """Return a bound as people write it: whole floats without the point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
