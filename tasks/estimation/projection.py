"""The projections of counts on those that a table can have.  Paper: section 4.3 (Norm-Sub)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_FITTING_PASSES = 20
"""Passes of iterative proportional fitting at most; parts that disagree have no fit, and few passes are enough."""


def apply_norm_sub(counts: Floats, total: float) -> Floats:
    """Return the Euclidean projection on {x >= 0, sum x = total}, of the same shape.

    Subtracts one constant from all cells and cuts at 0 (the maximum-likelihood estimate under equal
    Gaussian noise).  With ``total`` 0 all cells are 0.
    """
    flat = counts.ravel()
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(descending) + 1)
    above = np.flatnonzero(descending - excess > 0)
    last = int(above[-1]) if above.size else 0  # none: the total is lost in the rounding of the largest count
    projected = np.maximum(flat - excess[last], 0.0) if total > 0 else np.zeros_like(flat)
    return projected.reshape(counts.shape)


def rake(counts: Floats, parts: Sequence[Floats], close: float = 1e-3) -> Floats:
    """Return ``counts`` >= 0, of any number of axes, with the sums ``parts`` over each axis.

    ``parts``: of the counts' shape without that axis.

    Iterative proportional fitting, which leaves zeros and relations between cells as they are; it ends where a pass
    moves less than the share ``close`` of the first part's total.
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
    """Return ``shares``, shape (..., m, n), as counts with the sums ``parts`` of rows (..., m) and columns (..., n).

    Iterative proportional fitting; where ``shares`` has nothing for a row or a column, it is as by independence.
    """
    rows, columns = parts
    total = np.maximum(rows.sum(axis=-1), 1e-9)[..., None, None]
    fitted = shares * total + 1e-6 * (rows[..., :, None] * columns[..., None, :]) / total
    for _ in range(MAX_FITTING_PASSES):
        fitted *= compute_factors(rows, fitted.sum(axis=-1))[..., :, None]
        fitted *= compute_factors(columns, fitted.sum(axis=-2))[..., None, :]
    return np.asarray(fitted)


def compute_factors(wanted: Floats, sums: Floats) -> Floats:
    """Return the factors, of one shape with both, that turn ``sums`` into ``wanted``; 0 where a sum is 0."""
    return np.divide(wanted, sums, out=np.zeros_like(wanted), where=sums > 0)
