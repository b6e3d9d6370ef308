"""Codecs of person figures: the number of rows, the gap to the next row, and summaries of all rows.

They are attributes of a person's record, not columns of the released table.

The composition of a household, how many members of each role, has codes by the public spec alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns import DatetimeColumn, IntegerColumn
from privsyn.data_contracts.panels import Panel
from privsyn.data_contracts.question_language import OF_NUMBERS, MeasuredSummary
from privsyn.data_contracts.rule_language import Node
from privsyn.data_contracts.spec_checks import get_step
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.codec import Codec, Codes, Columns, UnreleasedCodec
from privsyn.tasks.codecs.numbers import IntegerCodec
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.rules.intervals import Interval, evaluate_condition, evaluate_expression

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
            quantity = evaluate_expression(self.node, resolve, self.book.vocabulary)
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
        truth = evaluate_condition(self.node, resolve, self.book.vocabulary)
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


Integers: TypeAlias = NDArray[np.int64]


class CompositionCodec(UnreleasedCodec):
    """Codec of household compositions; the released table has no such column.

    ``roles``: the codec of the role column, with codes in the order of roles.
    """

    def __init__(self, panel: Panel, roles: Codec) -> None:
        self.attribute, self.sources, self.roles = panel.composition, (panel.composition,), roles
        self._most, self._once = panel.most, panel.once
        self.groups = np.arange(len(self.members), dtype=np.int32)  # the names are many, and made when asked for

    @cached_property
    def members(self) -> Integers:
        """Number of members of each role in each composition, shape (size, roles)."""
        members = np.zeros((1, 0), np.int64)
        for role in range(self.roles.size):
            most = 1 if role in self._once else self._most
            counts = np.arange(most + 1)
            members = np.column_stack([np.repeat(members, len(counts), axis=0), np.tile(counts, len(members))])
            members = members[members.sum(axis=1) <= self._most]
        return members[members.sum(axis=1) > 0]

    @cached_property
    def pairs(self) -> Integers:
        """Number of neighbour pairs of each kind in each composition, shape (size, kinds)."""
        first = np.cumsum(self.members, axis=1) > 0
        ahead = np.column_stack([np.zeros(len(first), bool), first[:, :-1]])
        other = (self.members > 0) & ahead
        return np.stack([other, np.maximum(self.members - 1, 0)], axis=2).reshape(len(first), -1)

    @cached_property
    def pairs_with_first(self) -> Integers:
        """Number of members after the second that pair with the first, by kind of pair, shape (size, kinds)."""
        members = np.arange(len(self.members))
        later, role = self.members.copy(), self.find_first(0)
        for place in (role, self.find_first(1)):
            later[members[place >= 0], place[place >= 0]] -= 1
        same = np.arange(later.shape[1]) == role[:, None]
        return np.stack([later * ~same, later * same], axis=2).reshape(len(later), -1)

    def find_first(self, place: int) -> Integers:
        """Return the role of the member at ``place`` in each composition, -1 if there is none."""
        role = (np.cumsum(self.members, axis=1) <= place).sum(axis=1)
        return np.where(role < self.members.shape[1], role, -1)

    @property
    def kinds(self) -> int:
        """Number of kinds of pairs: the second member's role, and whether the first member has the same role."""
        return 2 * self.roles.size

    def encode_members(self, members: Integers) -> Integers:
        """Return the code of each row of ``members``, shape (households, roles)."""
        codes: Integers = np.searchsorted(_to_bytes(self.members), _to_bytes(members))
        return codes

    def derive(self, columns: Columns) -> NDArray[Any]:
        """See :class:`UnreleasedCodec`; the source values are codes."""
        return np.asarray(columns[self.attribute])

    def labels(self) -> list[str]:
        """Return labels with the number of members of each role."""
        roles = self.roles.labels()
        return [", ".join(f"{n} {role}" for n, role in zip(row, roles, strict=True) if n) for row in self.members]


def _to_bytes(members: Integers) -> NDArray[np.bytes_]:
    """Return each row as bytes that sort like the rows; no number of roles overflows them."""
    return np.ascontiguousarray(members, ">u4").view(f"S{4 * members.shape[1]}")[:, 0]


def find_kinds(first: NDArray[Any], second: NDArray[Any]) -> Integers:
    """Return the kinds of pairs of members with these roles."""
    return second * 2 + (first == second)
