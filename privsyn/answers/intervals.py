"""From estimates and variances to intervals: counts, and ratios by Fieller's theorem."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]


def compute_normal_factor(level: float) -> float:
    """Half the width of a two-sided normal interval in standard deviations: 1.96 at level 0.95."""
    return float(ndtri(0.5 + level / 2))


def compute_ratio(
    top: Floats, bottom: Floats, covariances: tuple[Floats, Floats, Floats], z: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Top / bottom with its standard error and interval, by Fieller's theorem (1954); of any one shape.

    ``covariances``: var(top), cov(top, bottom), var(bottom).  A ratio r is in the interval where |top - r bottom| is at
    most z of its standard deviations.  NaN where the bottom is not told from 0: then any ratio is possible.
    """
    vt, c, vb = covariances
    with np.errstate(all="ignore"):
        estimate = top / bottom
        a, b, d = bottom**2 - z**2 * vb, top * bottom - z**2 * c, top**2 - z**2 * vt
        root = np.sqrt(np.maximum(b**2 - a * d, 0.0))
        known = (a > 0) & (bottom > 0)
        low, high = np.where(known, (b - root) / a, np.nan), np.where(known, (b + root) / a, np.nan)
        error = np.sqrt(np.maximum(vt - 2 * estimate * c + estimate**2 * vb, 0.0)) / np.abs(bottom)
    nothing = ~known
    return np.where(nothing, np.nan, estimate), np.where(nothing, np.nan, error), low, high
