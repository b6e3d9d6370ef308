"""Uniqueness: synthetic rows that repeat a row which only one real person has.

Source: the identifiability risk that the statistical disclosure literature calls replicated uniques (synthpop).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.features import make_row_keys


@dataclass(frozen=True)
class Uniqueness:
    """Shares, each 0..1; 0 for a table of no rows.

    ``share``: synthetic rows equal to a unique real row.  ``holdout_share``: the same of hold-out rows, what a table
    shows that knows the population but nobody in the release; None without a hold-out.  ``unique``: real rows that are
    unique.  ``repeated``: unique real rows that occur in the synthetic table.
    """

    share: float
    holdout_share: float | None
    unique: float
    repeated: float


def measure_uniqueness(real: CodeTable, synthetic: CodeTable, holdout: CodeTable | None = None) -> Uniqueness:
    """Return the share of synthetic rows that equal, in all released columns, a row that occurs once in the real table.

    Equality is of codes: the public bins, as everywhere.  In a narrow table a match is often chance, so the share is to
    be read beside ``holdout_share``; a share well above it says that the release repeats its people.
    """
    groups = group_equal_rows([real, synthetic] if holdout is None else [real, synthetic, holdout])
    number = max((int(g.max()) + 1 for g in groups if g.size), default=0)
    once = np.bincount(groups[0], minlength=number) == 1
    repeated = np.zeros(number, dtype=bool)
    repeated[groups[1]] = True
    return Uniqueness(
        share=_share(once[groups[1]]),
        holdout_share=_share(once[groups[2]]) if holdout is not None else None,
        unique=int(once.sum()) / max(real.rows, 1),
        repeated=_share(repeated[once]),
    )


def group_equal_rows(tables: Sequence[CodeTable]) -> list[NDArray[np.int64]]:
    """Return a number for every row of every table; two rows have the same number exactly if all their codes are equal.

    Numbers are from 0 on, without gaps.  Exact for any number of attributes.  The tables share one domain.
    """
    attributes = tables[0].domain.attributes
    _, numbers = np.unique(make_row_keys(tables, attributes), return_inverse=True)
    edges = np.cumsum([table.rows for table in tables])[:-1]
    return np.split(numbers.astype(np.int64, copy=False), edges)


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if mask.size else 0.0
