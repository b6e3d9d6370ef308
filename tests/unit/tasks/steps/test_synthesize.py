"""Synthesis by both methods, and GUM: the paper's example, exactness of every part, what must not change the rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels import gum_update as gum
from privsyn.tasks.kernels import small_kernels, streams
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.kernels.gum_update import TargetMarginal, Updater
from privsyn.tasks.steps.synthesize import compute_output_rows, list_components, synthesize
from tests.support.code_tables import count_marginals, draw_related_table

GUM = partial(Synthesis, method="gum")
DOMAIN = Domain.of({"a": 3, "b": 4, "one": 1, "c": 2, "wide": 300, "d": 6})
CLIQUES: list[Clique] = [("a", "b"), ("b", "c"), ("a", "one", "c"), ("wide", "d")]


@pytest.fixture(params=["gum", "sweep"])
def method(request: pytest.FixtureRequest) -> str:
    """Both ways of making rows."""
    return request.param


def error(made: CodeTable, true: CodeTable, clique: Clique) -> float:
    """L1 distance of two marginals as distributions, 0 .. 2."""
    return float(np.abs(count(made, clique) / made.rows - count(true, clique) / true.rows).sum())


def plan(target: list[float], current: list[int], alpha: float, offsets: Sequence[float] = (0.5, 0.5)) -> tuple:
    wanted, now = np.array(target, float), np.array(current, np.int64)
    grow, shrink = np.empty_like(now), np.empty_like(now)
    moved = gum.plan_moves(wanted, now, alpha, np.array(offsets), grow, shrink)
    return moved, grow.tolist(), shrink.tolist()


def test_figure_3_alpha_2_gives_beta_one_half_and_two_rows_move() -> None:
    target, current = np.array([0.0, 0.0, 1.0, 4.0]), np.array([0, 0, 4, 1])
    assert plan(target.tolist(), current.tolist(), alpha=2.0) == (2, [0, 0, 0, 2], [0, 0, 2, 0])
    assert gum.solve_beta(target, current, 2) == 0.5


@pytest.mark.parametrize("duplicate_share", [0.0, 0.5, 1.0])
def test_figure_3_rows(duplicate_share: float) -> None:
    income, gender, age = (np.array(c, np.uint8) for c in ([1] * 5, [0, 0, 0, 0, 1], [0, 1, 1, 0, 2]))
    target = TargetMarginal((0, 1), (2, 2), np.array([0.0, 0.0, 1.0, 4.0]))
    with Updater([income, gender, age], 1, 1) as updater:
        assert updater.visit(target, 2.0, duplicate_share, 0) == 6.0
    assert income.tolist() == [1] * 5
    assert np.bincount(gender).tolist() == [2, 3]
    copied = np.count_nonzero(age[:4] == 2)
    assert copied == {0.0: 0, 0.5: 1, 1.0: 2}[duplicate_share]


@pytest.mark.parametrize("seed", range(12))
def test_any_plan_moves_equal_totals_and_never_more_than_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, rows = int(rng.integers(2, 40)), int(rng.integers(1, 500))
    current = np.bincount(rng.integers(0, cells, rows) * rng.integers(0, 2, rows), minlength=cells)
    target = rng.dirichlet(np.full(cells, 0.3)) * rows
    alpha = float(rng.choice([0.1, 1.0, 3.0]))
    moved, grow, shrink = plan(target.tolist(), current.tolist(), alpha, rng.random(2))
    assert sum(grow) == sum(shrink) == moved
    for nt, ns, up, down in zip(target, current, grow, shrink, strict=True):
        assert 0 <= down <= max(0, math.ceil(ns - nt))
        assert 0 <= up <= max(0, math.ceil(min(nt - ns, alpha * (ns or nt))))
        assert abs(nt - ns) >= 1 or up == down == 0


def test_water_filling_caps_the_nearly_right_cells() -> None:
    target, current = np.array([90.0, 0.0, 110.0]), np.array([100, 100, 0])
    beta = gum.solve_beta(target, current, 60)
    assert beta == pytest.approx(0.5)
    assert min(10, beta * 100) + min(100, beta * 100) == pytest.approx(60)


def test_rows_of_a_cell_are_chosen_uniformly() -> None:
    rows, cells, visits = 60, 2, 4_000
    keys = (np.arange(rows) % 3 == 0).astype(np.uint32)
    edges, ends = np.array([0, rows]), np.array([0, 12])
    losses, by_block = np.array([[10, 2]]), np.bincount(keys)[None, :]
    hits = np.zeros(rows)
    pairs = 0
    for visit in range(visits):
        chosen = np.empty(12, np.uint32)
        starts = np.array([streams.derive_stream(5, visit)])
        gum.choose_rows(keys, edges, ends, by_block, losses, starts, 0, 1, chosen)
        assert np.bincount(keys[chosen], minlength=cells).tolist() == [10, 2]
        assert (np.diff(chosen.astype(int)) > 0).all()
        hits[chosen] += 1
        pairs += (1 in chosen) and (2 in chosen)
    for cell, share in ((0, 10 / 40), (1, 2 / 20)):
        z = (hits[keys == cell] - visits * share) / math.sqrt(visits * share * (1 - share))
        assert np.abs(z).max() < 4.5
        assert 0.5 < z.std() < 1.5
    together = 10 / 40 * 9 / 39
    assert abs(pairs - visits * together) < 4.5 * math.sqrt(visits * together)


@pytest.mark.parametrize("duplicate_share", [0.0, 0.3])
def test_true_marginals_in_almost_no_error_out(duplicate_share: float) -> None:
    true = draw_related_table(DOMAIN, 20_000)
    made = synthesize(count_marginals(true, CLIQUES), DOMAIN, GUM(duplicate_share=duplicate_share), true.rows)
    assert made.rows == true.rows
    for clique in CLIQUES:
        assert error(made, true, clique) < 0.01
    for attribute in DOMAIN.attributes:
        assert error(made, true, (attribute,)) < 0.005


@pytest.mark.parametrize("duplicate_share", [0.0, 0.4])
def test_the_rows_do_not_depend_on_the_number_of_threads(duplicate_share: float) -> None:
    true = draw_related_table(DOMAIN, 340_000)
    settings = GUM(iterations=2, duplicate_share=duplicate_share, seed=11)
    one, two, five = (
        synthesize(count_marginals(true, CLIQUES), DOMAIN, settings, true.rows, threads=t).to_arrow() for t in (1, 2, 5)
    )
    assert one.equals(two)
    assert one.equals(five)


def test_the_seed_decides_the_rows(method: str) -> None:
    true = draw_related_table(DOMAIN, 500)
    once, again, other = (
        synthesize(count_marginals(true, CLIQUES), DOMAIN, GUM(method=method, seed=s), 500).to_arrow()
        for s in (1, 1, 2)
    )
    assert once.equals(again)
    assert not once.equals(other)


def test_separate_and_join(method: str) -> None:
    assert list_components([("b", "d"), ("a", "c", "d"), ("wide",)], DOMAIN) == [
        ("a", "b", "c", "d"),
        ("one",),
        ("wide",),
    ]
    true = draw_related_table(DOMAIN, 20_000)
    made = synthesize(count_marginals(true, CLIQUES), DOMAIN, GUM(method=method), true.rows)
    for left, right in itertools.product(("a", "b", "c"), ("d",)):
        independent = np.outer(count(true, (left,)), count(true, (right,))) / true.rows
        assert np.abs(count(made, (left, right)) - independent).max() < 5 * math.sqrt(independent.max())


def test_rows_of_every_component_but_the_first_are_put_in_a_new_order(method: str) -> None:
    """Sweeps and GUM may leave rows in an order that follows the targets; two components must not share it."""
    true, settings = draw_related_table(DOMAIN, 3_000), GUM(method=method)
    alone = synthesize(count_marginals(true, [("wide", "d")]), DOMAIN, settings, 3_000)
    joined = synthesize(count_marginals(true, [("a", "b"), ("wide", "d")]), DOMAIN, settings, 3_000)
    np.testing.assert_array_equal(count(joined, ("wide", "d")), count(alone, ("wide", "d")))
    moved = joined.column("wide") != alone.column("wide")
    assert moved.mean() > 0.5


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_few_rows(rows: int, method: str) -> None:
    made = synthesize(count_marginals(draw_related_table(DOMAIN, 20_000), CLIQUES), DOMAIN, GUM(method=method), rows)
    assert made.rows == rows
    assert made.domain == DOMAIN


def test_cells_that_start_empty_are_filled(method: str) -> None:
    domain = Domain.of({"a": 1_000, "b": 70})
    counts = np.zeros((1_000, 70))
    counts[np.arange(1_000), np.arange(1_000) % 70] = 3
    marginals = [Marginal(("a",), counts.sum(1)), Marginal(("b",), counts.sum(0)), Marginal(("a", "b"), counts)]
    made = synthesize(marginals, domain, GUM(method=method, duplicate_share=0.5), 3_000)
    assert np.abs(count(made, ("a", "b")) - counts).sum() < 60


@pytest.mark.slow
def test_uint32_domains(method: str) -> None:
    domain = Domain.of({"a": 70_000, "b": 2})
    counts = np.zeros((70_000, 2))
    counts[[5, 69_999], [0, 1]] = 400
    marginals = [Marginal(("a",), counts.sum(1)), Marginal(("b",), counts.sum(0)), Marginal(("a", "b"), counts)]
    made = synthesize(marginals, domain, GUM(method=method), 800)
    assert np.abs(count(made, ("a", "b")) - counts).sum() <= 4


def test_progress_counts_up_to_the_end_and_an_early_end_jumps_there() -> None:
    seen: list[tuple[int, int]] = []
    true = draw_related_table(DOMAIN, 2_000)
    synthesize(
        count_marginals(true, CLIQUES),
        DOMAIN,
        GUM(iterations=50),
        2_000,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert {total for _, total in seen} == {100}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (100, 100)
    assert len(seen) < 100


def test_output_rows_come_from_the_noisy_total_or_the_setting() -> None:
    assert compute_output_rows(3.7, GUM()) == 4
    assert compute_output_rows(-3.7, GUM()) == 0
    assert compute_output_rows(3.7, GUM(rows=9)) == 9


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.array([[-1.0, 1], [1, 1]]), "a, b: counts must be finite and not negative"),
        (np.array([[np.nan, 1], [1, 1]]), "a, b: counts must be finite and not negative"),
        (np.zeros((2, 3)), "a, b: counts of shape"),
    ],
)
def test_marginals_that_are_not_counts_are_refused(counts: np.ndarray, message: str) -> None:
    domain = Domain.of({"a": 2, "b": 2})
    ones = [Marginal((a,), np.ones(2)) for a in "ab"]
    with pytest.raises(ValueError, match=message):
        synthesize([*ones, Marginal(("a", "b"), counts)], domain, GUM(), 5)


def test_missing_one_ways_and_impossible_rows_are_refused() -> None:
    domain = Domain.of({"a": 2, "b": 2})
    with pytest.raises(ValueError, match="the one-way marginal of b is missing"):
        synthesize([Marginal(("a",), np.ones(2))], domain, GUM(), 5)
    with pytest.raises(ValueError, match="rows must be"):
        synthesize([Marginal((a,), np.ones(2)) for a in "ab"], domain, GUM(), -1)


def test_systematic_rounding_is_exact_and_leaves_empty_cells_empty() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((200, 9)) * (rng.random((200, 9)) < 0.6)
    totals = rng.integers(0, 50, 200)
    quotas = streams.draw_systematically(weights, totals, rng.random(200))
    np.testing.assert_array_equal(quotas.sum(axis=1), totals)
    seen = weights.sum(axis=1) > 0
    assert (quotas[seen][weights[seen] == 0] == 0).all()
    share = weights[seen] / weights[seen].sum(axis=1, keepdims=True) * totals[seen][:, None]
    assert np.abs(quotas[seen] - share).max() < 1 + 1e-9


def test_streams_in_python_numpy_and_numba_agree() -> None:
    start = streams.derive_stream(3, 1, 4)
    assert streams.draw_uniforms(start, 5).tolist() == [streams.draw_uniform(start, i) for i in range(5)]
    assert streams.derive_stream(3, 1, 4) != streams.derive_stream(3, 4, 1) != streams.derive_stream(4, 1, 3)
    draws = streams.draw_uniforms(start, 20_000)
    assert np.abs(np.histogram(draws, 20, (0, 1))[0] - 1_000).max() < 150


def test_shuffle_is_uniform_over_orders() -> None:
    orders: dict[tuple[int, ...], int] = {}
    for i in range(6_000):
        values = np.arange(3, dtype=np.uint8)
        small_kernels.shuffle(values, streams.derive_stream(0, i))
        orders[tuple(values.tolist())] = orders.get(tuple(values.tolist()), 0) + 1
    assert len(orders) == 6
    assert max(abs(n - 1_000) for n in orders.values()) < 150


def test_marginals_without_counts_are_uniform(method: str) -> None:
    domain = Domain.of({"a": 2, "b": 5})
    zeros = [Marginal(c, np.zeros(domain.shape(c))) for c in [("a",), ("b",), ("a", "b")]]
    made = synthesize(zeros, domain, GUM(method=method), 1_000)
    np.testing.assert_allclose(count(made, ("a", "b")), 100, atol=2)
