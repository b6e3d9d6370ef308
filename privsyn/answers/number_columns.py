"""Quantiles of number columns, and correlations of all their pairs, with intervals.

A quantile inverts the noisy distribution function (Woodruff 1952).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from privsyn.answers.cells import compute_row_numbers, find_code_ends
from privsyn.answers.counted import locate_cells
from privsyn.answers.question import Linear, Question, compute_normal_factor, select_shown_answers
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.answers.unmeasured import compute_distance, group_rows, read_row_codes, select_rows
from privsyn.base.errors import RequestError
from privsyn.data_contracts.linked_tables import name_one_place

Floats = NDArray[np.float64]


class Quantiles(NamedTuple):
    """Answers by label and probability: labels, probabilities, figures of shape (answers,), and sources."""

    labels: list[tuple[str, ...]]
    probabilities: list[float]
    estimate: Floats
    low: Floats
    high: Floats
    sources: list[str]


def answer_quantiles(question: Question, column: str, probabilities: Sequence[float], level: float) -> Quantiles:
    """Return the quantiles of a column's numbers, without nulls, among the rows of each answer.

    The interval of a quantile covers every cell whose noisy cumulative share is within the noise of the wanted share.
    """
    cells, z = question.cells, compute_normal_factor(level)
    wrong = [p for p in probabilities if not 0 < p < 1]
    if wrong or not probabilities:
        problem = f"{wrong[0]:g} is not between 0 and 1" if wrong else "names no probability"
        raise RequestError(problem, "Name probabilities such as 0.1, 0.5, 0.9", "query.probabilities")
    if column not in question.released.columns:
        return _answer_from_rows(question, column, probabilities)
    reach = question.released.find_reach(column)
    part = cells.fractions(question.where)
    labels, answers = cells.indicators(question.by)
    weights, shown = select_shown_answers(answers, part)
    linear = question.linear()
    if linear is None:
        return _answer_from_rows(question, column, probabilities)
    lowest, highest = reach if cells.fine else find_code_ends(question.released.recode[column], *reach)
    order = [int(i) for i in np.argsort(lowest, kind="stable") if np.isfinite(lowest[i])]
    farthest = np.maximum.accumulate(highest[order])  # codes may share values
    axis = np.indices(cells.shape).reshape(len(cells.shape), -1)[cells.columns.index(column)]
    quantiles: list[tuple[float, float, float]] = []
    for row in range(len(shown)):
        steps = sp.csr_matrix(np.stack([weights[row].toarray().ravel() * (axis == code) for code in order]))
        up_to = sp.csr_matrix(np.tril(np.ones((len(order), len(order))))) @ steps
        all_rows = sp.csr_matrix(np.repeat(up_to[-1].toarray(), len(order), axis=0))
        quantiles += [_invert(linear, up_to, all_rows, p, lowest[order], farthest, z) for p in probabilities]
    figures = np.array(quantiles).reshape(-1, 3)
    figures[np.abs(figures) < np.finfo(np.float64).tiny] = 0.0  # a cell that begins just above 0
    names = [labels[i] for i in shown for _ in probabilities]
    cut = bool(((part > 0) & (part < 1)).any())
    sources = ["not known" if np.isnan(f[1]) else "implied" if cut else "measured" for f in figures]
    return Quantiles(names, [*probabilities] * len(shown), figures[:, 0], figures[:, 1], figures[:, 2], sources)


def _invert(
    linear: Linear, up_to: sp.csr_matrix, all_rows: sp.csr_matrix, p: float, lowest: Floats, highest: Floats, z: float
) -> tuple[float, float, float]:
    """Return the estimate and ends of one quantile; NaN if the rows are not significantly more than 0."""
    against = sp.csr_matrix(up_to - p * all_rows)
    excess = linear.estimate(against)
    error = np.sqrt(np.maximum(linear.covariance(against, against), 0.0))
    total = float(linear.estimate(all_rows[:1])[0])
    total_error = float(np.sqrt(max(linear.covariance(all_rows[:1], all_rows[:1])[0], 0.0)))
    if total <= z * total_error:
        return np.nan, np.nan, np.nan
    first = int(np.argmax(excess > -z * error)) if (excess > -z * error).any() else len(excess) - 1
    surely = np.flatnonzero(excess < z * error)
    last = min(int(surely[-1]) + 1, len(excess) - 1) if surely.size else 0
    rising = np.maximum.accumulate(excess)
    crossing = int(np.argmax(rising >= 0)) if (rising >= 0).any() else len(excess) - 1
    before = rising[crossing - 1] if crossing else -p * total
    inside = np.clip(-before / max(rising[crossing] - before, 1e-9), 0.0, 1.0)
    estimate = lowest[crossing] + inside * (highest[crossing] - lowest[crossing])
    return float(np.clip(estimate, lowest[first], highest[last])), float(lowest[first]), float(highest[last])


def _answer_from_rows(question: Question, column: str, probabilities: Sequence[float]) -> Quantiles:
    """Return the synthetic rows' quantiles; their error is unknown."""
    every, answers = question.cells.indicators(question.by)
    _, shown = select_shown_answers(answers, question.cells.fractions(question.where))
    labels = [every[i] for i in shown]
    if column in question.released.columns:
        lowest, highest = question.released.find_reach(column)
        values = ((lowest + highest) / 2)[read_row_codes(question.released, column)]
    else:
        values = compute_row_numbers(question.released, column)
    group, _ = group_rows(question.released, question.columns, question.by)
    chosen = select_rows(question.released, question.where) & np.isfinite(values)
    quantiles = []
    for number in shown:
        group_values = values[chosen & (group == number)]
        quantiles += [float(np.quantile(group_values, p)) if len(group_values) else np.nan for p in probabilities]
    nothing = np.full(len(quantiles), np.nan)
    names = [label for label in labels for _ in probabilities]
    sources = ["not known"] * len(quantiles)
    return Quantiles(names, [*probabilities] * len(labels), np.array(quantiles), nothing, nothing, sources)


class Correlation(NamedTuple):
    """Pearson's correlation of two columns, over rows where neither is null."""

    a: str
    b: str
    estimate: float
    std_error: float
    low: float
    high: float
    source: str


def list_number_columns(released: ReleasedCounts) -> list[str]:
    """Return the columns that hold numbers, moments or booleans."""
    unreleased = {name_one_place(table) for table in released.request.spec.table_names}
    return [name for name in released.columns if released.reach[name] is not None and name not in unreleased]


def answer_correlations(released: ReleasedCounts, columns: Sequence[str], level: float) -> list[Correlation]:
    """Return the correlation of every pair of ``columns``: from noisy counts if measured, else from the model."""
    return [_answer_correlation(released, pair, compute_normal_factor(level)) for pair in combinations(columns, 2)]


def _answer_correlation(released: ReleasedCounts, pair: tuple[str, str], z: float) -> Correlation:
    question = Question.of(released, (), None, pair)
    linear = question.linear()
    if linear is None:
        return _answer_unmeasured(released, pair, z)
    u, *sides_u, inside_u, there_u = locate_cells(question.cells, pair[0])
    v, *sides_v, inside_v, there_v = locate_cells(question.cells, pair[1])
    half_u, half_v = np.maximum(*sides_u), np.maximum(*sides_v)
    counts = linear.cells * there_u * there_v
    rows = float(counts.sum())
    u, v = np.nan_to_num(u), np.nan_to_num(v)
    if rows <= 1:
        return _answer_undefined(pair)
    mean_u, mean_v = counts @ u / rows, counts @ v / rows
    du, dv = u - mean_u, v - mean_v
    var_u, var_v = counts @ (du**2 + inside_u) / rows, counts @ (dv**2 + inside_v) / rows
    if min(var_u, var_v) <= 0:
        return _answer_undefined(pair)
    scale = np.sqrt(var_u * var_v)
    r = float(np.clip(counts @ (du * dv) / rows / scale, -1.0, 1.0))
    slope = (du * dv / scale - r / 2 * ((du**2 + inside_u) / var_u + (dv**2 + inside_v) / var_v)) / rows
    slope = slope * there_u * there_v
    positive = np.maximum(counts, 0.0)
    reach = (half_u * dv) ** 2 + (half_v * du) ** 2 + (half_u * half_v) ** 2 / 3
    doubt = np.sqrt(positive**2 @ reach / 3) / rows / scale
    error = float(np.sqrt(max(linear.covariance(slope[None, :], slope[None, :])[0], 0.0) + doubt**2))
    low, high = max(r - z * error, -1.0), min(r + z * error, 1.0)
    return Correlation(*pair, r, error, low, high, "implied" if half_u.any() or half_v.any() else "measured")


def _answer_undefined(pair: tuple[str, str]) -> Correlation:
    return Correlation(*pair, np.nan, np.nan, np.nan, np.nan, "not known")


def _answer_unmeasured(released: ReleasedCounts, pair: tuple[str, str], z: float) -> Correlation:
    """Return a bound from the distance D to independence: |cov| <= D / n times a quarter of both ranges."""
    figures = []
    for column in pair:
        lowest, highest = released.find_reach(column)
        figures.append(((lowest + highest) / 2)[read_row_codes(released, column)])
    present = np.isfinite(figures[0]) & np.isfinite(figures[1])
    u, v = figures[0][present], figures[1][present]
    spread = float(np.std(u) * np.std(v)) if present.any() else 0.0
    if spread <= 0:
        return _answer_undefined(pair)
    estimate = float(np.mean((u - u.mean()) * (v - v.mean())) / spread)
    distance = compute_distance(released, pair, z)
    ranges = [np.nanmax(f[present]) - np.nanmin(f[present]) for f in figures]
    bound = np.inf if distance is None else distance / max(present.sum(), 1) * ranges[0] * ranges[1] / 4 / spread
    if bound >= 1:
        return Correlation(*pair, estimate, np.nan, np.nan, np.nan, "not known")
    return Correlation(*pair, float(np.clip(estimate, -bound, bound)), np.nan, -bound, bound, "model")
