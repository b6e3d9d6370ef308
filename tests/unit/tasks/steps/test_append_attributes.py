"""Which attributes leave GUM, and that they come back with the right conditional shares."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps.synthesize import append_attributes, select_core_marginals, split_appended
from tests.support.code_tables import count_marginals

DOMAIN = Domain.of({"a": 3, "b": 4, "c": 2, "d": 5, "e": 1, "f": 300})


def true_table(rows: int = 6_000) -> CodeTable:
    rng = np.random.default_rng(3)
    base = rng.integers(0, 3, rows)
    columns = [(base * 7 + rng.integers(0, 1 + s // 2 + 1, rows)) % s for s in DOMAIN.sizes]
    return CodeTable(DOMAIN, tuple(c.astype(choose_code_dtype(s)) for c, s in zip(columns, DOMAIN.sizes, strict=True)))


def part(table: CodeTable, domain: Domain) -> CodeTable:
    return CodeTable(domain, tuple(table.column(a) for a in domain.attributes))


@pytest.mark.parametrize(
    ("cliques", "core", "appended"),
    [
        (
            [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")],
            [("a", "b"), ("b", "c"), ("a", "c")],
            [("e", None), ("f", None), ("d", ("c", "d"))],
        ),
        ([("a", "b")], [], [("c", None), ("d", None), ("e", None), ("f", None), ("b", ("a", "b"))]),
        (
            [("a", "b", "c"), ("a", "b", "d")],
            [("a", "b")],
            [("e", None), ("f", None), ("c", ("a", "b", "c")), ("d", ("a", "b", "d"))],
        ),
        (
            [("a", "b", "c"), ("a", "d"), ("d", "e"), ("e", "f"), ("a", "f")],
            [("a", "d"), ("d", "e"), ("e", "f"), ("a", "f")],
            [("b", ("a", "b")), ("c", ("a", "b", "c"))],
        ),
        ([("a", "b", "c")], [], [("d", None), ("e", None), ("f", None), ("b", ("a", "b")), ("c", ("a", "b", "c"))]),
        ([], [], [(a, None) for a in "bcdef"]),
        ([("a",), ("b",)], [], [(a, None) for a in "bcdef"]),
    ],
    ids=["triangle with a tail", "lone pair", "shared pair", "two leaves", "lone triple", "nothing", "one-ways only"],
)
def test_split(cliques: list, core: list, appended: list) -> None:
    assert split_appended(cliques, DOMAIN) == (core, appended)


def test_true_marginals_and_a_true_core_give_the_true_marginals_back() -> None:
    table = true_table()
    cliques = [("a", "b"), ("a", "c"), ("b", "c"), ("b", "c", "d"), ("c", "f")]
    marginals = count_marginals(table, cliques)
    _, core_domain = select_core_marginals(marginals, DOMAIN)
    full = append_attributes(part(table, core_domain), marginals, DOMAIN, seed=1)
    assert full.domain == DOMAIN
    for clique in [*cliques, ("e",)]:
        np.testing.assert_array_equal(count(full, clique), count(table, clique))


def test_conditional_shares_hold_for_another_core_than_the_marginals() -> None:
    domain = Domain.of({"a": 2, "b": 2})
    marginals = [
        Marginal(("a",), np.array([50.0, 50])),
        Marginal(("b",), np.array([60.0, 40])),
        Marginal(("a", "b"), np.array([[40.0, 10], [20, 30]])),
    ]
    core = CodeTable(Domain.of({"a": 2}), (np.repeat(np.array([0, 1], np.uint8), [1_000, 10]),))
    full = append_attributes(core, marginals, domain, seed=2)
    np.testing.assert_array_equal(count(full, ("a", "b")), [[800, 200], [4, 6]])
    runs = np.count_nonzero(np.diff(full.column("b")[:1_000].astype(int)))
    assert 250 < runs < 400  # in random order within a cell: 320 changes expected


def test_a_core_of_other_attributes_is_refused() -> None:
    table = true_table()
    with pytest.raises(ValueError, match="core attributes"):
        append_attributes(table, count_marginals(table, [("a", "b")]), DOMAIN, seed=0)


def test_counts_that_disagree_are_fitted_to_the_one_ways() -> None:
    """Counts of much noise: drawn as they stand, b would have shares of its own in place of its one-way's."""
    domain, rows = Domain.of({"a": 2, "b": 3, "c": 2}), 6_000
    rng = np.random.default_rng(4)
    table = CodeTable(domain, tuple(rng.integers(0, s, rows).astype(np.uint8) for s in domain.sizes))
    every = count_marginals(table, [("a", "c")])
    noisy = Marginal(("a", "b"), np.array([[3_000.0, 0.0, 900.0], [100.0, 1_500.0, 500.0]]))
    _, core_domain = select_core_marginals([*every, noisy], domain, frozenset("ac"))
    made = append_attributes(part(table, core_domain), [*every, noisy], domain, 1, frozenset("ac"))
    assert np.abs(count(made, ("b",)) - count(table, ("b",))).max() <= 4
    odds = [
        np.prod(np.diag(x[:, [0, 2]])) / np.prod(np.diag(x[:, [2, 0]])) for x in (noisy.counts, count(made, ("a", "b")))
    ]
    assert odds[1] == pytest.approx(odds[0], rel=0.1)  # what the counts say of a and b together is kept
