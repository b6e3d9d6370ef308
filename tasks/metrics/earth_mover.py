"""The earth mover cost: semantic distances, and a min-cost flow over neighbouring bins (MGD, section 6.3, appendix A).

The semantic distance is between two values of one level of a generalization hierarchy (MGD, section 4.3.1).
Null is a value of its own.  In an ordered column, null is off the line, at distance 1 from every value.  In an
unordered column, null hangs below the root, so it is at distance 1 at every level too.

A component is a set of bins between which moves are allowed.  Its network has arcs between neighbours, and a hub for
added and removed records.  With U = Q + D and L = max(Q - D, 0) for the tolerance D:

  a bin with P > U   supplies P - U; removing it costs 1 per record; it may give U - L more at no cost;
  a bin with P < L   demands L - P; adding it costs 1 per record; it may take U - L more at no cost;
  any other bin      may take U - P and give P - L at no cost.

This is appendix A with its lower bounds worked in.  L stops at 0, because a bin cannot give records that it does not
have, whatever the tolerance.  A bin's tolerance applies to its final content, so records that pass through it use up
nothing.  Adding and removing is offered only where it can be optimal.  No distance exceeds 1, so adding a record and
then moving it never costs less than adding it at its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import lcm, prod

import numpy as np
from numba import njit
from numpy.typing import NDArray
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from privsyn.data_contracts.evaluation import Tree, list_tree_leaves, measure_tree_depth
from privsyn.data_contracts.frozen_model import FieldError

Ints = NDArray[np.int64]

COST_UNITS = (10**6, 10**9)
"""A distance of 1 is cut into at most 10^12 / bins integer units, within these limits; the solver's time grows with the
logarithm of both."""

COUNT_UNITS = 10_000
"""Largest number of integer units per record, for a tolerance that is not an integer."""

BATCH_NODES = 1 << 20
"""Components are solved together up to this many nodes, to bound memory."""

_DENOMINATORS = 10_000  # weights snap to fractions with denominators up to this


@dataclass(frozen=True, eq=False)
class StepGraph:
    """Undirected edges between ``nodes`` values, followed by ``dummies`` extra nodes; edge e costs ``costs[e]``.

    The shortest path between two values costs their semantic distance.  There are O(nodes) edges (section 6.3).
    """

    nodes: int
    dummies: int
    ends: tuple[Ints, Ints]
    costs: tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class HierarchyLevel:
    """The values of one level of a hierarchy.

    ``ancestors``: shape (level, values), row s holds each value's ancestor at level s, counted from 0 in each row.
    ``null``: the value for null, or None.  Level 0 has one value.
    """

    labels: tuple[str, ...]
    ordered: bool
    ancestors: Ints
    null: int | None

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.labels)

    @cached_property
    def _positions(self) -> Ints:
        """Position on the line of each value of an ordered level; -1 for null."""
        places = np.arange(self.size)
        if self.null is not None:
            places = np.where(places == self.null, -1, places - (places > self.null))
        return places

    @property
    def _last(self) -> int:
        return int(self._positions.max(initial=0))

    def distance(self, i: Ints, j: Ints) -> NDArray[np.float64]:
        """Return semantic distances sd(i, j) in [0, 1], elementwise, broadcasting.

        Ordered: ``|j - i| / (k - 1)`` for k values without null.  Unordered: ``(t - s) / t`` for values at level t with
        lowest common ancestor at level s.
        """
        i, j = np.broadcast_arrays(np.asarray(i), np.asarray(j))
        if self.ordered:
            a, b = self._positions[i], self._positions[j]
            return np.where((a < 0) != (b < 0), 1.0, np.abs(a - b) / max(1, self._last))
        shared = np.zeros(i.shape)
        for row in self.ancestors:
            shared += row[i] == row[j]
        level = max(1, len(self.ancestors))  # s + 1 rows agree when the lowest common ancestor is at level s
        return np.where(i == j, 0.0, (level - shared + 1) / level)

    def graph(self) -> StepGraph:
        """Return the edges of the neighbour reduction (section 6.3).

        Ordered: neighbours on the line, 1/(k-1) each; null and all other values through a dummy, 1/2 each.  Unordered:
        a dummy for every ancestor, 1/(2t) between parent and child.
        """
        if self.size < 2:
            return StepGraph(self.size, 0, (np.empty(0, np.int64), np.empty(0, np.int64)), ())
        if self.ordered:
            return self._build_line()
        level = len(self.ancestors)
        starts = self.size + np.cumsum([0, *(int(row.max()) + 1 for row in self.ancestors)])
        chains = [*(row + start for row, start in zip(self.ancestors, starts, strict=False)), np.arange(self.size)]
        pairs = [np.unique(np.stack([child, parent]), axis=1) for parent, child in pairwise(chains)]
        edges = np.concatenate(pairs, axis=1)
        costs = (Fraction(1, 2 * level),) * edges.shape[1]
        return StepGraph(self.size, int(starts[-1]) - self.size, (edges[0], edges[1]), costs)

    def _build_line(self) -> StepGraph:
        line = np.flatnonzero(self._positions >= 0)
        costs = (Fraction(1, max(1, self._last)),) * (line.size - 1)
        if self.null is None:
            return StepGraph(self.size, 0, (line[:-1], line[1:]), costs)
        values, dummy = np.arange(self.size), np.full(self.size, self.size)
        ends = (np.concatenate([line[:-1], values]), np.concatenate([line[1:], dummy]))
        return StepGraph(self.size, 1, ends, costs + (Fraction(1, 2),) * self.size)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A rooted tree over the codes 0 .. n - 1 of a column, all leaves at one depth.

    ``nodes``: shape (depth + 1, n), row t holds the node at level t above each code, counted from 0; the last row is 0
    .. n - 1 (a leaf's number is its code).  ``labels[t]``: the names of the nodes of level t.
    """

    labels: tuple[tuple[str, ...], ...]
    nodes: Ints
    ordered: bool
    null: int | None

    @property
    def depth(self) -> int:
        """Level of the leaves."""
        return len(self.labels) - 1

    def at(self, level: int) -> HierarchyLevel:
        """Return the values of one level (0: the root, ``depth``: the leaves) and their distances."""
        _, first = np.unique(self.nodes[level], return_index=True)  # one code below each node
        null = int(self.nodes[level, self.null]) if self.null is not None and level else None
        return HierarchyLevel(self.labels[level], self.ordered, self.nodes[:level, first], null)


def build_default_hierarchy(labels: Sequence[str], *, ordered: bool, null: int | None = None) -> Hierarchy:
    """Return two levels: the root, and every label directly below it."""
    return _build_hierarchy(labels, [[0] * len(labels)], [["(any)"]], ordered, null)


def merge_bins(labels: Sequence[str], sizes: Sequence[int], *, null: int | None = None) -> Hierarchy:
    """Return an ordered hierarchy: from the leaves up, every ``sizes[0]`` bins are merged, and so on.

    The last merged bin may have fewer.  A merged bin is named by its first and last leaf.
    """
    line = [code for code in range(len(labels)) if code != null]
    groups, names, width = [], [], 1
    for size in sizes:
        width *= size
        parts = [line[i : i + width] for i in range(0, len(line), width)]
        numbers = {code: g for g, part in enumerate(parts) for code in part}
        groups.append([numbers.get(code, len(parts)) for code in range(len(labels))])
        names.append([_format_span(labels, part) for part in parts] + ([labels[null]] if null is not None else []))
    return _build_hierarchy(labels, [[0] * len(labels), *groups[::-1]], [["(any)"], *names[::-1]], True, null)


def _format_span(labels: Sequence[str], codes: Sequence[int]) -> str:
    return labels[codes[0]] if len(codes) == 1 else f"{labels[codes[0]]} to {labels[codes[-1]]}"


def build_tree_hierarchy(
    column: str, labels: Sequence[str], tree: Tree, *, ordered: bool, null: int | None = None
) -> Hierarchy:
    """Return the hierarchy that ``tree`` describes; it may omit the null code.

    Raises FieldError if the tree's labels are not the column's labels, or are out of order in an ordered column.
    """
    leaves = list_tree_leaves(tree)
    listed = [label for code, label in enumerate(labels) if code != null]
    if len(set(listed)) != len(listed):
        raise FieldError(f"`hierarchies` of {column!r}: two of its values have the same label", "Remove its hierarchy")
    if null is not None and labels[null] in leaves and labels[null] not in listed:
        raise FieldError(f"`hierarchies` of {column!r} lists {labels[null]!r}, which has its own place", "Leave it out")
    for label in leaves:
        if label not in listed:
            raise FieldError(
                f"`hierarchies` of {column!r} lists {label!r}, which is not one of its labels", "Remove it"
            )
    for label in listed:
        if label not in leaves:
            raise FieldError(f"`hierarchies` of {column!r} misses the label {label!r}", "Add it to a group")
    if ordered and leaves != listed:
        raise FieldError(f"`hierarchies` of {column!r} must list the labels from small to large, as its bins stand")
    rows, names = [], []
    for level in range(measure_tree_depth(tree)):
        parts = _list_groups(tree, level)
        numbers = {leaf: g for g, (_, members) in enumerate(parts) for leaf in members}
        # Below the root, null has a node of its own at every level.
        rows.append([numbers[label] if c != null else (len(parts) if level else 0) for c, label in enumerate(labels)])
        names.append([name for name, _ in parts] + ([labels[null]] if null is not None and level else []))
    return _build_hierarchy(labels, rows, names, ordered, null)


def _list_groups(tree: Tree, level: int, name: str = "(any)") -> list[tuple[str, list[str]]]:
    """Return the nodes of ``level`` from left to right: name and leaves below."""
    if level == 0:
        return [(name, list_tree_leaves(tree))]
    if isinstance(tree, list):
        return [(label, [label]) for label in tree]
    return [node for child_name, child in tree.items() for node in _list_groups(child, level - 1, child_name)]


def _build_hierarchy(
    labels: Sequence[str], rows: list[list[int]], names: list[list[str]], ordered: bool, null: int | None
) -> Hierarchy:
    nodes = np.array([*rows, list(range(len(labels)))], dtype=np.int64)
    return Hierarchy(tuple(tuple(n) for n in [*names, list(labels)]), nodes, ordered, null)


@dataclass(frozen=True)
class Scale:
    """Integer units of counts and costs: a record is ``records`` units, a distance of 1 is ``cost`` units.

    ``tolerance``: in record units, rounded.  ``exact``: whether every edge's cost is an integer number of units;
    otherwise costs are rounded down, each by less than one unit.
    """

    records: int
    tolerance: int
    cost: int
    exact: bool


def choose_scale(graphs: Sequence[StepGraph], weights: Sequence[float], tolerance: float, bins: int) -> Scale:
    """Return the smallest units that are exact, or the largest allowed ones for this many bins."""
    most = min(max(10**12 // max(1, bins), COST_UNITS[0]), COST_UNITS[1])
    records = Fraction(tolerance).limit_denominator(COUNT_UNITS).denominator
    cost = 1
    for graph, weight in zip(graphs, weights, strict=True):
        for step in set(graph.costs):
            cost = lcm(cost, (as_fraction(weight) * step).denominator)
    exact = cost <= most
    return Scale(records, round(tolerance * records), cost if exact else most, exact)


def as_fraction(weight: float) -> Fraction:
    """Return a weight close to a simple fraction, such as 1/3, as that fraction; any other as the exact float."""
    fraction = Fraction(weight).limit_denominator(_DENOMINATORS)
    return fraction if abs(float(fraction) - weight) < 1e-15 else Fraction(weight)


def find_cheapest_moves(
    synthetic: Ints, real: Ints, graphs: Sequence[StepGraph], weights: Sequence[float], scale: Scale
) -> tuple[Ints, Ints, Ints]:
    """Return the moves (from bin, to bin, record units) of a cheapest plan.

    ``synthetic``, ``real``: counts, shape (components, one axis per graph); bins are numbered in row-major order.
    Moves stay inside a component.  Raises TypeError for counts that are not integers, RuntimeError if OR-Tools fails.
    """
    excess, give, take = _compute_supplies(synthetic, real, scale)
    inner = tuple(range(1, synthetic.ndim))
    active = np.flatnonzero((excess != 0).any(axis=inner))  # the others cost nothing
    bins = prod(synthetic.shape[1:])
    chunk = max(1, BATCH_NODES // bins)
    offsets = np.arange(synthetic.size).reshape(synthetic.shape[0], -1)
    moves = []
    for start in range(0, active.size, chunk):
        chosen = active[start : start + chunk]
        number = offsets[chosen].ravel()
        a, b, amounts = _solve_batch(excess[chosen], give[chosen], take[chosen], graphs, weights, scale)
        moves.append((number[a], number[b], amounts))
    if not moves:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    senders, receivers, amounts = (np.concatenate(parts) for parts in zip(*moves, strict=True))
    return senders, receivers, amounts


def _compute_supplies(synthetic: Ints, real: Ints, scale: Scale) -> tuple[Ints, Ints, Ints]:
    """Return each bin's supply (> 0) or demand (< 0), and what it may give and take at no cost, in record units."""
    p, q = check_integers(synthetic) * scale.records, check_integers(real) * scale.records
    high, low = q + scale.tolerance, np.maximum(q - scale.tolerance, 0)
    excess = np.where(p > high, p - high, np.where(p < low, p - low, 0))
    give = np.where(excess > 0, high - low, np.where(excess < 0, 0, p - low))
    take = np.where(excess < 0, high - low, np.where(excess > 0, 0, high - p))
    inner = tuple(range(1, p.ndim))
    lacking = np.maximum(-excess, 0).sum(axis=inner, keepdims=True)
    spare = np.maximum(excess, 0).sum(axis=inner, keepdims=True)
    return excess, np.minimum(give, lacking), np.minimum(take, spare)


def _solve_batch(
    excess: Ints, give: Ints, take: Ints, graphs: Sequence[StepGraph], weights: Sequence[float], scale: Scale
) -> tuple[Ints, Ints, Ints]:
    """Return the moves of a cheapest plan for some components, as in :func:`find_cheapest_moves`."""
    wanted = (excess != 0) | (give > 0) | (take > 0)
    arcs = build_neighbour_arcs(wanted, graphs, [as_fraction(w) for w in weights], scale.cost)
    with_bins = np.flatnonzero(arcs.bins >= 0)
    e, g, t = (part.ravel()[arcs.bins[with_bins]] for part in (excess, give, take))
    hub = np.array([arcs.nodes])
    most = int(np.abs(e).sum() + g.sum())  # no arc carries more than all supplies
    parts = [(arcs.tails, arcs.heads, np.array([most]), arcs.costs)]
    for chosen, caps, cost, outward in (
        (e > 0, e, scale.cost, True),  # remove
        (e < 0, -e, scale.cost, False),  # add
        (t > 0, t, 0, True),  # take at no cost
        (g > 0, g, 0, False),  # give at no cost
    ):
        ends = (with_bins[chosen], hub) if outward else (hub, with_bins[chosen])
        parts.append((*ends, caps[chosen], np.array([cost])))
    columns = [np.broadcast_arrays(*part) for part in parts]
    tails, heads, capacities, costs = (np.concatenate(column) for column in zip(*columns, strict=True))
    supplies = np.zeros(arcs.nodes + 1, np.int64)
    supplies[with_bins], supplies[arcs.nodes] = e, -e.sum()
    flows = solve(tails, heads, capacities, costs, supplies)[: arcs.tails.size]
    senders, receivers, amounts = decompose_flow(arcs.tails, arcs.heads, flows, arcs.nodes)
    return arcs.bins[senders], arcs.bins[receivers], amounts


def check_integers(values: NDArray[np.generic]) -> Ints:
    """Return the values as int64.

    Raises TypeError for anything but integers, because OR-Tools would silently truncate fractions.
    """
    values = np.asarray(values)
    if not np.issubdtype(values.dtype, np.integer):
        raise TypeError(f"the flow solver takes whole numbers only, not {values.dtype}; scale and round first")
    return values.astype(np.int64)


def solve(tails: Ints, heads: Ints, capacities: Ints, costs: Ints, supplies: Ints) -> Ints:
    """Return the flow on each arc of a min-cost flow; one entry per arc, except ``supplies``, with one per node.

    Raises TypeError for numbers that are not integers, RuntimeError unless OR-Tools finds an optimum.
    """
    tails, heads, capacities, costs, supplies = map(check_integers, (tails, heads, capacities, costs, supplies))
    if tails.size == 0:
        return np.empty(0, np.int64)
    flow = SimpleMinCostFlow()
    arcs = flow.add_arcs_with_capacity_and_unit_cost(tails.astype(np.int32), heads.astype(np.int32), capacities, costs)
    flow.set_nodes_supplies(np.arange(supplies.size, dtype=np.int32), supplies)
    status = flow.solve()
    if status != SimpleMinCostFlow.OPTIMAL:
        raise RuntimeError(f"OR-Tools found no optimal flow: {status.name}")
    return flow.flows(arcs).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Arcs:
    """Arcs in both directions among nodes 0 .. nodes - 1, costs in integer units.

    ``bins``: each node's bin, numbered in row-major order, -1 for a dummy.
    """

    nodes: int
    tails: Ints
    heads: Ints
    costs: Ints
    bins: Ints


def build_neighbour_arcs(
    wanted: NDArray[np.bool_], graphs: Sequence[StepGraph], weights: Sequence[Fraction], cost_units: int
) -> Arcs:
    """Return the arcs between neighbouring bins whose shortest paths are the bin distances (MGD, section 6.3).

    ``wanted``: the bins where something can start or end, shape (components, one axis per graph); only these are kept,
    which matters for mostly empty marginals.  A move from bin b to bin b' goes up, across and down.  In every attribute
    with dummies, it goes up to the lowest common ancestor.  It then goes along the line of the ordered attribute, and
    down again.  So it is enough to keep all combinations of the bins' ancestors, and to join kept neighbours on a line
    by an arc that costs all steps between them.  With two or more lines, a move across needs the corners between them,
    so every bin is kept.  A step's cost is rounded down to a multiple of ``1 / cost_units``.
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
        parts += [axis.up(keys, value, stride), axis.link_neighbours(keys, value, stride)]
    one, other, costs = (np.concatenate(column) for column in zip(*parts, strict=True))
    tails, heads = np.concatenate([one, other]), np.concatenate([other, one])
    return Arcs(keys.size, tails, heads, np.concatenate([costs, costs]), number)


@dataclass(frozen=True, eq=False)
class _Axis:
    """One attribute's graph as a tree (``parent``, -1: none) and a line (``place``, -1: off it), costs in units."""

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
        """Return the arcs (tails, heads, costs) from each kept node to its parent along this attribute."""
        child = np.flatnonzero(self.parent[value] >= 0)
        value = value[child]
        return child, np.searchsorted(keys, keys[child] + (self.parent[value] - value) * stride), self.rise[value]

    def link_neighbours(self, keys: Ints, value: Ints, stride: int) -> tuple[Ints, Ints, Ints]:
        """Return the arcs (tails, heads, costs) from each kept node on a line to the next kept node."""
        nodes = np.flatnonzero(self.place[value] >= 0)
        line, place = keys[nodes] - value[nodes] * stride, self.place[value[nodes]]
        order = np.lexsort((place, line))
        nodes, line, place = nodes[order], line[order], place[order]
        same = line[1:] == line[:-1]
        return nodes[:-1][same], nodes[1:][same], (np.diff(place) * self.step)[same]


def decompose_flow(tails: Ints, heads: Ints, flows: Ints, nodes: int) -> tuple[Ints, Ints, Ints]:
    """Return senders, receivers and amounts (> 0) that add up to the flow's net outflow at every node.

    ``tails``, ``heads``, ``flows`` (>= 0): one entry per arc; nodes 0 .. nodes - 1.  Cycles are dropped, because they
    have no net effect.  At most one move per arc; the same flow gives the same moves.
    """
    used = flows > 0
    tails, heads, flows = (np.ascontiguousarray(x[used], dtype=np.int64) for x in (tails, heads, flows))
    order = np.argsort(tails, kind="stable")
    tails, heads, flows = tails[order], heads[order], flows[order]
    first = np.searchsorted(tails, np.arange(nodes + 1))
    outflow = np.zeros(nodes, np.int64)
    np.add.at(outflow, tails, flows)
    np.subtract.at(outflow, heads, flows)
    moves = np.empty((2 * tails.size, 3), np.int64)  # a path empties an arc, a sender or a receiver
    number = _follow(first, heads, flows, outflow, moves)
    return moves[:number, 0], moves[:number, 1], moves[:number, 2]


@njit(nogil=True, cache=True)
def _follow(first, heads, flows, outflow, moves):  # type: ignore[no-untyped-def]
    """Move flow from every sender along arcs with flow left to receivers, in place; return the number of moves."""
    nodes = outflow.shape[0]
    arc = first[:-1].copy()  # the next arc of each node that may have flow left
    place = np.full(nodes, -1, np.int64)  # position on the current path, or -1
    path = np.empty(nodes + 1, np.int64)
    number = 0
    for sender in range(nodes):
        length = 0
        path[0] = sender
        place[sender] = 0
        while outflow[sender] > 0:
            node = path[length]
            if outflow[node] < 0:  # a receiver
                amount = min(outflow[sender], -outflow[node])
                for p in range(length):
                    amount = min(amount, flows[arc[path[p]]])
                for p in range(length):
                    flows[arc[path[p]]] -= amount
                    place[path[p + 1]] = -1
                outflow[sender] -= amount
                outflow[node] += amount
                moves[number, 0], moves[number, 1], moves[number, 2] = sender, node, amount
                number += 1
                length = 0
                continue
            while flows[arc[node]] == 0:
                arc[node] += 1
            target = heads[arc[node]]
            if place[target] < 0:
                length += 1
                path[length] = target
                place[target] = length
                continue
            start = place[target]  # a cycle: remove its flow and continue from its first node
            amount = flows[arc[node]]
            for p in range(start, length):
                amount = min(amount, flows[arc[path[p]]])
            for p in range(start, length + 1):
                flows[arc[path[p]]] -= amount
            for p in range(start + 1, length + 1):
                place[path[p]] = -1
            length = start
        place[sender] = -1
    return number
