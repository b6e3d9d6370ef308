"""Codecs of person figures: the number of rows, the gap to the next row, and summaries of all rows.

They are attributes of a person's record, not columns of the released table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns import DatetimeColumn, IntegerColumn
from privsyn.data_contracts.compared_columns import get_step
from privsyn.data_contracts.panels import Panel
from privsyn.data_contracts.rule_language import Node
from privsyn.data_contracts.summaries import OF_NUMBERS, MeasuredSummary
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.numbers import IntegerCodec
from privsyn.tasks.rules import evaluate
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.rules.intervals import Interval

MOST_BINS = 32
"""The most bins of a figure in joint counts."""

DIGITS = 13
"""Significant digits of a decimal sum that are compared; later digits are binary rounding."""


class PersonFigureCodec(IntegerCodec):
    """An integer attribute of a person's record, next to the columns of its drawn row; never released."""

    def decode(self, codes: Codes, rng: np.random.Generator, helpers: Any = None) -> dict[str, pa.Array]:
        """Return nothing: no column is released."""
        return {}

    def ranges(self) -> dict[str, ValueRange]:
        """Return nothing."""
        return {}

    def draw(self, codes: Codes, rng: np.random.Generator) -> np.ndarray:
        """Return a number in each code's cell, shape (rows,); -1 for null."""
        values = super().decode(codes, rng)[self.attribute]
        return np.asarray(values.fill_null(-1)).astype(np.int64)


class SummaryCodec(PersonFigureCodec):
    """A figure of all kept rows of a person or household, such as whether a condition ever holds.

    ``node``: the summarised condition or number; ``book``: the rules that read its columns.
    """

    def __init__(self, measured: MeasuredSummary, node: Node, book: CompiledRules) -> None:
        """Take the summary's spec; :class:`MeasuredSummary` defines the codes, and a possible null comes last."""
        top = len(measured.cuts)
        column = IntegerColumn(kind="integer", min=0, max=top, bins=top + 1, nullable=measured.nullable)
        super().__init__(measured.about.name, column)
        self.in_order = ()  # few codes, never combined whatever the noise
        self.measured, self.node, self.book = measured, node, book

    def compute(self, resolve: Callable[[str], Interval], first: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the code of each person, shape (persons,), -1 for null.

        ``resolve``: returns a column of the kept rows, person by person and in order; ``first``: where a person begins.
        A condition that holds for only some of a row's possible values is taken to hold.
        """
        starts, function = np.flatnonzero(first), self.measured.about.function
        if not len(starts):
            return np.empty(0, np.int64)
        if function in OF_NUMBERS:
            quantity = evaluate.evaluate_expression(self.node, resolve, self.book.vocabulary)
            value, is_known = (
                np.broadcast_to(v, len(first))
                for v in ((quantity.low + quantity.high) / 2, quantity.present & ~quantity.null)
            )
            if function == "sum":
                added = np.where(is_known, value, 0.0)
                sums, sizes = (np.add.reduceat(v, starts) for v in (added, np.abs(added)))
                return self._classify(_round_figures(sums, sizes))
            last = np.append(starts[1:], len(first)) - 1
            changes, sizes = value[last] - value[starts], np.abs(value[last]) + np.abs(value[starts])
            codes = self._classify(_round_figures(changes, sizes))
            return np.where(is_known[last] & is_known[starts], codes, -1)
        truth = evaluate.evaluate_condition(self.node, resolve, self.book.vocabulary)
        holds = np.broadcast_to(truth.true, len(first))
        if function == "ever":
            return np.logical_or.reduceat(holds, starts).astype(np.int64)
        if function == "always":
            return np.logical_and.reduceat(holds, starts).astype(np.int64)
        if function == "spells":
            holds = holds & (first | ~np.append(False, holds[:-1]))
        return self._classify(np.add.reduceat(holds.astype(np.float64), starts))

    def _classify(self, figures: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.searchsorted(self.measured.cuts, figures, side="right").astype(np.int64)


def _round_figures(figures: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sums of decimal numbers without binary rounding, shape (persons,): 37.3 - 36.2 is 1.1.

    ``sizes``: the sums of absolute addends; DIGITS significant digits of them are kept.
    """
    powers = np.ceil(np.log10(np.maximum(sizes, 1.0))).astype(np.int64)
    rounded = figures.copy()
    for power in np.unique(powers):
        alike = powers == power
        rounded[alike] = np.round(figures[alike], max(DIGITS - int(power), 0))
    return rounded


def build_person_figures(panel: Panel, order: Any) -> tuple[PersonFigureCodec, ...]:
    """Return the codecs of a person's figures; ``order``: the column that orders the rows."""
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
    """Return the number of steps between the smallest and largest value of an order."""
    if isinstance(order, DatetimeColumn):
        return int((order.max - order.min).total_seconds() // get_unit(order))
    if isinstance(order, IntegerColumn):
        return (order.max - order.min) // get_unit(order)
    return int((order.max - order.min).days)
