"""Semantic distances, the paper's Figures 1 and 2, and the graphs whose shortest paths they are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from privsyn.tasks.metrics.earth_mover import (
    Hierarchy,
    HierarchyLevel,
    build_default_hierarchy,
    build_tree_hierarchy,
    merge_bins,
)

CITIES = ("Chicago", "Gary", "Joliet", "Muncie")
STATES = {"Illinois": ["Chicago", "Joliet"], "Indiana": ["Gary", "Muncie"]}
GRADES = tuple(f"grade {i}" for i in range(1, 14))
SCHOOLS = {
    "elementary": list(GRADES[:5]),
    "middle": list(GRADES[5:8]),
    "high": list(GRADES[8:12]),
    "college": [GRADES[12]],
}


def matrix(level: HierarchyLevel) -> np.ndarray:
    """All distances of a level."""
    codes = np.arange(level.size)
    return level.distance(codes[:, None], codes[None, :])


def test_cities_of_one_state_are_half_as_far_as_others() -> None:
    # Figure 1(b): leaves at level 2.  Chicago and Joliet meet at level 1: (2-1)/2; Chicago and Gary at level 0: 2/2.
    tree = build_tree_hierarchy("city", CITIES, STATES, ordered=False)
    assert matrix(tree.at(2)).tolist() == [[0, 1, 0.5, 1], [1, 0, 1, 0.5], [0.5, 1, 0, 1], [1, 0.5, 1, 0]]
    assert tree.at(1).labels == ("Illinois", "Indiana")
    assert matrix(tree.at(1)).tolist() == [[0, 1], [1, 0]]
    assert tree.nodes[1].tolist() == [0, 1, 0, 1]


def test_grades_and_schools_are_ordered_at_each_level() -> None:
    # Figure 2(b): 1st and 8th grade are 7 of 12 steps apart, elementary and middle school 1 of 3.
    tree = build_tree_hierarchy("education", GRADES, SCHOOLS, ordered=True)
    assert tree.at(2).distance(np.array(0), np.array(7)) == pytest.approx(7 / 12)
    assert tree.at(1).distance(np.array(0), np.array(1)) == pytest.approx(1 / 3)
    assert tree.at(0).labels == ("(any)",)
    assert matrix(tree.at(0)).tolist() == [[0]]


def test_null_is_at_distance_one_from_every_value_at_every_level() -> None:
    ordered = build_default_hierarchy(["a", "b", "c", "(null)"], ordered=True, null=3)
    assert matrix(ordered.at(1)).tolist() == [[0, 0.5, 1, 1], [0.5, 0, 0.5, 1], [1, 0.5, 0, 1], [1, 1, 1, 0]]
    merged = merge_bins(["a", "b", "c", "(null)"], [2], null=3)
    assert merged.at(1).labels == ("a to b", "c", "(null)")
    assert matrix(merged.at(1)).tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    cities = build_tree_hierarchy("city", (*CITIES, "(null)"), STATES, ordered=False, null=4)
    assert cities.at(1).labels == ("Illinois", "Indiana", "(null)")
    assert matrix(cities.at(2))[4].tolist() == [1, 1, 1, 1, 0]


HIERARCHIES = {
    "line": build_default_hierarchy("abcdef", ordered=True),
    "line, null in the middle": build_default_hierarchy("abcd", ordered=True, null=1),
    "star": build_default_hierarchy("abcd", ordered=False),
    "tree": build_tree_hierarchy("city", CITIES, STATES, ordered=False),
    "tree with null": build_tree_hierarchy("city", (*CITIES, "(null)"), STATES, ordered=False, null=4),
    "three levels": build_tree_hierarchy(
        "x", "abcdef", {"A": {"p": ["a", "d"], "q": ["b"]}, "B": {"r": ["c", "f", "e"]}}, ordered=False
    ),
    "bins of bins": merge_bins("abcdefgh", [2, 2], null=7),
    "one value": build_default_hierarchy("a", ordered=True),
}


@pytest.mark.parametrize("tree", HIERARCHIES.values(), ids=HIERARCHIES.keys())
def test_shortest_paths_of_the_graph_are_the_distances(tree: Hierarchy) -> None:
    for number in range(tree.depth + 1):
        level = tree.at(number)
        graph = level.graph()
        nodes = graph.nodes + graph.dummies
        costs = [float(c) for c in graph.costs]
        paths = shortest_path(csr_matrix((costs, graph.ends), (nodes, nodes)), directed=False)
        np.testing.assert_allclose(paths[: level.size, : level.size], matrix(level), atol=1e-12)
        assert len(costs) <= 3 * level.size + sum(
            len(names) for names in tree.labels[:number]
        )  # O(values), not squared


@pytest.mark.parametrize(
    ("tree", "ordered", "message"),
    [
        (["Chicago", "Gary", "Joliet"], False, "misses the label 'Muncie'"),
        ([*CITIES, "Rome"], False, "lists 'Rome', which is not one of its labels"),
        (["Gary", "Chicago", "Joliet", "Muncie"], True, "from small to large"),
    ],
)
def test_a_tree_that_does_not_fit_is_refused(tree: list[str], ordered: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_tree_hierarchy("city", CITIES, tree, ordered=ordered)


def test_a_tree_that_lists_null_is_refused() -> None:
    with pytest.raises(ValueError, match="its own place"):
        build_tree_hierarchy("city", ("Gary", "(null)"), ["Gary", "(null)"], ordered=False, null=1)


def test_labels_may_repeat_where_no_tree_names_them() -> None:
    # A listed value may be called as null is; a tree then means the value.
    labels = ("(null)", "b", "(null)")
    assert build_default_hierarchy(labels, ordered=False, null=2).at(1).size == 3
    assert build_tree_hierarchy("x", labels, ["b", "(null)"], ordered=False, null=2).depth == 1
    with pytest.raises(ValueError, match="the same label"):
        build_tree_hierarchy("x", ("b", "b"), ["b"], ordered=False)
