"""Estimates with standard errors that treat the rows as a sample: regressions, quantiles and shares."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]

MAX_STEPS, TOLERANCE = 50, 1e-9
"""The most Newton steps of a logistic regression, and the change at which they end."""

QUANTILE_REACH = 2.0
"""A quantile's error comes from quantiles this many standard errors to either side (Woodruff 1952)."""

RIDGE = 1e-6
"""Ridge per row, for columns of standard deviation 1, so that a logistic regression has a solution."""


class Fitted(NamedTuple):
    """A regression: ``coefficients`` and ``errors`` of shape (columns,); ``r_squared`` is NaN for a logistic one.

    ``errors`` of least squares: White's, with MacKinnon and White's (1985) factor n / (n - p), HC1.  ``errors`` of a
    logistic regression: from the inverse information.  NaN unless there are more rows than columns.
    """

    coefficients: Floats
    errors: Floats
    r_squared: float


def fit_least_squares(x: Floats, y: Floats) -> Floats:
    """Return least-squares coefficients, shape (columns,); NaN without rows.

    Among several solutions, the shortest in standard deviations, so that large numbers do not hide others.
    """
    if not len(y):
        return np.full(x.shape[1], np.nan)
    scale = _compute_scale(x)
    return np.asarray(np.linalg.lstsq(x / scale, y, rcond=None)[0] / scale, dtype=np.float64)


def fit_logistic(x: Floats, y: Floats) -> Floats:
    """Return the coefficients of a logistic regression, shape (columns,); NaN without rows.

    Newton's method, with a small ridge so that a solution exists.
    """
    if not len(y):
        return np.full(x.shape[1], np.nan)
    scale = _compute_scale(x)
    z, beta = x / scale, np.zeros(x.shape[1])
    ridge = RIDGE * len(y) * np.eye(len(beta))
    for _ in range(MAX_STEPS):
        p = expit(z @ beta)
        step = np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z + ridge, z.T @ (y - p) - ridge @ beta)
        beta = beta + step
        if np.abs(step).max() < TOLERANCE:
            break
    return beta / scale


def fit_regression(x: Floats, y: Floats, *, two_values: bool) -> Fitted:
    """Return the regression of ``y``, shape (rows,), on ``x``, shape (rows, columns); logistic for ``two_values``."""
    rows, columns = x.shape
    beta = (fit_logistic if two_values else fit_least_squares)(x, y)
    if rows <= columns:
        return Fitted(beta, np.full(columns, np.nan), np.nan)
    scale = _compute_scale(x)
    z = x / scale
    if two_values:
        p = expit(x @ beta)
        covariance = np.linalg.pinv((z * (p * (1 - p))[:, None]).T @ z, hermitian=True)
        return Fitted(beta, np.sqrt(np.maximum(np.diag(covariance), 0)) / scale, np.nan)
    residuals = y - x @ beta
    inverse = np.linalg.pinv(z.T @ z, hermitian=True)
    covariance = inverse @ ((z * residuals[:, None] ** 2).T @ z) @ inverse * rows / (rows - columns)
    spread = float(((y - y.mean()) ** 2).sum())
    r_squared = 1 - float((residuals**2).sum()) / spread if spread > 0 else np.nan
    return Fitted(beta, np.sqrt(np.maximum(np.diag(covariance), 0)) / scale, r_squared)


def _compute_scale(x: Floats) -> Floats:
    """Return the standard deviation of every column, 1 for a constant one."""
    return np.where(np.ptp(x, axis=0) > 0, np.std(x, axis=0), 1.0)


def compute_quantile(values: Floats, q: float) -> tuple[float, float]:
    """Return the ``q`` quantile of ``values``, shape (rows > 0,), the smallest value with that share, and its error."""
    spread = QUANTILE_REACH * sqrt(q * (1 - q) / len(values))
    positions = np.clip([q - spread, q, q + spread], 0, 1)
    low, middle, high = (float(v) for v in np.quantile(values, positions, method="inverted_cdf"))
    return middle, (high - low) / (2 * QUANTILE_REACH)


def compute_share(holding: int, rows: int) -> tuple[float, float]:
    """Return the share ``holding`` / ``rows``, in 0..1, and its standard error; ``rows`` > 0."""
    p = holding / rows
    return p, sqrt(p * (1 - p) / rows)
