"""Which pairs and cliques are measured: greedily, by expected error, as a tree, combined, and what more is lacking."""

from __future__ import annotations

import math
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Compression, Selection
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.expected_error import LEAST_GAIN, Departures
from privsyn.tasks.estimation.noisy import pool_answers
from privsyn.tasks.steps.compress_domain import compress_domain
from privsyn.tasks.steps.select_marginals import (
    LEAST_LACKING,
    combine_cliques,
    find_spanning_tree,
    list_lacking,
    map_spent,
    select,
    select_by_expected_error,
    select_dense_marg,
    weigh,
)


def literal_algorithm_1(phi: list[float], cells: list[int], rho: float) -> tuple[list[int], float]:
    """Algorithm 1 as printed: try every pair, allocate by equation (1), take the best, stop when no better."""

    def error(chosen: set[int]) -> float:
        weights = {j: cells[j] ** (2 / 3) for j in chosen}
        total = sum(weights.values())
        noise = sum(cells[j] * math.sqrt(1 / (math.pi * rho * weights[j] / total)) for j in chosen)
        return noise + sum(p for j, p in enumerate(phi) if j not in chosen)

    taken: list[int] = []
    current = error(set())
    while len(taken) < len(phi):
        best = min((i for i in range(len(phi)) if i not in taken), key=lambda i: error({*taken, i}))
        if error({*taken, best}) >= current:
            break
        current = error({*taken, best})
        taken.append(best)
    return taken, current


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_literal_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 25))
    phi = list(rng.normal(60, 80, m))
    cells = [int(c) for c in rng.integers(2, 400, m)]
    rho = float(rng.choice([0.01, 0.1, 1.0]))
    chosen = select_dense_marg(phi, cells, rho)
    indices, error = literal_algorithm_1(phi, cells, rho)
    assert [index for index, _ in chosen] == indices
    if chosen:
        assert chosen[-1][1] == pytest.approx(error)


def test_the_price_of_many_different_queries_can_be_written_down() -> None:
    """Exact sums of hundreds of prices have tens of thousands of digits; the certificate rounds them up."""
    from fractions import Fraction

    from privsyn.data_contracts.domain import Domain
    from privsyn.data_contracts.receipts import format_rho, sum_rho
    from privsyn.tasks.steps.measure_marginals import plan_marginals

    names = tuple(f"a{i}" for i in range(400))
    domain = Domain(names, tuple(range(2, 402)))
    queries = plan_marginals({(a,): (i + 2) ** (2 / 3) for i, a in enumerate(names)}, domain, domain, Fraction(1, 7), 1)
    assert sum_rho(queries) <= Fraction(format_rho(sum_rho(queries))) <= Fraction(1, 7) + Fraction(1, 10**29)
    assert format_rho(Fraction(1, 4)) == "0.25"
    assert format_rho(Fraction(3)) == "3"


PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]


def chosen(phi: list[float], rho: float, cells: int = 20, max_cells: int = 1_000) -> dict[tuple[str, str], float]:
    """The weights of the pairs chosen of four, whose departures are spread evenly over 20 cells."""
    tau = np.array(phi)[:, None] / cells / math.sqrt(2 / math.pi)
    departures = Departures(tau, np.full((4, 1), float(cells)))
    table = select_by_expected_error(PAIRS, phi, [20, 20, 20, 2_000], departures, rho, 1, max_cells)
    errors = table["error"].to_pylist()
    assert errors == sorted(errors, reverse=True)
    assert table["order"].to_pylist() == list(range(table.num_rows))
    return {(row["a"], row["b"]): row["weight"] for row in table.to_pylist()}


def test_by_expected_error_takes_what_a_measurement_would_lower_and_shares_the_budget_by_it() -> None:
    found = chosen([5_000.0, 1_000.0, 0.0, 0.0], rho=0.01)
    assert list(found) == [("a", "b"), ("a", "c")]
    assert sum(found.values()) == pytest.approx(1)


def test_by_expected_error_leaves_faint_pairs_out_until_the_budget_reaches_them() -> None:
    phi = [5_000.0, 60.0, 60.0, 0.0]
    assert list(chosen(phi, rho=0.01)) == [("a", "b")]
    assert len(chosen(phi, rho=100.0)) == 3
    assert chosen(phi, rho=1e-9) == {}


def test_by_expected_error_every_chosen_pair_gains_at_its_share() -> None:
    rng = np.random.default_rng(0)
    tau, cells = rng.random((40, 5)) * 10.0 ** rng.integers(-1, 3, (40, 1)), rng.integers(0, 50, (40, 5)).astype(float)
    departures, pairs = Departures(tau, cells), [(f"a{i}", f"b{i}") for i in range(40)]
    table = select_by_expected_error(pairs, [1.0] * 40, [10] * 40, departures, 0.05, 1, 100)
    taken = [pairs.index((row["a"], row["b"])) for row in table.to_pylist()]
    assert 0 < len(taken) < 40
    only = departures.subset(np.array(taken))
    before, after = only.error(np.zeros(len(taken))), only.error(0.05 * table["weight"].to_numpy())
    assert (after <= (1 - LEAST_GAIN) * before + 1e-9).all()
    assert table["error"][-1].as_py() == pytest.approx(departures.error(np.zeros(40)).sum() - (before - after).sum())


def test_one_ways_compete_for_the_budget_and_get_more_the_noisier_they_are() -> None:
    pairs = Departures(np.full((2, 1), 50.0), np.full((2, 1), 20.0))
    left = []
    for noise in (0.01, 30.0, 300.0):
        ones = Departures(np.full((3, 1), noise), np.full((3, 1), 10.0))
        table = select_by_expected_error(PAIRS[:2], [1.0, 1.0], [20, 20], pairs, 0.05, 1, 100, ones)
        left.append(1 - sum(table["weight"].to_pylist()))
    assert left[0] == pytest.approx(0, abs=1e-6)
    assert left[0] < left[1] < left[2] < 1


A, AB, AC = ("a",), ("a", "b"), ("a", "c")


def test_each_clique_gets_what_it_lacks_of_its_share() -> None:
    weights: dict[Clique, float] = {AB: 3.0, AC: 1.0, A: 4.0}
    left = list_lacking(weights, {AB: 0.2, A: 0.6}, 1.0)
    assert left == pytest.approx({AB: 0.375 - 0.2, AC: 0.125})
    assert list(left) == [AB, AC]


def test_what_lacks_next_to_nothing_is_not_asked_again() -> None:
    weights: dict[Clique, float] = {AB: 1.0, AC: 1.0}
    almost = 0.5 * (1 - LEAST_LACKING / 2)
    assert list(list_lacking(weights, {AB: almost}, 1.0)) == [AC]
    assert list_lacking(weights, {AB: 0.5, AC: 0.6}, 1.0) == weights


def test_all_looks_at_a_clique_are_counted() -> None:
    queries = [Query(AB, 4, 1, 10.0), Query(A, 2, 1, 5.0), Query(AB, 4, 1, 20.0)]
    assert map_spent(queries) == pytest.approx({AB: 1 / 200 + 1 / 800, A: 1 / 50})


def test_scores_of_all_releases_decide() -> None:
    """A pair that one noisy score hides is chosen by the mean of many."""
    sizes = {"a": 3, "b": 3, "c": 3}
    binning = {name: AttributeBins(np.arange(size, dtype=np.int32)) for name, size in sizes.items()}
    one_ways = [Query((name,), size, 1, 2.0) for name, size in sizes.items()]
    counts = [np.array([400, 350, 250]) for _ in sizes]
    recode = compress_domain(counts, one_ways, binning, Compression())
    pairs = [AB, AC, ("b", "c")]

    def chosen(scores: list[list[int]]) -> list[tuple[str, str]]:
        queries = [Query(pair, 1, 1, 60.0) for _ in scores for pair in pairs]
        answers = [np.array([value]) for release in scores for value in release]
        pooled, sums = pool_answers(queries, answers)
        scores_of_all = [float(score[0]) for score in sums]
        table = select(pooled, scores_of_all, recode, 0.05, 1, Selection(), remeasure_one_ways=False)
        return [(row["a"], row["b"]) for row in table.to_pylist()]

    assert chosen([[-50, 600, -20]]) == [AC]
    assert chosen([[-50, 600, -20], [800, 600, -20], [900, 600, -20]]) == [AC, AB]


DOMAIN = Domain.of(dict.fromkeys("abcde", 2))
EDGES = list(combinations(DOMAIN.attributes, 2))


@pytest.mark.parametrize("seed", range(3))
def test_no_other_tree_has_a_larger_sum(seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 10, len(EDGES))
    scores = dict(zip(EDGES, values.tolist(), strict=True))
    trees = [t for t in combinations(EDGES, 4) if nx.is_tree(nx.Graph(t)) and len(nx.Graph(t)) == 5]
    assert len(trees) == 5**3  # Cayley
    found = find_spanning_tree(scores, DOMAIN)
    assert tuple(found) in trees
    assert sum(scores[(a, b)] for a, b in found) == pytest.approx(max(sum(scores[p] for p in t) for t in trees))


WIDE = Domain(tuple("abcdefg"), (4, 5, 3, 2, 6, 10, 100))


def pairs(*edges: str) -> dict[tuple[str, str], float]:
    return {(e[0], e[1]): 1.0 for e in edges}


def test_a_triangle_becomes_one_clique_and_its_pairs_go() -> None:
    assert combine_cliques(pairs("ab", "bc", "ac", "cd"), WIDE, 5_000) == [("a", "b", "c"), ("c", "d")]


def test_gamma_bounds_the_cells_and_smaller_cliques_inside_are_found() -> None:
    square = dict.fromkeys(combinations("abcd", 2), 1.0)
    assert combine_cliques(square, WIDE, 4 * 5 * 3 * 2)[0] == ("a", "b", "c", "d")
    smaller = combine_cliques(square, WIDE, 4 * 5 * 3 * 2 - 1)
    assert all(WIDE.cells(c) < 120 for c in smaller)
    assert max(len(c) for c in smaller) == 3
    covered = {frozenset(p) for c in smaller for p in combinations(c, 2)}
    assert covered == {frozenset(p) for p in square}


def test_overlap_of_more_than_two_attributes_is_refused() -> None:
    both = dict.fromkeys((*combinations("abcd", 2), *combinations("abce", 2)), 1.0)
    taken = [c for c in combine_cliques(both, WIDE, 10_000) if len(c) > 2]
    assert taken == [("a", "b", "c", "d"), ("a", "b", "e")]  # abce shares a, b, c; abe only a, b
    covered = {frozenset(p) for c in combine_cliques(both, WIDE, 10_000) for p in combinations(c, 2)}
    assert covered == {frozenset(p) for p in both}


@pytest.mark.slow
def test_a_dense_graph_of_binaries_ends() -> None:
    """40 binary attributes, all pairs selected: 2^40 cliques.  The public limits look at few."""
    names = tuple(f"x{i:02d}" for i in range(40))
    domain = Domain(names, (2,) * 40)
    taken = combine_cliques(dict.fromkeys(combinations(names, 2), 1.0), domain, 64)
    assert max(len(c) for c in taken) == 6
    assert len({frozenset(p) for c in taken for p in combinations(c, 2)}) == 40 * 39 // 2


FINE = Domain(WIDE.attributes, tuple(8 * size for size in WIDE.sizes))


def test_weights_are_those_of_the_pairs_inside_or_equation_1() -> None:
    given = {("a", "b"): 0.2, ("c", "b"): 0.3, ("a", "c"): 0.1, ("c", "d"): 0.4}
    cliques = [("a", "b", "c"), ("c", "d")]
    assert weigh(cliques, WIDE, FINE, given) == pytest.approx({cliques[0]: 0.6, cliques[1]: 0.4})
    by_cells = {c: WIDE.cells(c) ** (2 / 3) for c in cliques}
    assert weigh(cliques, WIDE, FINE, None) == by_cells


def test_one_ways_again_take_their_share_after_the_cliques() -> None:
    weighed = weigh([("c", "d")], WIDE, FINE, {("c", "d"): 0.7})
    assert next(iter(weighed)) == ("c", "d")
    assert weighed["c", "d"] == pytest.approx(0.7)
    ones = {c: w for c, w in weighed.items() if len(c) == 1}
    assert sum(ones.values()) == pytest.approx(0.3)
    assert ones["b",] / ones["a",] == pytest.approx((FINE.size("b") / FINE.size("a")) ** (2 / 3))


def test_the_higher_score_goes_first_among_equal_sizes() -> None:
    scored = dict.fromkeys(combinations("abcd", 2), 1.0)
    scored["c", "d"] = scored["b", "d"] = 50.0
    first = combine_cliques(scored, WIDE, 60)[0]
    assert first == ("b", "c", "d")


def test_negative_scores_are_never_taken_and_a_huge_budget_takes_every_positive_one() -> None:
    chosen = select_dense_marg([5.0, -5.0, 0.5, 0.0], [4, 4, 4, 4], rho=1e12)
    assert {index for index, _ in chosen} == {0, 2}
