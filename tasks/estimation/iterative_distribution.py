"""Iterative distribution estimation: a public distribution made to answer noisy marginals, changed as little as can be.

Paper: "Public prior: distribution estimation", Definition 3.1, Theorem 3.1 and Algorithm 1.  The distribution is over
the distinct rows of a public table, its support (section 3.2): what is nowhere in it stays at 0.  Post-processing of
noisy answers costs no budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.estimation.projection import apply_norm_sub
from privsyn.tasks.kernels.counting import CodeTable

Floats = NDArray[np.float64]

UNCOUNTED_CELL = -1
"""The cell of a value that a partial workload does not count."""


@dataclass(frozen=True, eq=False)
class PartialWorkload:
    """Counting queries of which no value is in two: ``cell[i]`` is the query that counts value i, or UNCOUNTED_CELL.

    ``cells``: how many queries there are.
    """

    cell: NDArray[np.int64]
    cells: int

    @classmethod
    def marginal(cls, table: CodeTable, clique: Clique) -> PartialWorkload:
        """Return the marginal on ``clique`` of the values that are the table's rows; cells in row-major order."""
        shape = table.domain.shape(clique)
        codes = [table.column(a).astype(np.int64) for a in clique]
        return cls(np.ravel_multi_index(codes, shape), int(np.prod(shape)))

    @property
    def covers_all(self) -> bool:
        """Whether every value is counted."""
        return bool((self.cell != UNCOUNTED_CELL).all())

    def answers(self, shares: Floats) -> Floats:
        """Return what the queries say of a distribution, shape (cells,)."""
        inside = self.cell != UNCOUNTED_CELL
        return np.bincount(self.cell[inside], weights=shares[inside], minlength=self.cells).astype(np.float64)


def find_nearest_answers(noisy: Floats, *, covers_all: bool) -> Floats:
    """Answers >= 0 at the least L1 distance from ``noisy``, of sum 1 where all values are counted, else at most 1.

    The projection in squares is one of those of least L1 distance: it lowers, or raises, all that it changes.
    """
    positive = np.maximum(noisy, 0.0)
    return positive if not covers_all and positive.sum() <= 1 else apply_norm_sub(noisy, 1.0)


def update_distribution(shares: Floats, workload: PartialWorkload, answers: Floats) -> Floats:
    """Return the distribution of these ``answers`` that is nearest to ``shares`` in relative entropy (Definition 3.1).

    shares: shape (values,), sums to 1; answers: from :func:`find_nearest_answers`, shape (cells,).  A query whose
    values had no share gives each of them an equal part; so does what is left to the values that no query counts.  A
    query that counts no value of the support loses its answer, and the shares are scaled to sum to 1.
    """
    inside = workload.cell != UNCOUNTED_CELL
    found = np.empty_like(shares)
    cell = workload.cell[inside]
    before = workload.answers(shares)
    members = np.bincount(cell, minlength=workload.cells)
    scaled = shares[inside] * np.divide(answers, before, out=np.zeros_like(before), where=before > 0)[cell]
    found[inside] = np.where(before[cell] > 0, scaled, (answers / np.maximum(members, 1))[cell])
    rest, left = shares[~inside], max(0.0, 1.0 - float(answers.sum()))
    if rest.size:
        found[~inside] = rest * (left / rest.sum()) if rest.sum() > 0 else left / rest.size
    total = found.sum()
    return found / total if total > 0 else shares


def estimate(
    shares: Floats, workloads: Sequence[PartialWorkload], noisy: Sequence[Floats], rounds: int, seed: int
) -> Floats:
    """Algorithm 1: ``rounds`` updates of ``shares``, each by a workload drawn at random; ``noisy``: answers as shares.

    Every workload has its turn before any comes again.  Raises ValueError without a workload.
    """
    if not workloads:
        raise ValueError("there is no workload to estimate from")
    generator, order = np.random.default_rng([seed, 0x1DE]), np.zeros(0, np.int64)
    nearest = [find_nearest_answers(y, covers_all=w.covers_all) for w, y in zip(workloads, noisy, strict=True)]
    for turn in range(rounds):
        if turn % len(workloads) == 0:
            order = generator.permutation(len(workloads))
        chosen = order[turn % len(workloads)]
        shares = update_distribution(shares, workloads[chosen], nearest[chosen])
    return shares
