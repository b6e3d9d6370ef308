"""Sweeps as a method: starts from a tree and settled, exact targets, weights, threads, and cells known as empty."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.kernels.gum_update import TargetMarginal
from privsyn.tasks.steps.synthesize import synthesize
from privsyn.tasks.synthesis import sweep
from privsyn.tasks.synthesis.sweep import (
    find_empty_cells,
    order_drawing,
    start_from_tree,
    start_settled,
    weigh_marginals,
)
from tests.support.code_tables import count_marginals, draw_related_table

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


def wrong_rows(made: CodeTable, true: CodeTable, clique: Clique) -> int:
    """Rows that stand in another cell of the marginal than they should."""
    return int(np.abs(count(made, clique) - count(true, clique)).sum()) // 2


def test_exact_marginals_in_almost_exact_marginals_out() -> None:
    true = draw_related_table(DOMAIN, 20_000)
    made = synthesize(count_marginals(true, CLIQUES), DOMAIN, SWEEP, true.rows)
    for clique in CLIQUES:
        assert wrong_rows(made, true, clique) < 0.002 * true.rows, clique
    for attribute in DOMAIN.attributes:
        assert wrong_rows(made, true, (attribute,)) < 0.0005 * true.rows


def test_the_rows_do_not_depend_on_the_number_of_threads() -> None:
    true = draw_related_table(DOMAIN, 150_000)
    settings = Synthesis(method="sweep", sweeps=4, seed=11)
    one, two, five = (
        synthesize(count_marginals(true, CLIQUES), DOMAIN, settings, true.rows, threads=t).to_arrow() for t in (1, 2, 5)
    )
    assert one.equals(two)
    assert one.equals(five)


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


TIED = Domain.of({"place": 20, "region": 4, "hour": 12, "shift": 3, "code": 30})
PAIRS: list[Clique] = list(combinations(TIED.attributes, 2))


def tied_table(rows: int = 30_000) -> CodeTable:
    """Region follows from place, shift from hour, and a code nearly from place and shift together."""
    rng = np.random.default_rng(1)
    place = (rng.random(rows) ** 1.5 * 20).astype(np.uint8)
    hour = ((place // 3 + rng.integers(0, 7, rows)) % 12).astype(np.uint8)
    region, shift = place // 5, hour // 4
    code = ((place * 7 + shift * 5 + rng.integers(0, 2, rows)) % 30).astype(np.uint8)
    return CodeTable(TIED, (place, region, hour, shift, code))


def measure_tied(table: CodeTable, sigma: float = 0.0) -> list[Marginal]:
    cliques = [*((a,) for a in TIED.attributes), *PAIRS]
    return [Marginal(c, count(table, c).astype(float), sigma) for c in cliques]


def wrong(columns: list[np.ndarray], true: CodeTable) -> float:
    made = CodeTable(TIED, tuple(columns))
    return float(np.mean([np.abs(count(made, c) - count(true, c)).sum() for c in PAIRS])) / true.rows


def start(true: CodeTable, threads: int = 1, sweeps: int = 8, zeros: KnownZeros | None = None) -> list[np.ndarray]:
    settings = Synthesis(sweeps=sweeps, seed=3)
    return start_settled(measure_tied(true), TIED, settings, true.rows, threads, zeros or KnownZeros())


def test_the_settled_start_does_not_depend_on_the_number_of_threads() -> None:
    true = tied_table(70_000)
    for one, three in zip(start(true), start(true, threads=3), strict=True):
        np.testing.assert_array_equal(one, three)


def test_rows_keep_to_rules_from_the_start() -> None:
    """What the marginals ask for and a rule forbids is given to no row that one move can save."""
    true = tied_table(5_000)
    forbidden = np.zeros((4, 3), bool)
    forbidden[0, 2] = forbidden[3, 0] = True
    region, shift = (start(true, zeros=KnownZeros(((("region", "shift"), forbidden),)))[i] for i in (1, 3))
    assert not forbidden[region, shift].any()


def test_heat_frees_stuck_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    true = tied_table()
    freed = synthesize(measure_tied(true), TIED, Synthesis(seed=3), true.rows)
    monkeypatch.setattr(sweep, "STUCK_THRESHOLD", 2.0)
    stuck = synthesize(measure_tied(true), TIED, Synthesis(seed=3), true.rows)
    assert wrong(list(freed.columns), true) < 0.8 * wrong(list(stuck.columns), true)


@pytest.mark.parametrize("gains", [True, False])
def test_heat_that_is_tried_is_used_where_a_sample_gains(gains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that could follow all marginals are freed; marginals that contradict each other leave nothing to gain."""
    true = tied_table()
    marginals = measure_tied(true) if gains else [_disturb(m, true.rows) for m in measure_tied(true)]

    def make(try_heat: bool) -> CodeTable:
        return synthesize(marginals, TIED, Synthesis(seed=3, oversample=1, try_heat=try_heat), true.rows)

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


def target_pair(wanted: list[list[float]], sigma: float) -> TargetMarginal:
    table = np.array(wanted)
    return TargetMarginal((0, 1), table.shape, table.ravel(), sigma)


def test_only_where_one_follows_from_the_other_much_is_expected_and_nothing_is_wanted() -> None:
    """Of 4,000 rows: the first value decides; the second splits, so its 0 is the columns'; the third is too small."""
    wanted = [[2_000.0, 0.0, 5.0], [0.0, 1_000.0, 900.0], [0.0, 0.0, 95.0]]
    np.testing.assert_array_equal(
        find_empty_cells([target_pair(wanted, 60.0)]).reshape(3, 3),
        [[False, True, True], [True, False, False], [False] * 3],
    )
    wanted[0][1] = 7.0
    assert not find_empty_cells([target_pair(wanted, 60.0)]).reshape(3, 3)[0, 1]


@pytest.mark.parametrize("kept", [True, False])
def test_noise_elsewhere_tears_apart_no_column_that_follows(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    domain = Domain.of({"place": 12, "region": 3, **{f"x{i}": 40 for i in range(4)}})
    place = rng.integers(0, 12, 12_000).astype(np.uint8)
    others = [((place * 3 + rng.integers(0, 9 + i, place.size)) % 40).astype(np.uint8) for i in range(4)]
    true = CodeTable(domain, (place, place // 4, *others))
    cliques = [("place", "region"), *((a, f"x{i}") for a in ("place", "region") for i in range(4))]
    noisy = [Marginal((a,), count(true, (a,)).astype(float)) for a in domain.attributes]
    noisy += [Marginal(c, count(true, c).astype(float), 40.0) for c in cliques]
    for m in noisy[7:]:
        m.counts[:] = np.maximum(m.counts + np.rint(rng.normal(0, 40, m.counts.shape)), 0)
        m.counts[:] *= true.rows / m.counts.sum()
    if not kept:
        monkeypatch.setattr(sweep, "MIN_EXPECTED_COUNT", np.inf)
    made = synthesize(noisy, domain, Synthesis(seed=3, oversample=1), true.rows)
    torn = int((made.column("place") // 4 != made.column("region")).sum())
    assert torn < 12 if kept else torn > 120


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


def test_each_sweep_comes_closer() -> None:
    true = draw_related_table(DOMAIN, 20_000)
    errors = []
    for sweeps in (0, 1, 4):
        made = synthesize(count_marginals(true, CLIQUES), DOMAIN, Synthesis(method="sweep", sweeps=sweeps), true.rows)
        errors.append(sum(wrong_rows(made, true, clique) for clique in CLIQUES))
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] <= errors[1]
