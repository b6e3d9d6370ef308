"""The tree: which attribute is drawn given which, and that their marginals come out right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.synthesis.sweep import compute_mutual_information, order_drawing, start_from_tree


def with_one_ways(domain: Domain, larger: list[Marginal]) -> list[Marginal]:
    ones = {a: Marginal((a,), np.ones(domain.size(a))) for a in domain.attributes}
    for m in larger:
        for a in m.attributes:
            ones[a] = m.project([a])
    return [*ones.values(), *larger]


def pair(a: str, b: str, strength: float, rows: float = 1_000.0) -> Marginal:
    """Two binary attributes, even one-ways, equal in a share (1 + strength) / 2."""
    same, other = rows * (1 + strength) / 4, rows * (1 - strength) / 4
    return Marginal((a, b), np.array([[same, other], [other, same]]))


def test_mutual_information_by_hand() -> None:
    assert compute_mutual_information(pair("a", "b", 1.0), "a") == pytest.approx(math.log(2))
    assert compute_mutual_information(pair("a", "b", 0.0), "b") == pytest.approx(0.0, abs=1e-12)
    assert compute_mutual_information(Marginal(("a", "b"), np.zeros((2, 2))), "a") == 0.0
    # c = a xor b: nothing from one of them, everything from both.
    xor = np.zeros((2, 2, 2))
    for a in range(2):
        for b in range(2):
            xor[a, b, a ^ b] = 5
    clique = Marginal(("a", "b", "c"), xor)
    assert compute_mutual_information(clique, "c") == pytest.approx(math.log(2))
    assert compute_mutual_information(clique.project(["a", "c"]), "c") == pytest.approx(0.0, abs=1e-12)


def test_the_order_follows_the_maximum_spanning_forest() -> None:
    # Strengths: bc .9, ab .6, ac .5 (left out: a hangs on b), de .3 on its own, f in nothing.
    domain = Domain.of(dict.fromkeys("abcdef", 2))
    pairs = [pair("a", "b", 0.6), pair("b", "c", 0.9), pair("a", "c", 0.5), pair("d", "e", 0.3)]
    order = [(a, None if given is None else given.attributes) for a, given in order_drawing(pairs, domain)]
    assert order == [
        ("b", None),
        ("c", ("b", "c")),
        ("a", ("a", "b")),
        ("d", None),
        ("e", ("d", "e")),
        ("f", None),
    ]


def test_a_clique_gives_an_attribute_all_of_its_drawn_ones() -> None:
    xor = np.zeros((2, 2, 2))
    for a in range(2):
        for b in range(2):
            xor[a, b, a ^ b] = 250
    domain = Domain.of(dict.fromkeys("abc", 2))
    clique = Marginal(("a", "b", "c"), xor)
    assert [None if g is None else g.attributes for _, g in order_drawing([clique], domain)][-1] == ("a", "b", "c")
    columns = start_from_tree(with_one_ways(domain, [clique]), domain, 1_000, seed=0, purpose=9)
    np.testing.assert_array_equal(columns[0] ^ columns[1], columns[2])


def test_every_marginal_of_a_tree_comes_out_up_to_rounding() -> None:
    rng = np.random.default_rng(2)
    domain = Domain.of({"a": 3, "b": 4, "c": 300, "d": 2})
    codes = [rng.integers(0, s, 9_000) for s in domain.sizes]
    codes[1] = (codes[0] + codes[1] // 2) % 4
    codes[2] = codes[1] * 70 + codes[2] % 60
    table = CodeTable(domain, tuple(c.astype(np.uint16) for c in codes))
    cliques = [("a", "b"), ("b", "c"), ("c", "d")]
    marginals = with_one_ways(domain, [Marginal(c, count(table, c).astype(float)) for c in cliques])
    made = CodeTable(domain, tuple(start_from_tree(marginals, domain, 9_000, seed=1, purpose=9)))
    for clique in cliques:
        np.testing.assert_allclose(count(made, clique), count(table, clique), atol=1)
    independent = np.einsum("ab,b->ab", count(table, ("a", "b")), 1.0 / count(table, ("b",)))
    given = independent @ count(table, ("b", "c")) @ (count(table, ("c", "d")) / count(table, ("c",))[:, None].clip(1))
    np.testing.assert_allclose(count(made, ("a", "d")), given, atol=5 * math.sqrt(given.max()))


def test_values_that_the_pair_never_saw_fall_back_on_the_one_way() -> None:
    domain = Domain.of({"a": 2, "b": 2})
    marginals = [
        Marginal(("a",), np.array([50.0, 50])),
        Marginal(("b",), np.array([30.0, 70])),
        Marginal(("a", "b"), np.array([[100.0, 0], [0, 0]])),
    ]
    a, b = start_from_tree(marginals, domain, 1_000, seed=0, purpose=9)
    assert np.bincount(a).tolist() == [500, 500]
    unseen = np.bincount(b[a == 1], minlength=2)
    assert unseen.tolist() in ([150, 350], [149, 351], [151, 349])


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_and_attributes_of_one_value(rows: int) -> None:
    domain = Domain.of({"one": 1, "a": 2, "b": 2})
    larger = [Marginal(("one", "a"), np.array([[3.0, 4]])), Marginal(("a", "b"), np.zeros((2, 2)))]
    columns = start_from_tree(with_one_ways(domain, larger), domain, rows, seed=0, purpose=9)
    assert [c.size for c in columns] == [rows] * 3
    CodeTable(domain, tuple(columns))
