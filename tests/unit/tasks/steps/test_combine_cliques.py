"""Algorithm 2 on named graphs."""

from __future__ import annotations

from itertools import combinations

import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.steps.select_marginals import combine_cliques, weigh

DOMAIN = Domain(tuple("abcdefg"), (4, 5, 3, 2, 6, 10, 100))


def pairs(*edges: str) -> dict[tuple[str, str], float]:
    return {(e[0], e[1]): 1.0 for e in edges}


def test_a_triangle_becomes_one_clique_and_its_pairs_go() -> None:
    assert combine_cliques(pairs("ab", "bc", "ac", "cd"), DOMAIN, 5_000) == [("a", "b", "c"), ("c", "d")]


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


@pytest.mark.slow
def test_a_dense_graph_of_binaries_ends() -> None:
    """40 binary attributes, all pairs selected: 2^40 cliques, of which the public limits look at few."""
    names = tuple(f"x{i:02d}" for i in range(40))
    domain = Domain(names, (2,) * 40)
    taken = combine_cliques(dict.fromkeys(combinations(names, 2), 1.0), domain, 64)
    assert max(len(c) for c in taken) == 6
    assert len({frozenset(p) for c in taken for p in combinations(c, 2)}) == 40 * 39 // 2


FINE = Domain(DOMAIN.attributes, tuple(8 * size for size in DOMAIN.sizes))


def test_weights_are_those_of_the_pairs_inside_or_equation_1() -> None:
    given = {("a", "b"): 0.2, ("c", "b"): 0.3, ("a", "c"): 0.1, ("c", "d"): 0.4}
    cliques = [("a", "b", "c"), ("c", "d")]
    assert weigh(cliques, DOMAIN, FINE, given) == pytest.approx({cliques[0]: 0.6, cliques[1]: 0.4})
    by_cells = {c: DOMAIN.cells(c) ** (2 / 3) for c in cliques}
    assert weigh(cliques, DOMAIN, FINE, None) == by_cells


def test_one_ways_again_take_their_share_after_the_cliques() -> None:
    weighed = weigh([("c", "d")], DOMAIN, FINE, {("c", "d"): 0.7})
    assert next(iter(weighed)) == ("c", "d")
    assert weighed["c", "d"] == pytest.approx(0.7)
    ones = {c: w for c, w in weighed.items() if len(c) == 1}
    assert sum(ones.values()) == pytest.approx(0.3)
    assert ones["b",] / ones["a",] == pytest.approx((FINE.size("b") / FINE.size("a")) ** (2 / 3))


def test_the_higher_score_goes_first_among_equal_sizes() -> None:
    scored = dict.fromkeys(combinations("abcd", 2), 1.0)
    scored["c", "d"] = scored["b", "d"] = 50.0
    first = combine_cliques(scored, DOMAIN, 60)[0]
    assert first == ("b", "c", "d")
