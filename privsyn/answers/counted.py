"""Counts, shares and means with intervals, from the noisy counts where these hold the columns, else from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from privsyn.answers.best_linear import Linear, best_linear
from privsyn.answers.cell_weights import Cells
from privsyn.answers.conditions import All, Condition, condition, unknown_column
from privsyn.answers.intervals import normal_factor, ratio
from privsyn.answers.model_bounds import CONCENTRATION, bounds, distance
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.answers.synthetic_rows import row_codes, row_sums
from privsyn.data_contracts.domain import Clique
from privsyn.errors import RequestError

Floats = NDArray[np.float64]

MOST_CELLS = 1_000_000
"""Most cells of a question's columns."""

COMMON = 0.25
"""Standard deviation of the lean that all cells of a column share, in their half widths."""


class Figures(NamedTuple):
    """Answers: labels of each, then figures of shape (answers,), and the source of all."""

    labels: list[tuple[str, ...]]
    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    source: str


@dataclass(frozen=True)
class Question:
    """Rows by ``by`` where ``where`` holds, of a release; ``others``: further columns of the question.

    ``coarse``: levels are coarse codes, as where several columns are asked for.
    """

    released: ReleasedCounts
    by: tuple[str, ...]
    where: Condition | None
    others: tuple[str, ...] = ()
    coarse: bool = False

    @classmethod
    def of(cls, released: ReleasedCounts, by: Sequence[str], where: str | None, others: Sequence[str] = ()) -> Question:
        """From a caller's names.  Raises RequestError for an unknown column, a repeated one, or a wrong condition."""
        for name in (*by, *others):
            if name not in released.columns:
                raise unknown_column(name, "query.columns")
        if len({*by}) < len(by):
            raise RequestError("names one column twice", "Name each column once", "query.columns")
        asked = cls(released, tuple(by), condition(where, released.columns) if where else None, tuple(others))
        if np.prod([float(n) for n in asked.cells.shape]) > MOST_CELLS:
            raise RequestError(
                f"asks for more than {MOST_CELLS:,} cells at once", "Name fewer columns", "query.columns"
            )
        return asked

    @property
    def columns(self) -> Clique:
        """Every column of the question, in the table's order."""
        named = {*self.by, *self.others, *(self.where.columns if self.where else ())}
        return tuple(c for c in self.released.columns if c in named)

    @property
    def cells(self) -> Cells:
        """The cells of its columns."""
        return Cells(self.released, self.columns, self.coarse)

    def linear(self) -> Linear | None:
        """The best linear estimate of its cells; None where they were not measured together.

        Values that compression left out, which are few, are in no cell of several columns.
        """
        key = ("linear", self.columns)
        if key not in self.released.cache:
            self.released.cache[key] = best_linear(self.released, self.columns)
        found: Linear | None = self.released.cache[key]
        return found

    def total(self) -> float:
        """The estimated number of private rows, at least 1."""
        return max(float(Question(self.released, (), None).linear().cells.sum()), 1.0)  # type: ignore[union-attr]


def counts(asked: Question, level: float) -> Figures:
    """How many rows each answer has.  Raises RequestError where the condition holds for no value."""
    z = normal_factor(level)
    if not asked.columns:
        linear = asked.linear()
        assert linear is not None  # noqa: S101 - every release measures single columns
        total, error = linear.cells.ravel(), np.sqrt(linear.variance.ravel())
        return Figures([()], total, error, np.maximum(total - z * error, 0.0), total + z * error, "measured")
    cells = asked.cells
    part = cells.fractions(asked.where)
    labels, answers = cells.indicators(asked.by)
    weights, shown = _shown(answers, part)
    linear, labels = asked.linear(), [labels[i] for i in shown]
    if linear is not None:
        estimate, answers = linear.estimate(weights), answers[shown]
        doubt = _cut(answers, part, linear.cells)
        error = np.sqrt(np.maximum(linear.covariance(weights, weights), 0.0) + doubt**2)
        low, high = np.maximum(estimate - z * error, 0.0), np.maximum(estimate + z * error, 0.0)
        return Figures(labels, estimate, error, low, high, "implied" if doubt.any() else "measured")
    found = bounds(asked.released, asked.columns, asked.by, asked.where, z)
    low, high = found.low[shown], found.high[shown]
    rows = row_sums(asked.released, asked.columns, asked.by, asked.where)[shown]
    estimate = rows * asked.total() / max(asked.released.table.num_rows, 1)
    return Figures(labels, np.clip(estimate, low, high), np.full(len(shown), np.nan), low, high, "model")


def shares(asked: Question, event: Condition, level: float) -> Figures:
    """The share of rows that ``event`` holds for, among those of each answer."""
    z, cells = normal_factor(level), asked.cells
    part, both = cells.fractions(asked.where), cells.fractions(joined(asked.where, event))
    labels, answers = cells.indicators(asked.by)
    bottom, shown = _shown(answers, part)
    labels, answers, linear = [labels[i] for i in shown], answers[shown], asked.linear()
    if linear is None:
        return _model_shares(asked, event, labels, shown, level)
    top = sp.csr_matrix(answers.multiply(both))
    doubt = _cut(answers, both, linear.cells) + _cut(answers, part, linear.cells)
    found = _ratio(linear, top, bottom, doubt, z)
    low, high = np.clip(found[2], 0.0, 1.0), np.clip(found[3], 0.0, 1.0)
    return Figures(labels, found[0], found[1], low, high, _source(doubt, found[0]))


def joined(where: Condition | None, event: Condition) -> Condition:
    """Both conditions."""
    return event if where is None else All((where, event))


def means(asked: Question, column: str, level: float) -> Figures:
    """The mean of a column's numbers, without nulls, among the rows of each answer."""
    reach = asked.released.reach[column]
    if reach is None:
        raise RequestError(f"the column {column!r} holds no numbers", "Name a column of numbers", "query.columns")
    z, cells, (lowest, highest) = normal_factor(level), asked.cells, reach
    part = cells.fractions(asked.where)
    labels, answers = cells.indicators(asked.by)
    _, shown = _shown(answers, part)
    labels, answers, linear = [labels[i] for i in shown], answers[shown], asked.linear()
    limits = float(np.nanmin(lowest)), float(np.nanmax(highest))
    if linear is None:
        return _model_means(asked, column, labels, shown, limits, level)
    middle, half, present = places(cells, column)
    bottom = sp.csr_matrix(answers.multiply(part * present))
    top = sp.csr_matrix(bottom.multiply(np.nan_to_num(middle)))
    doubt = placement(linear.cells, bottom, half) + _cut(answers, part, linear.cells) * (limits[1] - limits[0]) / 2
    found = _ratio(linear, top, bottom, doubt, z)
    return Figures(
        labels, found[0], found[1], np.clip(found[2], *limits), np.clip(found[3], *limits), _source(doubt, found[0])
    )


def places(cells: Cells, column: str) -> tuple[Floats, Floats, Floats]:
    """Of every cell, flat: the middle of the column's numbers, half their spread, and the part that is not null."""
    released = cells.released
    lowest, highest = released.reach[column] or (np.zeros(0), np.zeros(0))
    present = np.isfinite(lowest).astype(np.float64)
    middle = cells.spread(column, (lowest + highest) / 2)
    if cells.fine:
        half = (highest - lowest) / 2
    else:
        recode = released.recode[column]
        least, most = np.full(recode.size, np.inf), np.full(recode.size, -np.inf)
        fine = recode.kept & np.isfinite(lowest)
        np.minimum.at(least, recode.coarse[fine], lowest[fine])
        np.maximum.at(most, recode.coarse[fine], highest[fine])
        half = np.where(np.isfinite(least), np.maximum(most - middle, middle - least), 0.0)
    axis = cells.columns.index(column)
    form = [-1 if i == axis else 1 for i in range(len(cells.shape))]

    def flat(figures: Floats) -> Floats:
        return np.broadcast_to(figures.reshape(form), cells.shape).ravel()

    return flat(middle), flat(np.nan_to_num(half)), flat(cells.spread(column, present))


def placement(cells: Floats, weights: sp.csr_matrix, half: Floats) -> Floats:
    """Standard deviation of a sum of values whose place in each cell is unknown.

    Any place in a cell is as likely, and beside that all cells may lean to one side together (COMMON of their half
    widths), as under a falling density.  Twice the result is at most what is possible.
    """
    inside = sp.csr_matrix(weights.multiply(np.maximum(cells, 0.0) * half))
    most = np.asarray(inside.sum(axis=1)).ravel()
    apart = np.asarray(inside.multiply(inside).sum(axis=1)).ravel() / 3
    return np.minimum(np.sqrt(apart + (COMMON * most) ** 2), most / 2)


def _ratio(
    linear: Linear, top: sp.csr_matrix, bottom: sp.csr_matrix, doubt: Floats, z: float
) -> tuple[Floats, Floats, Floats, Floats]:
    covariances = (
        linear.covariance(top, top) + doubt**2,
        linear.covariance(top, bottom),
        linear.covariance(bottom, bottom),
    )
    return ratio(linear.estimate(top), linear.estimate(bottom), covariances, z)


def _source(doubt: Floats, estimate: Floats) -> str:
    return "implied" if doubt.any() else "measured"


def _shown(answers: sp.csr_matrix, part: Floats) -> tuple[sp.csr_matrix, NDArray[np.int64]]:
    """Weights of the answers that the condition leaves cells to, and their numbers.  RequestError if there is none."""
    weights = sp.csr_matrix(answers.multiply(part))
    weights.eliminate_zeros()
    shown = np.flatnonzero(np.diff(weights.indptr) > 0)
    if not len(shown):
        raise RequestError(
            "no value that a row can have fulfils the condition: the selection is empty",
            "Compare with the values that README.md of the release lists",
            "query.where",
        )
    return weights[shown], shown


def _cut(answers: sp.csr_matrix, part: Floats, cells: Floats) -> Floats:
    """Standard deviation of a count by the cells that a condition cuts: twice it reaches from none to all of each."""
    whole = (part <= 0) | (part >= 1)
    spread = np.where(whole, 0.0, np.maximum(part, 1 - part) / 2) * np.maximum(cells, 0.0)
    return np.asarray(answers @ spread).ravel()


def _model_shares(asked: Question, event: Condition, labels: list[Any], shown: Any, level: float) -> Figures:
    z, released = normal_factor(level), asked.released
    both = Question(released, asked.by, joined(asked.where, event))
    found = bounds(released, asked.columns, asked.by, both.where, z)
    whole = counts(Question(released, asked.by, asked.where, coarse=True), level)
    kept = {label: i for i, label in enumerate(whole.labels)}
    place = [kept.get(label) for label in labels]
    low_whole = np.array([0.0 if i is None else whole.low[i] for i in place])
    high_whole = np.array([np.inf if i is None else whole.high[i] for i in place])
    top = row_sums(released, asked.columns, asked.by, both.where)[shown]
    rows = row_sums(released, asked.columns, asked.by, asked.where)[shown]
    with np.errstate(all="ignore"):
        low = np.clip(np.nan_to_num(found.low[shown] / high_whole), 0.0, 1.0)
        high = np.clip(np.nan_to_num(found.high[shown] / low_whole, nan=1.0, posinf=1.0), 0.0, 1.0)
        estimate = np.clip(top / rows, low, high)
    return Figures(labels, estimate, np.full(len(labels), np.nan), low, high, "model")


def _model_means(
    asked: Question, column: str, labels: list[Any], shown: Any, limits: tuple[float, float], level: float
) -> Figures:
    """A pair by what its distance from independence leaves; of more columns nothing is known."""
    released, z = asked.released, normal_factor(level)
    low_, high_ = released.reach[column] or (np.zeros(0), np.zeros(0))
    values = ((low_ + high_) / 2)[row_codes(released, column)]
    present = np.isfinite(values)
    top = row_sums(released, asked.columns, asked.by, asked.where, np.nan_to_num(values))[shown]
    rows = row_sums(released, asked.columns, asked.by, asked.where, present.astype(np.float64))[shown]
    with np.errstate(all="ignore"):
        estimate = top / rows
    nothing = np.full(len(labels), np.nan)
    far = distance(released, asked.columns, z) if len(asked.columns) == 2 else None
    if far is None or asked.columns == (column,) or column in asked.by:
        return Figures(labels, estimate, nothing, nothing, nothing, "not known")
    alone = means(Question(released, (), None, (column,)), column, level)
    whole = counts(Question(released, asked.by, asked.where, coarse=True), level)
    place = {label: i for i, label in enumerate(whole.labels)}
    size = np.array([max(whole.low[place[label]], 0.0) for label in labels])
    part = np.sqrt(np.maximum(size, 1.0))
    departure = np.minimum(far / 4, far * CONCENTRATION / 2 * part / part.sum())
    with np.errstate(divide="ignore"):
        wide = (limits[1] - limits[0]) * departure / size
    low, high = np.clip(alone.low - wide, *limits), np.clip(alone.high + wide, *limits)
    return Figures(labels, np.clip(estimate, low, high), nothing, low, high, "model")
