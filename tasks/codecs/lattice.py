"""The lattice of an ordered column: its values as integers, in units of the column's resolution.

*Encode* stores these numbers next to the codes, so that looks inside codes need not read the private table again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import frexp

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns.grid import Grid
from privsyn.data_contracts.domain import choose_code_dtype

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BITS_OF_REALS = 40
"""Reals without a resolution get 2^-40 of the larger bound."""

_LARGEST, _WIDEST = 1 << 52, 900
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Lattice:
    """The numbers 0 .. ``last - first`` of the multiples inside the bounds, then one for each exact value.

    ``grid``: the multiples; None if floats cannot tell them apart, so that every float has a number.  ``first`` and
    ``last``: the multiples, or floats, at the bounds.
    """

    grid: Grid | None
    first: int
    last: int
    exact: tuple[float, ...] = ()

    @classmethod
    def of(cls, low: float, high: float, grid: Grid | None, exact: Sequence[float] = ()) -> Lattice:
        """Return the lattice between two bounds; ``grid``: the column's resolution, None for reals without one."""
        exponent = frexp(max(abs(low), abs(high)))[1]
        if grid is None and abs(exponent) < _WIDEST:
            grid = Grid(Fraction(2) ** (exponent - BITS_OF_REALS))
        if grid is not None:
            first, last = (grid.first(bound, above=True) - 1 for bound in (low, high))  # at or below each bound
            if max(abs(first), abs(last)) < _LARGEST:
                return cls(grid, first, last, tuple(exact))
        return cls.of_floats(low, high, exact)

    @classmethod
    def of_floats(cls, low: float, high: float, exact: Sequence[float] = ()) -> Lattice:
        """Return the lattice of all floats between two bounds, which reads values back exactly."""
        first, last = (int(number) for number in _number_floats(np.array([low, high])))
        return cls(None, first, last, tuple(exact))

    @property
    def size(self) -> int:
        """Number of lattice numbers."""
        return self.last - self.first + 1 + len(self.exact)

    def number(self, values: Floats, exact: Integers) -> pa.Array:
        """Return the number of each value inside the bounds, null for NaN, in the smallest type; shape (rows,).

        A value between two multiples gets the lower one's number.  ``exact``: the index of each value's exact value, -1
        for other values.
        """
        missing = np.isnan(values) & (exact < 0)
        inside = np.where(np.isnan(values), 0.0, values)
        if self.grid is None:
            offset = _number_floats(inside) - np.uint64(self.first)
        else:
            step = self.grid.step
            steps = np.rint(self.grid.below(inside) * float(step.denominator) / float(step.numerator))
            offset = (np.clip(steps, self.first, self.last) - self.first).astype(np.uint64)
        after = np.maximum(exact, 0).astype(np.uint64) + np.uint64(self.last - self.first + 1)
        numbers = np.where(exact >= 0, after, offset)
        return pa.array(np.where(missing, np.uint64(0), numbers).astype(choose_code_dtype(self.size)), mask=missing)

    def find_multiples(self, numbers: pa.Array) -> tuple[Integers, NDArray[np.bool_]]:
        """Return the multiple of each number, and which numbers are multiples: neither null nor exact."""
        offset = np.asarray(numbers.fill_null(0)).astype(np.uint64)
        is_multiple = np.asarray(numbers.is_valid()) & (offset <= np.uint64(self.last - self.first))
        if self.grid is None:
            return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), bool)
        return np.where(is_multiple, offset, np.uint64(0)).astype(np.int64) + self.first, is_multiple

    def read(self, numbers: pa.Array) -> pa.Array:
        """Return the values of the numbers as floats, null for null; shape (rows,)."""
        offset = np.asarray(numbers.fill_null(0)).astype(np.uint64)
        is_exact = offset > np.uint64(self.last - self.first)
        inside = np.where(is_exact, np.uint64(0), offset)
        if self.grid is None:
            values = _read_floats(inside + np.uint64(self.first))
        else:
            values = np.asarray(self.grid.value(inside.astype(np.float64) + self.first))
        if self.exact:
            place = (offset - np.uint64(self.last - self.first + 1)).astype(np.int64)
            values = np.where(is_exact, np.array(self.exact)[np.where(is_exact, place, 0)], values)
        return pa.array(values, mask=~np.asarray(numbers.is_valid()))


def _number_floats(values: Floats) -> NDArray[np.uint64]:
    """Return integers that sort like the floats; -0.0 equals 0.0."""
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _read_floats(numbers: NDArray[np.uint64]) -> Floats:
    """Return the floats with these numbers."""
    return np.where(numbers & _SIGN, numbers ^ _SIGN, ~numbers).view(np.float64)
