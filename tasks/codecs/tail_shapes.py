"""Tail of a wide bin: shares of its cells, and slopes of the density inside them, from noisy counts.

The cells double in width, so that the last of them hold few rows and much of the column's sum: there a noisy count
says nothing, and its noise would dominate the mean.  Counts are taken to follow a generalized Pareto tail (Pickands,
*Statistical inference using extreme order statistics*, Annals of Statistics 1975), and to depart from it by a share of
each expected count: so full cells have their own counts, and nearly empty ones what the full ones say.

Post-processing of noisy counts and public edges alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

INDICES = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9])
"""Tail indices that are mixed: 0 is an exponential tail, 1/2 the last without a variance."""

INDEX_MEAN, INDEX_SD = 0.25, 0.2
"""Mean and standard deviation of the tail index where the counts say nothing: incomes have 0.2 to 0.5."""

SCALE_LOG_SD = 1.0
"""Prior standard deviation of the log scale around the edges' scale: who wrote the edges knew the column."""

SCALES = 28
"""Scales that are mixed, evenly in the logarithm, from a quarter of the narrowest cell to four times the bin."""

DEPARTURES = np.array([0.03, 0.1, 0.3, 1.0])
"""Departures of a cell from the tail, as shares of its expected count, that are mixed."""

MAX_SLOPE = 6.0
"""Most that the logarithm of the density falls inside one cell."""

DIGITS = 9
"""Decimals of shares and slopes: the last bits of a power differ from CPU to CPU."""


def fit_tail_shares(
    noisy: Floats, variance: Floats, widths: Floats, usual: float, density_before: tuple[float, float] = (0.0, 0.0)
) -> Floats:
    """Return the share of each cell, shape (cells,), at least 0, summing to 1; cells from the tail's beginning on.

    ``noisy`` counts with noise of ``variance``; ``usual``: the scale where counts say nothing, by public edges;
    ``density_before``: the noisy count a unit of width before the tail, 0 where it is not known, and its noise's
    standard deviation.  The posterior mean over tail indices, scales and departures.
    """
    sd = float(np.sqrt(variance.sum()))
    rows = max(float(noisy.sum()), sd)
    scale = np.geomspace(widths.min() / 4, widths.sum() * 4, SCALES)
    expected = _compute_tails(scale, np.append(0.0, np.cumsum(widths)))[:, :, None, :]
    total_variance = variance + (DEPARTURES[:, None] * expected * rows) ** 2
    fitted = (noisy * expected / total_variance).sum(-1) / (expected**2 / total_variance).sum(-1)
    centre = np.maximum(fitted, sd / 4)[..., None] * expected
    fit = -0.5 * ((noisy - centre) ** 2 / total_variance + np.log(total_variance)).sum(-1)
    fit -= 0.5 * ((INDICES[None, :, None] - INDEX_MEAN) / INDEX_SD) ** 2
    fit -= 0.5 * (np.log(scale / usual) / SCALE_LOG_SD)[:, None, None] ** 2
    if density_before[0] > 2 * density_before[1]:
        fit -= 0.5 * np.log(scale * density_before[0] / rows)[:, None, None] ** 2
    weight = np.exp(fit - fit.max())[..., None]
    signal_share = 1 - variance / total_variance
    mean = (weight * (centre + signal_share * (noisy - centre))).sum((0, 1, 2))
    mean = np.maximum(mean, 0.0)
    shares = mean / mean.sum() if mean.sum() > 0 else widths / widths.sum()
    return np.asarray(np.round(shares, DIGITS))


def _compute_tails(scales: Floats, ends: Floats) -> Floats:
    """Return shares of cells between ``ends`` by truncated generalized Pareto tails, shape (scales, indices, cells)."""
    reach = ends / scales[:, None, None]
    index = INDICES[None, :, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        survival = np.where(index > 0, (1 + index * reach) ** (-1 / np.maximum(index, 1e-9)), np.exp(-reach))
    mass = np.maximum(-np.diff(survival, axis=-1), 1e-12)
    return np.asarray(mass / mass.sum(-1, keepdims=True))


def fit_slopes(shares: Floats, widths: Floats, density_before: float = 0.0) -> Floats:
    """Return by how much the log density falls from each cell's beginning to its end, shape (cells,).

    From the densities of the cells on both sides; ``density_before``: the density before the first, as shares a unit
    of width, 0 where it is not known.
    """
    density = np.log(np.maximum(shares, shares.max() * 1e-9) / widths)
    middle = np.cumsum(widths) - widths / 2
    falls = -np.diff(density) / np.diff(middle)
    first, last = (falls[0], falls[-1]) if falls.size else (0.0, 0.0)
    before = (np.log(density_before) - density[0]) / widths[0] if density_before > 0 else first
    inwards, outwards = np.append(before, falls), np.append(falls, last)
    return np.asarray(np.round(np.clip((inwards + outwards) / 2 * widths, 0.0, MAX_SLOPE), DIGITS))


def draw_falling(parts: Floats, slope: Floats) -> Floats:
    """Return uniform draws ``parts`` from [0, 1) as draws from a density whose logarithm falls by ``slope`` on it."""
    steep = np.where(slope == 0, 1.0, slope)
    return np.where(slope == 0, parts, np.minimum(-np.log1p(parts * np.expm1(-steep)) / steep, np.nextafter(1.0, 0.0)))
