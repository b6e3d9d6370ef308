"""The pairs of columns that were scored and not counted together: their noisy scores, and what chance alone makes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.engine.step import ReleaseStep, Step, release_steps
from privsyn.publish.related_pairs import ColumnCodes, RelatedPair
from privsyn.tasks.estimation.noisy import list_all_measured

SCORES = "indif_scores"
"""How the names of the release steps begin that score pairs against independence."""


class ScoredPair(NamedTuple):
    """A pair of columns with a noisy score and without joint counts; all shares of the rows.

    ``score``: half the noisy distance from independence, in the codes that joint counts would have; ``chance``: what
    columns with these counts have on average though they are independent; ``noise``: the score's standard deviation.
    """

    columns: tuple[str, str]
    score: float
    chance: float
    noise: float


def list_score_steps(steps: Sequence[Step]) -> list[ReleaseStep]:
    """Return the release steps whose noisy answers are scores of pairs."""
    return [step for step in release_steps(steps) if step.name.startswith(SCORES)]


def list_unmeasured_pairs(
    receipts: Sequence[pa.Table],
    answers: Sequence[pa.Table],
    consistent: pa.Table,
    measured: Sequence[RelatedPair],
    column_codes: ColumnCodes,
) -> list[ScoredPair]:
    """Return every scored pair that is in no measured marginal, by how far its score is above chance.

    ``receipts``, ``answers``: the released tables of :func:`list_score_steps`; ``consistent``: the released table
    MARGINALS.  Attributes that a computed column splits (``column_codes``) are left out: their score is of the split
    codes.
    """
    counted = {frozenset(pair.columns) for pair in measured}
    singles = {
        row["attributes"][0]: np.maximum(np.asarray(row["counts"], dtype=np.float64), 0.0)
        for row in consistent.select(["attributes", "counts"]).to_pylist()
        if len(row["attributes"]) == 1
    }
    found = []
    for query, answer in zip(*list_all_measured(receipts, answers), strict=True):
        names = query.attributes
        if frozenset(names) in counted or not _are_columns(names, singles, column_codes):
            continue
        rows = float(singles[names[0]].sum())
        if rows > 0:
            score, noise = float(answer[0]) / (2 * rows), query.sigma / (2 * rows)
            shares = [singles[name] / max(float(singles[name].sum()), 1.0) for name in names]
            chance = _compute_chance(shares[0], shares[1], rows)
            found.append(ScoredPair((names[0], names[1]), score, chance, noise))
    return sorted(found, key=lambda pair: (round(pair.chance - pair.score, 6), pair.columns))


def _are_columns(names: Clique, known: Collection[str], column_codes: ColumnCodes) -> bool:
    return all(name in known and name not in column_codes for name in names)


def _compute_chance(first: NDArray[np.float64], second: NDArray[np.float64], rows: float) -> float:
    """Return half the mean L1 distance from the product of the one-ways of so many independent rows, as a share.

    ``first``, ``second``: the shares of the codes.  A cell is about normal with n p q (1 - p) (1 - q) for its variance.
    """
    deviations = [np.sqrt((p * (1 - p)).clip(min=0.0)) for p in (first, second)]
    return 0.5 * math.sqrt(2 / (math.pi * rows)) * float(deviations[0].sum() * deviations[1].sum())
