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
    Column,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
)
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import OneOf
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.categories import BooleanCodec, CategoricalCodec
from privsyn.tasks.codecs.codec import Codec, Codes
from privsyn.tasks.codecs.one_of import OneOfCodec
from privsyn.tasks.codecs.ordered import DatetimeCodec, IntegerCodec, NumberCodec
from privsyn.tasks.rules.book import RuleBook


@dataclass(frozen=True)
class EncodingPlan:
    """All codecs of a release, in attribute order.

    ``computed``: codecs of columns that are not attributes, since rules compute them from others; ``rules``: the book.
    """

    codecs: tuple[Codec, ...]
    computed: tuple[Codec, ...] = ()
    rules: RuleBook | None = None

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
        ranges: dict[str, ValueRange] = {}
        for codec in (*self.codecs, *self.computed):
            ranges.update(codec.ranges())
        return ranges

    def decode(self, codes: Mapping[str, Codes], rng: np.random.Generator) -> dict[str, pa.Array]:
        """Fine codes of every attribute -> released columns, the computed ones among them."""
        columns: dict[str, pa.Array] = {}
        for codec in self.codecs:
            columns.update(codec.decode(codes[codec.attribute], rng))
        if self.rules is not None and self.computed:
            columns |= self.rules.compute(columns, {name: r.type for name, r in self.ranges().items()})
        return columns


def plan(spec: ReleaseSpec, order: Sequence[str] = ()) -> EncodingPlan:
    """One codec per attribute of a release, in ``order`` of the released columns (all of them, or none: the spec's).

    Columns that rules compute have no attribute; those of one ``one_of`` have one together, in the first one's place.
    """
    names = tuple(order or spec.released_columns)
    if not spec.rules:
        return EncodingPlan(tuple(_codec(name, spec.released_columns[name]) for name in names))
    rules = RuleBook.of(spec)
    single = {name: _codec(name, spec.released_columns[name], rules.thresholds.get(name, ())) for name in names}
    groups = {name: rule for rule in spec.rules if isinstance(rule, OneOf) for name in rule.one_of}
    codecs: dict[str, Codec] = {}
    for name in names:
        if name in groups:
            codec: Codec = OneOfCodec([single[n] for n in groups[name].one_of], groups[name].or_none)
            codecs.setdefault(codec.attribute, codec)
        elif name not in rules.order:
            codecs[name] = single[name]
    return EncodingPlan(tuple(codecs.values()), tuple(single[n] for n in names if n in rules.order), rules)


def plan_of_columns(spec: ReleaseSpec, order: Sequence[str] = ()) -> EncodingPlan:
    """One codec per released column, computed ones and dummies as any other: what an evaluation compares."""
    names = tuple(order or spec.released_columns)
    rules = RuleBook.of(spec) if spec.rules else None
    thresholds = {} if rules is None else rules.thresholds
    return EncodingPlan(tuple(_codec(n, spec.released_columns[n], thresholds.get(n, ())) for n in names), (), rules)


def _codec(name: str, column: Column, thresholds: Sequence[float] = ()) -> Codec:
    match column:
        case IntegerColumn():
            return IntegerCodec(name, column, thresholds)
        case NumberColumn():
            return NumberCodec(name, column, thresholds)
        case DatetimeColumn():
            return DatetimeCodec(name, column, thresholds)
        case BooleanColumn():
            return BooleanCodec(name, column)
        case CategoricalColumn():
            return CategoricalCodec(name, column)
    raise TypeError(f"{name!r} is not a released column")
