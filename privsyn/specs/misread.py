"""Columns that the spec may misread: the share of values repaired, the repaired values, and likely cures by their form.

PRIVATE: everything here is an exact function of the private rows.  It goes only to the private zone and to an
interactive terminal, never to a log, a pipe or a release.  A cure quotes none of the values except usual texts for
null.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Set
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

_WORDS = ("na", "n/a", "#n/a", "n.a.", "<na>", "nan", "nat", "null", "none", "nil", "nd", "missing", "unknown")
NULL_TEXTS = frozenset((*_WORDS, "-", "--", ".", "..", "?"))
"""Usual texts for a missing value, in lower case."""

LEADING_ZEROS = "leading zeros"
"""Entry among a column's repairs, for a cure: whole numbers are written with leading zeros."""

_SLASHED = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(\D.*)?")
_NAMED_MONTH = re.compile(r"\d{1,2}([ -])[A-Za-z]{3}\1(\d{4}|\d{2})(\D.*)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d(\D.*)?")
_ZONE = re.compile(r"\d{4}-\d\d?-\d\d?.*\d *(?:[A-Z]{3,5}|[A-Za-z]+/[A-Za-z_/]+|\[[^]]+\])")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_DECIMAL_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}([. ']\d{3})+),\d+")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d+)?")
_SIGN = re.compile(r"[$€£¥]\s*[-+]?[\d.,]+|[-+]?[\d.,]+\s*[$€£¥%]")


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


def suggest_cures(
    column: object, odd: Collection[str], repairs: Mapping[str, float], *, read_some: bool = False
) -> tuple[str, ...]:
    """Return cures as sentences without full stops, likeliest first; empty if none is known.

    ``column``: the column's part of the spec.  ``odd``: the column's unlisted or unreadable values, as text.
    ``repairs``: the repairs of more than a few values.  ``read_some``: whether other values were read as the spec says.
    """
    texts = [text.strip() for text in odd]
    nulls = sorted({text for text in texts if text.lower() in NULL_TEXTS})
    not_null = [text for text in texts if text and text.lower() not in NULL_TEXTS]
    kind = getattr(column, "kind", "")
    cures = []
    if kind in ("datetime", "date", "time"):
        cures = _suggest_moments(not_null, getattr(column, "format", ""), read_some=read_some)
    elif kind in ("integer", "number"):
        cures = _suggest_numbers(not_null)
    if isinstance(column, CategoricalColumn):
        cures += _suggest_categories(not_null, column)
    if nulls:
        listed = ", ".join(f'"{text}"' for text in nulls[:3])
        cures.append(f"{listed} may mean null: list it in `null_values` of a CSV file, and write `nullable: true`")
    return tuple(cures + [cure for repair, cure in _OTHERS.items() if repair in repairs])


_OTHERS = {
    LEADING_ZEROS: "Values have zeros in front, which a number loses: if they are codes, write `kind: categorical`",
    "below min": "Check `min` and its unit against the codebook",
    "above max": "Check `max` and its unit against the codebook",
    FRACTIONS: "Values have fractions: write `kind: number`",
    "null": "Write `nullable: true` if null can occur",
    "not UTF-8": "Name the file's encoding, such as `csv: {encoding: latin-1}`",
}


def _suggest_moments(texts: Collection[str], written: str, *, read_some: bool) -> list[str]:
    """Return cures for days and moments; ``written``: the spec's ``format``, empty for ISO 8601."""
    cures = []
    slashed = [match for match in map(_SLASHED.fullmatch, texts) if match]
    if read_some and (slashed if not written else any(map(_ISO.fullmatch, texts))):
        cures.append("Dates are written in more than one way, and a column has one `format`: store all as YYYY-MM-DD")
    elif slashed:
        cures.append(_suggest_date_order(slashed))
    named = next((match for match in map(_NAMED_MONTH.fullmatch, texts) if match), None)
    if named:
        year = "%Y" if len(named[2]) == 4 else "%y"
        cures.append(
            f'Months are names: write `format: "%d{named[1]}%b{named[1]}{year}{_suggest_time_of_day(named[3])}"`'
        )
    if any(map(_ZONE.fullmatch, texts)):
        cures.append("Moments name a time zone: write `zone:` with the zone of the released moments")
    if any(map(_NUMBER.fullmatch, texts)):
        cures.append(
            "Moments are stored as numbers, seconds or days since a start: store them as YYYY-MM-DD (in a spreadsheet, "
            "give their cells a date's format before it is saved)"
        )
    if any(map(_CLOCK.fullmatch, texts)):
        cures.append("Values are times of day: write `kind: time`")
    return cures


def _suggest_date_order(dates: Collection[re.Match[str]]) -> str:
    """Return the cure for dates that do not begin with the year: day first or month first, if the dates tell."""
    date = next(iter(dates))
    year, separator, time = "%Y" if len(date[4]) == 4 else "%y", date[2], _suggest_time_of_day(date[5])
    orders = {first: f'`format: "{separator.join((*first, year))}{time}"`' for first in (("%d", "%m"), ("%m", "%d"))}
    day_first, month_first = any(int(d[1]) > 12 for d in dates), any(int(d[3]) > 12 for d in dates)
    if day_first != month_first:
        order = orders["%d", "%m"] if day_first else orders["%m", "%d"]
        return f"Dates have the {'day' if day_first else 'month'} first: write {order}"
    return f"Dates do not begin with the year: write {orders['%d', '%m']} or {orders['%m', '%d']}"


def _suggest_time_of_day(text: str | None) -> str:
    match = re.match(r"(\D+)\d{1,2}:\d\d(:\d\d)?", text or "")
    return "" if match is None else match[1] + ("%H:%M:%S" if match[2] else "%H:%M")


def _suggest_numbers(texts: Collection[str]) -> list[str]:
    cures = []
    commas = [text for text in texts if _DECIMAL_COMMA.fullmatch(text)]
    thousands = [text for text in texts if _THOUSANDS.fullmatch(text)]
    if set(commas) - set(thousands):
        cures.append('Numbers have a decimal comma: write `csv: {decimal: ","}`')
    elif thousands:
        separator = next(c for c in thousands[0].lstrip("+-") if not c.isdigit())
        cures.append(f'Numbers have a separator of thousands: write `csv: {{thousands: "{separator}"}}`')
    if any(map(_SIGN.fullmatch, texts)):
        cures.append("Numbers have a sign of currency or per cent: store them without it")
    if any(map(_CLOCK.fullmatch, texts)):
        cures.append("Values are times of day: write `kind: time`")
    if any(map(_SLASHED.fullmatch, texts)):
        cures.append("Values are dates: write `kind: date`")
    return cures


def _suggest_categories(texts: Collection[str], column: CategoricalColumn) -> list[str]:
    categories = {str(value) for value in column.values}
    alike = {value.strip().casefold() for value in categories}
    zeros = {_suggest_unpadded(value) for value in categories}
    cures = []
    if any(text.casefold() in alike for text in texts):
        cures.append("Some differ from a listed value in capital letters or spaces only: list them as they are stored")
    elif any(_suggest_unpadded(text) in zeros for text in texts):
        cures.append("Some differ from a listed value in zeros or a decimal point only: list them as they are stored")
    elif texts:
        cures.append("List what the codebook has for this column, or say with `unlisted` where the rest goes")
    return cures


def _suggest_unpadded(text: str) -> str:
    """Return a number without leading zeros and zero decimals; other text unchanged."""
    return re.sub(r"\.0+$", "", text).lstrip("0") or "0" if _NUMBER.fullmatch(text) else text
