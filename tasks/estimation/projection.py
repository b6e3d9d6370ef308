"""The projection of counts on those that a table can have.  Paper: section 4.3 (Norm-Sub)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def norm_sub(counts: Floats, total: float) -> Floats:
    """Euclidean projection on {x >= 0, sum x = total}, of the same shape.

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
