"""Columns that are never read: their values are drawn from what the public spec says, each by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.ordered import OrderedCodec


class UnmeasuredColumn:
    """A released column that is drawn from its spec alone: it has no codes and no attribute.

    Listed values are equally likely; numbers, days and times are drawn evenly from their whole public range, whatever
    its bins.  Null, where the column is nullable, is as likely as one listed value or one bin.
    """

    def __init__(self, codec: Codec, column: Any) -> None:
        self.column, self._codec = codec.attribute, codec
        self._nullable = bool(column.nullable)
        listed = isinstance(column, CategoricalColumn)
        self._values = len(column.values) if listed else None
        bins = int(codec.groups.max()) + 1 - int(self._nullable)
        self._choices = self._values or bins

    def draw(self, rows: int, rng: np.random.Generator) -> pa.Array:
        """Return one value a row, in the released type."""
        chosen = rng.integers(self._choices + int(self._nullable), size=rows)
        null = chosen == self._choices
        if not isinstance(self._codec, OrderedCodec):
            codes = np.where(null, self._codec.size - 1, chosen)
            return self._codec.decode(codes, rng)[self.column]
        values = self._codec.draw_anywhere(rows, rng)
        return pc.if_else(pa.array(null), pa.scalar(None, values.type), values) if self._nullable else values

    def ranges(self) -> dict[str, ValueRange]:
        """Return the domain of what is drawn: without an ``other`` or a null that only unlisted values become."""
        domain = self._codec.ranges()[self.column]
        values = None if domain.values is None or self._values is None else domain.values.slice(0, self._values)
        return {self.column: replace(domain, nullable=self._nullable, values=values)}
