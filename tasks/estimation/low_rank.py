"""The part of a noisy pair's departure that few directions explain: shrunk singular values.

Paper: Gavish and Donoho, "Optimal Shrinkage of Singular Values", IEEE Transactions on Information Theory 63, 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LowRank:
    """``estimate``: of the shape of the matrix; it takes ``degrees`` of the matrix's ``all_degrees`` of freedom."""

    estimate: Floats
    degrees: int
    all_degrees: int


def estimate_low_rank(departure: Floats, sigma: float) -> LowRank:
    """Return the low-rank estimate of least expected squared error, for large tables (section III, Frobenius loss).

    departure: shape (rows, columns), whose sums over rows and over columns are about 0, so that it has one row and
    column less than it seems; sigma: standard deviation of the noise in each cell, > 0.  A singular value within the
    bulk that noise alone would make is dropped, one above it loses what noise adds to it.
    """
    rows, columns = (n - 1 for n in departure.shape)
    few, many = min(rows, columns), max(rows, columns)
    if few < 1:
        return LowRank(np.zeros_like(departure), 0, 0)
    unit, ratio = sigma * np.sqrt(many), few / many
    left, values, right = np.linalg.svd(departure, full_matrices=False)
    y = values / unit
    rank = int((y > 1 + np.sqrt(ratio)).sum())
    shrunk = np.sqrt((y[:rank] ** 2 - ratio - 1) ** 2 - 4 * ratio) / y[:rank]
    return LowRank(left[:, :rank] * (shrunk * unit) @ right[:rank], rank * (rows + columns - rank), rows * columns)
