"""Codecs of the figures of a person: how many rows, how many before the drawn one, how far the next one lies.

They are attributes of a person's record and no columns of the released table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.columns import DatetimeColumn, IntegerColumn
from privsyn.data_contracts.compared_columns import get_step
from privsyn.data_contracts.panels import Panel
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.numbers import IntegerCodec

MOST_BINS = 32
"""Bins of a figure in joint counts."""


class PersonFigureCodec(IntegerCodec):
    """A whole number that a person's record has beside the columns of its drawn row; the released table has none."""

    def decode(self, codes: Codes, rng: np.random.Generator, helpers: Any = None) -> dict[str, pa.Array]:
        """Return nothing: no column is released."""
        return {}

    def ranges(self) -> dict[str, ValueRange]:
        """Return nothing."""
        return {}

    def draw(self, codes: Codes, rng: np.random.Generator) -> np.ndarray:
        """Return a number of each code's cell, shape (rows,); -1 for null."""
        values = super().decode(codes, rng)[self.attribute]
        return np.asarray(values.fill_null(-1)).astype(np.int64)


def build_person_figures(panel: Panel, order: Any) -> tuple[PersonFigureCodec, ...]:
    """Return the codecs of a person's figures; ``order``: the column that the rows are in order of."""
    tops = (panel.most, max(1, panel.most - 2), max(1, count_steps(order)))
    lows = (1, 0, 0)
    codecs = []
    for name, low, top in zip(panel.figures, lows, tops, strict=True):
        bins = min(MOST_BINS, top - low + 1)
        column = IntegerColumn(kind="integer", min=low, max=top, bins=bins, nullable=name == panel.gap)
        codecs.append(PersonFigureCodec(name, column))
    return tuple(codecs)


def get_unit(order: Any) -> int:
    """Return the smallest step of an order, in the numbers of its codec."""
    return int(get_step(order) or 1)


def count_steps(order: Any) -> int:
    """Return how many steps lie between the smallest and the largest value of an order."""
    if isinstance(order, DatetimeColumn):
        return int((order.max - order.min).total_seconds() // get_unit(order))
    if isinstance(order, IntegerColumn):
        return (order.max - order.min) // get_unit(order)
    return int((order.max - order.min).days)
