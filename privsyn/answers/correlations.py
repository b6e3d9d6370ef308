"""Correlations of all pairs of number columns, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.answers.best_linear import compute_normal_factor
from privsyn.answers.counted import locate_cells
from privsyn.answers.model_bounds import compute_distance
from privsyn.answers.question import Question
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.answers.synthetic_rows import read_row_codes
from privsyn.data_contracts.linked_tables import name_one_place

Floats = NDArray[np.float64]


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
    unreleased = {name_one_place(table) for table in released.request.spec.tables}
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
    doubt = (
        np.sqrt((positive**2) @ ((half_u * dv) ** 2 + (half_v * du) ** 2 + (half_u * half_v) ** 2 / 3) / 3)
        / rows
        / scale
    )
    error = float(np.sqrt(max(linear.covariance(slope[None, :], slope[None, :])[0], 0.0) + doubt**2))
    low, high = max(r - z * error, -1.0), min(r + z * error, 1.0)
    return Correlation(*pair, r, error, low, high, "implied" if half_u.any() or half_v.any() else "measured")


def _answer_undefined(pair: tuple[str, str]) -> Correlation:
    return Correlation(*pair, np.nan, np.nan, np.nan, np.nan, "not known")


def _answer_unmeasured(released: ReleasedCounts, pair: tuple[str, str], z: float) -> Correlation:
    """Return a bound from the distance D to independence: |cov| <= D / n times a quarter of both ranges."""
    codes, figures = [read_row_codes(released, c) for c in pair], []
    for column, code in zip(pair, codes, strict=True):
        lowest, highest = released.reach[column] or (np.zeros(0), np.zeros(0))
        figures.append(((lowest + highest) / 2)[code])
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
