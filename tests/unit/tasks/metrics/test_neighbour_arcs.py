"""The shortest paths among the kept bins are the bin distances, with few nodes and arcs."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from privsyn.tasks.metrics.earth_mover import build_default_hierarchy, build_neighbour_arcs, build_tree_hierarchy
from privsyn.tasks.metrics.mgd import Axis
from tests.support.earth_mover_referee import bin_distances

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


def test_components_are_not_joined() -> None:
    arcs = build_neighbour_arcs(np.ones((3, 4), bool), [LINE.graph()], [Fraction(1)], 3)
    assert arcs.nodes == 12
    pairs = set(zip(arcs.bins[arcs.tails].tolist(), arcs.bins[arcs.heads].tolist(), strict=True))
    steps = {(4 * c + i, 4 * c + j) for c in range(3) for i, j in pairwise(range(4))}
    assert pairs == steps | {(b, a) for a, b in steps}


def test_few_bins_of_a_large_marginal_make_a_small_network() -> None:
    # Two bins of 1000 x 1000 that share nothing: themselves, and per bin the dummies of the star above them.
    wanted = np.zeros((1, 1_000, 1_000), bool)
    wanted[0, 3, 5] = wanted[0, 900, 7] = True
    values = [str(i) for i in range(1_000)]
    graphs = [build_default_hierarchy(values, ordered=ordered).at(1).graph() for ordered in (True, False)]
    arcs = build_neighbour_arcs(wanted, graphs, [Fraction(1, 2)] * 2, 10**6)
    assert arcs.nodes == 4
    assert arcs.tails.size == 2 * 3  # up, across (897 places at once), down


def test_without_attributes_every_bin_is_alone() -> None:
    arcs = build_neighbour_arcs(np.array([True, False, True]), [], [], 1)
    assert (arcs.nodes, arcs.tails.size, arcs.bins.tolist()) == (2, 0, [0, 2])
