"""Columns that were not counted by themselves: computed by rules, or dummies of one attribute.

Each is a public function of counted attributes.  Its levels are conditions on them; its numbers follow from theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.answers.answer_table import name_label
from privsyn.answers.cell_weights import ColumnCells, as_released
from privsyn.answers.conditions import (
    AllOf,
    AtLevel,
    Bools,
    Condition,
    Language,
    Parsed,
    ReadColumn,
    Values,
    make_unknown_column_error,
    match_all_rows,
    read_condition,
    refuse_unmeasured,
)
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.base.errors import RequestError
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.derived import SplitCodec
from privsyn.tasks.rules.intervals import NO, YES, Interval, Truth, convert_to_array, read_cells

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

MOST_LEVELS = 200
"""Most combinations of levels of computed columns in one question."""


class EmptySelectionError(RequestError):
    """No possible value fulfils the condition."""


def compute_values(name: str, codec: Codec, language: Language, values: Values) -> pa.Array:
    """Return a released column, computed from the counted columns that determine it."""
    if name not in language.book.order:
        return match_all_rows(values[name])
    book = language.book
    measured = {column: match_all_rows(values[column]) for column in book.find_measured_columns((name,))}
    texts = pa.array(list(book.vocabulary), pa.string())
    return convert_to_array(
        book.read_table(measured)(name), codec.ranges()[name].type, texts, len(next(iter(measured.values())))
    )


@dataclass(frozen=True)
class ComputedLevel(Condition):
    """A level of a computed column: the public bin ``level`` of its codec."""

    codec: Codec
    language: Language
    level: int

    @cached_property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The counted attributes behind the column."""
        return self.language.list_attributes((self.codec.attribute,))

    def holds(self, values: Values) -> Bools:
        """Return whether the column's value is in the level."""
        return self._is_of_level(compute_values(self.codec.attribute, self.codec, self.language, values))

    def _is_of_level(self, values: pa.Array) -> Bools:
        """Return which values of the column are in the level."""
        codes = self.codec.encode({self.codec.attribute: values})[0]
        return np.asarray(self.codec.groups[codes] == self.level)

    @property
    def _type(self) -> pa.DataType:
        return self.codec.ranges()[self.codec.attribute].type

    def evaluate(self, read: ReadColumn) -> Truth:
        """See :class:`Condition`; values beyond the column's bounds are in its first or last level."""
        book, name = self.language.book, self.codec.attribute
        interval = book.resolve(lambda column: read(column, book.vocabulary))(name)
        if self.codec.in_order:
            cells = read_cells(self.codec.counted_bounds()[name], book.vocabulary)
            codes = np.flatnonzero(cells.present)
            codes = codes[np.argsort(cells.low[codes], kind="stable")]
            first, last = (
                np.maximum(np.searchsorted(cells.low[codes], end, side="right") - 1, 0)
                for end in (interval.low, interval.high)
            )
            before = np.append(0, np.cumsum(self.codec.groups[codes] == self.level))
            inside = before[last + 1] - before[first]
            may, may_not = inside > 0, inside < last + 1 - first
        else:  # one value; if several are possible, any
            texts, several = pa.array(list(book.vocabulary), pa.string()), interval.low < interval.high
            low = interval.low.ravel()
            column = convert_to_array(Interval(low, low, NO, YES), self._type, texts, low.size)
            hit = self._is_of_level(column).reshape(interval.low.shape)
            may, may_not = several | hit, several | ~hit
        of_null = self._is_of_level(pa.nulls(1, self._type))[0]
        true = (interval.present & may) | (interval.null & of_null)
        return Truth(true, (interval.present & may_not) | (interval.null & ~of_null), NO)


def list_levels(released: ReleasedCounts, name: str) -> list[tuple[str, Condition]]:
    """Return the levels of a computed column: label and condition."""
    codec, every = released.every_codec[name], released.codecs.values()
    split = next((c for c in every if isinstance(c, SplitCodec) and c.column == name), None)
    return [
        (label, ComputedLevel(codec, released.language, i) if split is None else AtLevel(split, split.list_codes_in(i)))
        for i, label in enumerate(codec.bin_labels())
    ]


def state_rule(released: ReleasedCounts, text: str) -> Condition:
    """Parse a condition, and state it by counted codes where these decide it.

    Such codes come from split columns and from measured differences of two columns.  Raises RequestError as
    :func:`conditions.read_condition` does.
    """
    condition = read_condition(text, released.language)
    parts = condition.parts()
    translated = [_translate_to_split_codes(released, _translate_to_differences(released, part)) for part in parts]
    if translated == parts:
        return condition
    return translated[0] if len(translated) == 1 else AllOf(tuple(translated))


def _translate_to_differences(released: ReleasedCounts, part: Condition) -> Condition:
    """Return the condition with comparisons of two columns stated by codes of their difference, where measured."""
    if isinstance(part, AllOf):
        return AllOf(tuple(_translate_to_differences(released, condition) for condition in part.conditions))
    for codec in released.encoding.differences:
        pair = (codec.first.attribute, codec.second.attribute)
        if isinstance(part, Parsed) and part.compares_only(pair):
            # One example for each sign -1, 0, 1: the pairs (0, 1), (1, 1), (1, 0), in days for moments.
            types = {name: released.codecs[name].ranges()[name].type for name in pair}
            of_signs = {
                name: as_released(
                    np.array(numbers) * (86_400.0 if pa.types.is_temporal(types[name]) else 1.0), types[name]
                )
                for name, numbers in zip(pair, ([0, 1, 1], [1, 1, 0]), strict=True)
            }
            signs = np.flatnonzero(part.holds(of_signs)) - 1
            return AtLevel(codec, np.flatnonzero(np.isin(codec.signs, signs)))
    return part


def _translate_to_split_codes(released: ReleasedCounts, part: Condition) -> Condition:
    """Return the condition stated by split codes, if it holds for all or none of the values of each code."""
    for split in released.codecs.values():
        if not isinstance(split, SplitCodec) or split.attribute not in part.columns or len(part.columns) < 2:
            continue
        if {*part.columns} <= {split.attribute, *(other.attribute for other in split.others)}:
            values: dict[str, pa.Array] = {}
            places = np.nonzero(~split.forbidden())
            for codec, codes in zip((split, *split.others), places, strict=True):
                values |= codec.decode(codes, np.random.default_rng(0))
            many = np.bincount(places[0], minlength=split.size)
            holding = np.bincount(places[0], weights=part.holds(values), minlength=split.size)
            if ((holding == 0) | (holding == many)).all():
                return AtLevel(split, np.flatnonzero(holding > 0))
    return part


def ask_by_levels(
    released: ReleasedCounts,
    by: Sequence[str],
    where: str | Condition | None,
    ask: Callable[[tuple[str, ...], Condition], pd.DataFrame],
) -> pd.DataFrame:
    """Ask for every combination of levels of the computed columns of ``by``, and join the answers to one table."""
    import pandas as pd

    names = [name_label(c) for c in by]
    apart = [c for c in by if c not in released.columns]
    every = [list_levels(released, c) for c in apart]
    if np.prod([float(len(levels)) for levels in every]) > MOST_LEVELS:
        raise RequestError(
            f"asks for more than {MOST_LEVELS} levels of columns that rules compute",
            "Ask by conditions (`where`) instead",
            "query.columns",
        )
    condition = state_rule(released, where) if isinstance(where, str) else where
    tables: list[pd.DataFrame] = []
    for combination in product(*every):
        try:
            table = ask(
                tuple(c for c in by if c in released.columns),
                AllOf((*((condition,) if condition else ()), *(one for _, one in combination))),
            )
        except EmptySelectionError:
            continue
        for column, (label, _) in zip(apart, combination, strict=True):
            table.insert(0, name_label(column), label)
        tables.append(table[[*names, *(c for c in table.columns if c not in names)]])
    if not tables:
        raise EmptySelectionError("no possible value fulfils the condition", "", "query.where")
    words = dict.fromkeys(w for t in tables for w in t.attrs["words"])
    for table in tables:
        table.attrs = {}
    joined: pd.DataFrame = pd.concat(tables, ignore_index=True)
    joined.attrs["words"] = list(words)
    return joined


def compute_numbers(released: ReleasedCounts, name: str, values: Values) -> Floats:
    """Return a released number column as numbers, NaN for null; moments in seconds.

    Raises RequestError for a column without numbers.
    """
    column = compute_values(name, released.every_codec[name], released.language, values)
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        raise RequestError(f"the column {name!r} holds no numbers", "Name a column of numbers", "query.columns")
    return convert_to_numbers(released, name, column)


def convert_to_numbers(released: ReleasedCounts, name: str, column: pa.Array | pa.ChunkedArray) -> Floats:
    """Return values of a released number column as numbers, NaN for null; moments in seconds."""
    codec = released.every_codec[name]
    if codec.in_order:
        column = codec.read({name: column})[name]
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)


def compute_row_numbers(released: ReleasedCounts, name: str) -> Floats:
    """Return the column's numbers in the synthetic rows."""
    sources = (c for a in released.language.list_attributes((name,)) for c in released.written[a])
    return compute_numbers(released, name, {c: released.table[c] for c in sources})


def locate_computed_columns(cells: ColumnCells, name: str) -> tuple[Floats, Floats, Floats]:
    """Locate a computed column as ``counted.locate_cells`` does, from values sampled in the cells behind it."""
    released = cells.released
    behind = released.language.list_attributes((name,))
    drawn = compute_numbers(released, name, cells.drawn(behind))
    figures = drawn.reshape(int(np.prod([cells.shape[cells.columns.index(c)] for c in behind])), -1)
    finite = np.isfinite(figures)
    low = np.where(finite, figures, np.inf).min(axis=1)
    high = np.where(finite, figures, -np.inf).max(axis=1)
    has_bounds = finite.any(axis=1)
    with np.errstate(invalid="ignore"):
        middle = np.where(has_bounds, (low + high) / 2, 0.0)
        half = np.where(has_bounds, (high - low) / 2, 0.0)

    def flat(by_cell: Floats) -> Floats:
        return np.broadcast_to(cells.broadcast(behind, by_cell), cells.shape).ravel()

    return flat(middle), flat(half), flat(finite.mean(axis=1))


def check_column(released: ReleasedCounts, name: str) -> str:
    """Return the name.  Raises RequestError unless it is a released column that was measured."""
    if name not in released.language.types:
        raise make_unknown_column_error(name, "query.columns")
    refuse_unmeasured(name, released.language, "query.columns")
    return name
