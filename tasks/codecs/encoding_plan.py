"""The plan: every codec of a release, in attribute order, made from the spec.

Belongs here: what holds for all columns together.  Does not belong here: any one kind of column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_contracts.columns import BooleanColumn, CategoricalColumn, DatetimeColumn, IntegerColumn, NumberColumn
from data_contracts.domain import Domain
from data_contracts.spec import ReleaseSpec
from data_contracts.tables import ValueRange
from tasks.codecs.base import Codec, Codes, Fill
from tasks.codecs.categories import BooleanCodec, CategoricalCodec
from tasks.codecs.ordered import DatetimeCodec, IntegerCodec, NumberCodec


@dataclass(frozen=True)
class EncodingPlan:
    """All codecs of a release, in attribute order, and the public fills that follow decoding."""

    codecs: tuple[Codec, ...]
    fills: tuple[Fill, ...] = field(default=())

    @property
    def domain(self) -> Domain:
        """The fine domain."""
        return Domain(tuple(c.attribute for c in self.codecs), tuple(c.size for c in self.codecs))

    @property
    def groups(self) -> dict[str, NDArray[np.int32]]:
        """Fine code -> public bin, by attribute."""
        return {c.attribute: c.groups for c in self.codecs}

    @property
    def in_order(self) -> dict[str, int]:
        """Attribute -> how many of its public bins, from the first on, are intervals in order."""
        return {c.attribute: c.in_order for c in self.codecs}

    def labels(self) -> dict[str, list[str]]:
        """Readable label of every fine code, by attribute."""
        return {c.attribute: c.labels() for c in self.codecs}

    def ranges(self) -> dict[str, ValueRange]:
        """Public domain of every released column."""
        found: dict[str, ValueRange] = {}
        for codec in self.codecs:
            found.update(codec.ranges())
        for fill in self.fills:
            found.update(fill.ranges())
        return found

    def decode(self, codes: Mapping[str, Codes], rng: np.random.Generator) -> dict[str, pa.Array]:
        """Fine codes of every attribute -> released columns, fills included."""
        columns: dict[str, pa.Array] = {}
        for codec in self.codecs:
            columns.update(codec.decode(codes[codec.attribute], rng))
        for fill in self.fills:
            columns.update(fill.fill(columns))
        return columns


def plan(spec: ReleaseSpec, order: Sequence[str] = ()) -> EncodingPlan:
    """One codec a released column of the spec, in ``order`` (all of them, or none: then the spec's order)."""
    made: list[Codec] = []
    for name in order or spec.released_columns:
        column = spec.released_columns[name]
        match column:
            case IntegerColumn():
                made.append(IntegerCodec(name, column))
            case NumberColumn():
                made.append(NumberCodec(name, column))
            case DatetimeColumn():
                made.append(DatetimeCodec(name, column))
            case BooleanColumn():
                made.append(BooleanCodec(name, column))
            case CategoricalColumn():
                made.append(CategoricalCodec(name, column))
    return EncodingPlan(tuple(made))
