"""The plan: every codec of a release, in attribute order, made from the spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns import (
    BooleanColumn,
    CategoricalColumn,
    DateColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
    TimeColumn,
)
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.categories import BooleanCodec, CategoricalCodec
from privsyn.tasks.codecs.codec import Codec, Codes
from privsyn.tasks.codecs.heaps import HeapCodec
from privsyn.tasks.codecs.moments import DateCodec, DatetimeCodec, TimeCodec
from privsyn.tasks.codecs.numbers import IntegerCodec, NumberCodec
from privsyn.tasks.codecs.ordered import OrderedCodec


@dataclass(frozen=True)
class EncodingPlan:
    """All codecs of a release, in attribute order."""

    codecs: tuple[Codec, ...]

    @property
    def domain(self) -> Domain:
        """The fine domain."""
        return Domain(tuple(c.attribute for c in self.codecs), tuple(c.size for c in self.codecs))

    @property
    def groups(self) -> dict[str, NDArray[np.int32]]:
        """Fine code -> public bin, by attribute."""
        return {c.attribute: c.groups for c in self.codecs}

    @property
    def in_order(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Attribute -> its sections of intervals (:class:`Codec`)."""
        return {c.attribute: c.in_order for c in self.codecs}

    @property
    def added(self) -> dict[str, int]:
        """Attribute -> the bin of what its spec does not list, where it has one (:class:`Codec`)."""
        return {c.attribute: c.added for c in self.codecs if c.added is not None}

    def labels(self) -> dict[str, list[str]]:
        """Readable label of every fine code, by attribute."""
        return {c.attribute: c.labels() for c in self.codecs}

    def ranges(self) -> dict[str, ValueRange]:
        """Public domain of every released column."""
        ranges: dict[str, ValueRange] = {}
        for codec in self.codecs:
            ranges.update(codec.ranges())
        return ranges

    def decode(self, codes: Mapping[str, Codes], rng: np.random.Generator) -> dict[str, pa.Array]:
        """Fine codes of every attribute -> released columns."""
        columns: dict[str, pa.Array] = {}
        for codec in self.codecs:
            helped = {"helpers": {name: codes[name] for name in codec.helpers}} if codec.helpers else {}
            columns.update(codec.decode(codes[codec.attribute], rng, **helped))
        return columns


def plan(spec: ReleaseSpec, order: Sequence[str] = ()) -> EncodingPlan:
    """One codec per released column of the spec, in ``order`` (all of them, or none: then the spec's order)."""
    codecs: list[Codec] = []
    for name in order or spec.released_columns:
        column = spec.released_columns[name]
        match column:
            case IntegerColumn():
                codecs.extend(_with_heaps(IntegerCodec(name, column), column.heap_values()))
            case NumberColumn():
                codecs.extend(_with_heaps(NumberCodec(name, column), column.heap_values()))
            case DatetimeColumn():
                codecs.append(DatetimeCodec(name, column))
            case DateColumn():
                codecs.append(DateCodec(name, column))
            case TimeColumn():
                codecs.append(TimeCodec(name, column))
            case BooleanColumn():
                codecs.append(BooleanCodec(name, column))
            case CategoricalColumn():
                codecs.append(CategoricalCodec(name, column))
    return EncodingPlan(tuple(codecs))


def _with_heaps(codec: OrderedCodec, heaps: Sequence[float]) -> list[Codec]:
    """The codec, and where people round that of what they round to."""
    return [codec, HeapCodec(codec, heaps)] if heaps else [codec]
