"""Columns that were not measured together: estimates from the synthetic rows, and bounds from what was released.

A pair (a, b) has one-ways n_a, n_b and the total n.  The release gives its noisy distance from independence, D = sum
|n_ab - n_a n_b / n|. The departures sum to 0 in every row and every column of the pair's table.  So the departures of a
block (values of a times values of b) sum to at most D / 4.  All departures share one D, so few of many answers can be
far off.  An answer's departure is assumed to be at most CONCENTRATION times its part of D; parts are proportional to
the square roots of expected counts, as under chance.  The first bound is a theorem.  The second is an assumption,
checked by benchmarks/coverage.py.

For any columns, a count is at most the count of each measured subset, and at least Bonferroni's bound: n(A and B) >=
n(A) + n(B) - n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from privsyn.answers.cells import ColumnCells, sum_to_coarse
from privsyn.answers.conditions import Condition, name_codes_attribute
from privsyn.answers.question import build_sums, estimate_best_linear, estimate_single
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.data_contracts.domain import Clique
from privsyn.tasks.codecs.person_figures import SummaryCodec
from privsyn.tasks.estimation.pair_departures import IndependentCounts

Floats = NDArray[np.float64]

CONCENTRATION = 4.0
"""Most that a departure may exceed its part of a pair's distance, as a factor."""


def read_row_codes(released: ReleasedCounts, column: str) -> NDArray[np.int64]:
    """Return the fine code of every synthetic row."""
    key = ("codes", column)
    if key not in released.cache:
        codec = released.codecs[column]
        if isinstance(codec, SummaryCodec):
            rows, first = released.persons
            table = {name: rows[name].combine_chunks() for name in rows.column_names}
            codes = codec.compute(codec.book.read_table(table), first)
            values = {column: pa.array(codes, mask=codes < 0)}
        else:
            values = {name: released.table[name].combine_chunks() for name in codec.sources}
        released.cache[key] = codec.encode(values)[0].astype(np.int64)
    row_codes: NDArray[np.int64] = released.cache[key]
    return row_codes


def select_rows(released: ReleasedCounts, condition: Condition | None) -> NDArray[np.bool_]:
    """Return the synthetic rows that a condition holds for."""
    if condition is None:
        return np.ones(released.table.num_rows, dtype=bool)
    values: dict[str, Any] = {}
    for a in condition.columns:
        if isinstance(released.codecs[a], SummaryCodec):
            values[name_codes_attribute(a)] = pa.array(read_row_codes(released, a))
        else:
            values |= {name: released.table[name] for name in released.codecs[a].sources}
    return condition.holds(values)


def group_rows(released: ReleasedCounts, columns: Clique, by: Sequence[str]) -> tuple[NDArray[np.int64], int]:
    """Return the answer that each synthetic row belongs to (-1: none), and the number of answers."""
    cells = ColumnCells(released, columns)
    group, answers = np.zeros(released.table.num_rows, dtype=np.int64), 1
    outside = np.zeros(len(group), dtype=bool)
    for column in by:
        level, codes = cells.levels(column), read_row_codes(released, column)
        coarse = codes if cells.fine else released.recode[column].coarse[codes]
        inside = coarse < len(level.level_by_cell)
        level_of_row = level.level_by_cell[np.where(inside, coarse, 0)]
        outside |= ~inside | (level_of_row < 0)
        group, answers = group * len(level.labels) + level_of_row, answers * len(level.labels)
    return np.where(outside, -1, group), answers


def sum_rows(
    released: ReleasedCounts,
    columns: Clique,
    by: Sequence[str],
    condition: Condition | None,
    figures: Floats | None = None,
) -> Floats:
    """Return sums over the synthetic rows of each answer: of ``figures``, or of ones (a count) without them."""
    group, answers = group_rows(released, columns, by)
    chosen = select_rows(released, condition) & (group >= 0)
    weights = None if figures is None else figures[chosen]
    return np.bincount(group[chosen], weights=weights, minlength=answers).astype(np.float64)


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bounds of answers, each of shape (answers,)."""

    low: Floats
    high: Floats


def compute_bounds(
    released: ReleasedCounts, columns: Clique, by: Sequence[str], condition: Condition | None, z: float
) -> Bounds:
    """Return bounds of the counts of ``columns`` by ``by`` where the condition holds.

    ``z``: half-width in standard deviations of noise.
    """
    cells = ColumnCells(released, columns)
    _, answers = cells.indicators(by)
    weights = sp.csr_matrix(answers.multiply(cells.fractions(condition)))
    touched = sp.csr_matrix(weights > 0, dtype=float)
    general = _bound_generally(released, cells, touched, weights, z)
    if len(columns) != 2 or compute_distance(released, columns, z) is None:
        return general
    whole_cells = sp.csr_matrix(weights >= 1, dtype=float)  # the condition may select no row of a cell that it cuts
    least = most = _bound_near_independence(released, columns, whole_cells, z)
    if whole_cells.nnz < touched.nnz:  # or all its rows
        most = _bound_near_independence(released, columns, touched, z)
    return Bounds(np.maximum(general.low, least.low), np.minimum(general.high, most.high))


def compute_distance(released: ReleasedCounts, pair: Clique, z: float) -> float | None:
    """Return an upper bound of a pair's distance from independence, in records; None without a score."""
    score = released.scores.get(pair) or released.scores.get(pair[::-1])
    if score is None:
        return None
    return max(score.distance + z * score.sigma, 0.0) + _move_mass(released, pair)


def _move_mass(released: ReleasedCounts, pair: Clique) -> float:
    """Return the distance between the current product of one-ways and the product that the scores refer to."""
    recode = released.recode
    reference = IndependentCounts.of({a: recode[a] for a in pair})
    total = max(estimate_single(released, ()).cells.sum(), 1.0)
    now = [np.append(_sum_coarse_one_way(released, a), 0.0) / total for a in pair]
    then = [reference.shares[a] for a in pair]
    return float(np.abs(np.outer(*now) * total - np.outer(*then) * reference.total).sum())


def _sum_coarse_one_way(released: ReleasedCounts, column: str) -> Floats:
    return np.asarray(sum_to_coarse(released.recode[column]) @ estimate_single(released, (column,)).cells)


def _bound_near_independence(released: ReleasedCounts, pair: Clique, weights: sp.csr_matrix, z: float) -> Bounds:
    one_ways = [estimate_single(released, (column,)) for column in pair]
    total = max(float(estimate_single(released, ()).cells.sum()), 1.0)
    a, b = (_sum_coarse_one_way(released, column) for column in pair)
    expected = np.maximum(np.outer(a, b).ravel() / total, 0.0)
    centre = np.asarray(weights @ np.outer(a, b).ravel()) / total
    variance = np.zeros(len(centre))
    cube = weights.toarray().reshape(-1, len(a), len(b))
    for column, linear, slope in zip(pair, one_ways, (cube @ b, np.einsum("gab,a->gb", cube, a)), strict=True):
        recode = released.recode[column]
        fine = np.where(recode.kept, (slope / total)[:, np.minimum(recode.coarse, recode.size - 1)], 0.0)
        variance += linear.covariance(fine, fine)
    distance = compute_distance(released, pair, z) or 0.0
    size = np.sqrt(np.maximum(np.asarray(weights @ expected), 1.0))
    rest = np.sqrt(max(total - float((weights @ expected).sum()), 1.0))
    distance_of_answer = distance * CONCENTRATION * size / (size.sum() + rest)
    half = z * np.sqrt(np.maximum(variance, 0.0)) + np.minimum(distance / 4, distance_of_answer)
    return Bounds(centre - half, np.maximum(centre, 0.0) + half)


def _bound_generally(
    released: ReleasedCounts, cells: ColumnCells, touched_cells: sp.csr_matrix, weights: sp.csr_matrix, z: float
) -> Bounds:
    """Return bounds from the counts of measured subsets of the columns, whatever the relations between these are."""
    answers = weights.shape[0]
    total = estimate_single(released, ())
    n, n_error = float(total.cells.sum()), float(np.sqrt(total.variance.sum()))
    high, low = np.full(answers, n + z * n_error), np.zeros(answers)
    events: dict[Clique, tuple[Floats, Floats]] = {}
    for size in range(1, len(cells.columns)):
        for part in combinations(cells.columns, size):
            linear = estimate_best_linear(released, part) if size > 1 else estimate_single(released, part)
            if linear is not None:
                hold = _project_condition(released, cells, touched_cells, part)
                events[part] = linear.estimate(hold), np.sqrt(np.maximum(linear.covariance(hold, hold), 0.0))
                most = np.maximum(events[part][0], 0.0) + z * events[part][1]  # no count is below 0
                high = np.minimum(high, most)
    if not _is_rectangular(cells, touched_cells, weights):
        return Bounds(low, np.maximum(high, 0.0))
    for one, other in combinations(events, 2):
        if set(one) | set(other) == set(cells.columns):
            common = tuple(c for c in one if c in other)
            base = events.get(common, (np.full(answers, n), np.full(answers, n_error)))
            if common and common not in events:
                continue
            error = np.sqrt(events[one][1] ** 2 + events[other][1] ** 2 + base[1] ** 2)
            low = np.maximum(low, events[one][0] + events[other][0] - base[0] - z * error)
    return Bounds(low, np.maximum(high, low))


def _is_rectangular(cells: ColumnCells, touched_cells: sp.csr_matrix, weights: sp.csr_matrix) -> bool:
    """Return whether every answer is a block of whole cells: a product of value sets, one for each column."""
    if weights.nnz and not np.allclose(weights.data, 1.0):
        return False
    sizes = np.diff(touched_cells.indptr)
    block = np.ones(touched_cells.shape[0])
    for column in cells.columns:
        onto = build_sums(cells.columns, cells.shape, (column,)).T
        block *= np.diff(sp.csr_matrix((touched_cells @ onto) > 0).indptr)
    return bool((sizes == block).all())


def _project_condition(
    released: ReleasedCounts, cells: ColumnCells, touched_cells: sp.csr_matrix, attributes: Clique
) -> sp.csr_matrix:
    """Return the cells of ``attributes`` that an answer's cells project to, of shape (answers, cells of part)."""
    onto = build_sums(cells.columns, cells.shape, attributes).T
    hold = sp.csr_matrix((touched_cells @ onto) > 0, dtype=float)
    if len(attributes) > 1:
        return hold
    return sp.csr_matrix(hold @ sum_to_coarse(released.recode[attributes[0]]))
