"""Counts, shares and means with intervals, from noisy counts of the columns if there are any, else from the model.

Groups are levels of counted columns, or of columns that rules compute.

The cells of one number column may have heavy cells split into counted single values and the rest.  A release counts
the single values of heavy cells (tasks/estimation/frequent_values.py).  That look has little budget, so its noise is
high, and answers about whole cells gain nothing from it.  But a question about one value inside a cell, such as
``wages == 1500``, needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from privsyn.answers.answer_table import NOT_A_SAMPLE, POPULATION_NOTE, answer_table, collect_labels
from privsyn.answers.cells import (
    BESIDE,
    AnswerLevels,
    ColumnCells,
    as_released,
    ask_by_levels,
    check_column,
    compute_fine_fractions,
    compute_row_numbers,
    find_code_ends,
    list_levels,
    locate_computed_columns,
    mark_pairs,
    split_by_level,
)
from privsyn.answers.conditions import AllOf, Condition
from privsyn.answers.question import (
    Linear,
    Observations,
    Question,
    compute_left_out,
    compute_normal_factor,
    compute_ratio,
    estimate_single,
    list_observations,
    select_shown_answers,
)
from privsyn.answers.released_counts import ReleasedCounts, describe_kept_rows, describe_known_totals
from privsyn.answers.unmeasured import CONCENTRATION, compute_bounds, compute_distance, sum_rows
from privsyn.base.errors import RequestError
from privsyn.data_contracts.artifacts import LookKind
from privsyn.pipelines.added_looks import COUNTED_FILE
from privsyn.tasks.codecs.numbers import SteppedCodec
from privsyn.tasks.estimation.frequent_values import read_counted
from privsyn.tasks.estimation.recode import AttributeRecode

if TYPE_CHECKING:
    import pandas as pd

UNMEASURED = 1e8
"""Variance of the rest of a split cell, relative to its values: only the cell's sum determines it."""

MOST_LISTED = 1_000_000
"""Most values in a column's split cells; beyond it, the single counts are ignored."""


class SplitCells(NamedTuple):
    """The cells of a column, ascending: fine codes, with heavy ones split into their counted values and the rest.

    Arrays of shape (cells,).  ``fine``: the fine code; ``number``: a ``single`` value as a multiple of the column's
    step.  ``counts``: the noisy count of a single value, and ``variance`` of it; both are 0 for other cells.
    """

    codec: SteppedCodec[Any]
    fine: NDArray[np.int64]
    number: NDArray[np.int64]
    single: Bools
    counts: Floats
    variance: Floats

    @property
    def values(self) -> Floats:
        """The single values."""
        grid = self.codec.value_grid
        assert grid is not None  # noqa: S101 - single values are multiples
        return np.asarray(grid.value(self.number[self.single].astype(np.float64)))

    @property
    def rest(self) -> NDArray[np.int64]:
        """The cells for the other values of split fine codes."""
        return np.flatnonzero(~self.single & np.isin(self.fine, self.fine[self.single]))


def _split_cells(released: ReleasedCounts, column: str) -> SplitCells | None:
    """Return the cells of a column, heavy ones split; None if none of its values were counted singly."""
    value_looks = released.list_files(LookKind.VALUES)
    listed = {c.attribute: c for c in read_counted(released.read(COUNTED_FILE))} if value_looks else {}
    codec = released.codecs[column]
    if column not in listed or not isinstance(codec, SteppedCodec):
        return None
    _, cell, number = listed[column]
    sizes = np.append([len(inside) for inside in codec.cell_values], np.zeros(codec.size - len(codec.cell_values)))
    counted = np.bincount(cell, minlength=codec.size)
    if sizes[counted > 0].sum() > MOST_LISTED:
        return None
    looks = [released.find_noisy(look, column) for look in value_looks]
    precision = sum(1 / sigma**2 for _, sigma in looks)
    counts = np.sum([answers[:-1] / sigma**2 for answers, sigma in looks], axis=0) / precision
    others = np.flatnonzero((counted < sizes) | (counted == 0) | (codec.step_grid is None))
    nothing = np.zeros(len(others))
    fine = np.concatenate([cell, others])
    order = np.argsort(fine, kind="stable")
    parts = (
        (number, np.zeros(len(others), dtype=np.int64)),
        (np.ones(len(cell), dtype=bool), nothing > 0),
        (counts, nothing),
        (np.full(len(cell), 1 / precision), nothing),
    )
    return SplitCells(codec, fine[order], *(np.concatenate(part)[order] for part in parts))


@dataclass(frozen=True, kw_only=True)
class ValueCells(ColumnCells):
    """The cells of one column, with heavy ones split as in ``split``."""

    split: SplitCells

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of the column."""
        return (len(self.split.fine),)

    def levels(self, column: str) -> AnswerLevels:
        """Return the levels of the column, from its fine codes."""
        levels = super().levels(column)
        return AnswerLevels(levels.labels, levels.level_by_cell[self.split.fine])

    def fractions(self, condition: Condition | None) -> Floats:
        """See :class:`ColumnCells`; a single value is selected wholly or not at all."""
        if condition is None or not condition.columns:
            return np.ones(self.shape)
        split = self.split
        part = compute_fine_fractions(self.released, condition)[split.fine]
        part[split.single] = self._hold(condition, split.values)
        if split.codec.step_grid is None and not condition.compares_with_constants_only:
            return part  # numbers between the multiples stay uncertain
        for cell in split.rest.tolist():
            part[cell] = self._hold(condition, self._list_others(int(split.fine[cell]), condition)).mean()
        return part

    def linear(self) -> Linear:
        """Return the best linear estimate of the cells, from the one-ways, the counted values and all sums."""
        split, (column,) = self.split, self.columns
        every = list_observations(self.released, (column,))
        assert every is not None  # noqa: S101 - every release measures single columns
        cells, rest = len(split.fine), split.rest
        inside = mark_pairs(split.fine, np.arange(cells), (every.cells.size, cells))
        fully_counted = np.unique(split.fine[split.single])
        counts = np.where(split.single, split.counts, every.cells[split.fine])
        variance = np.where(split.single, split.variance, every.variance[split.fine])
        counts[rest], variance[rest] = 0.0, UNMEASURED * (split.variance.max() + variance[rest])
        sums = [inside[fully_counted], *([] if every.sums is None else [every.sums @ inside])]
        return Observations(
            counts,
            variance,
            sp.vstack(sums, format="csr"),
            np.append(every.cells[fully_counted], every.sum_values),
            np.append(every.variance[fully_counted], every.sum_variance),
        ).combine()

    def _hold(self, condition: Condition, numbers: Floats) -> Bools:
        (column,) = self.columns
        return condition.holds({column: as_released(numbers, self.split.codec.ranges()[column].type)})

    def _list_others(self, code: int, condition: Condition) -> Floats:
        """Return representatives of the uncounted values of a split fine code.

        These are its other multiples of the step.  If values may lie between multiples, also the midpoints, and the
        values that the condition names, with their neighbours.
        """
        split, (column,) = self.split, self.columns
        grid, steps = split.codec.value_grid, split.codec.cell_values[code]
        assert grid is not None  # noqa: S101 - cells without multiples are not split
        every = np.arange(steps.start, steps.stop, dtype=np.float64)
        values = np.asarray(grid.value(every))
        if split.codec.step_grid is None:
            named = np.array(condition.list_thresholds())
            away = np.maximum(np.abs(named), 1.0) * BESIDE
            low, high = (side[code] for side in self.released.reach[column] or ())
            between = np.concatenate([grid.value(every + 0.5), named - away, named, named + away])
            values = np.append(values, between[(low <= between) & (between <= high)])
        return np.setdiff1d(values, split.values)


def find_split_cells(cells: ColumnCells, selected_part: Floats) -> ValueCells | None:
    """Return the cells of one column, heavy ones split; None for several columns, or if no heavy cell is cut.

    ``selected_part``: the part of each cell that the condition selects.
    """
    if not cells.fine:
        return None
    (column,), released = cells.columns, cells.released
    split = released.remember(("split cells", column), lambda: _split_cells(released, column))
    if split is None or not ((selected_part > 0) & (selected_part < 1))[split.fine[split.single]].any():
        return None
    return ValueCells(cells.released, cells.columns, cells.coarse, split=split)


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SHARED_LEAN_DEVIATION = 0.25
"""Standard deviation of the lean shared by all cells of a column, in half widths."""


class Estimates(NamedTuple):
    """Answers: the labels of each, then figures of shape (answers,), and the common source."""

    labels: list[tuple[str, ...]]
    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    source: str


def answer_counts(question: Question, level: float) -> Estimates:
    """Return the number of rows of each answer.  Raises RequestError if the condition selects no value."""
    z = compute_normal_factor(level)
    if not question.columns:
        linear = estimate_single(question.released, ())
        total, error = linear.cells.ravel(), np.sqrt(linear.variance.ravel())
        return Estimates([()], total, error, np.maximum(total - z * error, 0.0), total + z * error, "measured")
    cells = question.cells
    part = cells.fractions(question.where)
    labels, answers = cells.indicators(question.by)
    beyond = compute_left_out(question, question.where, z)
    _, shown = select_shown_answers(answers, part, beyond)
    measured, labels = question.linear(), [labels[i] for i in shown]
    if measured is not None:
        ways = [_count(question, measured, answers[shown], part, beyond, z)]
        if (split := find_split_cells(question.cells, part)) is not None:
            _, answers = split.indicators(question.by)
            part = split.fractions(question.where)
            ways.append(_count(question, split.linear(), answers[shown], part, beyond, z))
        best = np.argmin([way.error for way in ways], axis=0), np.arange(len(shown))
        estimate, error, low, high, doubt = (np.stack(figures)[best] for figures in zip(*ways, strict=True))
        return Estimates(labels, estimate, error, low, high, _name_source(doubt))
    _check_target(question)
    bounds = compute_bounds(question.released, question.columns, question.by, question.where, z)
    low, high = bounds.low[shown], bounds.high[shown] + beyond
    rows = sum_rows(question.released, question.columns, question.by, question.where)[shown]
    estimate = rows * question.total() / max(question.released.table.num_rows, 1)
    return Estimates(labels, np.clip(estimate, low, high), np.full(len(shown), np.nan), low, high, "model")


class _Counted(NamedTuple):
    """Estimates, standard errors, intervals, and the doubt about positions inside cells; each of shape (answers,)."""

    estimate: Floats
    error: Floats
    low: Floats
    high: Floats
    doubt: Floats


def _count(
    question: Question,
    linear: Linear,
    answers: sp.csr_matrix,
    selected_part: Floats,
    rows_without_cell: float,
    z: float,
) -> _Counted:
    """Return the counts of ``answers``; an interval reaches from surely selected cells to all that may be selected."""
    weights = sp.csr_matrix(answers.multiply(selected_part))
    estimate, doubt = linear.estimate(weights), _cut(answers, selected_part, linear) + rows_without_cell / 2
    noise = np.maximum(linear.covariance(weights, weights), 0.0) + doubt**2
    sampling = _compute_sampling_variance(question, estimate, noise, question.total())
    ends = []
    for cells in (_select_cells(answers, selected_part >= 1), _select_cells(answers, selected_part > 0)):
        deviation = np.sqrt(np.maximum(linear.covariance(cells, cells), 0.0) + sampling)
        # no count is below 0, so clipping keeps the coverage
        ends.append((np.maximum(linear.estimate(cells), 0.0), z * deviation))
    (least, below), (most, above) = ends
    low, high = np.maximum(least - below, 0.0), most + above + rows_without_cell
    return _Counted(estimate, np.sqrt(noise + sampling), low, high, doubt)


def _select_cells(answers: sp.csr_matrix, chosen: Bools) -> sp.csr_matrix:
    return sp.csr_matrix(answers.multiply(chosen.astype(np.float64)))


def _check_target(question: Question) -> None:
    if question.population:
        raise RequestError(
            f"the columns {', '.join(question.columns)} were not counted together: "
            "nothing is known about the population",
            "Leave `population` out for an answer about the table, or ask for fewer columns",
            "query.population",
        )


def answer_shares(question: Question, event: Condition, level: float) -> Estimates:
    """Return the share of rows in each answer that ``event`` selects.

    1 or 0 if the answer's own levels decide it, however few rows it has.
    """
    shares, decided = _answer_shares(question, event, level), _find_decided_shares(question, event)
    share = np.array([decided.get(label, np.nan) for label in shares.labels])
    has_share = np.isfinite(share)
    estimate, low, high = (np.where(has_share, share, each) for each in (shares.estimate, shares.low, shares.high))
    error = np.where(has_share, 0.0, shares.std_error)
    return Estimates(shares.labels, estimate, error, low, high, shares.source)


def _find_decided_shares(question: Question, event: Condition) -> dict[tuple[str, ...], float]:
    """Return label -> 1 or 0 for answers in whose every cell ``event`` surely holds, or surely fails.

    Empty if compression left out values of a column of ``event`` that is not grouped by: such rows have no cell.
    """
    others = set(event.columns) - set(question.by)
    if not all(question.released.recode[column].kept.all() for column in others):
        return {}
    labels, answers = question.cells.indicators(question.by)
    fractions = question.cells.fractions(event)
    one, none = (np.asarray(answers @ (fractions != share).astype(np.float64)).ravel() == 0 for share in (1, 0))
    return {label: float(one[i]) for i, label in enumerate(labels) if one[i] or none[i]}


def _answer_shares(question: Question, event: Condition, level: float) -> Estimates:
    z, cells = compute_normal_factor(level), question.cells
    part, part_of_event = cells.fractions(question.where), cells.fractions(join_conditions(question.where, event))
    labels, answers = cells.indicators(question.by)
    beyond = compute_left_out(question, join_conditions(question.where, event), z)
    _, shown = select_shown_answers(answers, part, beyond)
    labels, answers, linear = [labels[i] for i in shown], answers[shown], question.linear()
    if linear is None:
        _check_target(question)
        return _answer_model_shares(question, event, labels, shown, level)
    ways = [_divide(question, linear, answers, part_of_event, part, beyond, z)]
    if (split := find_split_cells(cells, part_of_event)) is not None:
        _, answers = split.indicators(question.by)
        parts = split.fractions(join_conditions(question.where, event)), split.fractions(question.where)
        ways.append(_divide(question, split.linear(), answers[shown], *parts, beyond, z))
    errors = [np.where(np.isfinite(way.error), way.error, np.inf) for way in ways]
    best = np.argmin(errors, axis=0), np.arange(len(shown))
    share, error, low, high, doubt = (np.stack(figures)[best] for figures in zip(*ways, strict=True))
    return Estimates(labels, *_bound_shares(share, error, low, high), _name_source(doubt))


def _bound_shares(share: Floats, error: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return shares with intervals in 0..1; one with an unknown end, or with the interval 0..1, has no standard error.

    Everything is unknown if both ends or the share are.
    """
    unknown = np.isnan(share) | (np.isnan(low) & np.isnan(high))
    error = np.where(unknown | np.isnan(low) | np.isnan(high) | ((low <= 0) & (high >= 1)), np.nan, error)
    low = np.where(unknown, np.nan, np.clip(np.nan_to_num(low, nan=0.0), 0.0, 1.0))
    high = np.where(unknown, np.nan, np.clip(np.nan_to_num(high, nan=1.0), 0.0, 1.0))
    return np.where(unknown, np.nan, share), error, low, high


def _divide(
    question: Question,
    linear: Linear,
    answers: sp.csr_matrix,
    part_of_event: Floats,
    selected_part: Floats,
    rows_without_cell: float,
    z: float,
) -> _Counted:
    """Return shares of ``answers``; the interval ends use the cells of :func:`_count`, in numerator and denominator."""
    top, bottom = (sp.csr_matrix(answers.multiply(each)) for each in (part_of_event, selected_part))
    doubt = _cut(answers, part_of_event, linear) + _cut(answers, selected_part, linear) + rows_without_cell / 2
    all_rows = np.maximum(linear.estimate(bottom), 1.0)
    noise = np.maximum(linear.covariance(top, top), 0.0) + doubt**2
    sampling = np.sqrt(_compute_sampling_variance(question, linear.estimate(top), noise, all_rows))
    doubt = np.hypot(doubt, sampling)
    share, error = _compute_ratio(linear, top, bottom, doubt, z)[:2]
    fewest, most = (_select_cells(answers, chosen) for chosen in (part_of_event >= 1, part_of_event > 0))
    of_many = _select_cells(answers, selected_part > 0)
    of_few = _select_cells(answers, (selected_part >= 1) | (part_of_event > 0))
    low = _compute_ratio(linear, fewest, of_many, sampling, z, is_share=True)[2]
    high = _compute_ratio(linear, most, of_few, sampling, z, is_share=True, added_rows=rows_without_cell)[3]
    return _Counted(share, error, low, high, doubt)


def join_conditions(where: Condition | None, event: Condition) -> Condition:
    """Return the conjunction of both conditions."""
    return event if where is None else AllOf((where, event))


def answer_means(question: Question, column: str, level: float) -> Estimates:
    """Return the mean of a column's numbers, without nulls, among the rows of each answer.

    The estimate is the synthetic rows' mean, which empty cells far from all rows do not move; the interval comes from
    the noisy counts, widened to hold it.
    """
    z, cells = compute_normal_factor(level), question.cells
    places, limits = _list_number_cells(question, column)
    part = cells.fractions(question.where)
    labels, answers = cells.indicators(question.by)
    _, shown = select_shown_answers(answers, part)
    labels, answers, linear = [labels[i] for i in shown], answers[shown], question.linear()
    if linear is None:
        _check_target(question)
        return _answer_model_means(question, column, labels, shown, limits, level)
    bottom = sp.csr_matrix(answers.multiply(part * places.present))
    middle, rows = np.nan_to_num(places.middle), _average_rows(question, column)[0][shown]
    top = sp.csr_matrix(bottom.multiply(middle))
    sums = linear.estimate(top), linear.estimate(bottom)
    mean = np.clip(np.where(np.isfinite(rows), rows, sums[0] / np.maximum(sums[1], 1.0)), *limits)
    other = _cut(answers, part, linear) * (limits[1] - limits[0]) / 2
    other = other + _split_null(linear, sp.csr_matrix(answers.multiply(part)), middle, places.present, mean)
    if question.population:
        squares = linear.estimate(sp.csr_matrix(bottom.multiply(middle**2 + places.inside)))
        deviations = np.maximum(squares - sums[0] ** 2 / np.maximum(sums[1], 1.0), 0.0)  # n times a value's variance
        other = np.hypot(other, np.sqrt(deviations))
    below, above = (other + compute_placement(linear.cells, bottom, reach) for reach in (places.below, places.above))
    variance, joint, of_rows = (linear.covariance(*pair) for pair in ((top, top), (top, bottom), (bottom, bottom)))
    low = compute_ratio(*sums, (variance + below**2, joint, of_rows), z)[2]
    high = compute_ratio(*sums, (variance + above**2, joint, of_rows), z)[3]
    low, high = np.clip(np.minimum(low, mean), *limits), np.clip(np.maximum(high, mean), *limits)
    means = np.where(np.isnan(low), np.nan, mean), (high - low) / (2 * z), low, high
    return Estimates(labels, *means, _name_source(np.maximum(below, above)))


def _average_rows(question: Question, column: str) -> tuple[Floats, Floats]:
    """Return the mean of a column's numbers in the synthetic rows of each answer, NaN without any, and their number."""
    released = question.released
    values = compute_row_numbers(released, column)
    names, present = (question.columns, question.by, question.where), np.isfinite(values)
    rows = sum_rows(released, *names, present.astype(np.float64))
    with np.errstate(all="ignore"):
        return sum_rows(released, *names, np.nan_to_num(values)) / rows, rows


class CellPlaces(NamedTuple):
    """The places of a column's numbers in every cell: flat arrays of shape (cells,).

    ``middle``: the mean number, NaN for none.  ``below``, ``above``: how far numbers may lie from it.  ``inside``: the
    variance of numbers inside the cell.  ``present``: the part that is not null.
    """

    middle: Floats
    below: Floats
    above: Floats
    inside: Floats
    present: Floats


def _list_number_cells(question: Question, column: str) -> tuple[CellPlaces, tuple[float, float]]:
    """Return the column's numbers in the cells (:func:`locate_cells`), and their smallest and largest."""
    if column not in question.released.columns:
        middle, half, present = locate_computed_columns(question.cells, column)
        places = CellPlaces(middle, half, half, half**2 / 3, present)
        return places, (float(np.min(middle - half)), float(np.max(middle + half)))
    reach = question.released.find_reach(column)
    return locate_cells(question.cells, column), (float(np.nanmin(reach[0])), float(np.nanmax(reach[1])))


def locate_cells(cells: ColumnCells, column: str) -> CellPlaces:
    """Return the places of numbers in every cell.

    In a coarse code they are as the released shares of its fine codes say, give or take the noise of their counts.
    """
    released = cells.released
    lowest, highest = released.find_reach(column)
    present = np.isfinite(lowest).astype(np.float64)
    centres, halves = (lowest + highest) / 2, (highest - lowest) / 2
    middle = cells.spread(column, centres)
    if cells.fine:
        below, above, inside = halves, halves, halves**2 / 3
    else:
        recode = released.recode[column]
        inside = np.maximum(cells.spread(column, centres**2 + halves**2 / 3) - middle**2, 0.0)
        least, most = find_code_ends(recode, lowest, highest)
        spread = np.sqrt(3 * (inside + _compute_middle_variance(recode, centres, middle)))
        below = np.where(np.isfinite(least), np.minimum(middle - least, spread), 0.0)
        above = np.where(np.isfinite(least), np.minimum(most - middle, spread), 0.0)
    below, above, inside = (np.nan_to_num(figures) for figures in (below, above, inside))
    figures = (middle, below, above, inside, cells.share_inside(column, present))
    return CellPlaces(*(cells.lay_out((column,), of_column) for of_column in figures))


def _compute_middle_variance(recode: AttributeRecode, centres: Floats, middle: Floats) -> Floats:
    """Return the variance of each code's mean number due to the noise of its fine counts, shape (codes,)."""
    counted = np.flatnonzero(recode.kept & np.isfinite(centres))
    code = recode.coarse[counted]
    variance = (centres[counted] - middle[code]) ** 2 * recode.variance[counted]
    noise = np.bincount(code, weights=variance, minlength=recode.size)
    rows = np.bincount(code, weights=recode.estimate[counted], minlength=recode.size)
    return noise / np.maximum(rows**2, recode.noise)


def compute_placement(cells: Floats, weights: sp.csr_matrix, half_widths: Floats) -> Floats:
    """Return the standard deviation of a sum of values with unknown positions in their cells.

    Positions are uniform in each cell.  In addition, all cells may lean to one side together (SHARED_LEAN_DEVIATION of
    their half widths), as under a falling density.  Twice the result is at most the largest possible deviation.
    """
    inside = sp.csr_matrix(weights.multiply(np.maximum(cells, 0.0) * half_widths))
    most = np.asarray(inside.sum(axis=1)).ravel()
    apart = np.asarray(inside.multiply(inside).sum(axis=1)).ravel() / 3
    return np.minimum(np.sqrt(apart + (SHARED_LEAN_DEVIATION * most) ** 2), most / 2)


def _split_null(linear: Linear, answers: sp.csr_matrix, middle: Floats, present: Floats, mean: Floats) -> Floats:
    """Return half the largest error of a sum of values due to cells that mix nulls and numbers."""
    mixed = np.where((present > 0) & (present < 1), np.maximum(present, 1 - present) / 2, 0.0)
    cells = sp.coo_matrix(answers.multiply(mixed * np.maximum(linear.cells, 0.0)))
    apart = cells.data * np.abs(np.nan_to_num(middle)[cells.col] - mean[cells.row])
    return np.bincount(cells.row, weights=apart, minlength=answers.shape[0]).astype(np.float64)


def _compute_sampling_variance(question: Question, counted: Floats, noise: Floats, all_rows: Floats | float) -> Floats:
    """Return N p (1 - p), the sampling variance of the rows in a part p of ``all_rows``; 0 without ``population``.

    p is one standard deviation of the noise above the noisy share, so that no count is surely 0.
    """
    p = np.clip((np.maximum(counted, 0.0) + np.sqrt(noise)) / all_rows, 0.0, 1.0)
    variance: Floats = all_rows * p * (1 - p) if question.population else np.zeros_like(p)
    return variance


def _compute_ratio(
    linear: Linear,
    top: sp.csr_matrix,
    bottom: sp.csr_matrix,
    placement_error: Floats,
    z: float,
    *,
    is_share: bool = False,
    added_rows: float = 0.0,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return Fieller's interval.

    ``is_share``: the top is part of the bottom, so it is clipped to 0..bottom; ``added_rows``: rows added to the top.
    """
    variance, joint, of_rows = (linear.covariance(*pair) for pair in ((top, top), (top, bottom), (bottom, bottom)))
    covariances = variance + placement_error**2, joint, of_rows
    above, below = linear.estimate(top), linear.estimate(bottom)
    interval = compute_ratio(above, below, covariances, z)
    if not is_share:
        return interval
    clipped = np.clip(above + added_rows, 0.0, np.maximum(below, 0.0))
    return *interval[:2], *compute_ratio(clipped, below, covariances, z)[2:]


def _name_source(placement_error: Floats) -> str:
    return "implied" if placement_error.any() else "measured"


def _cut(answers: sp.csr_matrix, selected_part: Floats, linear: Linear) -> Floats:
    """Return half the largest error of a count due to the cells that a condition cuts, and to their noise."""
    is_outside = (selected_part <= 0) | (selected_part >= 1)
    spread = np.where(is_outside, 0.0, np.maximum(selected_part, 1 - selected_part) / 2)
    noise = np.asarray(answers @ (spread**2 * linear.bound_variance(np.flatnonzero(~is_outside)))).ravel()
    deviation: Floats = np.sqrt(np.asarray(answers @ (spread * np.maximum(linear.cells, 0.0))).ravel() ** 2 + noise)
    return deviation


def _answer_model_shares(
    question: Question, event: Condition, labels: list[Any], shown: Any, level: float
) -> Estimates:
    z, released = compute_normal_factor(level), question.released
    event_question = Question(released, question.by, join_conditions(question.where, event))
    bounds = compute_bounds(released, question.columns, question.by, event_question.where, z)
    most = bounds.high[shown] + compute_left_out(question, event_question.where, z)
    all_rows = answer_counts(Question(released, question.by, question.where, coarse=True), level)
    row_of_label = {label: i for i, label in enumerate(all_rows.labels)}
    place = [row_of_label.get(label) for label in labels]
    low_rows = np.array([0.0 if i is None else all_rows.low[i] for i in place])
    high_rows = np.array([np.inf if i is None else all_rows.high[i] for i in place])
    top = sum_rows(released, question.columns, question.by, event_question.where)[shown]
    rows = sum_rows(released, question.columns, question.by, question.where)[shown]
    with np.errstate(all="ignore"):
        low = np.clip(np.nan_to_num(bounds.low[shown] / high_rows), 0.0, 1.0)
        high = np.clip(np.nan_to_num(most / low_rows, nan=1.0, posinf=1.0), 0.0, 1.0)
        share = np.where(rows > 0, top / rows, (low + high) / 2)  # without synthetic rows, the middle of the bounds
    return Estimates(labels, np.clip(share, low, high), np.full(len(labels), np.nan), low, high, "model")


def _answer_model_means(
    question: Question, column: str, labels: list[Any], shown: Any, limits: tuple[float, float], level: float
) -> Estimates:
    """Return the means that a pair's distance from independence allows; unknown for more columns."""
    released, z = question.released, compute_normal_factor(level)
    estimate, rows = (figures[shown] for figures in _average_rows(question, column))
    nothing = np.full(len(labels), np.nan)
    distance = compute_distance(released, question.columns, z) if len(question.columns) == 2 else None
    if distance is None or column not in question.columns or column in question.by:
        return Estimates(labels, estimate, nothing, nothing, nothing, "not known")
    ungrouped = answer_means(Question(released, (), None, (column,)), column, level)
    all_rows = answer_counts(Question(released, question.by, question.where, coarse=True), level)
    place = {label: i for i, label in enumerate(all_rows.labels)}
    size = np.array([max(all_rows.low[place[label]], 0.0) for label in labels])
    root_size = np.sqrt(np.maximum(size, 1.0))
    departure = np.minimum(distance / 4, distance * CONCENTRATION / 2 * root_size / root_size.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = np.nan_to_num((limits[1] - limits[0]) * departure / size, posinf=np.inf)  # independent: no departure
    low, high = np.clip(ungrouped.low - wide, *limits), np.clip(ungrouped.high + wide, *limits)
    estimate = np.where(rows > 0, estimate, ungrouped.estimate)
    return Estimates(labels, np.clip(estimate, low, high), nothing, low, high, "model")


def answer_in_groups(
    released: ReleasedCounts,
    groups: tuple[str, ...],
    where: str | None,
    subject: str,
    answer: Callable[[Question], Estimates],
    *,
    others: Sequence[str] = (),
    event: Condition | None = None,
    population: bool = False,
) -> pd.DataFrame:
    """Return the answers in groups, by counted columns and by columns that rules compute.

    ``others``, ``event`` and ``population``: of the question, see :meth:`Question.of`.
    """

    def ask(by: tuple[str, ...], where: str | Condition | None) -> pd.DataFrame:
        question = Question.of(released, by, where, others, event=event, population=population)
        return build_answer_table(question, answer(question), subject)

    checked = [check_column(released, name) for name in groups]
    if all(name in released.columns for name in checked):
        return ask(groups, where)
    table = ask_by_levels(released, groups, where, ask)
    table.attrs["about"] = subject
    return table


def list_levels_within(
    released: ReleasedCounts, column: str, groups: tuple[str, ...], where: str | None
) -> list[tuple[str, Condition]]:
    """Return the levels of a column, with the condition of each, as an answer in ``groups`` distinguishes them."""
    if column not in released.columns:
        return list_levels(released, column)
    behind = released.language.list_attributes(groups)
    return split_by_level(Question.of(released, (), where, (column, *behind)).cells, column)


def build_answer_table(question: Question, estimates: Estimates, subject: str) -> pd.DataFrame:
    """Return the table of answers to a question, with the notes on them."""
    sources = np.where(np.isnan(estimates.low), "not known", estimates.source)
    table = answer_table(collect_labels(question.by, estimates.labels), *estimates[1:5], sources.tolist(), subject)
    table.attrs["words"] += describe_known_totals(question.released, question.columns)
    table.attrs["words"] += describe_kept_rows(question.released)
    if question.population:
        table.attrs["words"] = [POPULATION_NOTE if word == NOT_A_SAMPLE else word for word in table.attrs["words"]]
    return table
