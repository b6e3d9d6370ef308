"""Codec of one-hot columns: columns of 0 and 1, exactly one of them 1, as one attribute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.columns.category_columns import name_one_of_attribute
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.codec import Codec, Codes, Columns


class OneHotCodec(Codec):
    """Codec with one code for each column, then one for none of them where the rule allows it.

    A row with several ones counts as the first of these columns in the rule's order; a row without a one, where the
    rule does not allow it, as the first column.  Both are repairs.
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
        is_one = np.array(ones)
        many = is_one.sum(axis=0)
        codes = is_one.argmax(axis=0)
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
        """Return the domains of the columns."""
        return {name: r for codec in self._columns for name, r in codec.ranges().items()}
