"""The share of each fine code inside its coarse code: noisy counts, shrunk towards an even spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs.cells import AttributeBins, Points
from privsyn.tasks.estimation.marginals import apply_norm_sub

Floats = NDArray[np.float64]

NO_POINTS = Points(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
"""No cells of one value."""

STANDS_OUT = 3.0
"""Standard deviations of a fine count above which a bin is not smoothed together with the rest of its code."""

CLEAR = 4.0
"""Standard deviations above which a run of cells or rungs, or a cell that the first look left in doubt, has rows."""

LONGEST_RUN = 6
"""Longest run of cells whose counts are added up: rows spread over several cells may stand out in none."""

MOST_CELLS_AWAY = 90
"""Largest distance between cells, in cells; larger ones count as this."""

BEYOND = 1
"""Doubtful cells outside the clearest run that keep their counts where the first look showed only single values."""

REACH = 0.5
"""How far outside the outermost clear cells rows may lie, as a share of the distance between these cells."""


def empty_doubtful(y: Floats, sigma: float, bins: AttributeBins) -> Floats:
    """Return the counts, set to 0 in cells that two looks show without rows, shape (fine size,).

    Of the cells that the first look left in doubt, clear ones (CLEAR) and the clearest run keep their counts.  If no
    cell is clear, the run may be faint.  Cells far outside the outermost clear ones become 0.
    """
    if bins.doubtful is None:
        return y
    rows = np.concatenate(
        [np.flatnonzero((bins.groups >= start) & (bins.groups < end)) for start, end in bins.in_order]
    )
    stands, seen = y >= CLEAR * sigma, ~bins.doubtful
    if bins.points is not None:
        seen[bins.points.cell] = False
    clearest = find_clearest_run(
        np.where(bins.doubtful, y, 0.0)[rows] / sigma, CLEAR if stands[rows].any() else -np.inf
    )
    beyond = 0 if seen[rows].any() else BEYOND
    if clearest.stop:
        stands[rows[max(clearest.start - beyond, 0) : clearest.stop + beyond]] = True
    clear = np.where(bins.doubtful & ~stands, 0.0, y)
    sums, found = np.append(0.0, np.cumsum(clear[rows])), np.zeros(len(rows), bool)
    for run in range(1, min(LONGEST_RUN, len(rows)) + 1):
        for start in np.flatnonzero(sums[run:] - sums[:-run] > CLEAR * sigma * np.sqrt(run)):
            found[start : start + run] = True
    if found.any() and bins.widths is not None:
        ends = np.cumsum(bins.widths[rows])
        begins = ends - bins.widths[rows]
        low, high = begins[found].min(), ends[found].max()
        reach = REACH * (high - low)
        clear[rows[~found & ((ends <= low - reach) | (begins >= high + reach))]] = 0.0  # a single value has no width
    return clear


def find_clearest_run(counts: Floats, least: float) -> slice:
    """Return the run of at most LONGEST_RUN cells that stands out most, by more than ``least``; empty if none does.

    ``counts``: noisy, in standard deviations of a cell's noise, shape (cells,).
    """
    clearest, found, sums = least, slice(0, 0), np.append(0.0, np.cumsum(counts))
    for run in range(1, min(LONGEST_RUN, len(counts)) + 1):
        clear = (sums[run:] - sums[:-run]) / np.sqrt(run)
        if clear.max() > clearest:
            clearest, found = float(clear.max()), slice(first := int(np.argmax(clear)), first + run)
    return found


def weigh_inside(
    y: Floats,
    sigma: float,
    groups: NDArray[np.int32],
    coarse: NDArray[np.int32],
    level: NDArray[np.int64] | None = None,
    points: Points | None = None,
) -> Floats:
    """Return the share of each fine code inside its coarse code: noisy counts, shrunk towards an even spread.

    The even spread gives each public bin the same share, and each fine code of a bin the same part of it.  The noisy
    counts keep the share lambda = max(0, 1 - (m - 1) sigma^2 / sum of squared residuals) of their departure from it
    (positive-part James-Stein); residuals within the noise give an even spread.  A code with a bin that stands out is
    shrunk bin by bin.  If a shrunk count is negative, all counts of the code are lowered by one constant and clipped at
    0, which keeps their sum.  Otherwise many empty codes would take rows from a full one.  With a ``level``, bins that
    stand out stay as they are, and the rest of each group of the level is shrunk together.  A cell of one value
    (``points``) that does not stand out gets the even share of the interval beside it.
    """
    faint = find_faint_points(y, sigma, points)
    faint = faint.select(coarse[faint.cell] == coarse[faint.neighbour])
    y, counted = join_points(y, faint), np.ones(len(y))
    counted[faint.cell] = 0.0
    prior = counted / np.bincount(groups)[groups]
    size = int(coarse.max()) + 1
    mass = np.maximum(np.bincount(coarse, weights=y, minlength=size), 0.0)
    even = prior / np.bincount(coarse, weights=prior, minlength=size)[coarse]
    unit = _spread_together(y, sigma, groups, coarse) if level is None else _spread_by(level, y, sigma, groups, coarse)
    units = np.bincount(unit, weights=prior)[unit]
    inside = np.divide(prior, units, out=np.zeros(len(y)), where=units > 0)
    centre = (np.maximum(np.bincount(unit, weights=y), 0.0)[unit]) * inside
    residual = y - centre
    spread = np.bincount(unit, weights=residual**2)
    free = np.maximum(np.bincount(unit, weights=counted) - 1, 0.0)
    keep = np.maximum(0.0, 1.0 - free * sigma**2 / np.maximum(spread, 1e-300))
    shrunk = centre + keep[unit] * residual
    for code in np.unique(coarse[shrunk < 0]):
        inside = (coarse == code) & (counted > 0)
        shrunk[inside] = apply_norm_sub(shrunk[inside], mass[code]) if mass[code] > 0 else shrunk[inside].clip(min=0.0)
    sums = np.bincount(coarse, weights=shrunk, minlength=size)
    shares = np.where(sums[coarse] > 0, shrunk / np.where(sums > 0, sums, 1.0)[coarse], even)
    for cell, neighbour, part in zip(*faint, strict=True):
        shares[cell] += part * shares[neighbour]
        shares[neighbour] *= 1 - part
    return shares


def count_cells_to(chosen: NDArray[np.bool_]) -> Floats:
    """Return each cell's distance to the nearest chosen cell, in cells and at most MOST_CELLS_AWAY; shape (cells,)."""
    cells = np.arange(len(chosen))
    places = np.concatenate([[-MOST_CELLS_AWAY], np.flatnonzero(chosen), [len(chosen) + MOST_CELLS_AWAY]])
    after = np.searchsorted(places, cells)
    nearest = np.minimum(places[after] - cells, cells - places[after - 1])
    return np.minimum(nearest, MOST_CELLS_AWAY).astype(np.float64)


def find_faint_points(y: Floats, sigma: float, points: Points | None) -> Points:
    """Return the cells of one value whose noisy counts do not stand out from the cell beside; y: shape (fine size,)."""
    if points is None:
        return NO_POINTS
    expected = points.share * np.maximum(y[points.cell] + y[points.neighbour], 0.0)
    return points.select(np.abs(y[points.cell] - expected) < STANDS_OUT * sigma)


def join_points(y: Floats, points: Points) -> Floats:
    """Return the counts with the count of each cell of one value moved to the cell beside it."""
    joined = y.copy()
    for cell, neighbour in zip(points.cell, points.neighbour, strict=True):
        joined[neighbour] += joined[cell]
        joined[cell] = 0.0
    return joined


def _spread_together(
    y: Floats, sigma: float, groups: NDArray[np.int32], coarse: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return each fine code's unit of shrinkage: its code, or its bin if a bin of the code stands out."""
    total = np.bincount(groups, weights=y)
    out = np.zeros(int(coarse.max()) + 1, dtype=bool)
    out[coarse[total[groups] >= STANDS_OUT * sigma]] = True
    return np.unique(np.where(out[coarse], out.size + groups, coarse), return_inverse=True)[1]


def _spread_by(
    level: NDArray[np.int64], y: Floats, sigma: float, groups: NDArray[np.int32], coarse: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the units with a level: each bin that stands out is one, the rest of a code's group is another."""
    together = coarse.astype(np.int64) * (int(level.max()) + 1) + level
    out = np.bincount(groups, weights=y)[groups] >= STANDS_OUT * sigma
    return np.unique(np.where(out, together.max() + 1 + groups, together), return_inverse=True)[1]
