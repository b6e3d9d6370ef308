"""Place the rows of synthetic persons in the order, with measured gaps, inside the public bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.ordered import OrderedCodec

Integers: TypeAlias = NDArray[np.int64]

TIES = 0.02
"""From this share of zero gaps on, rows of a person may share a place in the order."""

DRAWS = 8
"""How often a gap that does not fit into the bounds is redrawn."""


@dataclass(frozen=True, eq=False)
class OrderSteps:
    """The order in integer steps of ``unit``, in the numbers of ``codec``."""

    codec: OrderedCodec
    unit: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and last step."""
        low, high = self.codec.bounds
        return int(np.floor(low / self.unit)), int(np.floor(high / self.unit))

    def read_values(self, values: pa.Array) -> Integers:
        """Return the steps of released values, shape (rows,)."""
        steps: Integers = np.floor(self.codec.numbers(values)[0] / self.unit).astype(np.int64)
        return steps

    def locate(self, values: pa.Array) -> tuple[NDArray[np.bool_], Integers]:
        """Return which values have a place in the order, and their places, clamped to the public bounds."""
        numbers, _ = self.codec.numbers(values)
        clamped, _ = self.codec.clamp(values)
        return ~np.isnan(numbers), np.floor(clamped / self.unit).astype(np.int64)

    def release(self, steps: Integers) -> pa.Array:
        """Return the column's values at these steps."""
        return self.codec.release_numbers((steps * self.unit).astype(np.float64))


@dataclass(frozen=True, eq=False)
class RoleSteps:
    """The order by roles; a step is the code of a role.

    ``known``: whether a null has no place and is no role.
    """

    codec: Codec
    known: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and last role."""
        return 0, self.codec.size - 1

    def locate(self, values: pa.Array) -> tuple[NDArray[np.bool_], Integers]:
        """Return which values have a place, and their places."""
        codes, _ = self.codec.encode({self.codec.sources[0]: values})
        placed = np.asarray(values.is_valid()) if self.known else np.ones(len(codes), bool)
        return placed, codes.astype(np.int64)

    def release(self, steps: Integers) -> pa.Array:
        """Return the column's values at these steps."""
        return self.codec.decode(steps, np.random.default_rng(0))[self.codec.sources[0]]


def open_order(plan: EncodingPlan) -> OrderSteps | RoleSteps:
    """Return the order of a person's rows."""
    panel, codec = plan.get_order()
    return OrderSteps(codec, plan.order_unit) if isinstance(codec, OrderedCodec) else RoleSteps(codec, panel.above)


class Gaps:
    """Draws gaps between rows from synthetic records at similar places with as many rows beyond.

    ``places``: each record's place; ``gap``: to the person's next row, -1 without one; ``before`` and ``after``: the
    person's rows on both sides; ``bounds``: the first and last step.
    """

    def __init__(
        self, places: Integers, gap: Integers, before: Integers, after: Integers, bounds: tuple[int, int]
    ) -> None:
        self._low, self._high = bounds
        is_valid = (gap >= 0) & (after > 0)
        start, gap, before, after = places[is_valid], gap[is_valid], before[is_valid], after[is_valid]
        self.least = int(not len(gap) or bool((gap == 0).mean() < TIES))
        gap = np.maximum(gap, self.least)
        self._forward = _sort_by(self._compute_key(start, after), gap)
        self._backward = _sort_by(self._compute_key(np.minimum(start + gap, self._high), before + 1), gap)

    def _compute_key(self, step: Integers, beyond: Integers) -> Integers:
        """Return a sort key that is close for rows at close places with as many rows beyond them."""
        return beyond * 2 * (self._high - self._low + 1) + step - self._low

    def fit(self, places: Integers, before: Integers, after: Integers) -> Integers:
        """Return the records' places, moved if needed so that the rows before and after fit into the bounds."""
        first = np.minimum(self._low + before * self.least, self._high)
        return np.clip(places, first, np.maximum(self._high - after * self.least, first))

    def move(
        self,
        step: Integers,
        remaining: Integers,
        rng: np.random.Generator,
        *,
        forward: bool,
        allows: Callable[[Integers, Integers], NDArray[np.bool_]] | None = None,
    ) -> Integers:
        """Return the place of each next row, or of the row before; ``remaining``: how many rows follow on that side.

        ``allows``: returns which of some rows' places the rules allow; if no allowed place is drawn, the place may
        break a rule.
        """
        room = (self._high - step if forward else step - self._low) - remaining * self.least
        places, gaps = self._forward if forward else self._backward
        chosen_gaps = np.full(len(step), -1, np.int64)
        for _ in range(DRAWS if len(gaps) else 0):
            missing = np.flatnonzero(chosen_gaps < 0)
            if not len(missing):
                break
            drawn = _draw_at(places, gaps, self._compute_key(step[missing], remaining[missing] + 1), rng)
            fits = drawn <= room[missing]
            if allows is not None:
                fits &= allows(missing, step[missing] + (drawn if forward else -drawn))
            chosen_gaps[missing[fits]] = drawn[fits]
        chosen_gaps = np.where(chosen_gaps < 0, np.clip(room, 0, self.least), chosen_gaps)
        return step + chosen_gaps if forward else step - chosen_gaps


def _sort_by(places: Integers, gaps: Integers) -> tuple[Integers, Integers]:
    order = np.argsort(places, kind="stable")
    return places[order], gaps[order]


NEIGHBOURS = 50
"""The least number of records, at or near a place of the order, from which a gap is drawn."""


def _draw_at(places: Integers, gaps: Integers, wanted: Integers, rng: np.random.Generator) -> Integers:
    """Return, for each wanted place, the gap of a random record there, or nearby if there are few."""
    first, end = np.searchsorted(places, wanted, "left"), np.searchsorted(places, wanted, "right")
    few = end - first < NEIGHBOURS
    middle = (first + end) // 2
    first = np.where(few, np.maximum(middle - NEIGHBOURS // 2, 0), first)
    end = np.where(few, np.minimum(middle + NEIGHBOURS // 2, len(places)), end)
    first = np.minimum(first, len(places) - 1)
    end = np.maximum(end, first + 1)
    return gaps[rng.integers(first, end)]
