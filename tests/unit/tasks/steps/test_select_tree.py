"""The tree of *select tree* against brute force over all trees of a few attributes."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.steps.select_marginals import find_spanning_tree

DOMAIN = Domain.of(dict.fromkeys("abcde", 2))
PAIRS = list(combinations(DOMAIN.attributes, 2))


@pytest.mark.parametrize("seed", range(3))
def test_no_other_tree_has_a_larger_sum(seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 10, len(PAIRS))
    scores = dict(zip(PAIRS, values.tolist(), strict=True))
    trees = [t for t in combinations(PAIRS, 4) if nx.is_tree(nx.Graph(t)) and len(nx.Graph(t)) == 5]
    assert len(trees) == 5**3  # Cayley
    found = find_spanning_tree(scores, DOMAIN)
    assert tuple(found) in trees
    assert sum(scores[(a, b)] for a, b in found) == pytest.approx(max(sum(scores[p] for p in t) for t in trees))


def test_all_columns_are_linked_even_by_scores_below_zero() -> None:
    assert len(find_spanning_tree(dict.fromkeys(PAIRS, -3.0), DOMAIN)) == 4


def test_pairs_without_a_score_leave_a_forest_and_ties_go_to_the_first() -> None:
    assert find_spanning_tree({("c", "d"): 1.0}, DOMAIN) == [("c", "d")]
    assert find_spanning_tree({}, DOMAIN) == []
    same = {("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "c"): 1.0}
    assert find_spanning_tree(same, DOMAIN) == [("a", "b"), ("a", "c")]
    assert find_spanning_tree(dict(reversed(same.items())), DOMAIN) == [("a", "b"), ("a", "c")]
