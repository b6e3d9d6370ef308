"""Columns that the spec may misread: how much of each was repaired, and which of its values.

PRIVATE: everything here is an exact function of the private rows.  It goes to the private zone and to an interactive
terminal, never to a log, a pipe or a release.
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
"""A column of which a larger share was repaired is likely to be misread."""

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
    AGAIN: "are there again in the table above",
    TWICE: "are there again in their household",
    ELSEWHERE: "are in another household, too",
}
"""What each repair says of the values that it touched."""


@dataclass(frozen=True)
class Misread:
    """PRIVATE: one column of which much was repaired.

    ``column`` is empty for whole records; ``repairs``: repair -> its share of the rows, largest first, all 0..1.
    """

    column: str
    repairs: Mapping[str, float] = field(repr=False)

    def shares(self) -> str:
        """Return what was repaired, in words and without a full stop."""
        of_all = "its values" if self.column else "all records"
        parts = [f"{share:.1%} {IN_WORDS.get(repair, f'({repair})')}" for repair, share in self.repairs.items()]
        return f"of {of_all} {', '.join(parts)}"

    def sentence(self) -> str:
        """Return the same with the column's name."""
        return f"`{self.column}`: {self.shares()}" if self.column else self.shares().capitalize()


def list_misread_columns(
    counts: Mapping[tuple[str, str], int], rows: int, least: float = MISREAD_SHARE
) -> tuple[Misread, ...]:
    """Return columns of which more than the share ``least`` was repaired, most first.

    ``counts``: (column, repair) -> values, as :class:`privsyn.tasks.steps.encode.Repairs` has them; ``rows``: of the
    table.  Rows left out by the unit of protection are no repair of a column.
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
    """Return repairs of a column that keep what its values mean, because the spec says so.

    What it does not list is another value, or null.  Where that becomes a listed value, it means something else than
    before.
    """
    described = spec.columns.get(column)
    if not isinstance(described, CategoricalColumn):
        return frozenset()
    repairs = {"unlisted"} if described.unlisted in ("other", "null") else set()
    return frozenset(repairs | ({"null"} if described.has_null else set()))


def count_repaired_rows(codec: Codec, columns: Columns, keeping: Set[str] = frozenset()) -> NDArray[np.bool_]:
    """Return the mask of shape (rows,): the values that ``codec`` repairs, but for the repairs ``keeping``.

    It asks the codec of ever smaller parts of the different values, like next to like, so few questions suffice.
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


def find_odd_texts(codec: Codec, columns: Columns, most: int) -> Counter[str]:
    """Return values that are in no list or cannot be read, as text, and how often each stands.

    At most ``most`` of them.
    """
    name, keeping = codec.sources[0], {"below min", "above max", "null", FRACTIONS}
    odd: Any = decode_dictionary(columns[name]).filter(pa.array(count_repaired_rows(codec, columns, keeping)))
    counted = pc.value_counts(to_keys(odd, pa.string()))
    values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    occurrences = Counter({v: n for v, n in zip(values, counts, strict=True) if v is not None})
    return Counter(dict(occurrences.most_common(most)))


def _list_different(values: Any) -> tuple[pa.Array, NDArray[np.intp]]:
    """Return the distinct values, similar ones next to each other, and each row's place among them."""
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
    """Return the same of cells that have several types: the distinct values of one type after those of another."""
    first, place = [np.empty(0, np.intp)], np.zeros(len(values), dtype=np.intp)
    for rows, cells in split_union(values):
        listed, places = _list_different(decode_dictionary(cells))
        place[rows] = sum(map(len, first)) + places
        first.append(rows[np.unique(places, return_index=True)[1]][: len(listed)])
    return values.take(pa.array(np.concatenate(first))), place
