"""Codecs of unordered columns (public lists of values, and booleans) and of their levels.

A level is the public group that contains a column's value.  Its codec writes a separate attribute, so that the groups
of a column with very many values get their own noise.  Without this attribute, the count of a group would be a sum of
noisy counts.  The released table has no such column.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.lib import StringBuilder

from privsyn.data_contracts.columns import BooleanColumn, CategoricalColumn, name_level_attribute, name_one_of_attribute
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs import parsing
from privsyn.tasks.codecs.codec import Codec, Codes, Columns, UnreleasedCodec
from privsyn.tasks.rules.compiled_rules import CompiledRules

OTHER = "other"


class CategoricalCodec(Codec):
    """Codec of a public list of values, then ``other`` (if not listed and needed), then null."""

    def __init__(self, name: str, column: CategoricalColumn) -> None:
        self.attribute, self.sources, self._column = name, (name,), column
        values = list(column.values)
        if column.goes_to == "other" and OTHER not in values:
            values.append(OTHER)
        texts = [v for v in values if isinstance(v, str)]
        self._values = _to_text(texts) if texts else pa.array(values)
        self._is_ascii = all(map(str.isascii, texts))  # then no text needs Unicode normalization
        self._composed = pc.utf8_normalize(self._values, form="NFC") if texts else self._values
        self._null = len(values) if column.has_null else None
        self.groups = np.arange(len(values) + int(column.has_null), dtype=np.int32)
        target = column.goes_to
        self._unlisted = target if isinstance(target, int) else self._null if target == "null" else values.index(OTHER)
        if len(values) > len(column.values):
            self.added = len(column.values)
        elif column.has_null and not column.nullable:
            self.added = self._null

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; unlisted values and disallowed nulls go where ``unlisted`` says."""
        keys = parsing.to_keys(columns[self.sources[0]], self._values.type)
        is_null = np.asarray(pc.is_null(keys, nan_is_null=True))
        if pa.types.is_string(keys.type):  # objects without text, such as lists, are unlisted
            is_null = is_null & parsing.find_nulls(columns[self.sources[0]])
        index = self._find_listed(keys)
        unlisted = np.asarray(pc.is_null(index)) & ~is_null
        codes = np.asarray(pc.fill_null(index, 0)).astype(choose_code_dtype(self.size))
        codes[unlisted] = self._unlisted
        codes[is_null] = self._null if self._column.nullable else self._unlisted
        repairs = Counter({"unlisted": int(unlisted.sum())})
        if not self._column.nullable:
            repairs["null"] = int(is_null.sum())
        return codes, +repairs

    def _find_listed(self, keys: pa.Array) -> pa.Array:
        """Return the position of each key in the list, null if it is not listed.

        Texts that differ only by Unicode normalization are equal: an unlisted text is looked up in NFC.
        """
        index = pc.index_in(keys, value_set=self._values)
        if not pa.types.is_string(keys.type) or not index.null_count or self._is_ascii:
            return index
        rest = np.flatnonzero(np.asarray(pc.is_null(index)))
        found = np.asarray(index.fill_null(-1)).copy()
        composed = pc.utf8_normalize(keys.take(pa.array(rest)), form="NFC")
        found[rest] = np.asarray(pc.index_in(composed, value_set=self._composed).fill_null(-1))
        return pa.array(found, mask=found < 0)

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Return the listed value of each code, dictionary-encoded for texts; the null code becomes null."""
        mask = codes == self._null if self._null is not None else None
        places = pa.array(codes.astype(np.int32), mask=mask)
        if pa.types.is_string(self._values.type):
            return {self.attribute: pa.DictionaryArray.from_arrays(places, self._values)}
        return {self.attribute: self._values.take(places)}

    def labels(self) -> list[str]:
        """Return the values as text."""
        return [str(v) for v in self._values.to_pylist()] + ["(null)"] * int(self._null is not None)

    def ranges(self) -> dict[str, ValueRange]:
        """Return the listed values."""
        return {self.attribute: ValueRange(self._values.type, self._column.has_null, values=self._values)}


class BooleanCodec(Codec):
    """Codec of false, true, then null if nullable."""

    def __init__(self, name: str, column: BooleanColumn) -> None:
        self.attribute, self.sources, self._nullable = name, (name,), column.nullable
        self.groups = np.arange(2 + int(column.nullable), dtype=np.int32)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; a value that is neither true nor false becomes null if nullable, else false."""
        truth, is_null = parsing.to_booleans(columns[self.sources[0]])
        missing = truth < 0
        codes = np.where(missing, 2 if self._nullable else 0, truth).astype(np.uint8)
        repairs = Counter({"unparseable": int((missing & ~is_null).sum())})
        if not self._nullable:
            repairs["null"] = int(is_null.sum())
        return codes, +repairs

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Return Arrow booleans."""
        return {self.attribute: pa.array(codes == 1, mask=codes == 2)}

    def labels(self) -> list[str]:
        """Return the labels: false, true, (null)."""
        return ["false", "true", "(null)"][: self.size]

    def ranges(self) -> dict[str, ValueRange]:
        """Return the domain of all booleans."""
        return {self.attribute: ValueRange(pa.bool_(), self._nullable)}


def _to_text(values: Sequence[str]) -> pa.StringArray:
    """Return the values as an Arrow array; ``pa.array`` would load pandas for it."""
    builder = StringBuilder()
    builder.append_values(values)
    return builder.finish()


class OneHotCodec(Codec):
    """Codec of a one-hot group: one code per column, then one for "none" if the rule allows it.

    A row with several ones counts as the first of these columns in the rule's order.  A row without a one counts as the
    first column if the rule does not allow such a row.  Both are repairs.
    """

    def __init__(self, columns: Sequence[Codec], or_none: bool) -> None:
        self._columns, self._or_none = tuple(columns), or_none
        self.sources = tuple(c.attribute for c in columns)
        self.attribute = name_one_of_attribute(self.sources)
        self.groups = np.arange(len(columns) + int(or_none), dtype=np.int32)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`."""
        repairs: Counter[str] = Counter()
        truths = []
        for codec in self._columns:
            read = codec.read({codec.attribute: columns[codec.attribute]})[codec.attribute]
            repairs += codec.encode({codec.attribute: columns[codec.attribute]})[1]
            truths.append(np.asarray(read.cast(pa.float64())) >= 1)
        is_one = np.array(truths)
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
