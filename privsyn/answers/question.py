"""A question to a release: its grouping columns and condition, and the cells and noisy counts that bear on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from privsyn.answers.best_linear import Linear, estimate_best_linear
from privsyn.answers.cells import ColumnCells, EmptySelectionError, check_column, state_rule
from privsyn.answers.conditions import AllOf, Condition
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.base.errors import RequestError
from privsyn.data_contracts.domain import Clique

Floats = NDArray[np.float64]

MOST_CELLS = 1_000_000
"""Most cells of a question."""


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
        behind = released.language.list_attributes(
            tuple(c if c in released.codecs else check_column(released, c) for c in others)
        )
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
        key = ("linear", self.columns)
        if key not in self.released.cache:
            self.released.cache[key] = estimate_best_linear(self.released, self.columns)
        linear: Linear | None = self.released.cache[key]
        return linear

    def total(self) -> float:
        """Return the estimated number of private rows, at least 1."""
        return max(float(Question(self.released, (), None).linear().cells.sum()), 1.0)  # type: ignore[union-attr]


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
        holding = (
            counts
            for counts in released.sets
            if set(attributes_of(marginal.columns)) >= set(counts.joint[0].attributes)
        )
        for counts in (counts for counts in holding if set(question.columns) <= set(counts.joint[0].attributes)):
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
        linear, weights = Question(question.released, (), None, (column,)).linear(), codes[None, :].astype(np.float64)
        assert linear is not None  # noqa: S101 - every release measures single columns
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
