"""The rows so that they follow the released counts of some columns, as far as rows can.

Steps between the counts and the rows (shrinking, agreement of all marginals, counts cut at 0) bring a bias that
releases of the model do not show, since the model has it already.  Here the rows are weighted until their counts are
the best linear estimates of the columns and of their measured pairs, cut at 0: iterative proportional fitting (Deming
and Stephan 1940).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.answers.best_linear import estimate_best_linear
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.answers.synthetic_rows import read_row_codes
from privsyn.data_contracts.domain import Clique

ROUNDS = 20

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Wanted(NamedTuple):
    """The counts that rows shall have: the rows concerned, the cell of each, and the counts of all cells."""

    rows: Ints
    cells: Ints
    counts: Floats


def refit_rows(released: ReleasedCounts, columns: Sequence[str]) -> pa.Table:
    """Return synthetic rows, some left out and some repeated, by the counts of ``columns`` and of their measured pairs.

    A cell without rows stays empty; where no row were left, all stay.  A function of the released folder.
    """
    attributes = [a for a in released.attributes if a in released.language.behind(tuple(columns))]
    sets = [*((a,) for a in attributes), *combinations(attributes, 2)]
    every = [
        found for found in (_build_wanted_counts(released, attributes) for attributes in sets) if found is not None
    ]
    weights = np.ones(released.table.num_rows)
    for _ in range(ROUNDS):
        for wanted in every:
            have = np.bincount(wanted.cells, weights[wanted.rows], minlength=len(wanted.counts))
            factor = np.where(have > 0, wanted.counts / np.where(have > 0, have, 1.0), 1.0)
            weights[wanted.rows] *= factor[wanted.cells]
    if weights.sum() < 1:
        return released.table
    ends = np.floor(np.cumsum(weights) + 0.5).astype(np.int64)
    return released.table.take(pa.array(np.repeat(np.arange(len(weights)), np.diff(ends, prepend=0))))


def _build_wanted_counts(released: ReleasedCounts, attributes: Clique) -> _Wanted | None:
    """Return the best linear counts of one column or of a pair, cut at 0; None of a pair that was not measured."""
    linear = estimate_best_linear(released, attributes)
    if linear is None:
        return None
    counts, codes = np.maximum(linear.cells, 0.0), [read_row_codes(released, a) for a in attributes]
    if len(attributes) == 1:
        return _Wanted(np.arange(len(codes[0])), codes[0], counts)
    sizes = released.domain.shape(attributes)
    coarse = [released.recode[a].coarse[c] for a, c in zip(attributes, codes, strict=True)]
    rows = np.flatnonzero(np.logical_and.reduce([c < size for c, size in zip(coarse, sizes, strict=True)]))
    return _Wanted(rows, np.ravel_multi_index([c[rows] for c in coarse], sizes), counts)
