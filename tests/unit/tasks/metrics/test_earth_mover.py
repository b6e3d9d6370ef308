"""AEMC and its networks: by hand, against the linear program and shortest paths, and its properties."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from privsyn.data_contracts.evaluation import Tree
from privsyn.tasks.metrics.earth_mover import (
    HierarchyLevel,
    build_default_hierarchy,
    build_neighbour_arcs,
    build_tree_hierarchy,
    check_integers,
    choose_scale,
    decompose_flow,
    merge_bins,
    solve,
)
from privsyn.tasks.metrics.mgd import Axis, compute_aemc
from tests.support.earth_mover_referee import aemc_linear_program, bin_distances
from tests.support.examples import keep_first


def line(size: int, weight: float = 1.0) -> Axis:
    """An ordered attribute."""
    return Axis(build_default_hierarchy([str(i) for i in range(size)], ordered=True).at(1), weight)


def star(size: int, weight: float = 1.0) -> Axis:
    """An attribute without an order."""
    return Axis(build_default_hierarchy([str(i) for i in range(size)], ordered=False).at(1), weight)


def cost(synthetic: ArrayLike, real: ArrayLike, axes: Sequence[Axis], tolerance: float = 0.0) -> float:
    """AEMC by flow, after checking that the linear program agrees."""
    p, q = np.array(synthetic), np.array(real)
    value = compute_aemc(p, q, axes, tolerance).aemc
    assert value == pytest.approx(aemc_linear_program(p, q, bin_distances(axes), tolerance), abs=1e-9)
    return value


@pytest.mark.parametrize(
    ("synthetic", "real", "axes", "tolerance", "expected"),
    [
        # Section 2.2, bins of equal width: one record moves one step of 1/2, or two steps; 10 real records.
        ([4, 5, 1], [5, 4, 1], [line(3)], 0.0, 0.05),
        ([4, 4, 2], [5, 4, 1], [line(3)], 0.0, 0.1),
        # Without moves it is the L1 distance: |4-5| + |5-4| + 0 = 2, and 2, of 10.
        ([4, 5, 1], [5, 4, 1], [line(3, inf)], 0.0, 0.2),
        # Within the tolerance differences cost nothing; 6 against 4 is one too many.
        ([4, 5, 1], [5, 4, 1], [star(3, inf)], 1.0, 0.0),
        ([4, 6, 0], [5, 4, 1], [star(3, inf)], 1.25, 0.075),
        # Totals 12 and 10: 2 removed; totals 7 and 10: 3 added.
        ([7, 4, 1], [5, 4, 1], [line(3)], 0.0, 0.2),
        ([2, 4, 1], [5, 4, 1], [line(3)], 0.0, 0.3),
        # 10 records start at one end and are wanted at the other: 2 may stay, 2 may be missing, so 8 go the whole
        # way, at 1 each, through bins that would charge for more than 2.
        ([10, 0, 0, 0], [0, 0, 0, 10], [line(4)], 2.0, 0.8),
        # Tolerance 5 against 1 real and no synthetic record: the first bin's lower bound is 0, not -4, so the second
        # bin's 20 missing records less 5 are added at 1 each.
        ([0, 0], [1, 20], [line(2, 0.25)], 5.0, 15 / 21),
        # 4 records too many, tolerance 1: 1 may stay, 1 moves a step of 1/2 into the tolerance of the next bin, 1
        # moves two steps, 1 is removed.
        ([8, 0, 0], [4, 0, 0], [line(3)], 1.0, 2.5 / 4),
        # Rows cannot mix: in the first 1 moves a step (1), in the second 1 is removed and in the first none is added.
        ([[1, 0], [2, 1]], [[0, 1], [1, 1]], [star(2, inf), line(2)], 0.0, (1 + 1) / 3),
        # A move along two lines turns at an empty bin: 1/2 * 1 + 1/2 * 1/2 a record.
        ([[4, 0, 0], [0] * 3, [0] * 3], [[0] * 3, [0] * 3, [0, 4, 0]], [line(3, 0.5), line(3, 0.5)], 0.0, 0.75),
        # Empty tables: nothing; all 4 added; all removed, divided by 1.
        ([0, 0], [0, 0], [line(2)], 0.0, 0.0),
        ([0, 0], [3, 1], [line(2)], 0.0, 1.0),
        ([3, 1], [0, 0], [line(2)], 0.0, 4.0),
    ],
)
def test_costs_by_hand(
    synthetic: ArrayLike, real: ArrayLike, axes: list[Axis], tolerance: float, expected: float
) -> None:
    assert cost(synthetic, real, axes, tolerance) == pytest.approx(expected, abs=1e-12)


def test_two_attributes_add_their_distances() -> None:
    # From (0, 0) to (2, 1): 1/2 * 2/3 along the line of 4, 1/2 * 1 along the star, per record.
    synthetic, real = np.zeros((4, 3), int), np.zeros((4, 3), int)
    synthetic[0, 0] = real[2, 1] = 5
    result = compute_aemc(synthetic, real, [line(4, 0.5), star(3, 0.5)], 0.0)
    assert result.along == pytest.approx((1 / 3, 1 / 2))
    assert result.aemc == pytest.approx(5 / 6)
    assert result.adjusted == 0
    assert result.by_bin[0, 0] == pytest.approx(5 / 12)  # half of the move at each end
    assert result.by_bin[2, 1] == pytest.approx(5 / 12)
    assert np.count_nonzero(result.by_bin) == 2


def random_level(rng: np.random.Generator) -> HierarchyLevel:
    """A level of any kind, of 1 to 8 values."""
    labels = [f"v{i}" for i in range(int(rng.integers(1, 6)))]
    kind = int(rng.integers(4))
    if kind == 0:
        return build_default_hierarchy(labels, ordered=bool(rng.integers(2))).at(1)
    if kind == 1:
        return build_default_hierarchy(labels, ordered=bool(rng.integers(2)), null=int(rng.integers(len(labels)))).at(1)
    if kind == 2:
        tree: Tree = {"A": {"a": ["v0", "v3"], "b": ["v1"]}, "B": {"c": ["v2", "v5"], "d": ["v4"]}}
        hierarchy = build_tree_hierarchy("x", [f"v{i}" for i in range(6)], tree, ordered=False)
    else:
        hierarchy = merge_bins([f"v{i}" for i in range(8)], [2, 2], null=(None, 7)[int(rng.integers(2))])
    return hierarchy.at(int(rng.integers(hierarchy.depth + 1)))


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray, list[Axis], float]:
    """Two marginals of at most 60 bins on 1 to 3 attributes, weights and a tolerance."""
    rng = np.random.default_rng(seed)
    levels = [random_level(rng) for _ in range(int(rng.integers(1, 4)))]
    while np.prod([level.size for level in levels]) > 60:
        levels.pop()
    parts = np.array([rng.choice([inf, 0.0, 1.0, rng.random()], p=[0.3, 0.1, 0.3, 0.3]) for _ in levels])
    finite = np.isfinite(parts)
    parts[finite] /= max(parts[finite].sum(), 1e-9)
    shape = tuple(level.size for level in levels)
    highest = int(rng.choice([1, 3, 10, 100]))
    p, q = (rng.integers(0, highest + 1, shape) * (rng.random(shape) < rng.random()) for _ in range(2))
    axes = [Axis(level, float(weight)) for level, weight in zip(levels, parts, strict=True)]
    return p, q, axes, float(rng.choice([0, 1, 2, 5, 0.5, 1.25, rng.random() * 3]))


@pytest.mark.parametrize("first", keep_first(range(0, 400, 50)))
def test_the_flow_agrees_with_the_linear_program(first: int) -> None:
    for seed in range(first, first + 50):
        p, q, axes, tolerance = random_case(seed)
        result = compute_aemc(p, q, axes, tolerance)
        referee = aemc_linear_program(p, q, bin_distances(axes), tolerance)
        assert referee - 1e-7 <= result.aemc <= referee + 2e-6, f"seed {seed}"
        assert result.by_bin.sum() == pytest.approx(result.aemc)
        assert sum(result.along) + result.adjusted == pytest.approx(result.aemc)


def test_it_is_zero_exactly_within_the_tolerance() -> None:
    for seed in range(100):
        p, q, axes, tolerance = random_case(seed)
        movable = any(axis.weight == 0 for axis in axes)  # a weight of 0 moves for nothing
        near = np.abs(p - q).max(initial=0) <= tolerance
        value = compute_aemc(p, q, axes, tolerance).aemc
        assert value == 0 if near else value > 0 or movable, f"seed {seed}"


def test_whole_fractions_are_exact_and_odd_weights_have_a_stated_error() -> None:
    exact = choose_scale([line(12).values.graph(), star(3).values.graph()], [1 / 3, 2 / 3], 0.5, 36)
    assert (exact.exact, exact.cost, exact.records, exact.tolerance) == (True, 33, 2, 1)
    odd = [line(4, 0.123456789), star(3, 1 - 0.123456789)]
    for bins, units in ((12, 10**9), (10**5, 10**7), (10**8, 10**6)):
        scale = choose_scale([axis.values.graph() for axis in odd], [axis.weight for axis in odd], 0.0, bins)
        assert (scale.exact, scale.cost) == (False, units)
    p, q = np.zeros((4, 3), int), np.zeros((4, 3), int)
    p[0, 0] = q[3, 2] = 1
    assert compute_aemc(p, q, odd, 0.0).aemc == pytest.approx(1.0, abs=5 / 10**9)  # both axes from end to end


def test_fractions_never_reach_the_flow_solver() -> None:
    # OR-Tools itself would take 0.9 for 0.
    one, cost = np.array([1]), np.array([0.9])
    with pytest.raises(TypeError, match="whole numbers only"):
        solve(np.array([0]), one, one, cost, np.array([1, -1]))
    with pytest.raises(TypeError, match="whole numbers only"):
        compute_aemc(np.array([1.5, 0.5]), np.array([1.0, 1.0]), [line(2)], 0.0)
    assert check_integers(np.array([3], np.uint8)).dtype == np.int64


def test_a_flow_that_cannot_be_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"UNBALANCED|INFEASIBLE"):
        solve(np.array([0]), np.array([1]), np.array([1]), np.array([1]), np.array([3, -3]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"synthetic": [[1, 2]]}, "shapes"),
        ({"synthetic": [-1, 2]}, "negative"),
        ({"axes": [line(2, 1.5)]}, "weights"),
        ({"axes": [line(2, -0.5)]}, "weights"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"tolerance": inf}, "tolerance"),
    ],
)
def test_arguments_out_of_range_are_refused(change: dict, message: str) -> None:
    arguments = {"synthetic": [1, 2], "axes": [line(2)], "tolerance": 0.0} | change
    with pytest.raises(ValueError, match=message):
        compute_aemc(np.array(arguments["synthetic"]), np.array([1, 2]), arguments["axes"], arguments["tolerance"])


def test_paths_of_random_flows_have_the_same_net_outflow() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        nodes, arcs = int(rng.integers(1, 9)), int(rng.integers(0, 30))
        tails, heads = rng.integers(0, nodes, (2, arcs))
        flows = rng.integers(0, 5, arcs)
        net = np.bincount(tails, flows, nodes) - np.bincount(heads, flows, nodes)
        senders, receivers, amounts = decompose_flow(tails, heads, flows, nodes)
        sent, received = np.bincount(senders, amounts, nodes), np.bincount(receivers, amounts, nodes)
        np.testing.assert_array_equal(sent, np.maximum(net, 0))
        np.testing.assert_array_equal(received, np.maximum(-net, 0))
        assert (amounts > 0).all()


LINE = build_default_hierarchy("abcd", ordered=True).at(1)
LINE_AND_NULL = build_default_hierarchy("abcd", ordered=True, null=3).at(1)
STAR = build_default_hierarchy("abc", ordered=False).at(1)
TREE = build_tree_hierarchy("x", "abcd", {"A": ["a", "c"], "B": ["b", "d"]}, ordered=False).at(2)
UNITS = 24  # every step below is a whole number of 1/24


@pytest.mark.parametrize(
    "levels",
    [(LINE,), (TREE,), (LINE, STAR), (LINE_AND_NULL, TREE), (STAR, TREE), (LINE, LINE_AND_NULL), (STAR, LINE, TREE)],
    ids=["line", "tree", "line star", "null tree", "star tree", "two lines", "star line tree"],
)
def test_paths_among_wanted_bins_cost_their_distance(levels: tuple) -> None:
    weight = Fraction(1, len(levels))
    shape = tuple(level.size for level in levels)
    distances = bin_distances([Axis(level, float(weight)) for level in levels])
    graphs, weights = [level.graph() for level in levels], [weight] * len(levels)
    for seed in range(20):
        wanted = np.random.default_rng(seed).random((1, *shape)) < (0.15, 0.5)[seed % 2]
        arcs = build_neighbour_arcs(wanted, graphs, weights, UNITS * 3)
        paths = shortest_path(csr_matrix((arcs.costs, (arcs.tails, arcs.heads)), (arcs.nodes,) * 2)) / (UNITS * 3)
        node = {int(b): i for i, b in enumerate(arcs.bins) if b >= 0}
        chosen = np.flatnonzero(wanted)
        assert set(chosen) <= set(node)
        at = [node[int(b)] for b in chosen]
        np.testing.assert_allclose(paths[np.ix_(at, at)], distances[np.ix_(chosen, chosen)], atol=1e-12)


def test_few_bins_of_a_large_marginal_make_a_small_network() -> None:
    # Two bins of 1000 x 1000 that share nothing: themselves, and per bin the dummies of the star above them.
    wanted = np.zeros((1, 1_000, 1_000), bool)
    wanted[0, 3, 5] = wanted[0, 900, 7] = True
    values = [str(i) for i in range(1_000)]
    graphs = [build_default_hierarchy(values, ordered=ordered).at(1).graph() for ordered in (True, False)]
    arcs = build_neighbour_arcs(wanted, graphs, [Fraction(1, 2)] * 2, 10**6)
    assert arcs.nodes == 4
    assert arcs.tails.size == 2 * 3  # up, across (897 places at once), down
