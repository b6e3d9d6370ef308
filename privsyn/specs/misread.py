"""Columns that the spec may misread: the share of values repaired, and the repaired values.

PRIVATE: everything here is an exact function of the private rows.  It goes only to the private zone and to an
interactive terminal, never to a log, a pipe or a release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.joined_source import AGAIN, ELSEWHERE, NO_KEY, NOBODY, TWICE
from privsyn.sources.private_table import LEFT_OUT
from privsyn.tasks.codecs import Codec
from privsyn.tasks.codecs.codec import Columns
from privsyn.tasks.codecs.encode_rows import NO_RECORD, NOT_KEPT, OF_RULE
from privsyn.tasks.codecs.ordered import FRACTIONS
from privsyn.tasks.codecs.parsing import decode_dictionary, split_union, to_keys

MISREAD_SHARE = 0.05
"""A column with a larger share of repaired values is likely misread."""

IN_WORDS = {
    "unparseable": "could not be read",
    "unlisted": "are not in `values`",
    "below min": "lie below `min`",
    "above max": "lie above `max`",
    FRACTIONS: "have a fraction, which is cut off",
    "null": "are null, which the column cannot be",
    "not UTF-8": "are not UTF-8 text",
    LEFT_OUT: "cannot be read",
    NOBODY: "name nobody in the table above",
    NO_KEY: "are null in the table above",
    AGAIN: "appear twice in the table above",
    TWICE: "appear twice in their household",
    ELSEWHERE: "are in another household, too",
}
"""Repair -> predicate for the repaired values, in messages."""


@dataclass(frozen=True)
class Misread:
    """PRIVATE: one column with many repaired values.

    ``column``: empty for whole records; ``repairs``: repair -> its share of the rows (0..1), largest first.
    """

    column: str
    repairs: Mapping[str, float] = field(repr=False)

    def shares(self) -> str:
        """Return the repaired shares in words, without a full stop."""
        of_all = "its values" if self.column else "all records"
        parts = [f"{share:.1%} {IN_WORDS.get(repair, f'({repair})')}" for repair, share in self.repairs.items()]
        return f"of {of_all} {', '.join(parts)}"

    def sentence(self) -> str:
        """Return :meth:`shares` with the column's name."""
        return f"`{self.column}`: {self.shares()}" if self.column else self.shares().capitalize()


def list_misread_columns(
    counts: Mapping[tuple[str, str], int], rows: int, least: float = MISREAD_SHARE
) -> tuple[Misread, ...]:
    """Return columns with more than the share ``least`` of values repaired, largest share first.

    ``counts``: (column, repair) -> number of values, as in :class:`privsyn.tasks.steps.encode.Repairs`; ``rows``: the
    table's number of rows.  Rows left out by the unit of protection do not count.
    """
    unread = counts.get(("", LEFT_OUT), 0)
    shares_by_column: dict[str, dict[str, float]] = {}
    for (column, repair), many in counts.items():
        total = rows + unread if repair == LEFT_OUT else rows
        of_a_rule = column.startswith((f"{OF_RULE}[", f"{OF_RULE}."))
        if many and total and repair not in (NOT_KEPT, NO_RECORD) and not of_a_rule:
            shares_by_column.setdefault(column, {})[repair] = min(1.0, many / total)
    over = [(c, r) for c, r in shares_by_column.items() if sum(r.values()) > least]
    over.sort(key=lambda entry: -sum(entry[1].values()))
    return tuple(Misread(c, dict(sorted(r.items(), key=lambda e: -e[1]))) for c, r in over)


def list_meant_repairs(spec: ReleaseSpec, column: str) -> frozenset[str]:
    """Return repairs of a column that the spec declares, so that values keep their meaning.

    These are unlisted values that become "other" or null, and null as a category.  An unlisted value that becomes a
    listed one changes its meaning.
    """
    described = spec.columns.get(column)
    if not isinstance(described, CategoricalColumn):
        return frozenset()
    repairs = {"unlisted"} if described.unlisted in ("other", "null") else set()
    return frozenset(repairs | ({"null"} if described.has_null else set()))


def count_repaired_rows(codec: Codec, columns: Columns, keeping: Set[str] = frozenset()) -> NDArray[np.bool_]:
    """Return the mask, shape (rows,), of values that ``codec`` repairs, ignoring the repairs ``keeping``.

    It bisects the distinct values, with similar ones next to each other, so few calls of the codec suffice.
    """
    name = codec.sources[0]
    different, index = _list_different(decode_dictionary(columns[name]))
    repaired = np.zeros(len(different), dtype=bool)
    waiting = [(0, len(different))]
    while waiting:
        start, end = waiting.pop()
        repairs = codec.inspect({name: different.slice(start, end - start)})
        touched = sum(many for repair, many in repairs.items() if repair not in keeping)
        if touched >= end - start:
            repaired[start:end] = True
        elif touched:
            middle = (start + end) // 2
            waiting += [(start, middle), (middle, end)]
    return repaired[index]


def find_odd_texts(codec: Codec, columns: Columns, limit: int) -> Counter[str]:
    """Return the ``limit`` most frequent unlisted or unreadable values, as text, with their counts."""
    name, keeping = codec.sources[0], {"below min", "above max", "null", FRACTIONS}
    odd: Any = decode_dictionary(columns[name]).filter(pa.array(count_repaired_rows(codec, columns, keeping)))
    counted = pc.value_counts(to_keys(odd, pa.string()))
    values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    occurrences = Counter({v: n for v, n in zip(values, counts, strict=True) if v is not None})
    return Counter(dict(occurrences.most_common(limit)))


def _list_different(values: Any) -> tuple[pa.Array, NDArray[np.intp]]:
    """Return the distinct values, similar ones next to each other, and each row's index into them."""
    if pa.types.is_union(values.type):
        return _list_different_objects(values)
    if pa.types.is_null(values.type):
        return values.slice(0, 1), np.zeros(len(values), dtype=np.intp)
    encoded = values.dictionary_encode(null_encoding="encode")
    listed = encoded.dictionary
    keys = {"value": listed}
    if pa.types.is_string(listed.type):
        keys = {"shape": pc.replace_substring_regex(listed, "[0-9]", "9"), **keys}
    order = pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])
    place = np.empty(len(listed), dtype=np.intp)
    place[np.asarray(order)] = np.arange(len(listed))
    return listed.take(order), place[np.asarray(encoded.indices)]


def _list_different_objects(values: pa.Array) -> tuple[pa.Array, NDArray[np.intp]]:
    """Do the same for cells of several types, one type after the other."""
    first, place = [np.empty(0, np.intp)], np.zeros(len(values), dtype=np.intp)
    for rows, cells in split_union(values):
        listed, places = _list_different(decode_dictionary(cells))
        place[rows] = sum(map(len, first)) + places
        first.append(rows[np.unique(places, return_index=True)[1]][: len(listed)])
    return values.take(pa.array(np.concatenate(first))), place
