"""Columns of private rows as arrays, to search for relations, and a relation that was found.  All of it is PRIVATE."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from keyword import iskeyword
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns import (
    BooleanColumn,
    CategoricalColumn,
    DateColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
)
from privsyn.data_contracts.rule_language import CONSTANTS, COUNT, FUNCTIONS, NEIGHBOURS
from privsyn.data_contracts.rules import infer_type
from privsyn.specs.draft import TODO, format_flow
from privsyn.tasks.codecs import Codec

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_ROWS = 200_000

MOST_DECIMALS = 6
"""Largest number of decimals tried for a stored number."""

DAY = 86_400.0

_PLAIN_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_RESERVED = frozenset((*CONSTANTS, *FUNCTIONS, COUNT, *NEIGHBOURS))

RULE = "rules"
COMPARE = "compare"


class RowSample:
    """Rows spread evenly over a table: all rows up to ``limit``, else every second, fourth, ... row."""

    def __init__(self, limit: int = MOST_ROWS) -> None:
        self._most, self._step, self._seen = limit, 1, 0
        self._kept: list[tuple[int, pa.RecordBatch]] = []  # (number of its first row in the table, batch)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take every ``step``-th row of the next batch."""
        start = -self._seen % self._step
        self._kept.append((self._seen + start, _take_every(batch, start, self._step)))
        self._seen += batch.num_rows
        while sum(kept.num_rows for _, kept in self._kept) > self._most:
            odd = [first // self._step % 2 for first, _ in self._kept]
            self._kept = [
                (first + start * self._step, _take_every(kept, start, 2))
                for (first, kept), start in zip(self._kept, odd, strict=True)
            ]
            self._step *= 2

    def read(self, codecs: Collection[Codec]) -> dict[str, pa.Array]:
        """Return the values of the codecs' columns as a release counts them."""
        parts: dict[str, list[pa.Array]] = {}
        for _, batch in self._kept:
            for codec in codecs:
                if codec.ranges():
                    read = codec.read({name: batch.column(name) for name in codec.sources})
                    for name, values in read.items():
                        parts.setdefault(name, []).append(values)
        return {name: _join(arrays) for name, arrays in parts.items()}


def _join(arrays: list[pa.Array]) -> pa.Array:
    joined = pa.chunked_array(arrays).unify_dictionaries().combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _take_every(batch: pa.RecordBatch, start: int, step: int) -> pa.RecordBatch:
    return batch if step == 1 else batch.take(pa.array(np.arange(start, batch.num_rows, step)))


@dataclass(frozen=True, eq=False)
class AdviceColumn:
    """PRIVATE: one column of the rows.

    ``described``: the column's part of the spec.  ``codes``: each row's code, shape (rows,), null last.
    ``values``: the values by code, without null.  ``numbers``: each row's number, shape (rows,), NaN for null, moments
    in days since 1970; empty if the column is not ordered.
    """

    name: str
    described: Any
    codes: NDArray[np.int64]
    values: tuple[Any, ...]
    numbers: Floats

    def __repr__(self) -> str:
        return f"<Column {self.name!r}: PRIVATE>"

    @property
    def size(self) -> int:
        """The number of values, without null."""
        return len(self.values)

    @cached_property
    def null(self) -> Mask:
        """The mask of the rows that are null."""
        return self.codes == self.size

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows of each code, null last."""
        return np.bincount(self.codes, minlength=self.size + 1)

    @property
    def is_ordered(self) -> bool:
        """Whether values are numbers, days or moments."""
        return self.is_amount or self.is_moment

    @property
    def is_moment(self) -> bool:
        """Whether values are days or moments."""
        return isinstance(self.described, DateColumn | DatetimeColumn)

    @property
    def is_amount(self) -> bool:
        """Whether values are numbers."""
        return isinstance(self.described, IntegerColumn | NumberColumn)

    @property
    def is_discrete(self) -> bool:
        """Whether values are categories, booleans or whole numbers."""
        return isinstance(self.described, CategoricalColumn | BooleanColumn | IntegerColumn)

    @cached_property
    def unit(self) -> float:
        """The resolution of the stored numbers, a power of 10; 0 if none is found."""
        if not self.is_amount:
            return 0.0
        known = self.numbers[~self.null][:2_000]
        for decimals in range(MOST_DECIMALS + 1):
            if np.allclose(known, np.round(known, decimals), rtol=0, atol=1e-9):
                return float(10.0**-decimals)
        return 0.0


def build_columns(columns: Mapping[str, Any], rows: Mapping[str, pa.Array]) -> list[AdviceColumn]:
    """Return the columns that rules can name and that are not constant, in the spec's order."""
    built = (_build_column(n, c, rows[n]) for n, c in columns.items() if n in rows and "`" not in n)
    return [column for column in built if column is not None and column.size + int(column.null.any()) > 1]


def _build_column(name: str, described: Any, array: pa.Array) -> AdviceColumn | None:
    null = np.asarray(pc.is_null(array, nan_is_null=True))
    match described:
        case IntegerColumn() | NumberColumn() | DateColumn() | DatetimeColumn():
            numbers = np.asarray(pc.fill_null(array.cast(pa.float64(), safe=False), np.nan), np.float64)
            numbers = numbers / DAY if infer_type(described) == "moment" else numbers
            known, codes = np.unique(numbers[~null], return_inverse=True)
            values: tuple[Any, ...] = tuple(known.tolist())
        case CategoricalColumn() | BooleanColumn():
            encoded = array.dictionary_encode() if not pa.types.is_dictionary(array.type) else array
            values = tuple(encoded.dictionary.to_pylist())
            codes = np.asarray(pc.fill_null(encoded.indices, 0)).astype(np.int64)[~null]
            present = np.flatnonzero(np.bincount(codes, minlength=len(values)))  # drop values that no row has
            codes, values = np.searchsorted(present, codes), tuple(values[i] for i in present)
            numbers = np.empty(0)
        case _:
            return None
    every = np.full(len(array), len(values), np.int64)
    every[~null] = codes
    return AdviceColumn(name, described, every, values, numbers)


def name_in_rule(column: AdviceColumn) -> str:
    """Return a column's name as an expression writes it."""
    name = column.name
    is_plain = _PLAIN_NAME.fullmatch(name) and not iskeyword(name) and name not in _RESERVED
    return name if is_plain else f"`{name}`"


def name_in_sentence(column: AdviceColumn | str) -> str:
    """Return a column's name as a sentence writes it."""
    return f"`{column if isinstance(column, str) else column.name}`"


def format_value(value: Any) -> str:
    """Return a value as an expression writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.12g}"
    return repr(value)


def pair_columns(columns: Collection[AdviceColumn]) -> Iterator[tuple[AdviceColumn, AdviceColumn]]:
    """Yield every ordered pair of two columns."""
    for first in columns:
        yield from ((first, second) for second in columns if second is not first)


@dataclass(frozen=True)
class Finding:
    """PRIVATE: a relation in the rows.

    ``kind``: dependency, order, implication, arithmetic, band, one_of or compare; ``columns``: its columns;
    ``sentence``: without a full stop; ``section``: section of the spec for the relation; ``content``: entry for that
    section, JSON-ready, with ``TODO`` to fill in.
    """

    kind: str
    columns: tuple[str, ...]
    sentence: str = field(repr=False)
    section: str = field(repr=False)
    content: Any = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the finding, JSON-ready; PRIVATE."""
        return {"kind": self.kind, "columns": list(self.columns), "sentence": self.sentence, "yaml": self.as_yaml()}

    def as_yaml(self) -> str:
        """Return the entry as YAML, to paste into the list ``section`` of a spec."""
        if not isinstance(self.content, Mapping):
            return f"  - {format_flow(self.content)}"
        lines = [f"{name}: {format_flow(value)}" for name, value in self.content.items()]
        lines = [line.replace(f'"{TODO}"', TODO) for line in lines]
        return "\n".join([f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])])


def make_rule(kind: str, columns: tuple[str, ...], sentence: str, **content: Any) -> Finding:
    """Return a finding with the rule for it, whose source is a TODO."""
    return Finding(kind, columns, sentence, RULE, {**content, "source": TODO})
