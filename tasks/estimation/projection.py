"""Projections of noisy counts onto counts that a table can have.  Paper: section 4.3 (Norm-Sub)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_FITTING_PASSES = 20
"""Largest number of passes of iterative proportional fitting: inconsistent margins never fit, and few are enough."""


def apply_norm_sub(counts: Floats, total: float) -> Floats:
    """Return the Euclidean projection onto {x >= 0, sum x = total}, of the same shape.

    Subtracts one constant from all cells and clips at 0 (the maximum-likelihood estimate under equal Gaussian noise).
    All cells are 0 if ``total`` is not positive.
    """
    flat = counts.ravel()
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(descending) + 1)
    above = np.flatnonzero(descending - excess > 0)
    last = int(above[-1]) if above.size else 0  # none if the total is lost in the rounding of the largest count
    projected = np.maximum(flat - excess[last], 0.0) if total > 0 else np.zeros_like(flat)
    return projected.reshape(counts.shape)


def rake(counts: Floats, parts: Sequence[Floats], close: float = 1e-3) -> Floats:
    """Return ``counts`` >= 0, of any number of axes, scaled to the sums ``parts`` over each axis.

    ``parts``: one array per axis, in the counts' shape without it.  Iterative proportional fitting keeps zeros and odds
    ratios.  It ends when a pass moves less than the share ``close`` of the first part's total.
    """
    total, fitted = float(parts[0].sum()), counts
    for _ in range(MAX_FITTING_PASSES):
        before = fitted
        for axis, part in enumerate(parts):
            fitted = fitted * np.expand_dims(compute_factors(part, fitted.sum(axis=axis)), axis)
        if np.abs(fitted - before).sum() < close * total:
            break
    return fitted


def fit_to_sums(shares: Floats, parts: Sequence[Floats]) -> Floats:
    """Scale ``shares``, shape (..., m, n), to counts with the sums ``parts`` of rows (..., m) and columns (..., n).

    Iterative proportional fitting; rows and columns that ``shares`` leaves empty are filled by independence.
    """
    rows, columns = parts
    total = np.maximum(rows.sum(axis=-1), 1e-9)[..., None, None]
    fitted = shares * total + 1e-6 * (rows[..., :, None] * columns[..., None, :]) / total
    for _ in range(MAX_FITTING_PASSES):
        fitted *= compute_factors(rows, fitted.sum(axis=-1))[..., :, None]
        fitted *= compute_factors(columns, fitted.sum(axis=-2))[..., None, :]
    return np.asarray(fitted)


def compute_factors(wanted: Floats, sums: Floats) -> Floats:
    """Return ``wanted`` / ``sums``, in their shape; 0 where a sum is 0."""
    return np.divide(wanted, sums, out=np.zeros_like(wanted), where=sums > 0)
