"""MGD, the marginal difference of two tables: equation (3) and the drill-down of section 4.4 of the MGD paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, isinf, prod

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.evaluation import BinCost, ComparedMarginal, EarthMover, MgdSpec
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.metrics.earth_mover import (
    Hierarchy,
    HierarchyLevel,
    Ints,
    build_default_hierarchy,
    build_tree_hierarchy,
    check_integers,
    choose_scale,
    find_cheapest_moves,
    merge_bins,
)

MAX_BINS = 2_000_000
"""Most bins of a target marginal: the flow needs up to 2 KB per bin."""


@dataclass(frozen=True)
class MgdResult:
    """The MGD score (>= 0, 0 is best, no upper bound) and its marginals, the largest weight x AEMC first."""

    score: float
    marginals: tuple[EarthMover, ...]


def compute_mgd(
    real: CodeTable,
    synthetic: CodeTable,
    spec: MgdSpec,
    labels: Mapping[str, Sequence[str]],
    ordered: Mapping[str, bool],
    null_codes: Mapping[str, int] | None = None,
) -> MgdResult:
    """Return MGD(synthetic, real): the weighted mean AEMC over the target marginals, equation (3).

    ``labels``: one text per code of every attribute; ``ordered``: whether its codes are ordered; ``null_codes``: the
    null code of attributes that have one.  As in the paper, raw counts are compared and each cost is divided by the
    real number of rows, so a synthetic table of another size costs more.  Two empty tables score 0; for an empty real
    table, costs are divided by 1.

    The drill-down splits each marginal's AEMC.  ``by_attribute`` (the cost of moving along each attribute, worst first)
    and ``added_or_removed`` sum to it.  A bin's ``cost`` is what is added or removed there, plus half the cost of each
    move from or to it.  Raises ValueError if the spec does not fit the table's columns or labels.
    """
    if real.domain != synthetic.domain:
        raise ValueError("the two tables have different domains; encode both with one spec")
    trees = build_column_hierarchies(spec, real.domain, labels, ordered, null_codes or {})
    targets = spec.marginals or choose_default_marginals(spec, real.domain)
    scored = []
    for target in targets:
        tolerance = spec.tolerance if target.tolerance is None else target.tolerance
        levels = _list_levels(target, trees)
        axes = _build_axes(target, trees, ordered, levels)
        p, q = (_count_levels(table, trees, levels) for table in (synthetic, real))
        cost = compute_aemc(p, q, axes, tolerance)
        scored.append(_drill_down(target, tolerance, axes, cost, (p, q), spec.worst_bins))
    total = sum(m.weight for m in scored)
    score = sum(m.weight * m.aemc for m in scored) / total if scored else 0.0
    return MgdResult(score, tuple(sorted(scored, key=lambda m: -m.weight * m.aemc)))


def choose_default_marginals(spec: MgdSpec, domain: Domain) -> tuple[ComparedMarginal, ...]:
    """Return every one-way, then at most ``spec.pairs`` pairs with at most ``spec.pair_cells`` bins, fewest bins first.

    The choice depends on the public bins alone.
    """
    pairs = [c for c in combinations(domain.attributes, 2) if domain.cells(c) <= spec.pair_cells]
    pairs.sort(key=domain.cells)
    chosen = [(a,) for a in domain.attributes] + pairs[: spec.pairs]
    return tuple(ComparedMarginal(attributes=clique) for clique in chosen)


def build_column_hierarchies(
    spec: MgdSpec,
    domain: Domain,
    labels: Mapping[str, Sequence[str]],
    ordered: Mapping[str, bool],
    null_codes: Mapping[str, int],
) -> dict[str, Hierarchy]:
    """Return the hierarchy of every column, from the spec or by default; FieldError if the spec does not fit."""
    _check_names(spec, domain, ordered)
    result = {}
    for column in domain.attributes:
        texts, null = labels[column], null_codes.get(column)
        if len(texts) != domain.size(column):
            raise ValueError(f"{column!r} needs one label per code: {domain.size(column)} codes, {len(texts)} labels")
        if column in spec.hierarchies:
            tree = spec.hierarchies[column]
            result[column] = build_tree_hierarchy(column, texts, tree, ordered=ordered[column], null=null)
        elif column in spec.bins_of_bins:
            result[column] = merge_bins(texts, spec.bins_of_bins[column], null=null)
        else:
            result[column] = build_default_hierarchy(texts, ordered=ordered[column], null=null)
    return result


def _check_names(spec: MgdSpec, domain: Domain, ordered: Mapping[str, bool]) -> None:
    named = [("hierarchies", c) for c in spec.hierarchies] + [("bins_of_bins", c) for c in spec.bins_of_bins]
    named += [("marginals", c) for target in spec.marginals for c in target.attributes]
    for field, column in named:
        if column not in domain.attributes:
            raise FieldError(f"`{field}` names {column!r}, which is not a released column", "Correct or remove it")
    for column in spec.bins_of_bins:
        if not ordered[column]:
            raise FieldError(f"`bins_of_bins` names {column!r}, which has no order", "Use `hierarchies` for it")


def _list_levels(target: ComparedMarginal, trees: Mapping[str, Hierarchy]) -> dict[str, int]:
    levels = {}
    for column in target.attributes:
        depth = trees[column].depth
        levels[column] = level = target.levels.get(column, depth)
        if level > depth:
            raise FieldError(
                f"`levels` of {column!r} is {level}, but its leaves are at level {depth}", f"Give 0 to {depth}"
            )
    return levels


def _build_axes(
    target: ComparedMarginal, trees: Mapping[str, Hierarchy], ordered: Mapping[str, bool], levels: Mapping[str, int]
) -> list[Axis]:
    """Return the attributes at their levels; by default, unordered ones have infinite weight, others equal shares."""
    sharing = [a for a in target.attributes if ordered[a] and levels[a]]
    default = {a: 1 / len(sharing) if a in sharing else inf for a in target.attributes}
    weights = {a: inf if isinstance(w, str) else w for a, w in target.weights.items()} or default
    axes = [Axis(trees[a].at(levels[a]), weights[a]) for a in target.attributes]
    bins = prod(axis.values.size for axis in axes)
    if bins > MAX_BINS:
        names = ", ".join(target.attributes)
        raise FieldError(
            f"the target marginal of {names} has {bins:,} bins, and may have {MAX_BINS:,}", "Use coarser levels"
        )
    return axes


def _count_levels(table: CodeTable, trees: Mapping[str, Hierarchy], levels: Mapping[str, int]) -> Ints:
    """Return the table's counts at the attributes' levels, int64, one axis per attribute."""
    sizes = {a: len(trees[a].labels[level]) for a, level in levels.items()}
    nodes = {a: trees[a].nodes[level].astype(choose_code_dtype(sizes[a])) for a, level in levels.items()}
    return count(CodeTable(Domain.of(sizes), tuple(nodes[a][table.column(a)] for a in levels)), tuple(levels))


def _drill_down(
    target: ComparedMarginal,
    tolerance: float,
    axes: Sequence[Axis],
    cost: EarthMoverCost,
    counts: tuple[Ints, Ints],
    worst: int,
) -> EarthMover:
    """Return one marginal's part of the report: attributes and bins, worst first; ties in table order."""
    along = sorted(zip(target.attributes, cost.along, strict=True), key=lambda pair: -pair[1])
    return EarthMover(
        attributes=target.attributes,
        aemc=cost.aemc,
        weight=target.weight,
        tolerance=tolerance,
        by_attribute=dict(along),
        added_or_removed=cost.adjusted,
        worst_bins=_list_worst_bins(axes, cost, counts, worst),
    )


def _list_worst_bins(
    axes: Sequence[Axis], cost: EarthMoverCost, counts: tuple[Ints, Ints], worst: int
) -> tuple[BinCost, ...]:
    synthetic, real = (c / max(1, c.sum()) for c in counts)
    bins = []
    for number in np.argsort(-cost.by_bin, axis=None, kind="stable")[:worst]:
        place = np.unravel_index(number, cost.by_bin.shape)
        if cost.by_bin[place] > 0:
            texts = tuple(axis.values.labels[i] for axis, i in zip(axes, place, strict=True))
            share = {"real": float(real[place]), "synthetic": float(synthetic[place])}
            bins.append(BinCost(labels=texts, cost=float(cost.by_bin[place]), **share))
    return tuple(bins)


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Axis:
    """One attribute of a marginal: its values at the chosen level, and its weight, in [0, 1] or infinite."""

    values: HierarchyLevel
    weight: float


@dataclass(frozen=True, eq=False)
class EarthMoverCost:
    """The AEMC of one marginal and its parts; all costs, like ``aemc``, are divided by the real total.

    ``along``: the cost of moving along each axis.  ``adjusted``: the cost of adding and removing.  ``by_bin``: shape of
    the marginal; what is added to or removed from a bin, and half the cost of each move from or to it.  Each of
    ``by_bin`` and (``along``, ``adjusted``) sums to ``aemc``.
    """

    aemc: float
    along: tuple[float, ...]
    adjusted: float
    by_bin: Floats


def _compute_distance(axis: Axis, i: Ints, j: Ints) -> Floats:
    """Return weight * sd; an infinite weight forbids moves between different values (infinity times 0 is 0)."""
    if isinf(axis.weight):
        return np.where(i == j, 0.0, inf)
    return axis.weight * axis.values.distance(i, j)


def compute_aemc(synthetic: Ints, real: Ints, axes: Sequence[Axis], tolerance: float) -> EarthMoverCost:
    """Return AEMC_{M, tolerance}(P, Q), equation (1), by min-cost flow over O(bins) edges (section 6.3).

    ``synthetic`` P and ``real`` Q: integer counts, one axis per ``Axis``; finite weights sum to at most 1.  The value
    is at least 0, and at most (sum P + sum Q) / sum Q; an empty Q is divided by 1.  Raises TypeError for counts that
    are not integers, ValueError for shapes, weights or a tolerance out of range.

    Error: costs are rounded down to multiples of 1/S, so the flow's own cost is a lower bound, and the plan found is
    priced at the true distances.  With at most h edges between two bins, the result exceeds the true minimum by less
    than h/S per record moved.  S is 10^9 up to 1,000 bins and 10^6 from a million bins on.  Nothing is rounded if all
    edges' costs have a common denominator up to S (nearly always so for the default weights).  A tolerance is rounded
    to a fraction with denominator <= 10,000 (off by at most d): each bin then errs by at most 2 d records.
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
    ours, theirs = (counts.transpose(order).reshape(flat) for counts in (p, q))
    a, b, units = find_cheapest_moves(ours, theirs, graphs, weights, scale)
    numbers = np.arange(p.size).reshape(p.shape).transpose(order).ravel()
    return _price_moves(p, q, axes, tolerance, (numbers[a], numbers[b], units / scale.records))


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


def _price_moves(
    p: Ints, q: Ints, axes: Sequence[Axis], tolerance: float, moves: tuple[Ints, Ints, Floats]
) -> EarthMoverCost:
    """Return the objective of equation (1) at the moves, split by axis and by bin."""
    source, target, amount = moves
    total = float(q.sum()) or 1.0
    after = p.ravel() + np.bincount(target, amount, p.size) - np.bincount(source, amount, p.size)
    remaining = np.abs(after - q.ravel()) - tolerance
    by_bin = np.where(remaining > 1e-9, remaining, 0.0) / total  # smaller values are rounding error
    adjusted = float(by_bin.sum())
    along = []
    for axis, i, j in zip(axes, np.unravel_index(source, p.shape), np.unravel_index(target, p.shape), strict=True):
        cost = amount * _compute_distance(axis, i, j) / total
        along.append(float(cost.sum()))
        by_bin += (np.bincount(source, cost, p.size) + np.bincount(target, cost, p.size)) / 2
    return EarthMoverCost(sum(along) + adjusted, tuple(along), adjusted, by_bin.reshape(p.shape))
