"""Generalization hierarchies: levels, and the semantic distance between two values of one level (MGD, section 4.3.1).

Null is a value of its own.  In an ordered column, null is off the line, at distance 1 from every value.  In an
unordered column, null hangs below the root, so it is at distance 1 at every level too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.evaluation import Tree, list_tree_leaves, measure_tree_depth
from privsyn.data_contracts.frozen_model import FieldError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepGraph:
    """Undirected edges between ``nodes`` values, followed by ``dummies`` extra nodes; edge e costs ``costs[e]``.

    The shortest path between two values costs their semantic distance and has at most ``longest`` edges.  There are
    O(nodes) edges (section 6.3).
    """

    nodes: int
    dummies: int
    ends: tuple[Ints, Ints]
    costs: tuple[Fraction, ...]
    longest: int


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
            return StepGraph(self.size, 0, (np.empty(0, np.int64), np.empty(0, np.int64)), (), 0)
        if self.ordered:
            return self._build_line()
        level = len(self.ancestors)
        starts = self.size + np.cumsum([0, *(int(row.max()) + 1 for row in self.ancestors)])
        chains = [*(row + start for row, start in zip(self.ancestors, starts, strict=False)), np.arange(self.size)]
        pairs = [np.unique(np.stack([child, parent]), axis=1) for parent, child in pairwise(chains)]
        edges = np.concatenate(pairs, axis=1)
        costs = (Fraction(1, 2 * level),) * edges.shape[1]
        return StepGraph(self.size, int(starts[-1]) - self.size, (edges[0], edges[1]), costs, 2 * level)

    def _build_line(self) -> StepGraph:
        line = np.flatnonzero(self._positions >= 0)
        costs = (Fraction(1, max(1, self._last)),) * (line.size - 1)
        if self.null is None:
            return StepGraph(self.size, 0, (line[:-1], line[1:]), costs, len(costs))
        values, dummy = np.arange(self.size), np.full(self.size, self.size)
        ends = (np.concatenate([line[:-1], values]), np.concatenate([line[1:], dummy]))
        return StepGraph(self.size, 1, ends, costs + (Fraction(1, 2),) * self.size, len(costs) + 2)


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

    def codes(self, level: int) -> Ints:
        """Return the node of ``level`` above each code, shape (n,)."""
        return self.nodes[level]

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
