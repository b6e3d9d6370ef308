"""The settled start: columns that follow from others come out coherent, and stuck sweeps are freed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps.synthesize import synthesize
from privsyn.tasks.synthesis import sweep
from privsyn.tasks.synthesis.sweep import start_from_tree, start_settled

DOMAIN = Domain.of({"place": 20, "region": 4, "hour": 12, "shift": 3, "code": 30})
PAIRS: list[Clique] = list(combinations(DOMAIN.attributes, 2))


def tied_table(rows: int = 30_000) -> CodeTable:
    """Region follows from place, shift from hour, and a code nearly from place and shift together."""
    rng = np.random.default_rng(1)
    place = (rng.random(rows) ** 1.5 * 20).astype(np.uint8)
    hour = ((place // 3 + rng.integers(0, 7, rows)) % 12).astype(np.uint8)
    region, shift = place // 5, hour // 4
    code = ((place * 7 + shift * 5 + rng.integers(0, 2, rows)) % 30).astype(np.uint8)
    return CodeTable(DOMAIN, (place, region, hour, shift, code))


def marginals_of(table: CodeTable, sigma: float = 0.0) -> list[Marginal]:
    cliques = [*((a,) for a in DOMAIN.attributes), *PAIRS]
    return [Marginal(c, count(table, c).astype(float), sigma) for c in cliques]


def wrong(columns: list[np.ndarray], true: CodeTable) -> float:
    made = CodeTable(DOMAIN, tuple(columns))
    return float(np.mean([np.abs(count(made, c) - count(true, c)).sum() for c in PAIRS])) / true.rows


def start(true: CodeTable, threads: int = 1, sweeps: int = 8, zeros: KnownZeros | None = None) -> list[np.ndarray]:
    settings = Synthesis(sweeps=sweeps, seed=3)
    return start_settled(marginals_of(true), DOMAIN, settings, true.rows, threads, zeros or KnownZeros())


def test_it_is_much_closer_than_the_tree_alone() -> None:
    true = tied_table()
    alone = start_from_tree(marginals_of(true), DOMAIN, true.rows, 3, 4)
    assert wrong(start(true), true) < 0.5 * wrong(alone, true)


def test_without_a_sweep_it_is_the_tree() -> None:
    true = tied_table(3_000)
    for made, tree in zip(
        start(true, sweeps=0), start_from_tree(marginals_of(true), DOMAIN, true.rows, 3, 4), strict=True
    ):
        np.testing.assert_array_equal(made, tree)


def test_the_rows_do_not_depend_on_the_number_of_threads() -> None:
    true = tied_table(70_000)
    for one, three in zip(start(true), start(true, threads=3), strict=True):
        np.testing.assert_array_equal(one, three)


def test_columns_that_follow_from_others_do() -> None:
    true = tied_table()
    made = synthesize(marginals_of(true), DOMAIN, Synthesis(seed=3), true.rows)
    for parent, child in (("place", "region"), ("hour", "shift")):
        assert count(made, (parent, child))[count(true, (parent, child)) == 0].sum() < 0.003 * true.rows
    assert wrong(list(made.columns), true) < 0.01


def test_rows_keep_to_rules_from_the_start() -> None:
    """What the marginals ask for and a rule forbids is given to no row that one move can save."""
    true = tied_table(5_000)
    forbidden = np.zeros((4, 3), bool)
    forbidden[0, 2] = forbidden[3, 0] = True
    region, shift = (start(true, zeros=KnownZeros(((("region", "shift"), forbidden),)))[i] for i in (1, 3))
    assert not forbidden[region, shift].any()


def test_heat_frees_stuck_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    true = tied_table()
    freed = synthesize(marginals_of(true), DOMAIN, Synthesis(seed=3), true.rows)
    monkeypatch.setattr(sweep, "STUCK_THRESHOLD", 2.0)
    stuck = synthesize(marginals_of(true), DOMAIN, Synthesis(seed=3), true.rows)
    assert wrong(list(freed.columns), true) < 0.8 * wrong(list(stuck.columns), true)


def test_what_noise_explains_heats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows wanted, but known with much noise: no sweep is at heat."""
    true = tied_table()
    monkeypatch.setattr(sweep, "TEMPERATURES", ())
    none = synthesize(marginals_of(true, 500.0), DOMAIN, Synthesis(seed=3, oversample=1), true.rows)
    monkeypatch.undo()
    made = synthesize(marginals_of(true, 500.0), DOMAIN, Synthesis(seed=3, oversample=1), true.rows)
    assert made.to_arrow().equals(none.to_arrow())


@pytest.mark.parametrize("gains", [True, False])
def test_heat_that_is_tried_is_used_where_a_sample_gains(gains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that could follow all marginals are freed; marginals that contradict each other leave nothing to gain."""
    true = tied_table()
    marginals = marginals_of(true) if gains else [_disturb(m, true.rows) for m in marginals_of(true)]

    def make(try_heat: bool) -> CodeTable:
        return synthesize(marginals, DOMAIN, Synthesis(seed=3, oversample=1, try_heat=try_heat), true.rows)

    tried, heated = make(try_heat=True), make(try_heat=False)
    monkeypatch.setattr(sweep, "STUCK_THRESHOLD", 2.0)
    none = make(try_heat=True)
    assert not heated.to_arrow().equals(none.to_arrow())
    assert tried.to_arrow().equals((heated if gains else none).to_arrow())


def _disturb(marginal: Marginal, rows: int) -> Marginal:
    """Return a pair with an error of 60 rows in each cell that is said to be 20, and a one-way as it is."""
    if len(marginal.attributes) == 1:
        return marginal
    error = np.random.default_rng(marginal.counts.size).normal(0, 60, marginal.counts.shape)
    counts = np.maximum(marginal.counts + error, 0)
    return Marginal(marginal.attributes, counts * rows / counts.sum(), 20.0)
