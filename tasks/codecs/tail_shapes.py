"""Tails of columns: counts of their cells, and density slopes inside wide cells, from noisy counts.

The last cells of a column hold few rows but much of its sum and variance.  A noisy count is useless there, and its
noise would dominate the mean and the slopes.  Counts are assumed to follow a generalized Pareto tail (Pickands,
*Statistical inference using extreme order statistics*, Annals of Statistics 1975), up to departures that are a share of
each expected count.  So full cells keep their counts, and nearly empty cells get the fitted tail.

Post-processing of noisy counts and public edges alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TailPrior:
    """The prior of a tail.

    Attributes:
        indices: The mixed tail indices.  0 is an exponential tail, and 1/2 the first without a variance.  Tails with a
            negative index end (-1 is uniform).
        mean: The mean of the index.
        sd: The standard deviation of the index.
        scales: How many scales are mixed, evenly in the logarithm, from a quarter of the narrowest cell to four times
            the tail.
        apart: The probability that a cell's count is independent of the tail, such as at a value that many rows share.
    """

    indices: Floats
    mean: float
    sd: float
    scales: int
    apart: float = 0.0


WIDE_BIN = TailPrior(np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9]), 0.25, 0.2, 28)
"""For a wide bin that the spec's author left at the end: incomes have indices of 0.2 to 0.5."""

ANY_COLUMN = TailPrior(np.append([-1.0, -0.5, -0.25], WIDE_BIN.indices), 0.0, 0.3, 14, 0.01)
"""For a column with known bounds only, which may cut it anywhere."""

APART_SPREAD = 8.0
"""Noise standard deviations by which such counts depart from the tail."""

SCALE_LOG_SD = 1.0
"""Prior standard deviation of the log scale around the edges' scale: the edges' author knew the column."""

DEPARTURES = np.array([0.03, 0.1, 0.3, 1.0])
"""Mixed departures of a cell from the tail, as shares of its expected count."""

MAX_SLOPE = 6.0
"""The most that the log density falls inside one cell."""

DIGITS = 9
"""Decimals of shares and slopes, because the last bits of a power differ between CPUs."""


def fit_tail_shares(
    noisy: Floats, variance: Floats, widths: Floats, usual: float, density_before: tuple[float, float] = (0.0, 0.0)
) -> Floats:
    """Return the share of each cell of a wide bin, shape (cells,), at least 0, summing to 1.

    Arguments as in :func:`fit_tail_counts`.
    """
    least = float(np.sqrt(variance.sum())) / 4
    counts = fit_tail_counts(noisy, variance, widths, WIDE_BIN, least, density_before, usual)
    shares = counts / counts.sum() if counts.sum() > 0 else widths / widths.sum()
    return np.asarray(np.round(shares, DIGITS))


def fit_tail_counts(
    noisy: Floats,
    variance: Floats,
    widths: Floats,
    prior: TailPrior,
    least: float,
    density_before: tuple[float, float] = (0.0, 0.0),
    usual: float = 0.0,
) -> Floats:
    """Return the count of each cell of a tail, shape (cells,), at least 0, from the tail's beginning on.

    The ``noisy`` counts have noise of ``variance``.  ``least``: the least number of rows in the fit.  ``usual``: the
    prior scale from public edges, 0 if unknown.  ``density_before``: the noisy count per unit of width before the tail,
    0 if unknown, and its noise standard deviation.  Returns the posterior mean over tail indices, scales and
    departures.
    """
    rows = max(float(noisy.sum()), float(np.sqrt(variance.sum())))
    scale = np.geomspace(widths.min() / 4, widths.sum() * 4, prior.scales)
    expected = _compute_tails(scale, prior.indices, np.append(0.0, np.cumsum(widths)))[:, :, None, :]
    total_variance = variance + (DEPARTURES[:, None] * expected * rows) ** 2
    fitted = (noisy * expected / total_variance).sum(-1) / (expected**2 / total_variance).sum(-1)
    centre = np.maximum(fitted, least)[..., None] * expected
    likelihood = -0.5 * ((noisy - centre) ** 2 / total_variance + np.log(total_variance))
    follows = 1 - variance / total_variance  # how much a cell follows its own noisy count
    if prior.apart:
        free = variance * (1 + APART_SPREAD**2)
        log_alone = -0.5 * ((noisy - centre) ** 2 / free + np.log(free)) + np.log(prior.apart)
        likelihood += np.log1p(-prior.apart)
        both = np.logaddexp(likelihood, log_alone)
        follows += np.exp(log_alone - both) * (1 - variance / free - follows)
        likelihood = both
    fit = likelihood.sum(-1)
    fit -= 0.5 * ((prior.indices[None, :, None] - prior.mean) / prior.sd) ** 2
    if usual:
        fit -= 0.5 * (np.log(scale / usual) / SCALE_LOG_SD)[:, None, None] ** 2
    if density_before[0] > 2 * density_before[1]:
        fit -= 0.5 * np.log(scale * density_before[0] / rows)[:, None, None] ** 2
    weight = np.exp(fit - fit.max())[..., None]
    mean = (weight * (centre + follows * (noisy - centre))).sum((0, 1, 2)) / weight.sum()
    return np.maximum(np.asarray(mean), 0.0)


def _compute_tails(scales: Floats, indices: Floats, ends: Floats) -> Floats:
    """Return the cells' shares under truncated generalized Pareto tails, shape (scales, indices, cells)."""
    reach = ends / scales[:, None, None]
    index = indices[None, :, None]
    power = -1 / np.where(index == 0, 1.0, index)
    survival = np.where(index == 0, np.exp(-reach), np.maximum(1 + index * reach, 0.0) ** power)
    mass = np.maximum(-np.diff(survival, axis=-1), 1e-12)
    return np.asarray(mass / mass.sum(-1, keepdims=True))


def fit_slopes(shares: Floats, widths: Floats, density_before: float = 0.0) -> Floats:
    """Return how much the log density falls from each cell's beginning to its end, shape (cells,).

    Computed from the neighbouring densities; ``density_before``: the density before the first cell, as shares per unit
    of width, 0 if unknown.
    """
    density = np.log(np.maximum(shares, shares.max() * 1e-9) / widths)
    middle = np.cumsum(widths) - widths / 2
    falls = -np.diff(density) / np.diff(middle)
    first, last = (falls[0], falls[-1]) if falls.size else (0.0, 0.0)
    before = (np.log(density_before) - density[0]) / widths[0] if density_before > 0 else first
    inwards, outwards = np.append(before, falls), np.append(falls, last)
    return np.asarray(np.round(np.clip((inwards + outwards) / 2 * widths, 0.0, MAX_SLOPE), DIGITS))


def draw_falling(parts: Floats, slope: Floats) -> Floats:
    """Map uniform draws ``parts`` from [0, 1) to draws from a density whose logarithm falls by ``slope``."""
    steep = np.where(slope == 0, 1.0, slope)
    return np.where(slope == 0, parts, np.minimum(-np.log1p(parts * np.expm1(-steep)) / steep, np.nextafter(1.0, 0.0)))
