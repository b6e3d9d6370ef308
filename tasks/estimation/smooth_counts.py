"""How rows lie inside the codes of ordered columns: fine counts smoothed as strong as their noise, and fitted tails.

Not in the paper.  Post-processing of released counts with a public sigma costs no budget.

Neighbouring cells of a numeric column have similar densities.  A ridge penalty on relative differences of neighbours
smooths them (Whittaker, "On a New Method of Graduation", Proceedings of the Edinburgh Mathematical Society 41, 1922).
The result averages several strengths, weighted by Stein's unbiased estimate of the squared error ("Estimation of the
Mean of a Multivariate Normal Distribution", Annals of Statistics 9, 1981).  So structure that noise does not explain,
such as a column of few values, stays.  Null, and cells of one value that stand out, are left as they are.

In the tails, noise alone would place rows far from all others, which can double a standard deviation or halve a slope.
So the counts at both ends come from a fitted tail (tasks/codecs/numbers.py).  Wide bins get the shares of their cells
and a slope inside each cell, for decode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import AttributeBins, Binning, Cells, Points, list_counted_alone
from privsyn.tasks.codecs.numbers import ANY_COLUMN, fit_slopes, fit_tail_counts, fit_tail_shares
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.fine_weights import (
    STANDS_OUT,
    count_cells_to,
    empty_doubtful,
    find_faint_points,
    join_points,
)
from privsyn.tasks.estimation.marginals import apply_norm_sub
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, estimate_total, share_by_counts

Floats = NDArray[np.float64]

STRENGTHS = 4.0 ** np.arange(-6, 8)
"""Weights of the penalty, relative to squared errors."""

ROUNDS = 3
"""Passes; each takes differences relative to the counts of the pass before."""

LEAST_COUNT = 0.5
"""Standard deviations of noise added to the count that a difference is divided by."""

END_SHARE = 0.1
"""Largest share of the rows that an end may hold."""

LEAST_END_CELLS = 4
"""Ends of this many cells or fewer are not fitted: they show no shape."""

LEAST_END_COUNT = 0.25
"""Least rows that an end is fitted with, in standard deviations of a cell's noise."""

COUNT_RESOLUTION = 2.0**-10
"""Counts are rounded to multiples of this: last bits of linear algebra differ between CPUs, and rows must not."""


def with_tails(recode: Recode, plan: EncodingPlan) -> tuple[Recode, EncodingPlan]:
    """Return the recode with fitted shares inside wide bins, and the plan with a slope for each of their cells.

    Without wide bins, both come back unchanged.
    """
    shaped, fallen = dict(recode), dict[str, Floats]()
    for codec in plan.codecs:
        if isinstance(codec, OrderedCodec) and codec.cells.wide:
            a = codec.attribute
            shaped[a], fallen[a] = settle_tails(recode[a], codec.cells)
    return (shaped, plan.with_slopes(fallen)) if fallen else (recode, plan)


def settle_tails(recode: AttributeRecode, cells: Cells) -> tuple[AttributeRecode, Floats]:
    """Return one attribute's recode with fitted shares inside wide bins, and the slope of each cell.

    The slope is positive if the density falls upwards, negative if it falls downwards.  If a wide bin shares its code
    with neighbouring bins, the tail begins with that code.
    """
    weight, slope = recode.weight.copy(), np.zeros(len(recode.weight))
    widths = np.array([cell.high - cell.low for cell in cells.fine])
    for inside, tail, way in _iterate_tails(recode, cells, widths):
        before = tail[0] - way
        known = 0 <= before < len(widths) and widths[before] > 0
        count_before = (recode.estimate[before], np.sqrt(recode.variance[before])) if known else (0.0, 0.0)
        wide = widths[before] if known else 1.0
        usual = widths[np.append(tail[~np.isin(tail, inside)], inside[::way][0])].sum()
        shares = fit_tail_shares(
            recode.estimate[tail],
            recode.variance[tail],
            widths[tail],
            usual,
            (count_before[0] / wide, count_before[1] / wide),
        )
        tail_total = max(recode.estimate[tail].sum(), 1.0)
        falls = way * fit_slopes(shares, widths[tail], max(count_before[0] / wide / tail_total, 0.0))
        is_inside = np.isin(tail, inside)
        weight[tail], slope[tail[is_inside]] = weight[tail].sum() * shares / shares.sum(), falls[is_inside]
    return replace(recode, weight=weight), slope


def _iterate_tails(
    recode: AttributeRecode, cells: Cells, widths: Floats
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """Yield, for each wide bin, its cells, the cells of its tail outwards, and the direction (1 upwards, -1 downwards).

    Skips a bin that lies inside the tail of another.
    """
    done = set[int]()
    for number, way in sorted(cells.wide, key=lambda wide: -wide[0] * wide[1]):
        inside = np.flatnonzero(cells.bin_of == number)
        if not recode.kept[inside[0]] or done & set(inside.tolist()):
            continue
        code = np.flatnonzero(recode.kept[: len(widths)] & (recode.coarse[: len(widths)] == recode.coarse[inside[0]]))
        is_row = len(code) == code[-1] - code[0] + 1 and (widths[code] > 0).all()
        at_end = code[-1] == inside[-1] if way > 0 else code[0] == inside[0]
        tail = code if is_row and at_end else inside
        done |= set(tail.tolist())
        yield inside, tail[::way], way


def smooth_one_ways(pooled: Recode, recode: Recode, binning: Binning) -> Recode:
    """Return ``recode`` with one total for all attributes, and with smoothed counts and shares of numeric columns.

    ``pooled``: the one-ways of all looks; ``recode``: the same after recompression.  Attributes that a public table
    informs, attributes with levels, and attributes counted alone stay unchanged.
    """
    total, smoothed = max(estimate_total(pooled), 0.0), dict(recode)
    not_smoothed = {*list_counted_alone(binning), *(a for a, bins in binning.items() if bins.levels)}
    for a in (a for a, r in recode.items() if a not in not_smoothed and not r.by_prior):
        widths = binning[a].widths
        if widths is not None and widths.any():
            smoothed[a] = _smooth_attribute(recode[a], _shift(pooled[a].estimate, total), binning[a], widths)
        else:
            smoothed[a] = replace(recode[a], estimate=_shift(recode[a].estimate, total))
    return smoothed


def _shift(counts: Floats, total: float) -> Floats:
    """Return the nearest counts that sum to ``total``."""
    return counts + (total - counts.sum()) / len(counts)


def _smooth_attribute(recode: AttributeRecode, noisy: Floats, bins: AttributeBins, widths: Floats) -> AttributeRecode:
    sigma, total = float(np.sqrt(recode.noise)), max(float(noisy.sum()), 0.0)
    noisy = empty_doubtful(noisy, sigma, bins)
    faint = find_faint_points(noisy, sigma, bins.points)
    joined, wide = join_points(noisy, faint), widths.copy()
    free, body = widths > 0, np.ones(len(widths), dtype=bool)
    if bins.points is not None:
        free[bins.points.cell] = False
    for cell, neighbour in zip(faint.cell, faint.neighbour, strict=True):
        wide[neighbour] += widths[cell]
    body[faint.cell] = False
    rows = [np.flatnonzero(free & (bins.groups >= start) & (bins.groups < end)) for start, end in bins.in_order]
    rows = [row for row in rows if len(row) > 2]
    smooth = joined.copy()
    empty = (noisy == 0.0) & (bins.doubtful is not None)
    for row in rows:
        for part in np.split(row, np.flatnonzero(np.diff(empty[row].astype(int))) + 1):
            if not empty[part[0]] and len(part) > 2:
                smooth[part] = smooth_counts(joined[part], sigma, wide[part])
    body[empty] = False
    counts = np.zeros(len(widths))
    counts[body] = apply_norm_sub(smooth[body], total)
    for row in (row[~empty[row]] for row in rows if not empty[row].all()):
        for end in _list_ends(row, counts, joined, wide, sigma, bins.points):
            within = np.flatnonzero(counts[end] >= STANDS_OUT * sigma)  # cells that stand out keep smoothed counts
            beyond = int(within[-1]) + 1 if within.size else 1
            counts[end[beyond:]] = _fit_end(joined[end].tobytes(), sigma, wide[end].tobytes())[beyond - 1 :]
            body[end[beyond:]] = False
    if (outside := float(counts[~body].sum())) > total:
        counts[~body] *= total / outside
    counts[body] = apply_norm_sub(smooth[body], max(total - outside, 0.0))
    for cell, neighbour, share in zip(*faint, strict=True):
        counts[cell], counts[neighbour] = share * counts[neighbour], (1 - share) * counts[neighbour]
    settled = np.rint(counts / COUNT_RESOLUTION) * COUNT_RESOLUTION
    fallback = np.maximum(widths, 1e-9 * widths.max())
    if bins.doubtful is not None:  # rows of a code whose cells are all empty go to the cell nearest to filled ones
        seen = ~bins.doubtful & (widths > 0)
        away = count_cells_to(seen if seen.any() else settled > 0)
        fallback = np.where(bins.doubtful, 1e-9 * 1e-3**away, fallback)
    even = share_by_counts(replace(recode, weight=np.zeros(len(widths))), fallback)
    return replace(recode, estimate=settled, weight=share_by_counts(replace(recode, weight=even), settled))


def _list_ends(
    row: NDArray[np.intp], counts: Floats, noisy: Floats, widths: Floats, sigma: float, points: Points | None
) -> Iterator[NDArray[np.intp]]:
    """Yield the cells of each end of a row of cells, outwards, after the cell that the end begins at.

    An end lies outwards of the densest cell and holds at most END_SHARE of the rows.  If noise alone may explain the
    row, both ends begin beside the heaviest cell of one value, such as 0, if there is one, and hold all other cells.
    ``counts``: smoothed counts of all cells; ``noisy``: counts before smoothing, whose noise averages out.
    """
    begin, limit = int(np.argmax(counts[row] / widths[row])), END_SHARE * float(counts.sum())
    if points is not None and noisy[row].sum() < STANDS_OUT * sigma * np.sqrt(len(row)):
        near_points = points.select(np.isin(points.neighbour, row) & (counts[points.cell] > 0))
        if len(near_points.cell):
            begin, limit = int(np.searchsorted(row, near_points.neighbour[np.argmax(counts[near_points.cell])])), np.inf
    for outwards in (row[begin:], row[: begin + 1][::-1]):
        beyond = np.append(np.cumsum(noisy[outwards[1:]][::-1])[::-1], 0.0)
        end = outwards[int(np.argmax(beyond <= limit)) :]
        if len(end) > LEAST_END_CELLS:
            yield end


@lru_cache(maxsize=4096)
def _fit_end(noisy_bytes: bytes, sigma: float, width_bytes: bytes) -> Floats:
    """Return the fitted counts of an end without its first cell; cached, since several steps fit the same end."""
    noisy, widths = np.frombuffer(noisy_bytes), np.frombuffer(width_bytes)
    before = (noisy[0] / widths[0], sigma / widths[0])
    variance = np.full(len(noisy) - 1, sigma**2)
    return fit_tail_counts(noisy[1:], variance, widths[1:], ANY_COLUMN, LEAST_END_COUNT * sigma, before)


def smooth_counts(counts: Floats, sigma: float, widths: Floats) -> Floats:
    """Return smoothed counts of neighbouring cells with noise of standard deviation ``sigma``; their sum stays."""
    return _smooth_counts(counts.tobytes(), sigma, widths.tobytes()).copy()


@lru_cache(maxsize=4096)
def _smooth_counts(count_bytes: bytes, sigma: float, width_bytes: bytes) -> Floats:
    """Smooth counts given as bytes; cached, since several steps smooth the same ones and each needs an eigensystem."""
    counts, widths = np.frombuffer(count_bytes), np.frombuffer(width_bytes)
    width = widths / widths.mean()
    rise = np.diff(np.eye(len(counts)), axis=0) / width  # a density's differences between neighbours
    smooth = max(float(counts.mean()), 0.0) * width
    for _ in range(ROUNDS):
        density = (np.maximum(smooth, 0.0) + LEAST_COUNT * sigma) / width
        relative = (density[1:] + density[:-1]) / (2 * np.exp(np.log(density).mean()))
        values, vectors = np.linalg.eigh(rise.T @ (rise / relative[:, None] ** 2))
        follows = 1 / (1 + STRENGTHS[:, None] * np.maximum(values, 0.0))
        fits = (follows * (vectors.T @ counts)) @ vectors.T
        risk = ((counts - fits) ** 2).sum(axis=1) / sigma**2 + 2 * follows.sum(axis=1)
        chance = np.exp((risk.min() - risk) / 4)
        smooth = chance / chance.sum() @ fits
    return np.asarray(smooth + (counts.sum() - smooth.sum()) * width / width.sum())
