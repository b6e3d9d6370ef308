"""Every method: a valid table on the public bins, and no more noise-free knowledge than its budget buys."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import (
    LaplaceQuery,
    MethodInput,
    MethodResult,
    compute_laplace_scale,
    spread_evenly,
)
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, convert_rho_to_epsilon
from privsyn.tasks.privacy.noise import NoNoise, SeededNoise
from tests.support.examples import keep_first

NAMES = [
    "default",
    "privsyn-paper",
    "independent",
    "equal-gaussian",
    "equal-laplace",
    "non-private-selection",
    "all-pairs",
    "mst",
    "privbayes",
    "aim",
    "non-private-aim",
]
OURS = ("default", "independent", "mst", "privbayes", "aim", "non-private-aim")
"""The methods that take the trial's accountant."""
DELTA = 1e-9
BINNING = {
    "a": AttributeBins(np.array([0, 0, 1, 1, 2, 2], np.int32)),  # six fine codes in three bins
    "b": AttributeBins(np.arange(4, dtype=np.int32)),
    "c": AttributeBins(np.arange(2, dtype=np.int32)),
    "d": AttributeBins(np.arange(3, dtype=np.int32)),
}
NAMES += [
    "privbayes-selection",
    "non-private-privbayes-selection",
    "non-private-selection-mcf",
    "non-private-selection-sweeps",
    "manual-list",
]
NAMES += ["mcf", "priview", "random-views"]
WITHOUT_STEPS = ["privbayes-exponential", "mwem", "dual-query", "laplace-table", "sampling"]
"""Methods that are no steps of a release: test_references.py has what holds for each."""


def rows(n: int = 4_000, seed: int = 1) -> CodeTable:
    """b follows a, c follows b, d is on its own."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 6, n)
    b = np.where(rng.random(n) < 0.9, a // 2, rng.integers(0, 4, n))
    c = np.where(rng.random(n) < 0.9, b % 2, rng.integers(0, 2, n))
    d = rng.integers(0, 3, n)
    return CodeTable(Domain(("a", "b", "c", "d"), (6, 4, 2, 3)), tuple(x.astype(np.uint8) for x in (a, b, c, d)))


def trial(**changes: Any) -> MethodInput:
    made = MethodInput(rows(), BINNING, 1.0, DELTA, 1, SeededNoise(1), seed=1, threads=1)
    return replace(made, **changes)


def l1(trial: MethodInput, made: MethodResult, clique: tuple[str, ...]) -> float:
    real = trial.to_bins(trial.rows)
    return float(np.abs(count(real, clique) / real.rows - count(made.table, clique) / made.table.rows).sum())


@pytest.mark.parametrize("name", NAMES)
def test_every_method_makes_a_valid_table_of_about_the_right_size(name: str) -> None:
    this = trial()
    made = METHODS[name].run(this)
    assert made.table.domain == Domain(("a", "b", "c", "d"), (3, 4, 2, 3))  # the constructor checks the codes
    assert abs(made.table.rows - this.rows.rows) < 400  # 4 one-ways at epsilon 1: the total's sd is about 50
    assert made.table.rows != this.rows.rows  # the exact number is private
    assert made.fine is not None
    assert made.fine.domain == this.rows.domain
    assert all(np.array_equal(x, y) for x, y in zip(made.table.columns, this.to_bins(made.fine).columns, strict=True))
    assert l1(this, made, ("b",)) < 0.1


@pytest.mark.parametrize("name", NAMES + WITHOUT_STEPS)
def test_the_same_task_gives_the_same_rows_on_any_number_of_threads(name: str) -> None:
    first, second = (METHODS[name].run(trial(noise=SeededNoise(5), threads=t)) for t in (1, 2))
    assert first.table.domain == Domain(("a", "b", "c", "d"), (3, 4, 2, 3))
    assert all(np.array_equal(x, y) for x, y in zip(first.table.columns, second.table.columns, strict=True))
    if name != "sampling":  # which takes no noise
        other = METHODS[name].run(trial(noise=SeededNoise(6)))
        assert any(not np.array_equal(x, y) for x, y in zip(first.table.columns, other.table.columns, strict=True))


@pytest.mark.parametrize("name", NAMES + WITHOUT_STEPS)
@pytest.mark.parametrize("rows_in", keep_first([0, 1]))
def test_tables_of_no_and_of_one_row_are_no_error(name: str, rows_in: int) -> None:
    empty = CodeTable(rows().domain, tuple(np.zeros(rows_in, np.uint8) for _ in range(4)))
    made = METHODS[name].run(trial(rows=empty))
    assert made.table.domain.attributes == ("a", "b", "c", "d")


@pytest.mark.parametrize("name", NAMES + WITHOUT_STEPS)
def test_one_column_is_no_error(name: str) -> None:
    one = CodeTable(Domain(("a",), (6,)), (rows().column("a"),))
    made = METHODS[name].run(trial(rows=one))
    assert made.table.domain == Domain(("a",), (3,))
    assert made.epsilon(DELTA) <= 1.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("epsilon", "records"), [(2.0, 3), *(pytest.param(epsilon, 1, marks=pytest.mark.slow) for epsilon in (0.2, 1.0))]
)
def test_receipts_cost_no_more_than_the_promise(name: str, epsilon: float, records: int) -> None:
    made = METHODS[name].run(trial(epsilon=epsilon, records=records))
    accountant = "tight" if name in OURS else "paper"
    assert sum_rho(made.zcdp) <= convert_epsilon_to_rho(epsilon, DELTA, accountant)  # exact fractions
    assert made.epsilon(DELTA) <= epsilon
    assert {q.sensitivity for q in (*made.zcdp, *made.pure)} <= {records, 4 * records}
    if name == "equal-laplace":
        gaussian = Fraction(convert_rho_to_epsilon(sum_rho(made.zcdp), DELTA, "paper"))
        assert gaussian + sum(q.epsilon for q in made.pure) <= Fraction(epsilon)
        assert len({q.epsilon for q in made.pure}) == 1
    else:
        assert made.pure == ()


@pytest.mark.parametrize(
    ("name", "share"),  # of rho(epsilon, delta) that is used
    [
        ("default", 1.0),
        ("privsyn-paper", 1.0),
        ("independent", 1.0),
        ("mst", 1.0),
        ("privbayes", 1.0),
        ("aim", 1.0),
        ("non-private-aim", 0.93),  # a tenth of the rounds' 0.7 is not spent
        ("equal-gaussian", 1.0),
        ("all-pairs", 1.0),
        ("mcf", 1.0),
        ("priview", 1.0),
        ("random-views", 1.0),
        ("manual-list", 1.0),
        ("privbayes-selection", 1.0),
        ("non-private-selection", 0.9),  # the scores' tenth is not spent
        ("non-private-privbayes-selection", 0.9),
        ("non-private-selection-mcf", 0.9),
        ("non-private-selection-sweeps", 0.9),
        ("equal-laplace", 0.2),  # the first two stages; the third is Laplace
    ],
)
def test_no_budget_lies_idle_but_what_is_said(name: str, share: float) -> None:
    made = METHODS[name].run(trial())
    accountant = "tight" if name in OURS else "paper"
    used = sum_rho(made.zcdp) / convert_epsilon_to_rho(1.0, DELTA, accountant)
    assert float(used) == pytest.approx(share, rel=1e-9)
    if name == "equal-laplace":
        gaussian = convert_rho_to_epsilon(sum_rho(made.zcdp), DELTA, "paper")
        assert gaussian + float(sum(q.epsilon for q in made.pure)) == pytest.approx(1.0, rel=1e-9)


def test_a_method_that_spends_too_much_is_found() -> None:
    """The check above must be able to fail: twice epsilon, or one query more than paid for."""
    honest = METHODS["privsyn-paper"].run(trial(epsilon=2.0))
    assert honest.epsilon(DELTA) > 1.0
    fine = METHODS["default"].run(trial())
    assert fine.epsilon(DELTA) <= 1.0
    assert replace(fine, zcdp=(*fine.zcdp, fine.zcdp[0])).epsilon(DELTA) > 1.0
    assert replace(fine, pure=(LaplaceQuery(("a",), 6, 1, 1e6),)).epsilon(DELTA) > 1.0


@pytest.mark.slow
def test_the_noise_drawn_is_the_noise_of_the_receipts() -> None:
    """Every receipt but those of the exact scores has one draw, of its own scale and length."""

    class Spy(NoNoise):
        def __init__(self) -> None:
            self.drawn: list[tuple[str, float, int]] = []

        def draw(self, sigma: float, cells: int) -> Any:
            self.drawn.append(("gaussian", sigma, cells))
            return np.zeros(cells, np.int64)

        def draw_laplace(self, scale: float, cells: int) -> Any:
            self.drawn.append(("laplace", scale, cells))
            return np.zeros(cells, np.int64)

    for method in (METHODS[name] for name in NAMES + WITHOUT_STEPS):
        spy = Spy()
        made = method.run(trial(noise=spy))
        receipts = [("gaussian", q.sigma, q.cells) for q in made.zcdp]
        receipts += [("laplace", q.scale, q.cells) for q in made.pure]
        assert spy.drawn == receipts, method.name


def test_noise_addition_variants_measure_the_same_marginals() -> None:
    """x, y and z follow each other; their triple has 3 * 60 * 60 > gamma = 5,000 cells, so pairs are measured."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 3, 20_000)
    y, z = (x * 20 + rng.integers(0, 20, 20_000) for _ in range(2))
    chain = CodeTable(Domain(("x", "y", "z"), (3, 60, 60)), tuple(c.astype(np.uint8) for c in (x, y, z)))
    binning = {a: AttributeBins(np.arange(n, dtype=np.int32)) for a, n in (("x", 3), ("y", 60), ("z", 60))}
    names = ("privsyn-paper", "equal-gaussian", "equal-laplace")
    weighted, equal, laplace = (
        METHODS[n].run(trial(rows=chain, binning=binning, epsilon=50.0, noise=SeededNoise(1))) for n in names
    )
    assert weighted.marginals == equal.marginals == laplace.marginals
    measured = len(weighted.marginals)
    assert measured >= 2
    assert len({q.sigma for q in equal.zcdp[-measured:]}) == 1
    by_cells = sorted(weighted.zcdp[-measured:], key=lambda q: q.cells)
    assert by_cells[0].cells < by_cells[-1].cells
    assert by_cells[0].sigma > by_cells[-1].sigma  # equation (1): the larger marginal gets more of rho
    assert len(laplace.pure) == measured
    noise = [sum(q.cells * q.sigma for q in made.zcdp[-measured:]) for made in (weighted, equal)]
    assert noise[0] < 0.95 * noise[1]  # section 4.2: the weighted split minimizes the summed expected L1 noise


def test_selection_variants_measure_what_they_say() -> None:
    pairs = set(combinations("abcd", 2))
    every = METHODS["all-pairs"].run(trial())
    assert set(every.marginals) == pairs
    assert METHODS["independent"].run(trial()).marginals == ()
    exact = METHODS["non-private-selection"].run(trial(noise=NoNoise()))
    noisy = METHODS["privsyn-paper"].run(trial(noise=NoNoise()))
    assert exact.marginals == noisy.marginals  # without noise the private selection is the exact one
    assert not any(q.sensitivity == 4 for q in exact.zcdp)  # and no score was paid for


@pytest.mark.slow
def test_without_noise_the_chain_is_kept_by_all_that_look_at_pairs() -> None:
    exact = trial(noise=NoNoise(), epsilon=2.0)  # counts are shrunk by their stated noise: here that is little
    for name in NAMES:
        error = l1(exact, METHODS[name].run(exact), ("a", "b"))
        assert error > 0.5 if name in ("independent", "manual-list") else error < 0.01, name  # this list is empty


def test_the_laplace_scale_is_the_smallest_that_costs_no_more() -> None:
    assert compute_laplace_scale(Fraction(1, 4), 1) == 4.0
    for epsilon in (Fraction(1, 3), Fraction(7, 11), Fraction(1, 10**6)):
        query = LaplaceQuery(("a",), 6, 2, compute_laplace_scale(epsilon, 2))
        assert query.epsilon <= epsilon
        assert LaplaceQuery(("a",), 6, 2, float(np.nextafter(query.scale, 0))).epsilon > epsilon
    assert LaplaceQuery(("a",), 6, 1, 3.0).sigma == pytest.approx(4.2426, abs=1e-4)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        compute_laplace_scale(Fraction(0), 1)


def test_the_promise_of_receipts_by_hand() -> None:
    """One Gaussian count of sensitivity 1 at sigma 10: rho = 1/200; Laplace of scale 8 adds 1/8."""
    made = MethodResult(rows(), zcdp=(Query(("a",), 6, 1, 10.0),), pure=(LaplaceQuery(("b",), 4, 1, 8.0),))
    assert made.epsilon(DELTA) == pytest.approx(convert_rho_to_epsilon(Fraction(1, 200), DELTA) + 0.125)
    assert MethodResult(rows()).epsilon(DELTA) == 0.0


def test_bins_spread_evenly_over_their_fine_codes() -> None:
    bins = CodeTable(Domain(("a",), (3,)), (np.repeat(np.arange(3, dtype=np.uint8), 1_000),))
    fine = spread_evenly(bins, {"a": AttributeBins(np.array([1, 0, 0, 2, 0, 1], np.int32))}, seed=0)
    assert fine.domain == Domain(("a",), (6,))
    counts = count(fine, ("a",))
    assert counts[[1, 2, 4]].sum() == counts[[0, 5]].sum() == counts[3] == 1_000
    assert counts.min() > 250
    assert set(fine.column("a")[:1_000]) == {1, 2, 4}  # rows stay where they are
