"""Codes of about equal noisy mass: the cells of ordered columns that pairs are scored and measured in.

Not in the paper.  Where a pair's cells hold fewer rows than their noise, the relation is lost; a few cells of many rows
each keep it.  Inside them values follow the fine one-way.  A function of released counts and public noise, so it costs
no budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query

Floats = NDArray[np.float64]

ROWS_A_CELL = 3.0
"""Rows of a pair's cell in standard deviations of its noise, if every cell had as many."""

LEAST_CODES = 3
"""Codes of a column at least: with two, a relation that rises and falls cannot be seen."""

ENOUGH_CODES = 8
"""So many codes keep a relation well: a column has them in place of twice as many only, as finer codes tell more."""

PAIRS_BUDGET = 3.0
"""Budget of the pairs in that of the one-ways, as codes are counted by it: about that of the default split."""


def count_codes(noisy: Mapping[str, Floats], queries: Sequence[Query]) -> int:
    """Return how many codes of equal mass a column is to have, LEAST_CODES or more; of ENOUGH_CODES an even number.

    So one of many cuts is at the median, where sets of columns merge codes in two.

    If all pairs were measured, each would have noise of a standard deviation s; two columns of k codes then have
    rows / k^2 = ROWS_A_CELL x s rows a cell.  ``noisy``: fine counts by attribute; queries: of these one-ways.
    """
    rows = float(np.mean([y.sum() for y in noisy.values()]))
    pairs = max(len(noisy) * (len(noisy) - 1) / 2, 1.0)
    rho = PAIRS_BUDGET * sum(1 / (2 * q.sigma**2) for q in queries)
    noise = math.sqrt(pairs / (2 * rho))
    codes = max(LEAST_CODES, round(math.sqrt(max(rows, 0.0) / (ROWS_A_CELL * noise))))
    return codes if codes < ENOUGH_CODES else codes + codes % 2


def are_worth_joining(size: int, codes: int) -> bool:
    """Return whether an attribute of ``size`` codes is better measured in ``codes`` of equal mass."""
    return codes < size if codes < ENOUGH_CODES else 2 * codes <= size


def mark_first_of_equal_mass(total: Floats, codes: int) -> NDArray[np.bool_]:
    """Return which bins of a section of intervals begin a code; ``total``: their noisy counts, shape (bins,).

    A bin goes where the middle of its mass lies among ``codes`` equal parts, so one of several parts is a code alone.
    """
    mass = np.maximum(total, 0.0)
    whole = float(mass.sum())
    if whole <= 0:
        return np.arange(len(total)) == 0
    middle = (np.cumsum(mass) - mass / 2) / whole
    part = np.minimum(np.floor(middle * codes), codes - 1)
    return np.diff(part, prepend=-1.0) != 0
