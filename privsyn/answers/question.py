"""A question to a release: its grouping columns and condition, and the noisy counts that bear on it, combined.

The combination is the best linear one, with its covariance: generalized least squares (Gauss and Markov).  The unknown
counts x of the cells of a column set S were measured as y = x + noise of variance V.  Sums of them, A x, were measured
as z with variance W (marginals that share columns with S, the columns alone, the total).  Then

    x^ = y + V A' K^-1 (z - A y),   cov(x^) = V - V A' K^-1 A V,   K = A V A' + W.

Rounds of averaging in the paper's consistency step (section 4.3) converge to x^. Counts are not cut at 0, so x^ has no
bias, and sums of answers are answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri

from privsyn.answers.cells import ColumnCells, EmptySelectionError, check_column, mark_pairs, state_rule, sum_to_coarse
from privsyn.answers.conditions import AllOf, Condition
from privsyn.answers.released_counts import Counts, ReleasedCounts
from privsyn.base.errors import RequestError
from privsyn.data_contracts.domain import Clique

Floats = NDArray[np.float64]

MOST_CELLS = 1_000_000
"""Most cells of a question."""

MOST_SUMS = 3_000
"""Most sums combined with the cells; sums over larger column sets are dropped first."""


@dataclass(frozen=True)
class Question:
    """Rows by ``by`` where ``where`` holds, of a release; ``others``: further columns of the question.

    ``coarse``: use coarse codes as levels even for one column, as questions about several columns do.  ``population``:
    intervals are about the population, as if the private rows were a simple random sample, so sampling error is added.
    """

    released: ReleasedCounts
    by: tuple[str, ...]
    where: Condition | None
    others: tuple[str, ...] = ()
    coarse: bool = False
    population: bool = False

    @classmethod
    def of(
        cls,
        released: ReleasedCounts,
        by: Sequence[str],
        where: str | Condition | None,
        others: Sequence[str] = (),
        *,
        event: Condition | None = None,
        population: bool = False,
    ) -> Question:
        """Return the question for a caller's names.

        ``by``: counted columns; ``others``: any released columns or counted attributes; ``event``: a further condition,
        whose share is asked for.  Raises RequestError for an unknown or repeated column, or a wrong condition.
        """
        for name in by:
            if check_column(released, name) not in released.columns:
                raise RequestError(
                    f"the column {name!r} is computed by rules or a dummy: it was not counted by itself",
                    "Ask for its counts, shares and means, or use a condition",
                    "query.columns",
                )
        if len({*by}) < len(by):
            raise RequestError("names one column twice", "Name each column once", "query.columns")
        named = tuple(c if c in released.codecs else check_column(released, c) for c in others)
        behind = released.language.list_attributes(named)
        behind = tuple(dict.fromkeys((*behind, *(event.columns if event else ()))))
        condition = state_rule(released, where) if isinstance(where, str) and where else where or None
        question = cls(released, tuple(by), condition, behind, population=population)
        counts = find_measured_question(question, event) or find_holding(released, question.columns)
        question = replace(question, released=counts)
        if np.prod([float(n) for n in question.cells.shape]) > MOST_CELLS:
            raise RequestError(
                f"asks for more than {MOST_CELLS:,} cells at once", "Name fewer columns", "query.columns"
            )
        return question

    @property
    def columns(self) -> Clique:
        """Every counted attribute of the question, in the table's order."""
        named = {*self.by, *self.others, *(self.where.columns if self.where else ())}
        return tuple(a for a in self.released.codecs if a in named)

    @property
    def cells(self) -> ColumnCells:
        """The cells of its columns."""
        return ColumnCells(self.released, self.columns, self.coarse)

    def linear(self) -> Linear | None:
        """Return the best linear estimate of the question's cells; None if its columns were not measured together.

        With several columns, the rare values that compression left out have no cell.
        """
        released, columns = self.released, self.columns
        return released.remember(("linear", columns), lambda: estimate_best_linear(released, columns))

    def total(self) -> float:
        """Return the estimated number of private rows, at least 1."""
        return max(float(estimate_single(self.released, ()).cells.sum()), 1.0)


def find_measured_question(question: Question, event: Condition | None) -> ReleasedCounts | None:
    """Return the counts of the spec's question that covers ``question``; None without one.

    The spec's question groups by at least the same columns; the condition and ``event`` select whole cells of it.
    """
    released, spec = question.released, question.released.request.spec
    attributes_of, candidates = released.encoding.attributes_of, []
    conditions = [c for c in (question.where, event) if c is not None]
    free = {*question.by, *question.others} - {a for c in conditions for a in c.columns}
    for marginal, spec_question in ((m, m.asked) for m in spec.measured_sets):
        if spec_question is None or not {*question.by, *free} <= set(attributes_of(spec_question.counted_by)):
            continue
        for counts in released.sets:
            inside = set(counts.joint[0].attributes)
            if set(question.columns) <= inside <= set(attributes_of(marginal.columns)):
                part = ColumnCells(counts, question.columns).fractions(AllOf(tuple(conditions)))
                candidates += [counts] if bool(((part == 0) | (part == 1)).all()) else []
    return min(candidates, key=lambda counts: counts.joint[0].counts.size, default=None)


def find_holding(released: ReleasedCounts, columns: Clique) -> ReleasedCounts:
    """Return the counts in the merged codes of a named set that holds all of ``columns``, or the release itself.

    The release itself if a measurement in coarse codes holds them all, or no set does.  The set with the fewest cells
    wins.
    """
    wanted = set(columns)
    if len(columns) < 2 or any(wanted <= set(counts.attributes) for counts in released.joint):
        return released
    holding = [of_set for of_set in released.sets if wanted <= set(of_set.joint[0].attributes)]
    return min(holding, key=lambda of_set: of_set.joint[0].counts.size, default=released)


def compute_left_out(question: Question, where: Condition | None, z: float) -> float:
    """Return an upper bound of the selected rows whose values have no cell, for questions about several columns."""
    most = 0.0
    for column, codes in question.cells.list_left_out(where).items():
        linear, weights = estimate_single(question.released, (column,)), codes[None, :].astype(np.float64)
        error = float(np.sqrt(max(linear.covariance(weights, weights)[0], 0.0)))
        most += max(float(linear.estimate(weights)[0]), 0.0) + z * error
    return most


def select_shown_answers(
    answers: sp.csr_matrix, selected_part: Floats, rows_without_cell: float = 0.0
) -> tuple[sp.csr_matrix, NDArray[np.int64]]:
    """Return the weights of the answers with selected cells, and their positions.

    Every answer if ``rows_without_cell`` is positive: rows without a cell may be selected.  Raises RequestError if no
    answer is left.
    """
    weights = sp.csr_matrix(answers.multiply(selected_part))
    weights.eliminate_zeros()
    shown = np.flatnonzero((np.diff(weights.indptr) > 0) | (rows_without_cell > 0))
    if not len(shown):
        raise EmptySelectionError(
            "no possible value fulfils the condition: the selection is empty",
            "Compare with the values in the release's README.md",
            "query.where",
        )
    return weights[shown], shown


@dataclass(frozen=True)
class Linear:
    """An unbiased estimate of cells with its covariance.

    ``cells``: flat, in records; ``variance``: of the cells as measured; ``sums``: A, of shape (sums, cells);
    ``factor``: the Cholesky factor of K, None without sums.
    """

    cells: Floats
    variance: Floats
    sums: sp.csr_matrix | None = None
    factor: tuple[Floats, bool] | None = field(default=None, repr=False)

    def estimate(self, weights: Floats | sp.csr_matrix) -> Floats:
        """Return weighted sums of cells, for weights of shape (answers, cells)."""
        return np.asarray(weights @ self.cells).ravel()

    def covariance(self, a: Floats | sp.csr_matrix, b: Floats | sp.csr_matrix) -> Floats:
        """Return the covariance of the sums by ``a`` with the sums by ``b``, one an answer; both (answers, cells)."""
        left, right = sp.csr_matrix(a), sp.csr_matrix(b)
        plain = np.asarray(left.multiply(self.variance).multiply(right).sum(axis=1)).ravel()
        if self.sums is None or self.factor is None:
            return plain
        through = sp.csr_matrix(self.sums.multiply(self.variance)).T
        left_sums, right_sums = (left @ through).toarray(), (right @ through).toarray()
        return plain - np.einsum("ij,ji->i", left_sums, scipy.linalg.cho_solve(self.factor, right_sums.T))

    def bound_variance(self, cells: NDArray[np.int64]) -> Floats:
        """Return the variance of each cell: as estimated for ``cells`` unless they are many, else as measured."""
        variance = self.variance.copy()
        if len(cells) <= MOST_SUMS:
            unit = mark_pairs(np.arange(len(cells)), cells, (len(cells), len(variance)))
            variance[cells] = np.maximum(self.covariance(unit, unit), 0.0)
        return variance


class Observations(NamedTuple):
    """Measurements of some cells: each cell, flat, and ``sums`` of cells; all with the variance of their noise.

    ``sums``: A, of shape (sums, cells), None without any.
    """

    cells: Floats
    variance: Floats
    sums: sp.csr_matrix | None
    sum_values: Floats
    sum_variance: Floats

    def combine(self) -> Linear:
        """Return the best linear estimate of the cells."""
        if self.sums is None:
            return Linear(self.cells, self.variance)
        through = sp.csr_matrix(self.sums.multiply(self.variance))
        factor = scipy.linalg.cho_factor((through @ self.sums.T).toarray() + np.diag(self.sum_variance), lower=True)
        residual = self.sum_values - self.sums @ self.cells
        cells = self.cells + through.T @ scipy.linalg.cho_solve(factor, residual)
        return Linear(cells, self.variance, self.sums, factor)


def estimate_best_linear(released: ReleasedCounts, columns: Clique) -> Linear | None:
    """Return the best linear estimate of the cells of ``columns``: fine codes for one column, else coarse codes.

    None if no measurement holds all of them.  With several columns, values that compression left out have no cell.
    """
    observations = list_observations(released, columns)
    return None if observations is None else observations.combine()


def estimate_single(released: ReleasedCounts, columns: Clique) -> Linear:
    """Return the best linear estimate of one column, or of the total without any, computed once."""
    linear = Question(released, (), None, columns).linear()
    assert linear is not None  # noqa: S101 - every release measures single columns
    return linear


def list_observations(released: ReleasedCounts, columns: Clique) -> Observations | None:
    """Return the measurements of the cells that :func:`estimate_best_linear` estimates; None as there."""
    parts: dict[CountsKind, Noisy] = {}
    for kind, every in _list_noisy_counts(released, columns).items():  # inverse-variance means, cell by cell
        precision = np.sum([1.0 / w for _, w in every], axis=0)
        parts[kind] = np.sum([z / w for z, w in every], axis=0) / precision, 1.0 / precision
    direct = parts.pop(CountsKind(columns, len(columns) == 1), None)
    if direct is None:
        return None
    rows: list[sp.csr_matrix] = []
    values: list[Floats] = []
    noise: list[Floats] = []
    for kind in sorted(parts, key=lambda kind: len(kind.columns)):
        z, w = parts[kind]
        if sum(len(v) for v in values) + z.size <= MOST_SUMS:
            if len(columns) == 1 and kind.columns:
                rows.append(sum_to_coarse(released.recode[columns[0]]))
            else:
                rows.append(build_sums(columns, direct[0].shape, kind.columns))
            values.append(z.ravel())
            noise.append(w.ravel())
    sums = sp.vstack(rows, format="csr") if rows else None
    cells, variance = direct[0].ravel(), direct[1].ravel()
    return Observations(cells, variance, sums, *(np.concatenate([np.zeros(0), *part]) for part in (values, noise)))


class CountsKind(NamedTuple):
    """The cells that a vector of counts covers: of ``columns``, in fine or coarse codes; without columns, the total."""

    columns: Clique
    fine: bool = False


Noisy = tuple[Floats, Floats]
"""Noisy counts and the variance of each, of one shape."""


def _list_noisy_counts(released: ReleasedCounts, columns: Clique) -> dict[CountsKind, list[Noisy]]:
    """Return all measurements of ``columns`` and of their subsets."""
    observations: dict[CountsKind, list[Noisy]] = {}
    single = len(columns) == 1
    sparse = {name for name in columns if not single and not released.recode[name].kept.all()}
    joint = {id(counts): counts for name in columns for counts in released.holding[name]}
    for counts in joint.values():
        common = tuple(a for a in columns if a in counts.attributes)
        if sparse <= set(common) and _complete(released, [a for a in counts.attributes if a not in columns]):
            observations.setdefault(CountsKind(common), []).append(_project_observation(counts, common))
    for name in columns:
        if sparse <= {name}:
            for counts in released.single[name]:
                noisy = _use_single_observation(released, counts, fine=single)
                observations.setdefault(CountsKind((name,), single), []).append(noisy)
    if columns and not sparse:
        observations.setdefault(CountsKind(()), []).append(_sum_without(released, columns))
    if not columns:
        observations[CountsKind(())] = [_sum_without(released, ())]
    return {kind: parts for kind, parts in observations.items() if np.isfinite(parts[0][1]).all()}


def _complete(released: ReleasedCounts, columns: Sequence[str]) -> bool:
    """Return whether compression kept every value of these columns."""
    return all(bool(released.recode[name].kept.all()) for name in columns)


def _project_observation(counts: Counts, attributes: Clique) -> Noisy:
    """Return a measurement summed down to ``attributes``, with its axes in their order."""
    gone = tuple(i for i, a in enumerate(counts.attributes) if a not in attributes)
    summed = counts.counts.sum(axis=gone)
    remaining = [a for a in counts.attributes if a in attributes]
    order = [remaining.index(a) for a in attributes]
    return summed.transpose(order), np.full(counts.counts.shape, counts.sigma**2).sum(axis=gone).transpose(order)


def _use_single_observation(released: ReleasedCounts, counts: Counts, *, fine: bool) -> Noisy:
    """Return the noisy counts of one column, by fine codes or summed to coarse ones, and their variances."""
    variance = np.full(counts.counts.shape, counts.sigma**2)
    if fine:
        return counts.counts, variance
    sums = sum_to_coarse(released.recode[counts.attributes[0]])
    return sums @ counts.counts, sums @ variance


def _sum_without(released: ReleasedCounts, columns: Clique) -> Noisy:
    """Return the number of rows, from every measurement without ``columns``; infinite variance if there is none."""
    values, precisions = combine_totals(released)
    for name in columns:
        for counts in released.single[name]:
            values, precisions = _drop_attributes(values, precisions, counts)
    joint = {id(counts): counts for name in columns for counts in released.holding[name]}
    for counts in joint.values():
        if _complete(released, counts.attributes):
            values, precisions = _drop_attributes(values, precisions, counts)
    if precisions <= 1e-12 * combine_totals(released)[1]:
        return np.zeros(()), np.full((), np.inf)
    return np.array(values / precisions), np.array(1 / precisions)


def combine_totals(released: ReleasedCounts) -> tuple[float, float]:
    """Return the sum of all measured totals, each weighted by its precision, and the sum of the precisions."""
    cached = released.cache.get("totals")
    if cached is None:
        every = [c for parts in released.single.values() for c in parts]
        every += [c for c in released.joint if _complete(released, c.attributes)]
        precision = np.array([1.0 / (c.sigma**2 * c.counts.size) for c in every])
        sums = np.array([float(c.counts.sum()) for c in every])
        cached = released.cache["totals"] = (float(precision @ sums), float(precision.sum()))
    return cached


def _drop_attributes(values: float, precisions: float, counts: Counts) -> tuple[float, float]:
    precision = 1.0 / (counts.sigma**2 * counts.counts.size)
    return values - precision * float(counts.counts.sum()), precisions - precision


def build_sums(columns: Clique, shape: tuple[int, ...], onto: Clique) -> sp.csr_matrix:
    """Return A, the sums that map the cells of ``columns``, of this shape, to the cells of some of them."""
    index, cells = np.indices(shape).reshape(len(shape), -1), int(np.prod(shape))
    axes = [columns.index(a) for a in onto]
    sizes = [shape[axis] for axis in axes]
    target = np.ravel_multi_index([index[axis] for axis in axes], sizes) if axes else np.zeros(cells, dtype=np.int64)
    return mark_pairs(target, np.arange(cells), (int(np.prod(sizes)), cells))


def compute_normal_factor(level: float) -> float:
    """Return half the width of a two-sided normal interval in standard deviations: 1.96 at level 0.95."""
    return float(ndtri(0.5 + level / 2))


def compute_ratio(
    top: Floats, bottom: Floats, covariances: tuple[Floats, Floats, Floats], z: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return top / bottom with its standard error and interval, by Fieller's theorem (1954); arrays of one shape.

    ``covariances``: var(top), cov(top, bottom), var(bottom).  A ratio r is in the interval if |top - r bottom| is at
    most z of its standard deviations.  NaN if the bottom does not differ significantly from 0: then any ratio is
    possible.
    """
    vt, c, vb = covariances
    with np.errstate(all="ignore"):
        estimate = top / bottom
        a, b, d = bottom**2 - z**2 * vb, top * bottom - z**2 * c, top**2 - z**2 * vt
        root = np.sqrt(np.maximum(b**2 - a * d, 0.0))
        has_ratio = (a > 0) & (bottom > 0)
        low, high = np.where(has_ratio, (b - root) / a, np.nan), np.where(has_ratio, (b + root) / a, np.nan)
        error = np.sqrt(np.maximum(vt - 2 * estimate * c + estimate**2 * vb, 0.0)) / np.abs(bottom)
    nothing = ~has_ratio
    return np.where(nothing, np.nan, estimate), np.where(nothing, np.nan, error), low, high
