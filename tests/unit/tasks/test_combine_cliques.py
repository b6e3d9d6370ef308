"""Algorithm 2 on named graphs."""

from __future__ import annotations

from itertools import combinations

from data_contracts.domain import Domain
from tasks.combine_cliques import cliques_from_table, cliques_to_table, combine_cliques

DOMAIN = Domain(tuple("abcdefg"), (4, 5, 3, 2, 6, 10, 100))


def pairs(*edges: str) -> dict[tuple[str, str], float]:
    return {(e[0], e[1]): 1.0 for e in edges}


def test_a_triangle_becomes_one_clique_and_its_pairs_go() -> None:
    assert combine_cliques(pairs("ab", "bc", "ac", "cd"), DOMAIN, 5_000) == [("a", "b", "c"), ("c", "d")]


def test_a_tree_stays_pairs() -> None:
    assert combine_cliques(pairs("ab", "bc", "cd"), DOMAIN, 5_000) == [("a", "b"), ("b", "c"), ("c", "d")]


def test_gamma_bounds_the_cells_and_smaller_cliques_inside_are_found() -> None:
    square = dict.fromkeys(combinations("abcd", 2), 1.0)
    assert combine_cliques(square, DOMAIN, 4 * 5 * 3 * 2)[0] == ("a", "b", "c", "d")
    smaller = combine_cliques(square, DOMAIN, 4 * 5 * 3 * 2 - 1)
    assert all(DOMAIN.cells(c) < 120 for c in smaller)
    assert max(len(c) for c in smaller) == 3
    covered = {frozenset(p) for c in smaller for p in combinations(c, 2)}
    assert covered == {frozenset(p) for p in square}


def test_overlap_of_more_than_two_attributes_is_refused() -> None:
    both = dict.fromkeys((*combinations("abcd", 2), *combinations("abce", 2)), 1.0)
    taken = [c for c in combine_cliques(both, DOMAIN, 10_000) if len(c) > 2]
    assert taken == [("a", "b", "c", "d"), ("a", "b", "e")]  # abce shares a, b, c; abe only a, b
    covered = {frozenset(p) for c in combine_cliques(both, DOMAIN, 10_000) for p in combinations(c, 2)}
    assert covered == {frozenset(p) for p in both}


def test_the_higher_score_goes_first_among_equal_sizes() -> None:
    scored = dict.fromkeys(combinations("abcd", 2), 1.0)
    scored["c", "d"] = scored["b", "d"] = 50.0
    first = combine_cliques(scored, DOMAIN, 60)[0]
    assert first == ("b", "c", "d")


def test_gamma_zero_combines_nothing() -> None:
    assert all(len(c) == 2 for c in combine_cliques(pairs("ab", "bc", "ac"), DOMAIN, 0))


def test_no_pair_spends_the_budget_on_the_one_ways() -> None:
    assert combine_cliques({}, DOMAIN, 5_000) == [(a,) for a in DOMAIN.attributes]


def test_a_dense_graph_of_binaries_ends() -> None:
    """60 binary attributes, all pairs selected: 2^60 cliques, of which the public limits look at few."""
    names = tuple(f"x{i:02d}" for i in range(60))
    domain = Domain(names, (2,) * 60)
    taken = combine_cliques(dict.fromkeys(combinations(names, 2), 1.0), domain, 64)
    assert max(len(c) for c in taken) == 6
    assert len({frozenset(p) for c in taken for p in combinations(c, 2)}) == 60 * 59 // 2


def test_table_round_trip() -> None:
    cliques = combine_cliques(pairs("ab", "bc", "ac", "cd"), DOMAIN, 5_000)
    table = cliques_to_table(cliques, DOMAIN)
    assert cliques_from_table(table) == cliques
    assert table["cells"].to_pylist() == [60, 6]
