"""Codec of the difference of two columns of a row: 0 alone, and cells whose widths double away from 0.

It writes a separate, unreleased attribute.  So whether one value is below, equal to or above the other, and by how
much, is measured like any column; :mod:`privsyn.tasks.steps.decode` keeps it in the rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.data_contracts.spec_checks import name_difference_attribute
from privsyn.tasks.codecs.codec import Codes, Columns, UnreleasedCodec
from privsyn.tasks.codecs.ordered import OrderedCodec

Floats = NDArray[np.float64]

STEPS_WITHOUT_GRID = 4_096
"""Steps in the range of a difference if the values have no grid."""


class DifferenceCodec(UnreleasedCodec):
    """Codes of ``first`` minus ``second``: negative differences, largest first, then 0, positive ones, and missing.

    ``step``: of the values, None without a grid.  A cell holds the sizes from 2^i to below 2^(i+1) steps.
    """

    kind = "difference"

    def __init__(self, first: OrderedCodec, second: OrderedCodec, step: float | None) -> None:
        self.first, self.second = first, second
        (low, high), (least, most) = first.bounds, second.bounds
        span = max(high - least, most - low, 0.0)
        self._rounds = step is not None
        self.step = step if step is not None else max(span, 1e-300) / STEPS_WITHOUT_GRID
        self._widths = int(np.floor(np.log2(max(span / self.step, 1.0)))) + 1
        self.zero = self._widths
        self.missing = 2 * self._widths + 1
        ends = [(2.0**i * self.step, 2.0 ** (i + 1) * self.step) for i in range(self._widths)]
        above = [f"{low:g} to below {high:g}" for low, high in ends]
        below = [f"above -{high:g} to -{low:g}" for low, high in reversed(ends)]
        attribute = name_difference_attribute(first.attribute, second.attribute)
        super().__init__(attribute, (*first.sources, *second.sources), [*below, "0", *above, "(missing)"])
        self.in_order = ((0, self.zero), (self.zero + 1, self.missing))

    @property
    def signs(self) -> Floats:
        """Each code's sign, shape (size,); 2 for the missing code."""
        return np.append(np.sign(np.arange(self.missing) - self.zero), 2).astype(np.float64)

    def find_codes(self, first: Floats, second: Floats) -> NDArray[np.int64]:
        """Return the code of each difference, shape (rows,); NaN is missing."""
        steps = (first - second) / self.step
        steps = np.round(steps) if self._rounds else steps
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.clip(np.floor(np.log2(np.abs(steps))), 0, self._widths - 1)
        codes = np.where(steps < 0, self.zero - 1 - place, np.where(steps > 0, self.zero + 1 + place, self.zero))
        return np.where(np.isnan(steps), self.missing, codes).astype(np.int64)

    def derive(self, columns: Columns) -> NDArray[np.int64]:
        """See :class:`UnreleasedCodec`."""
        return self.find_codes(*(codec.count_numbers(columns[codec.attribute]) for codec in (self.first, self.second)))

    def round(self, numbers: Floats) -> Floats:
        """Return numbers rounded to the values' grid, if there is one."""
        if not self._rounds:
            return numbers
        return np.asarray(Grid.of(self.step).value(np.round(numbers / self.step)))

    def draw(self, codes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Return a difference for each code, shape (rows,), drawn uniformly from its cell; no code may be missing."""
        place = np.where(codes < self.zero, self.zero - 1 - codes, codes - self.zero - 1)
        steps = 2.0 ** np.maximum(place, 0) * (1 + rng.random(len(codes)))
        steps = np.floor(steps) if self._rounds else steps
        return np.sign(codes - self.zero) * steps * self.step

    def decode_at(self, codes: Codes, places: Floats) -> dict[str, pa.Array]:
        """Return nothing: no column is released."""
        return {}
