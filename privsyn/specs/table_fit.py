"""How a private table fits its spec: the repairs of a release.  All of it is PRIVATE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.base.wording import make_printable
from privsyn.data_contracts.columns import IntegerColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.private_table import LEFT_OUT, Source
from privsyn.specs.advice import Advice, advise
from privsyn.specs.advice.columns import RowSample
from privsyn.specs.messages import clip_text
from privsyn.specs.misread import (
    LEADING_ZEROS,
    MISREAD_SHARE,
    Misread,
    find_odd_texts,
    list_misread_columns,
    suggest_cures,
)
from privsyn.specs.private_guesses import CODE
from privsyn.tasks.codecs import Codec
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.codecs.parsing import decode_dictionary, to_keys

EXAMPLES = 5
_TRIED = 500
"""Largest number of distinct odd values per column that are kept for examples and cures."""


@dataclass
class ColumnFit:
    """PRIVATE: how one column of the table fits.

    ``repairs``: repair -> number of values; ``cures``: likely cures, as sentences.
    """

    column: str
    stored: str
    released: str
    nulls: int = field(default=0, repr=False)
    repairs: Counter[str] = field(default_factory=Counter, repr=False)
    examples: list[str] = field(default_factory=list, repr=False)
    cures: list[str] = field(default_factory=list, repr=False)


CAPS = (1, 2, 3, 5, 10, 20, 50, 100)
"""Caps on rows per person for which a fit reports the rows left out."""


@dataclass
class TableFit:
    """PRIVATE: how the whole table fits.

    ``cut``: number of rows left out by the unit's identifier and max_records.
    ``cut_by``: cap -> number of rows that the cap would leave out.
    ``unread``: number of unreadable records, not counted in ``rows``.
    ``misread``: columns with so many repairs that the spec is likely wrong.
    ``advice``: relations in the rows that the spec does not state.
    """

    rows: int
    columns: list[ColumnFit]
    cut: int | None = None
    cut_by: Mapping[int, int] = field(default_factory=dict, repr=False)
    unread: int = 0
    misread: tuple[Misread, ...] = field(default=(), repr=False)
    advice: Advice = field(default_factory=Advice, repr=False)

    def __repr__(self) -> str:
        return "<Fit: PRIVATE>"


def fit_of(spec: ReleaseSpec, source: Source, codecs: tuple[Codec, ...], *, compares: bool = True) -> TableFit:
    """PRIVATE: return how the rows of ``source`` fit.  Raises RequestError if the table breaks off while it is read.

    ``compares``: whether the spec can compare columns of these rows.
    """
    ranges = {name: str(r.type) for codec in codecs for name, r in codec.ranges().items()}
    fits = {
        name: ColumnFit(name, _describe_type(source.types[name]), ranges.get(name, ""))
        for codec in codecs
        for name in codec.sources
    }
    people: Counter[Any] = Counter()
    odd: dict[str, Counter[str]] = {name: Counter() for name in fits}
    codes: set[str] = set()
    rows, reading, sample = 0, Repairs(), RowSample()
    for batch in source.batches(reading):
        rows += batch.num_rows
        sample.add(batch)
        data = dict(zip(batch.schema.names, batch.columns, strict=True))
        if spec.unit.identifier is not None:
            counted: Any = pc.value_counts(to_keys(data[spec.unit.identifier], pa.string()))  # keys as in tasks/steps
            values, numbers = (counted.field(name).to_pylist() for name in ("values", "counts"))
            people.update(dict(zip(values, numbers, strict=True)))
        for codec in codecs:
            if codec.ranges():
                name = codec.sources[0]
                odd[name] = Counter(dict((odd[name] + _add(fits[name], codec, data)).most_common(_TRIED)))
                if isinstance(spec.columns[name], IntegerColumn) and _has_leading_zeros(data[name]):
                    codes.add(name)
    for (column, repair), many in reading.counts.items():
        if column in fits:
            fits[column].repairs[repair] += many
    for name, fit in fits.items():
        fit.examples = list(dict.fromkeys(map(show_value, odd[name])))[:EXAMPLES]
    unread = reading.counts["", LEFT_OUT]
    of_keys = {(name, repair): many for (name, repair), many in reading.counts.items() if name not in fits}
    counts = {(name, repair): many for name, fit in fits.items() for repair, many in fit.repairs.items()}
    misread = list_misread_columns({**of_keys, **counts}, rows)
    shares = {m.column: m.repairs for m in misread}
    for name, fit in fits.items():
        repairs = {**shares.get(name, {}), **({LEADING_ZEROS: 1.0} if name in codes else {})}
        read = rows - fit.nulls - fit.repairs["unparseable"]
        fit.cures = list(suggest_cures(spec.columns[name], odd[name], repairs, read_some=read > MISREAD_SHARE * rows))
    cut_by = {} if spec.unit.identifier is None else {cap: _cut(people, cap) for cap in CAPS}
    cut = None if spec.unit.identifier is None else _cut(people, spec.unit.records)
    advice = advise(spec, sample.read(codecs), compares=compares and spec.order is None)
    return TableFit(rows, list(fits.values()), cut, cut_by, unread, misread, advice)


def _describe_type(stored: pa.DataType | None) -> str:
    if stored is not None and pa.types.is_union(stored):
        return "objects"
    return str(stored or "text")[:60]


def _add(fit: ColumnFit, codec: Codec, data: Mapping[str, pa.Array]) -> Counter[str]:
    """Add one batch to the fit of its column; return its odd values as text, with their counts."""
    arrays = {name: data[name] for name in codec.sources}
    array: Any = arrays[codec.sources[0]]
    fit.nulls += int(np.count_nonzero(pc.is_null(array, nan_is_null=True)))
    repairs = codec.inspect(arrays)
    fit.repairs.update(repairs)
    odd = len(arrays) == 1 and {"unlisted", "unparseable"} & set(repairs)
    return find_odd_texts(codec, arrays, _TRIED) if odd else Counter()


def _has_leading_zeros(array: pa.Array) -> bool:
    """Return whether any text of digits begins with a zero, which a number would lose."""
    values: Any = decode_dictionary(array)
    return bool(pa.types.is_string(values.type)) and bool(pc.any(pc.match_substring_regex(values, CODE)).as_py())


def _cut(people: Mapping[Any, int], cap: int) -> int:
    """Return the number of rows that a cap leaves out: each person's rows above it, and all rows without a person."""
    return sum(n if person is None else max(0, n - cap) for person, n in people.items())


def show_value(value: Any) -> str:
    """Return a value on one short line, without control characters."""
    return clip_text(make_printable(str(value)), 40)
