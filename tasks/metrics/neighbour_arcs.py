"""The arcs between neighbouring bins whose shortest paths are the bin distances (MGD, section 6.3).

Only bins where something can start or end are kept, which matters for marginals that are mostly empty.  A move from
bin b to bin b' then goes up, across and down: in every attribute with dummies up to the lowest common ancestor, along
the line of the ordered attribute, and down again.  So it is enough to keep, with each bin, all combinations of its
values' ancestors, and to join neighbours on a line among the kept ones by an arc that costs all steps between them.
With two or more lines, a move across needs the corners between them: then every bin is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.metrics.generalization import Ints, StepGraph


@dataclass(frozen=True, eq=False)
class Arcs:
    """Arcs in both directions among nodes 0 .. nodes - 1, costs in whole units.

    ``bins``: the bin that a node stands for, numbered in row-major order, -1 for a dummy.
    """

    nodes: int
    tails: Ints
    heads: Ints
    costs: Ints
    bins: Ints


def build_neighbour_arcs(
    wanted: NDArray[np.bool_], graphs: Sequence[StepGraph], weights: Sequence[Fraction], cost_units: int
) -> Arcs:
    """Return the arcs among the wanted bins, shape (components, one axis per graph), and what lies between them.

    A step's cost is rounded down to a whole number of ``1 / cost_units``.
    """
    axes = [_Axis.of(graph, weight, cost_units) for graph, weight in zip(graphs, weights, strict=True)]
    if sum(axis.place.max(initial=-1) > 0 for axis in axes) > 1:
        wanted = np.ones_like(wanted)
    sizes = (wanted.shape[0], *(axis.parent.size for axis in axes))
    strides = [prod(sizes[i + 1 :]) for i in range(1, len(sizes))]
    keys = bins = np.ravel_multi_index(np.nonzero(wanted), sizes)
    for axis, size, stride in zip(axes, sizes[1:], strides, strict=True):
        above = keys
        while above.size:
            value = above // stride % size
            above = np.unique((above + (axis.parent[value] - value) * stride)[axis.parent[value] >= 0])
            keys = np.concatenate([keys, above])
        keys = np.unique(keys)
    number = np.full(keys.size, -1, np.int64)
    number[np.searchsorted(keys, bins)] = np.flatnonzero(wanted)
    parts = [(keys[:0],) * 3]
    for axis, size, stride in zip(axes, sizes[1:], strides, strict=True):
        value = keys // stride % size
        parts += [axis.up(keys, value, stride), axis.across(keys, value, stride)]
    one, other, costs = (np.concatenate(column) for column in zip(*parts, strict=True))
    both = np.concatenate([one, other]), np.concatenate([other, one])
    return Arcs(keys.size, *both, np.concatenate([costs, costs]), number)


@dataclass(frozen=True, eq=False)
class _Axis:
    """One attribute's graph as a tree (``parent``, -1: none) and a line (``place``, -1: not on it), costs in units."""

    parent: Ints
    rise: Ints
    place: Ints
    step: int

    @classmethod
    def of(cls, graph: StepGraph, weight: Fraction, units: int) -> _Axis:
        size = graph.nodes + graph.dummies
        parent, rise, place = np.full(size, -1), np.zeros(size, np.int64), np.full(size, -1)
        step = 0
        costs = np.array([int(weight * cost * units) for cost in graph.costs], np.int64)
        child, head = graph.ends
        up = head >= graph.nodes
        parent[child[up]], rise[child[up]] = head[up], costs[up]
        if not up.all():  # the edges of a line come first, in its order
            place[child[0]], place[head[~up]] = 0, np.arange(1, int((~up).sum()) + 1)
            step = int(costs[0])
        return cls(parent, rise, place, step)

    def up(self, keys: Ints, value: Ints, stride: int) -> tuple[Ints, Ints, Ints]:
        """From each kept node to its parent along this attribute."""
        child = np.flatnonzero(self.parent[value] >= 0)
        value = value[child]
        return child, np.searchsorted(keys, keys[child] + (self.parent[value] - value) * stride), self.rise[value]

    def across(self, keys: Ints, value: Ints, stride: int) -> tuple[Ints, Ints, Ints]:
        """From each kept node on a line to the next kept one."""
        nodes = np.flatnonzero(self.place[value] >= 0)
        line, place = keys[nodes] - value[nodes] * stride, self.place[value[nodes]]
        order = np.lexsort((place, line))
        nodes, line, place = nodes[order], line[order], place[order]
        same = line[1:] == line[:-1]
        return nodes[:-1][same], nodes[1:][same], (np.diff(place) * self.step)[same]
