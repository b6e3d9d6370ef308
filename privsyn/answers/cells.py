"""The cells of a question: the levels of its columns, and the part of each cell that a condition selects.

Some columns were not counted by themselves: they are computed by rules, or are dummies of one attribute.  Each is a
public function of counted attributes.  Its levels are conditions on them; its numbers follow from theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from privsyn.answers.answer_table import name_label
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
    name_codes_attribute,
    read_condition,
    refuse_unmeasured,
)
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.base.errors import RequestError
from privsyn.data_contracts.domain import Clique
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.derived import DifferenceCodec, SplitCodec
from privsyn.tasks.codecs.person_figures import SummaryCodec
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.panels.allowed_codes import join_values
from privsyn.tasks.rules.intervals import NO, YES, Interval, Truth, conjoin, convert_to_array, place_on_axis, read_cells

if TYPE_CHECKING:
    import pandas as pd


Floats = NDArray[np.float64]

POINTS_PER_INTERVAL = 100
"""Values sampled from an interval that a condition cuts."""

MOST_POINTS = 400_000
"""Most sampled values for all cells of several columns together; each cell gets at least 5."""

LEAST_PART = 1e-9
"""The part of a cell assigned to a condition that holds for very few of its values; 1 minus it for almost all."""

BESIDE = 1e-9
"""Distance from a value to its sampled neighbours, relative to the value."""

MAX_NAMED_VALUES = 6
"""Values of a combined code that its label names."""

MOST_LEVELS = 200
"""Most combinations of levels of computed columns in one question."""


@dataclass(frozen=True)
class AnswerLevels:
    """The levels of a column: ``labels`` by level; ``level_by_cell``: cell code -> level, -1 for no level."""

    labels: Sequence[str]
    level_by_cell: NDArray[np.integer[Any]]


@dataclass(frozen=True)
class ColumnCells:
    """The cells of some columns: fine codes of one column, coarse codes of several; flat in the columns' order.

    ``coarse``: use coarse codes as levels even for one column, as questions about several columns do.
    """

    released: ReleasedCounts
    columns: Clique
    coarse: bool = False

    @property
    def fine(self) -> bool:
        """Whether cells are fine codes."""
        return len(self.columns) == 1

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Cells along each column."""
        if self.fine:
            return (len(self.released.recode[self.columns[0]].coarse),)
        return self.released.domain.shape(self.columns)

    def levels(self, column: str) -> AnswerLevels:
        """Return the levels of a column: public bins for a single column.

        Otherwise coarse codes; coarse codes that share values are one level.
        """
        if self.fine and not self.coarse:
            codec = self.released.codecs[column]
            if isinstance(codec, SplitCodec):
                return AnswerLevels(codec.codec.bin_labels(), codec.code_alone)
            return AnswerLevels(codec.bin_labels(), codec.groups)
        joint = build_coarse_levels(self.released, column)
        if not self.fine:
            return joint
        return AnswerLevels(joint.labels, map_fine_codes_to_levels(self.released, column, joint))

    def spread(self, column: str, fine_values: Floats) -> Floats:
        """Return the mean of a figure of fine codes in each cell, weighted by the fine codes' known shares."""
        if self.fine:
            return fine_values
        recode = self.released.recode[column]
        counted = np.flatnonzero(recode.kept & np.isfinite(fine_values))
        weight = recode.weight[counted]
        sums = np.bincount(recode.coarse[counted], weights=weight * fine_values[counted], minlength=recode.size)
        shares = np.bincount(recode.coarse[counted], weights=weight, minlength=recode.size)
        even = np.bincount(recode.coarse[counted], weights=fine_values[counted], minlength=recode.size)
        number = np.bincount(recode.coarse[counted], minlength=recode.size)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(shares > 0, sums / shares, even / number)

    def share_inside(self, column: str, holds: Floats) -> Floats:
        """Return the part of each cell that a condition selects.

        The part is just above 0 or below 1 if the condition selects some of a code's combined values, but their known
        shares say none or all.
        """
        shares, recode = self.spread(column, holds), self.released.recode[column]
        if self.fine:
            return shares
        least, most = np.ones(recode.size), np.zeros(recode.size)
        np.minimum.at(least, recode.coarse[recode.kept], holds[recode.kept])
        np.maximum.at(most, recode.coarse[recode.kept], holds[recode.kept])
        return _mark_cut(shares, least < most)

    def fractions(self, condition: Condition | None) -> Floats:
        """Return the part of each cell, flat, that the condition selects if values are uniform inside cells."""
        part = np.ones(int(np.prod(self.shape)))
        for conjunct in condition.parts() if condition else ():
            if len(conjunct.columns) == 1:
                shares = self.share_inside(conjunct.columns[0], compute_fine_fractions(self.released, conjunct))
                part = part * self.lay_out(conjunct.columns, shares)
            elif conjunct.columns:
                surely, possibly = self._bound_jointly(conjunct, conjunct.columns)
                shares = _mark_cut(self._share_of_drawn(conjunct), (possibly & ~surely).ravel())
                part = part * self.lay_out(conjunct.columns, shares)
        return part

    def indicators(self, by: Sequence[str]) -> tuple[list[tuple[str, ...]], sp.csr_matrix]:
        """Return the answers, one for each combination of levels of ``by``.

        Returns labels, and a 0/1 matrix of shape (answers, cells).
        """
        levels = [self.levels(column) for column in by]
        index = np.indices(self.shape).reshape(len(self.shape), -1)
        sizes = [len(level.labels) for level in levels]
        number, inside = np.zeros(index.shape[1], dtype=np.int64), np.ones(index.shape[1], dtype=bool)
        for column, level, size in zip(by, levels, sizes, strict=True):
            level_of_cell = level.level_by_cell[index[self.columns.index(column)]]
            number, inside = number * size + level_of_cell, inside & (level_of_cell >= 0)
        cells, shape = np.flatnonzero(inside), (int(np.prod(sizes)) if sizes else 1, index.shape[1])
        return list(product(*(level.labels for level in levels))), mark_pairs(number[cells], cells, shape)

    def _share_of_drawn(self, condition: Condition) -> Floats:
        """Return the share of values sampled uniformly in the cells of its columns that a condition selects, flat."""
        holds = condition.holds(self.drawn(condition.columns))
        cells = int(np.prod([self.shape[self.columns.index(c)] for c in condition.columns]))
        shares: Floats = holds.reshape(cells, -1).mean(axis=1)
        return shares

    def _bound_jointly(self, condition: Condition, columns: Clique) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the cells of ``columns`` in which a condition holds for every value, and for some value."""
        needs_all, joined = condition.split()
        if joined and len(condition.columns) > 1:
            surely, possibly = zip(*(self._bound_jointly(each, columns) for each in joined), strict=True)
            join = np.logical_and if needs_all else np.logical_or
            return join.reduce(surely), join.reduce(possibly)
        sizes = [self.shape[self.columns.index(c)] for c in columns]
        if not condition.columns:  # such as `1 == 2`
            always = bool(condition.holds(self.drawn(columns[:1])).all())
            return np.full(sizes, always), np.full(sizes, always)
        if len(condition.columns) > 1:
            part = _mark_possible(self._share_of_drawn(condition), self._evaluate(condition))
        else:
            (column,) = condition.columns
            part = self.share_inside(column, compute_fine_fractions(self.released, condition))
        axes = [columns.index(c) for c in condition.columns]
        placed = part.reshape([sizes[i] for i in axes]).transpose(np.argsort(axes))
        in_all_axes = np.broadcast_to(placed.reshape([sizes[i] if i in axes else 1 for i in range(len(sizes))]), sizes)
        return in_all_axes >= 1, in_all_axes > 0

    def _evaluate(self, condition: Condition) -> Truth:
        """Return whether a condition may be true, false or unknown in each coarse cell of its columns, flat."""
        released, attributes = self.released, condition.columns

        def read_column(name: str, vocabulary: Mapping[str, int]) -> Interval:
            attribute = released.language.attributes.get(name, name)
            fine = read_cells(released.codecs[attribute].counted_bounds()[name], vocabulary)
            recode = released.recode[attribute]
            coarse = join_values(fine, recode, recode.size)
            if (coarse.low == coarse.high).all():
                coarse = replace(coarse, high=coarse.low)  # exact
            return place_on_axis(coarse, attributes.index(attribute), len(attributes))

        truth, sizes = condition.evaluate(read_column), [self.shape[self.columns.index(a)] for a in attributes]
        return Truth(*(np.broadcast_to(side, sizes).ravel() for side in (truth.true, truth.false, truth.unknown)))

    def drawn(self, columns: Clique) -> dict[str, pa.Array]:
        """Return values sampled uniformly inside the cells of some of the columns, in their released types.

        Cell by cell, the same number in each.
        """
        sizes = [self.shape[self.columns.index(c)] for c in columns]
        number = int(np.clip(MOST_POINTS // max(int(np.prod(sizes)), 1), 5, POINTS_PER_INTERVAL))
        rng = np.random.default_rng(0)
        values: dict[str, pa.Array] = {}
        for row, column in zip(np.indices(sizes).reshape(len(sizes), -1), columns, strict=True):
            recode = self.released.recode[column]
            codes = np.repeat(row, number)
            fine = codes if self.fine else np.empty(len(codes), dtype=np.int64)
            for code in () if self.fine else range(recode.size):
                inside = np.flatnonzero(recode.kept & (recode.coarse == code))
                at_code = np.flatnonzero(codes == code)
                fine[at_code] = rng.choice(inside, len(at_code))
            points = sample_points(self.released, column)
            points_per_code = len(next(iter(points.values()))) // len(recode.coarse)
            positions = pa.array(fine * points_per_code + rng.integers(0, points_per_code, len(fine)))
            values |= {name: array.take(positions) for name, array in points.items()}
        return values

    def lay_out(self, columns: Clique, figures: Floats) -> Floats:
        """Return the figure of every cell, flat, from flat figures of the cells of some of the columns."""
        axes = [self.columns.index(c) for c in columns]
        placed = figures.reshape([self.shape[a] for a in axes]).transpose(np.argsort(axes))
        placed = placed.reshape([self.shape[i] if i in axes else 1 for i in range(len(self.shape))])
        return np.broadcast_to(placed, self.shape).ravel()

    def list_left_out(self, condition: Condition | None) -> dict[str, NDArray[np.bool_]]:
        """Return column -> the fine codes that have no cell and that the condition may select; empty for one column."""
        codes_by_column = {}
        for part in condition.parts() if condition and not self.fine else ():
            for column in part.columns:
                gone = ~self.released.recode[column].kept
                if gone.any() and len(part.columns) == 1:
                    gone = gone & (compute_fine_fractions(self.released, part) > 0)
                if gone.any():
                    codes_by_column[column] = gone
        return codes_by_column


def sum_to_coarse(recode: AttributeRecode) -> sp.csr_matrix:
    """Return the sums that map counts of fine codes to counts of coarse codes."""
    fine = np.flatnonzero(recode.kept)
    return mark_pairs(recode.coarse[fine], fine, (recode.size, len(recode.coarse)))


def mark_pairs(rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]) -> sp.csr_matrix:
    """Return a matrix of this shape: 1 at these pairs of a row and a column, else 0."""
    return sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)


def map_fine_codes_to_levels(released: ReleasedCounts, column: str, joint: AnswerLevels) -> NDArray[np.int64]:
    """Return the level of each fine code, from the levels of its coarse code; -1 for no level."""
    recode = released.recode[column]
    return np.where(recode.kept, joint.level_by_cell[np.minimum(recode.coarse, recode.size - 1)], -1).astype(np.int64)


def split_by_level(cells: ColumnCells, column: str) -> list[tuple[str, Condition]]:
    """Return the levels of a column: label and condition."""
    levels, codec = cells.levels(column), cells.released.codecs[column]
    level_of = levels.level_by_cell if cells.fine else map_fine_codes_to_levels(cells.released, column, levels)
    return [(label, AtLevel(codec, np.flatnonzero(level_of == i))) for i, label in enumerate(levels.labels)]


def compute_fine_fractions(released: ReleasedCounts, condition: Condition) -> Floats:
    """Return the part of each fine code of its one column that a condition selects, if values are uniform inside it.

    The part is neither 0 nor 1 if a value that the condition names, or a neighbour, separates the code's values: all
    rows of a code may share one value.
    """
    (column,) = condition.columns
    size, thresholds = released.codecs[column].size, condition.list_thresholds()
    part: Floats = condition.holds(sample_points(released, column)).reshape(size, -1).mean(axis=1)
    if not condition.compares_with_constants_only:
        part = _mark_possible(part, _evaluate_in_fine_codes(released, condition))
    if not thresholds or not _is_interval(released, column):
        return part
    beside = condition.holds(sample_points(released, column, thresholds)).reshape(size, -1)
    least, most = np.minimum(part, beside.min(axis=1)), np.maximum(part, beside.max(axis=1))
    return _mark_cut(part, least < most)


def _evaluate_in_fine_codes(released: ReleasedCounts, condition: Condition) -> Truth:
    """Return whether a condition may be true, false or unknown in each fine code of its one column."""
    codec = released.codecs[condition.columns[0]]
    if isinstance(condition, AtLevel):
        inside = np.isin(np.arange(codec.size), condition.codes)
        return Truth(inside, ~inside, NO)
    if isinstance(condition, AllOf):
        return reduce(conjoin, (_evaluate_in_fine_codes(released, each) for each in condition.conditions))
    bounds = codec.counted_bounds()
    truth = condition.evaluate(lambda name, vocabulary: read_cells(bounds[name], vocabulary))
    return Truth(*(np.broadcast_to(side, codec.size) for side in (truth.true, truth.false, truth.unknown)))


def _mark_possible(parts: Floats, truth: Truth) -> Floats:
    """Return the parts from sampled values, never 0 where a condition may hold and never 1 where it may fail."""
    may_not = truth.false | truth.unknown
    return _mark_cut(parts, ((parts <= 0) & truth.true) | ((parts >= 1) & may_not))


def _mark_cut(parts: Floats, cut: NDArray[np.bool_]) -> Floats:
    """Return the parts of cells that a condition selects, moved off 0 and 1 for the cells in ``cut``."""
    return np.where(cut, np.clip(parts, LEAST_PART, 1 - LEAST_PART), parts)


def _is_interval(released: ReleasedCounts, attribute: str) -> bool:
    return released.reach.get(attribute) is not None and bool(released.codecs[attribute].in_order)


def sample_points(released: ReleasedCounts, attribute: str, values: Sequence[float] = ()) -> dict[str, pa.Array]:
    """Return sampled values of each fine code, by released column: POINTS_PER_INTERVAL including both ends.

    With ``values``, for an attribute whose codes are intervals: these values and their neighbours, clipped to each
    code.
    """
    codec, reach = released.codecs[attribute], released.reach.get(attribute)
    if reach is None or not _is_interval(released, attribute):
        points, points_per_code = codec.decode(np.arange(codec.size), np.random.default_rng(0)), 1
    else:
        type_ = codec.ranges()[attribute].type
        if pa.types.is_timestamp(type_):  # microseconds inside the cell: rounding could move an end to the next cell
            reach = (np.ceil(reach[0] * 1e6) / 1e6, np.floor(reach[1] * 1e6) / 1e6)
        numbers = np.linspace(*reach, POINTS_PER_INTERVAL, axis=1)
        if values:
            away = np.maximum(np.abs(values), 1.0) * BESIDE
            near = np.concatenate([values - away, values, values + away])
            numbers = np.clip(near, reach[0][:, None], reach[1][:, None])
        points, points_per_code = {attribute: as_released(numbers.ravel(), type_)}, numbers.shape[1]
    codes_column = {name_codes_attribute(attribute): pa.array(np.repeat(np.arange(codec.size), points_per_code))}
    return points | (codes_column if isinstance(codec, SplitCodec | DifferenceCodec | SummaryCodec) else {})


def as_released(numbers: Floats, type_: pa.DataType) -> pa.Array:
    """Return numbers as values of ``type_``, NaN as null; moments are in seconds since 1970."""
    null = np.isnan(numbers)
    if pa.types.is_temporal(type_):
        micros = np.round(np.where(null, 0.0, numbers) * 1e6).astype(np.int64)
        return pa.array(micros, mask=null).cast(pa.timestamp("us")).cast(type_, safe=False)
    numbers_of_type = np.floor(np.where(null, 0.0, numbers)) if pa.types.is_integer(type_) else numbers
    return pa.array(numbers_of_type, mask=null).cast(type_, safe=False)


def build_coarse_levels(released: ReleasedCounts, column: str) -> AnswerLevels:
    """Return a level for each coarse code, labelled by its bin, the ends of its interval, or its combined values.

    If a computed column splits the column, coarse codes that share a value of the column are one level.
    """
    codec, recode = released.codecs[column], released.recode[column]
    fine_codes, level = np.flatnonzero(recode.kept), np.arange(recode.size)
    alone, bin_of = (codec.codec, codec.code_alone) if isinstance(codec, SplitCodec) else (codec, codec.groups)
    if isinstance(codec, SplitCodec):
        size = recode.size + alone.size
        ties = mark_pairs(recode.coarse[fine_codes], recode.size + bin_of[fine_codes], (size, size))
        level = np.unique(connected_components(ties, directed=False)[1][: recode.size], return_inverse=True)[1]
    of_fine = map_fine_codes_to_levels(released, column, AnswerLevels((), level))
    names, labels = alone.bin_labels(), []
    for number in range(int(level.max()) + 1):
        bins = np.unique(bin_of[of_fine == number])
        first, last = int(bins[0]), int(bins[-1])
        if first == last:
            labels.append(names[first])
        elif last - first + 1 == len(bins) and any(a <= first and last < b for a, b in alone.in_order):
            labels.append(f"{names[first]} to {names[last]}")
        else:
            more = f", and {len(bins) - MAX_NAMED_VALUES} more" if len(bins) > MAX_NAMED_VALUES else ""
            labels.append(" | ".join(names[b] for b in bins[:MAX_NAMED_VALUES]) + more)
    return AnswerLevels(labels, level)


def find_code_ends(recode: AttributeRecode, lowest: Floats, highest: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest number of each coarse code; inf and -inf for a code without numbers.

    ``lowest``, ``highest``: ends of each fine code, NaN for a code without numbers.
    """
    least, most = np.full(recode.size, np.inf), np.full(recode.size, -np.inf)
    fine = recode.kept & np.isfinite(lowest)
    np.minimum.at(least, recode.coarse[fine], lowest[fine])
    np.maximum.at(most, recode.coarse[fine], highest[fine])
    return least, most


class EmptySelectionError(RequestError):
    """No possible value fulfils the condition."""


def compute_values(name: str, codec: Codec, language: Language, values: Values) -> pa.Array:
    """Return a released column, computed from the counted columns that determine it."""
    if name not in language.book.order:
        return match_all_rows(values[name])
    book = language.book
    measured = {column: match_all_rows(values[column]) for column in book.find_measured_columns((name,))}
    texts, rows = pa.array(list(book.vocabulary), pa.string()), len(next(iter(measured.values())))
    return convert_to_array(book.read_table(measured)(name), codec.ranges()[name].type, texts, rows)


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
    middle, half, present = (cells.lay_out(behind, figure) for figure in (middle, half, finite.mean(axis=1)))
    return middle, half, present


def check_column(released: ReleasedCounts, name: str) -> str:
    """Return the name.  Raises RequestError unless it is a released column that was measured."""
    if name not in released.language.types:
        raise make_unknown_column_error(name, "query.columns")
    refuse_unmeasured(name, released.language, "query.columns")
    return name
