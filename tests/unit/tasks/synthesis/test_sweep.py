"""Sweeps as a method: exact targets, weights, threads, and what noise and early ends do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.kernels.gum_update import TargetMarginal
from privsyn.tasks.kernels.sweep_moves import SMALLEST_BLOCK
from privsyn.tasks.steps.synthesize import append_attributes, list_components, select_core_marginals, synthesize
from privsyn.tasks.synthesis.sweep import weigh_marginals

SWEEP = Synthesis(method="sweep")
DOMAIN = Domain.of({"a": 3, "b": 4, "one": 1, "c": 2, "wide": 300, "d": 6})
CLIQUES: list[Clique] = [
    ("a", "b"),
    ("b", "c"),
    ("a", "c"),
    ("a", "one", "c"),
    ("b", "d"),
    ("wide", "d"),
    ("a", "b", "d"),
]


def true_table(rows: int = 20_000) -> CodeTable:
    rng = np.random.default_rng(5)
    base = rng.integers(0, 12, rows)
    columns = [(base * (i + 1) // 3 + (rng.random(rows) ** 2 * s)).astype(int) % s for i, s in enumerate(DOMAIN.sizes)]
    return CodeTable(DOMAIN, tuple(c.astype(choose_code_dtype(s)) for c, s in zip(columns, DOMAIN.sizes, strict=True)))


def marginals_of(table: CodeTable, cliques: Sequence[Clique], sigma: float = 0.0) -> list[Marginal]:
    every = [*((a,) for a in table.domain.attributes), *cliques]
    return [Marginal(c, count(table, c).astype(float), sigma) for c in every]


def wrong_rows(made: CodeTable, true: CodeTable, clique: Clique) -> int:
    """Rows that stand in another cell of the marginal than they should."""
    return int(np.abs(count(made, clique) - count(true, clique)).sum()) // 2


def test_exact_marginals_in_almost_exact_marginals_out() -> None:
    true = true_table()
    made = synthesize(marginals_of(true, CLIQUES), DOMAIN, SWEEP, true.rows)
    for clique in CLIQUES:
        assert wrong_rows(made, true, clique) < 0.002 * true.rows, clique
    for attribute in DOMAIN.attributes:
        assert wrong_rows(made, true, (attribute,)) < 0.0005 * true.rows


@pytest.mark.parametrize("rows", [1, 2, 5, 30])
def test_small_targets_on_a_tree_are_met_exactly(rows: int) -> None:
    true = true_table(rows)
    made = synthesize(marginals_of(true, [("a", "b"), ("b", "c"), ("c", "d")]), DOMAIN, SWEEP, rows)
    for clique in [("a", "b"), ("b", "c"), ("c", "d"), ("wide",), ("one",)]:
        assert wrong_rows(made, true, clique) == 0


def test_each_sweep_comes_closer() -> None:
    true = true_table()
    errors = []
    for sweeps in (0, 1, 4):
        made = synthesize(marginals_of(true, CLIQUES), DOMAIN, Synthesis(method="sweep", sweeps=sweeps), true.rows)
        errors.append(sum(wrong_rows(made, true, clique) for clique in CLIQUES))
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] <= errors[1]


def test_the_rows_do_not_depend_on_the_number_of_threads() -> None:
    true = true_table(150_000)
    settings = Synthesis(method="sweep", sweeps=4, seed=11)
    one, two, five = (
        synthesize(marginals_of(true, CLIQUES), DOMAIN, settings, true.rows, threads=t).to_arrow() for t in (1, 2, 5)
    )
    assert one.equals(two)
    assert one.equals(five)


def test_nor_do_those_of_separate_components_with_cliques_noise_and_appended_attributes() -> None:
    """Several blocks a sweep in both components, and an attribute drawn afterwards."""
    rows = 4 * SMALLEST_BLOCK
    true, rng = true_table(rows), np.random.default_rng(6)
    more = {"x": 5, "y": 4, "z": 3, "leaf": 7}
    base = rng.integers(0, 60, rows)
    columns = [((base + rng.integers(0, 9, rows)) // (i + 2) % s).astype(np.uint8) for i, s in enumerate(more.values())]
    domain = Domain.of(dict(zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)) | more)
    both = CodeTable(domain, (*true.columns, *columns))
    cliques = [*CLIQUES, ("x", "y", "z"), ("x", "z"), ("y", "leaf")]
    noisy = [
        Marginal(m.attributes, np.maximum(m.counts + np.rint(rng.normal(0, 40, m.counts.shape)), 0.0), 40.0)
        for m in marginals_of(both, cliques)
    ]
    core = select_core_marginals(noisy, domain)
    assert set(domain.attributes) - set(core.domain.attributes) == {"leaf", "wide", "one"}
    assert len(list_components([m.attributes for m in core.marginals], core.domain)) == 2
    made = [
        append_attributes(synthesize(core.marginals, core.domain, SWEEP, rows, threads=t), noisy, domain, 3).to_arrow()
        for t in (1, 2, 3)
    ]
    assert made[0].equals(made[1])
    assert made[0].equals(made[2])


def test_weights_by_hand() -> None:
    def target(attributes: tuple[int, ...], sigma: float) -> TargetMarginal:
        return TargetMarginal(attributes, (2,) * len(attributes), np.ones(2 ** len(attributes)), sigma)

    targets = [target((0,), 9.0), target((0, 1), 10.0), target((1, 2), 20.0), target((0, 2), 40.0), target((0, 3), 0.0)]
    assert weigh_marginals(targets) == [16, 8, 4, 2, 4]  # the median sigma of the pairs with noise is 20
    assert weigh_marginals([target((0, 1), 1e-9), target((1, 2), 1.0), target((2, 3), 2.0)]) == [64, 4, 2]
    assert weigh_marginals([target((0, 1), 1.0), target((1, 2), 1.0), target((2, 3), 1e9)]) == [4, 4, 1]
    assert weigh_marginals([target((0,), 0.0), target((0, 1), 0.0)]) == [16, 4]
    assert weigh_marginals([target((0, 1), 5e-324), target((1, 2), 1.0)]) == [64, 2]


def test_less_noisy_marginals_win_where_two_disagree() -> None:
    """Two measurements of one pair: the rows follow the one with a hundredth of the noise."""
    domain = Domain.of({"a": 2, "b": 2, "c": 2})
    good, bad = np.array([[400.0, 100], [100, 400]]), np.array([[100.0, 400], [400, 100]])
    ones = [Marginal((x,), np.array([500.0, 500])) for x in "abc"]
    for first, second, expected in ((1.0, 100.0, good), (100.0, 1.0, bad)):
        larger = [Marginal(("a", "b"), good, first), Marginal(("a", "b"), bad, second)]
        made = synthesize([*ones, *larger], domain, SWEEP, 1_000)
        assert np.abs(count(made, ("a", "b")) - expected).max() < 60


def test_progress_ends_at_the_end() -> None:
    seen: list[tuple[int, int]] = []
    true = true_table(2_000)
    synthesize(
        marginals_of(true, CLIQUES), DOMAIN, Synthesis(method="sweep", sweeps=30), 2_000,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert {total for _, total in seen} == {30}
    assert seen[-1] == (30, 30)
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)
    assert len(seen) < 30  # it ends when sweeps no longer help
