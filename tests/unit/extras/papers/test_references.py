"""Reference methods against brute force on tiny tables: their answers, their sensitivities, their prices."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import sum_rho
from privsyn.evaluation.comparison.compare_methods import METHODS, run_method
from privsyn.evaluation.comparison.method import Choices, DomainTooLargeError, MethodInput
from privsyn.extras.papers import dual_query, exponential_network, full_domain
from privsyn.extras.papers.full_domain import LAPLACE_CELLS, MWEM_CELLS, find_cells, project, split_rho, spread_for
from privsyn.extras.papers.min_cost_flow import change_rows, find_fewest_changes, follow
from privsyn.extras.papers.public_views import list_covering_views
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.privacy.noise import NoNoise, SeededNoise
from tests.unit.evaluation.comparison.test_methods import DELTA, rows, trial

PRIVATE = ["privbayes-exponential", "mwem", "dual-query", "laplace-table"]
TINY = Domain(("x", "y", "z"), (2, 3, 2))


def tiny(n: int = 500, seed: int = 0) -> CodeTable:
    """y follows x, z is on its own."""
    rng = np.random.default_rng(seed)
    x, z = rng.integers(0, 2, n), rng.integers(0, 2, n)
    y = np.where(rng.random(n) < 0.8, x, rng.integers(0, 3, n))
    return CodeTable(TINY, tuple(c.astype(np.uint8) for c in (x, y, z)))


def on(table: CodeTable, **changes: Any) -> MethodInput:
    sizes = zip(table.domain.attributes, table.domain.sizes, strict=True)
    binning = {a: AttributeBins(np.arange(n, dtype=np.int32)) for a, n in sizes}
    return trial(**{"rows": table, "binning": binning, **changes})


def with_row(table: CodeTable, codes: tuple[int, ...]) -> CodeTable:
    return CodeTable(table.domain, tuple(np.append(c, np.uint8(v)) for c, v in zip(table.columns, codes, strict=True)))


def worst_pair(one: CodeTable, other: CodeTable) -> float:
    pairs = combinations(one.domain.attributes, 2)
    return max(float(np.abs(count(one, p) / one.rows - count(other, p) / other.rows).sum()) for p in pairs)


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize(("epsilon", "records"), [(0.2, 1), (1.0, 1), (2.0, 3)])
def test_receipts_cost_no_more_than_the_promise_and_use_it(name: str, epsilon: float, records: int) -> None:
    made = METHODS[name].run(trial(epsilon=epsilon, records=records))
    assert made.epsilon(DELTA) <= epsilon
    assert made.epsilon(DELTA) > {"dual-query": 0.8}.get(name, 0.999) * epsilon  # DualQuery stops at a whole round
    assert {q.sensitivity for q in (*made.zcdp, *made.pure)} == {records}
    rho = sum_rho(made.zcdp) + sum(c.rho for c in made.choices)
    assert rho <= split_rho(trial(epsilon=epsilon))
    if made.choices:
        assert replace(made, choices=(*made.choices, *made.choices)).epsilon(DELTA) > epsilon  # the check can fail


def test_laplace_without_noise_reproduces_every_count() -> None:
    table = tiny()
    made = METHODS["laplace-table"].run(on(table, epsilon=1e6))
    assert np.array_equal(count(made.table, TINY.attributes), count(table, TINY.attributes))
    one_more = with_row(table, (1, 2, 0))
    assert np.abs(count(one_more, TINY.attributes) - count(table, TINY.attributes)).sum() == made.pure[0].sensitivity


def test_mwem_follows_every_pair_at_a_huge_epsilon() -> None:
    table = tiny()
    made = METHODS["mwem"].run(on(table, epsilon=1e6))
    assert made.table.rows == table.rows
    assert worst_pair(made.table, table) < 0.02
    assert set(made.marginals) <= set(combinations(TINY.attributes, 2))
    uniform = CodeTable(
        TINY, tuple(np.array(c, np.uint8) for c in zip(*product(range(2), range(3), range(2)), strict=True))
    )
    assert worst_pair(uniform, table) > 0.5  # where it starts


def test_the_network_without_noise_is_that_of_the_largest_scores() -> None:
    made = METHODS["privbayes-exponential"].run(trial(noise=NoNoise(), epsilon=5.0))
    assert made.marginals[0] == ("a", "b")  # a comes first; b is nearer to it than c and d
    assert {a for family in made.marginals for a in family} == set("abcd")
    assert worst_pair(made.table, trial().to_bins(rows())) < 0.01


def test_too_many_sets_of_parents_are_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponential_network, "MOST_CANDIDATES", 2)
    with pytest.raises(DomainTooLargeError, match="at most 2 a choice"):
        METHODS["privbayes-exponential"].run(trial())


def test_marginals_of_the_flat_table_by_hand() -> None:
    estimate = np.arange(12.0)
    for clique in (("x",), ("x", "z"), ("y", "z"), TINY.attributes):
        axes = tuple(i for i, a in enumerate(TINY.attributes) if a not in clique)
        expected = estimate.reshape(TINY.sizes).sum(axis=axes).ravel()
        assert np.array_equal(project(estimate, find_cells(clique, TINY), TINY.cells(clique)), expected)


class Listening(NoNoise):
    """Hears every table of log weights; its answers do not depend on the data: neighbours get the same ones."""

    def __init__(self, rows: int) -> None:
        self.heard: list[np.ndarray] = []
        self._less = rows

    def draw(self, sigma: float, cells: int) -> Any:
        return np.full(cells, 40 - self._less if cells == 1 else 0, np.int64)  # the noisy number of rows is 40

    def choose(self, log_weights: Any, times: int) -> Any:
        self.heard.append(np.array(log_weights))
        return np.random.default_rng(len(self.heard)).integers(0, log_weights.size, times)


@pytest.mark.parametrize("name", ["privbayes-exponential", "mwem", "dual-query"])
@pytest.mark.parametrize("records", [1, 2])
def test_one_person_moves_log_weights_apart_by_no_more_than_the_spread(
    name: str, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All neighbours of a table: one person with up to ``records`` rows more."""
    monkeypatch.setattr(full_domain, "INNER", 1)
    table = tiny(30, seed=3)

    def heard(rows: CodeTable) -> tuple[list[np.ndarray], list[float]]:
        noise = Listening(rows.rows)
        made = METHODS[name].run(on(rows, noise=noise, records=records, epsilon=20.0))
        priced = [float(c.spread) for c in made.choices for _ in range(1 if name == "dual-query" else c.times)]
        return (noise.heard[1:] if name == "dual-query" else noise.heard[:1]), priced  # later rounds have other answers

    before, spreads = heard(table)
    assert len(before) >= 1
    widest = np.zeros(len(before))
    for codes in product(range(2), range(3), range(2)):
        more = table
        for _ in range(records):
            more = with_row(more, codes)
        for i, (old, new) in enumerate(zip(before, heard(more)[0], strict=True)):
            widest[i] = max(widest[i], np.ptp(new - old))
    limits = np.array(spreads[: len(before)])
    assert (widest <= limits * (1 + 1e-9)).all()
    if name == "dual-query":
        assert widest == pytest.approx(limits)  # attained: a query and its negation


def test_a_choice_costs_an_eighth_of_its_spread_squared() -> None:
    """Renyi divergences of all orders of some pairs of log weights, and the price by hand."""
    assert Choices(1_000, Fraction(1, 10)).rho == Fraction(5, 4)
    assert float(Choices(1, spread_for(Fraction(1, 7))).rho) == pytest.approx(1 / 7)
    assert Choices(1, spread_for(Fraction(1, 7))).rho <= Fraction(1, 7)
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(300):
        weights = rng.normal(0, rng.uniform(0.1, 3), 4)
        spread = rng.uniform(0.1, 2)
        other = weights + spread * rng.permutation([0.0, 1.0, *rng.random(2)])
        p, q = (np.exp(w) / np.exp(w).sum() for w in (weights, other))
        for alpha in (1.01, 1.5, 2.0, 8.0, 50.0):
            divergence = math.log((p**alpha * q ** (1 - alpha)).sum()) / (alpha - 1)
            worst = max(worst, divergence / (alpha * spread**2 / 8))
    assert 0.5 < worst <= 1.0


def test_choices_are_drawn_as_their_weights_say() -> None:
    drawn = SeededNoise(1).choose(np.log([1.0, 2.0, 5.0]) + 900.0, 40_000)
    assert np.bincount(drawn) / 40_000 == pytest.approx([0.125, 0.25, 0.625], abs=0.01)
    assert NoNoise().choose(np.array([0.0, 2.0, 2.0]), 3).tolist() == [1, 1, 1]


def test_dual_query_makes_as_many_rows_as_the_budget_pays_for() -> None:
    """1,000 draws at spread 2 t / N cost 1,000 (2 t / N)^2 / 8 after t rounds; the first round is free."""
    rho = Fraction(1, 100)
    spreads = dual_query.compute_spreads(rho, 1, 10_000)
    prices = [Fraction(1_000) * Fraction(2 * t, 10_000) ** 2 / 8 for t in range(len(spreads) + 1)]
    assert [Choices(1_000, s).rho for s in spreads] == prices[:-1]
    assert sum(prices[:-1]) <= rho < sum(prices)
    assert len(dual_query.compute_spreads(Fraction(1, 10**9), 1, 10)) == 1
    assert len(dual_query.compute_spreads(rho, 2, 10_000)) < len(spreads)


def test_dual_query_follows_the_pairs_at_a_huge_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dual_query, "MOST_ROUNDS", 300)
    table = tiny()
    made = METHODS["dual-query"].run(on(table, epsilon=1e6))
    assert made.table.rows == 300
    assert worst_pair(made.table, table) < 0.1


def test_the_best_row_is_that_of_brute_force() -> None:
    domain, rng = Domain(("a", "b", "c", "d"), (3, 4, 2, 3)), np.random.default_rng(0)
    workload = list(combinations(domain.attributes, 2))
    for _ in range(20):
        tables = [rng.integers(-9, 10, domain.shape(p)).astype(float) for p in workload]

        def total(row: Any, tables: list[np.ndarray] = tables) -> float:
            return sum(
                t[row[domain.index(p[0])], row[domain.index(p[1])]] for p, t in zip(workload, tables, strict=True)
            )

        best = max(total(row) for row in product(*(range(n) for n in domain.sizes)))
        assert total(dual_query.find_best_row(tables, domain, workload, rng)) == best


@pytest.mark.parametrize(("name", "limit"), [("mwem", MWEM_CELLS), ("laplace-table", LAPLACE_CELLS)])
def test_a_domain_that_does_not_fit_is_told_in_a_sentence(name: str, limit: int) -> None:
    wide = Domain(tuple("abcdefgh"), (10,) * 8)
    table = CodeTable(wide, tuple(np.zeros(5, np.uint8) for _ in range(8)))
    run = run_method(METHODS[name], on(table), lambda coded: ())
    assert run.outcome == "did not fit"
    assert run.note == f"{name} holds the full contingency table: at most {limit:,} cells, not 100,000,000"
    twice = Domain(wide.attributes, (256,) * 8)
    huge = run_method(METHODS[name], on(CodeTable(twice, table.columns)), lambda coded: ())
    assert huge.note.endswith("not about 10^19")


def test_sampling_copies_real_rows_and_promises_nothing() -> None:
    this = on(tiny(50))
    run = run_method(METHODS["sampling"], this, lambda coded: ())
    assert (run.outcome, run.rows, run.receipts_epsilon) == ("done", 50, None)
    made, real = (Counter(zip(*t.columns, strict=True)) for t in (METHODS["sampling"].run(this).table, this.rows))
    assert set(made) <= set(real)
    assert made != real


@pytest.mark.parametrize("seed", range(2))
def test_the_flow_changes_as_few_values_as_an_assignment_of_rows(seed: int) -> None:
    """Row by row, the cheapest assignment of rows to wanted rows; the cost of a pair is the values that differ."""
    rng, sizes = np.random.default_rng(seed), (2, 3, 2)
    current, target = (rng.multinomial(15, rng.dirichlet(np.ones(12))).reshape(sizes) for _ in range(2))
    senders, receivers, amounts = find_fewest_changes(current, target)
    change = np.bincount(receivers, amounts, 12) - np.bincount(senders, amounts, 12)
    assert np.array_equal(current.ravel() + change, target.ravel())
    cells = np.array(list(np.ndindex(sizes)))
    cost = int((amounts * (cells[senders] != cells[receivers]).sum(axis=1)).sum())
    here, there = (cells[np.repeat(np.arange(12), t.ravel())] for t in (current, target))
    differ = (here[:, None, :] != there[None, :, :]).sum(axis=2)
    assert cost == differ[linear_sum_assignment(differ)].sum()


def test_rows_that_need_not_change_stay_as_they_are() -> None:
    """The report's Figure 3: a tenth of the rows moves from adult and a tenth from elderly to teenager."""
    age, other = np.repeat(np.arange(3, dtype=np.uint8), [2, 4, 4]), np.arange(10, dtype=np.uint8)
    columns = [age.copy()]
    assert change_rows(columns, np.array([4, 3, 3]), np.random.default_rng(0)) == 2
    assert np.bincount(columns[0]).tolist() == [4, 3, 3]
    changed = np.flatnonzero(columns[0] != age)
    assert sorted(age[changed].tolist()) == [1, 2]
    assert other.tolist() == list(range(10))
    assert change_rows(columns, np.array([4, 3, 3]), np.random.default_rng(0)) == 0


def test_mcf_reaches_consistent_marginals() -> None:
    table = tiny(400)
    cliques = [("x",), ("y",), ("z",), ("x", "y"), ("y", "z")]
    wanted = [Marginal(c, count(table, c).astype(float), 0.0) for c in cliques]
    made = follow(wanted, TINY, 400, seed=1)
    for clique in cliques[3:]:
        assert np.abs(count(made, clique) - count(table, clique)).sum() <= 4  # within a percent of the rows
    apart = follow(wanted[:3], TINY, 400, seed=1)
    assert np.abs(count(apart, ("x", "y")) - count(table, ("x", "y"))).sum() > 100


def test_no_view_covers_a_pair_that_is_too_large() -> None:
    """a with b has 9,000 cells: never measured."""
    mixed = Domain.of({"a": 100, "b": 90, "c": 3, "d": 2})
    assert list_covering_views(mixed, 1_000) == [("a", "c", "d"), ("b", "c", "d")]


def test_random_views_are_as_many_and_change_with_the_seed() -> None:
    columns = {f"a{i}": np.zeros(2_000, np.uint8) for i in range(12)}
    table = CodeTable(Domain.of(dict.fromkeys(columns, 4)), tuple(columns.values()))
    one, two, cover = (
        METHODS[n].run(on(table, seed=s, epsilon=5.0)).marginals
        for n, s in (("random-views", 1), ("random-views", 2), ("priview", 1))
    )
    assert one != two
    assert len(one) <= len(cover)
