"""Codec of a level: the public group that contains a column's value.

The codec writes a separate attribute, so that the groups of a column with very many values get their own noise.
Without this attribute, the count of a group would be a sum of noisy counts.  The released table has no such column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.columns.category_columns import name_level_attribute
from privsyn.tasks.codecs.codec import Codec, Columns, UnreleasedCodec
from privsyn.tasks.rules.compiled_rules import CompiledRules


class LevelCodec(UnreleasedCodec):
    """The groups of one level of a column; ``of``: the group of every fine code of the column, in order.

    ``names``: the values of the levels down to this one, joined.
    """

    def __init__(self, codec: Codec, level: str, group_of: NDArray[np.int64], names: Sequence[str]) -> None:
        super().__init__(name_level_attribute(codec.attribute, level), codec.sources, names)
        self.column, self.of, self._codec = codec.attribute, group_of, codec
        self.kind = f"level of {self.column}"

    @property
    def digest(self) -> str:
        """Hash of the group of every code; public."""
        return hashlib.sha256(np.ascontiguousarray(self.of, np.int32).tobytes()).hexdigest()

    def derive(self, columns: Columns) -> NDArray[np.int64]:
        """See :class:`UnreleasedCodec`."""
        return self.of[self._codec.encode(columns)[0]]


def add_level_codecs(
    codecs: Mapping[str, Codec], columns: Mapping[str, Any], computed: Sequence[Codec], rules: CompiledRules
) -> dict[str, Codec]:
    """Return ``codecs``, by attribute, and the codecs of their levels, as rules compute them from each value.

    A group is a level's value inside a group of the level above, because two states may have a county of the same name.
    """
    result = dict(codecs)
    types = {c.attribute: c.ranges()[c.attribute].type for c in computed}
    for name, codec in codecs.items():
        levels = getattr(columns.get(name), "levels", ())
        above, names = np.zeros(codec.size, dtype=np.int64), [""] * codec.size
        values = codec.decode(np.arange(codec.size), np.random.default_rng(0)) if levels else {}
        for level in levels:
            group = rules.compute_column(level, values, types[level])[0]
            texts = ["(null)" if v is None else str(v) for v in group.to_pylist()]
            names = [f"{up}, {text}" if up else text for up, text in zip(names, texts, strict=True)]
            text_codes = np.unique(np.array(texts), return_inverse=True)[1]
            pairs = above * codec.size + text_codes
            _, first, above = np.unique(pairs, return_index=True, return_inverse=True)
            level_codec = LevelCodec(codec, level, above, [names[i] for i in first])
            result[level_codec.attribute] = level_codec
    return result
