"""Approximate earth mover cost (AEMC) of two marginals: equation (1) of the MGD paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isinf

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.metrics.earth_mover_network import Scale, check_integers, choose_scale, find_cheapest_moves
from privsyn.tasks.metrics.generalization import Ints, Level

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Axis:
    """One attribute of a marginal: its values at the chosen level, and its weight, in [0, 1] or infinite."""

    values: Level
    weight: float


@dataclass(frozen=True, eq=False)
class EarthMoverCost:
    """The AEMC of one marginal and where it comes from; all costs are divided by the real total, as ``aemc`` is.

    ``along``: the cost of moving along each axis.  ``adjusted``: the cost of adding and removing.  ``by_bin``: shape
    of the marginal; what is added to or removed from a bin, and half the cost of each move from or to it.  Each of
    ``by_bin`` and (``along``, ``adjusted``) sums to ``aemc``.  The plan found costs ``aemc``; no plan costs less than
    ``aemc - rounding``, which is 0 where weights and tolerance are short fractions.
    """

    aemc: float
    along: tuple[float, ...]
    adjusted: float
    by_bin: Floats
    rounding: float


def _compute_distance(axis: Axis, i: Ints, j: Ints) -> Floats:
    """Return weight * sd, where an infinite weight forbids moves between different values (infinity times 0 is 0)."""
    if isinf(axis.weight):
        return np.where(i == j, 0.0, inf)
    return axis.weight * axis.values.distance(i, j)


def compute_aemc(synthetic: Ints, real: Ints, axes: Sequence[Axis], tolerance: float) -> EarthMoverCost:
    """Return AEMC_{M, tolerance}(P, Q), equation (1), by min-cost flow over O(bins) edges (section 6.3).

    ``synthetic`` P and ``real`` Q: integer counts, one axis per ``Axis``; finite weights sum to at most 1. The value
    is at least 0, and at most (sum P + sum Q) / sum Q; where Q is empty it is divided by 1 instead of the sum of Q.
    Raises TypeError for counts that are not integers, ValueError for shapes, weights or a tolerance out of range.

    Error: costs are scaled to whole units of 1/S and rounded down, so that the flow's own cost is a lower bound, and
    the plan it finds is then priced at the true distances.  With at most h edges between two bins, the result exceeds
    the true minimum by less than h/S for each record moved; S is 10^9 up to 1,000 bins and 10^6 from a million on, and
    nothing is rounded where all edges' costs have a common denominator up to S (the default weights nearly always).  A
    tolerance is rounded to a fraction with denominator <= 10,000 (d off at most): each bin then errs by at most 2 d
    records.
    """
    p, q = check_integers(synthetic), check_integers(real)
    _check(p, q, axes, tolerance)
    finite = [i for i, axis in enumerate(axes) if not isinf(axis.weight)]
    order = [i for i in range(len(axes)) if i not in finite] + finite
    inner = tuple(p.shape[i] for i in finite)
    graphs = [axes[i].values.graph() for i in finite]
    weights = [axes[i].weight for i in finite]
    scale = choose_scale(graphs, weights, tolerance, p.size)
    flat = (-1, *inner)
    a, b, units = find_cheapest_moves(
        p.transpose(order).reshape(flat), q.transpose(order).reshape(flat), graphs, weights, scale
    )
    numbers = np.arange(p.size).reshape(p.shape).transpose(order).ravel()
    moved = units / scale.records
    rounding = _bound_rounding(scale, sum(g.longest for g in graphs), float(moved.sum()), p.size, tolerance)
    return _price_moves(p, q, axes, tolerance, (numbers[a], numbers[b], moved), rounding)


def _check(p: Ints, q: Ints, axes: Sequence[Axis], tolerance: float) -> None:
    shape = tuple(axis.values.size for axis in axes)
    if p.shape != shape or q.shape != shape:
        raise ValueError(f"the marginals have shapes {p.shape} and {q.shape}; the axes have {shape}")
    if p.min(initial=0) < 0 or q.min(initial=0) < 0:
        raise ValueError("counts must not be negative")
    weights = [axis.weight for axis in axes if not isinf(axis.weight)]
    if any(not 0 <= w <= 1 for w in weights) or sum(weights) > 1 + 1e-9:
        raise ValueError(f"finite weights must lie in 0 to 1 and sum to at most 1, not {weights}")
    if not 0 <= tolerance < inf:
        raise ValueError(f"the tolerance must be 0 or more and finite, not {tolerance}")


def _bound_rounding(scale: Scale, edges: int, moved: float, bins: int, tolerance: float) -> float:
    """Return by how much the plan's cost may exceed the minimum, in records; see :func:`compute_aemc`."""
    off = abs(tolerance - scale.tolerance / scale.records)
    return (0.0 if scale.exact else moved * edges / scale.cost) + 2 * bins * off


def _price_moves(
    p: Ints, q: Ints, axes: Sequence[Axis], tolerance: float, moves: tuple[Ints, Ints, Floats], rounding: float
) -> EarthMoverCost:
    """Return the objective of equation (1) at the moves, split by axis and by bin."""
    source, target, amount = moves
    total = float(q.sum()) or 1.0
    after = p.ravel() + np.bincount(target, amount, p.size) - np.bincount(source, amount, p.size)
    left = np.abs(after - q.ravel()) - tolerance
    by_bin = np.where(left > 1e-9, left, 0.0) / total  # less than that is the rounding of tenths of a record
    adjusted = float(by_bin.sum())
    along = []
    for axis, i, j in zip(axes, np.unravel_index(source, p.shape), np.unravel_index(target, p.shape), strict=True):
        cost = amount * _compute_distance(axis, i, j) / total
        along.append(float(cost.sum()))
        by_bin += (np.bincount(source, cost, p.size) + np.bincount(target, cost, p.size)) / 2
    return EarthMoverCost(sum(along) + adjusted, tuple(along), adjusted, by_bin.reshape(p.shape), rounding / total)
