"""Uniqueness: synthetic rows that repeat a row which only one real person has.

Belongs here: equality of whole rows, exactly, on the codes.  Does not belong here: near matches (membership.py).
Source: the identifiability risk that the statistical disclosure literature calls replicated uniques (synthpop).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.kernels.counting import CodeTable

_MAX_KEY = 1 << 62


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


def uniqueness(real: CodeTable, synthetic: CodeTable, holdout: CodeTable | None = None) -> Uniqueness:
    """Share of synthetic rows that equal, in all released columns, a row which occurs once in the real table.

    Equality is of codes: the public bins, as everywhere.  In a narrow table a match is often chance, so the share is to
    be read beside ``holdout_share``; a share well above it says that the release repeats its people.
    """
    groups = row_groups([real, synthetic] if holdout is None else [real, synthetic, holdout])
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


def row_groups(tables: Sequence[CodeTable]) -> list[NDArray[np.int64]]:
    """A number for every row of every table; two rows have the same number exactly if all their codes are equal.

    Attributes are joined into one 62-bit key; whenever the next would not fit, the keys are replaced by their ranks.
    So it is exact for any number of attributes, and holds a few 64-bit integers a row.  The tables share one domain.
    """
    rows = sum(table.rows for table in tables)
    keys, size = np.zeros(rows, dtype=np.int64), 1
    widths = np.max([table.shape(table.domain.attributes) for table in tables], axis=0).tolist()
    for position, width in enumerate(widths):
        if size * width > _MAX_KEY:
            keys, size = _ranks(keys)
        keys *= width
        keys += np.concatenate([table.columns[position] for table in tables])
        size *= width
    keys, _ = _ranks(keys)
    edges = np.cumsum([table.rows for table in tables])[:-1]
    return np.split(keys, edges)


def _ranks(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Each key's rank among the different ones, and how many there are (1 at least)."""
    values, ranks = np.unique(keys, return_inverse=True)
    return ranks.astype(np.int64, copy=False), max(len(values), 1)


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if mask.size else 0.0
