"""The codec of dummies: columns of 0 and 1, exactly one of them 1, as one attribute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.columns.category_columns import name_one_of_attribute
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.codec import Codec, Codes, Columns


class OneOfCodec(Codec):
    """One code for each column, then one for none of them where that may be.

    A row in which several are 1 counts as the first of these, in the rule's order; one in which none is, where that may
    not be, as the first column.  Both are repairs.
    """

    def __init__(self, columns: Sequence[Codec], or_none: bool) -> None:
        self._columns, self._or_none = tuple(columns), or_none
        self.sources = tuple(c.attribute for c in columns)
        self.attribute = name_one_of_attribute(self.sources)
        self.groups = np.arange(len(columns) + int(or_none), dtype=np.int32)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`."""
        repairs: Counter[str] = Counter()
        ones = []
        for codec in self._columns:
            read = codec.read({codec.attribute: columns[codec.attribute]})[codec.attribute]
            repairs += codec.encode({codec.attribute: columns[codec.attribute]})[1]
            ones.append(np.asarray(read.cast(pa.float64())) >= 1)
        found = np.array(ones)
        many = found.sum(axis=0)
        codes = found.argmax(axis=0)
        if self._or_none:
            codes[many == 0] = len(self._columns)
        wrong = int((many > 1).sum()) + (0 if self._or_none else int((many == 0).sum()))
        return codes.astype(choose_code_dtype(self.size)), +(repairs + Counter({"not exactly one": wrong}))

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Return the columns, in their released types."""
        ranges = self.ranges()
        return {
            name: pa.array((codes == i).astype(np.int64)).cast(ranges[name].type) for i, name in enumerate(self.sources)
        }

    def labels(self) -> list[str]:
        """Return the columns' names."""
        return [*self.sources, *(["(none)"] if self._or_none else [])]

    def ranges(self) -> dict[str, ValueRange]:
        """Return the columns' own codecs."""
        return {name: r for codec in self._columns for name, r in codec.ranges().items()}
