"""Quantiles and shares with their standard errors as if the rows were a simple random sample."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

REACH = 2.0
"""Standard errors of the distribution function to either side, from which a quantile's error is read (Woodruff
1952)."""


def compute_quantile(values: NDArray[np.float64], q: float) -> tuple[float, float]:
    """Return the smallest value that at least the share ``q`` of ``values``, shape (rows > 0,), does not exceed.

    Its error.
    """
    spread = REACH * sqrt(q * (1 - q) / len(values))
    at = np.clip([q - spread, q, q + spread], 0, 1)
    low, middle, high = (float(v) for v in np.quantile(values, at, method="inverted_cdf"))
    return middle, (high - low) / (2 * REACH)


def share(holding: int, rows: int) -> tuple[float, float]:
    """Return the share ``holding`` of ``rows`` > 0, in 0..1, and its standard error."""
    p = holding / rows
    return p, sqrt(p * (1 - p) / rows)
