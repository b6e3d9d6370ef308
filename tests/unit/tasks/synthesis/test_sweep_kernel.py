"""One sweep over one block: hand-worked moves, a plain-Python referee, quotas, and what must never happen."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest

from privsyn.tasks.kernels import streams, sweep_moves
from privsyn.tasks.kernels.sweep_moves import FORBIDDEN_SUM, Sweeper, build_layout, share_residuals, sweep_block
from tests.support.examples import keep_first

MASK = (1 << 64) - 1

NONE_IN_VAIN = np.zeros((0, 0), np.uint8)


def counted(codes: np.ndarray, sizes: Sequence[int], cliques: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows in every cell of every marginal, one after another."""
    found = []
    for clique in cliques:
        shape = [sizes[a] for a in clique]
        keys = np.ravel_multi_index([codes[a].astype(int) for a in clique], shape)
        found.append(np.bincount(keys, minlength=prod(shape)))
    return np.concatenate(found)


def one_block(
    codes: np.ndarray,
    sizes: Sequence[int],
    cliques: Sequence[Sequence[int]],
    wanted: Sequence[int],
    best: bool = True,
    weights: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
    start: int = 7,
) -> tuple[int, np.ndarray, np.ndarray]:
    """Moves, codes and residuals after one sweep."""
    codes = codes.copy()
    residuals = np.asarray(wanted) - counted(codes, sizes, cliques)
    layout = build_layout(sizes, cliques, weights or [1] * len(cliques))
    ordered = np.array(order if order is not None else range(len(sizes)))
    moves = sweep_block(codes, ordered, layout, residuals, best, np.uint64(start), 0.0, FORBIDDEN_SUM, NONE_IN_VAIN)
    return moves, codes, residuals


def referee(
    codes: np.ndarray,
    sizes: Sequence[int],
    cliques: Sequence[Sequence[int]],
    wanted: Sequence[int],
    best: bool,
    weights: Sequence[int],
    order: Sequence[int],
    start: int,
) -> np.ndarray:
    """The same sweep as one would first write it: every change of the squares is computed from the squares."""
    codes = codes.copy()
    rows = codes.shape[1]
    heavy = np.repeat(weights, [prod(sizes[a] for a in c) for c in cliques])

    def squares() -> int:
        return int((heavy * (np.asarray(wanted) - counted(codes, sizes, cliques)) ** 2).sum())

    def surplus(a: int, i: int) -> int:
        now, bases = 0, 0
        here = np.asarray(wanted) - counted(codes, sizes, cliques)
        for clique, weight in zip(cliques, weights, strict=True):
            shape = [sizes[b] for b in clique]
            if a in clique:
                values = [[v if b == a else int(codes[b, i]) for b in clique] for v in range(sizes[a])]
                line = [int(weight * here[bases + np.ravel_multi_index(cell, shape)]) for cell in values]
                other = [x for x in line if x >= -rows * weight]
                now += line[codes[a, i]] - (sum(other) // len(other) if other else 0)
            bases += prod(shape)
        return int(now)

    for a in order:
        cost = sum(w for c, w in zip(cliques, weights, strict=True) if a in c)
        looked = [i for i in range(rows) if surplus(a, i) < -(cost // 4)]
        for i in looked:
            if surplus(a, i) >= -(cost // 4):
                continue
            word = int(streams.mix_bits(np.array([(start + (a * rows + i) * int(streams.GAMMA)) & MASK], np.uint64))[0])
            old, before, gains = int(codes[a, i]), squares(), []
            for v in range(sizes[a]):
                codes[a, i] = v
                gains.append(max(0, before - squares()) // 2)
            codes[a, i] = old
            if max(gains) == 0:
                continue
            if best:
                tops = [v for v, g in enumerate(gains) if g == max(gains)]
                codes[a, i] = tops[((word >> 32) * len(tops)) >> 32]
            else:
                mark = int((word >> 11) * 2.0**-53 * sum(gains))
                codes[a, i] = int(np.flatnonzero(np.cumsum(gains) > mark)[0])
    return codes


def test_the_first_sweep_draws_in_the_proportion_worked_out_by_hand() -> None:
    # One row at value 0: S = (-1, 3, 7), k = 1, so the gains S(v) - S(0) - k are 3 and 7: value 2 in 70 %.
    hits = 0
    for start in range(4_000):
        _, made, _ = one_block(
            np.zeros((1, 1), np.uint8), [3], [(0,)], [0, 3, 7], best=False, start=int(streams.derive_stream(1, start))
        )
        hits += int(made[0, 0] == 2)
        assert made[0, 0] != 0
    assert abs(hits - 2_800) < 4.5 * (4_000 * 0.7 * 0.3) ** 0.5


def test_the_best_is_taken_and_ties_are_drawn_evenly() -> None:
    values = []
    for start in range(2_000):
        _, made, _ = one_block(
            np.zeros((1, 1), np.uint8), [4], [(0,)], [0, 3, 7, 7], start=int(streams.derive_stream(2, start))
        )
        values.append(int(made[0, 0]))
    assert set(values) == {2, 3}
    assert abs(values.count(2) - 1_000) < 4.5 * 500**0.5


@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_plain_python_referee_decides_the_same(seed: int, best: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, 4).tolist()
    cliques = [(0, 1), (1, 2), (2, 0), (0, 1, 3), (3,)][: int(rng.integers(2, 6))]
    weights = rng.integers(1, 4, len(cliques)).tolist()
    rows = int(rng.integers(1, 40))
    codes = np.stack([rng.integers(0, s, rows) for s in sizes]).astype(np.uint8)
    goal = np.stack([rng.integers(0, s, rows) * rng.integers(0, 2, rows) for s in sizes])
    wanted = counted(goal, sizes, cliques).tolist()
    order = rng.permutation(4).tolist()
    start = int(streams.derive_stream(seed, 9))
    moves, made, residuals = one_block(codes, sizes, cliques, wanted, best, weights, order, start)
    expected = referee(codes, sizes, cliques, wanted, best, weights, order, start)
    np.testing.assert_array_equal(made, expected)
    assert (moves > 0) == bool((made != codes).any())
    np.testing.assert_array_equal(residuals, np.array(wanted) - counted(made, sizes, cliques))


@pytest.mark.parametrize("best", keep_first([False, True]))
def test_the_squares_never_rise_over_many_chunks(best: bool) -> None:
    rng = np.random.default_rng(3)
    sizes, cliques = [7, 300, 2, 11], [(0, 1), (1, 3), (0, 2, 3)]
    codes = np.stack([rng.integers(0, s, 5_000) for s in sizes]).astype(np.uint16)
    goal = np.stack([(rng.random(5_000) ** 2 * s).astype(int) for s in sizes])
    wanted = counted(goal, sizes, cliques)
    squares = int(((wanted - counted(codes, sizes, cliques)) ** 2).sum())
    for sweep in range(4):
        moves, codes, residuals = one_block(codes, sizes, cliques, wanted, best, start=sweep)
        np.testing.assert_array_equal(residuals, wanted - counted(codes, sizes, cliques))
        after = int((residuals**2).sum())
        assert after < squares if moves else after == squares
        squares = after


@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
def test_quotas_sum_to_the_residuals_and_differ_by_at_most_one(blocks: int) -> None:
    residuals = np.arange(-40, 41)
    shares = np.stack([share_residuals(residuals, b, blocks, np.uint64(5)) for b in range(blocks)])
    np.testing.assert_array_equal(shares.sum(axis=0), residuals)
    assert (shares.max(axis=0) - shares.min(axis=0) <= 1).all()


def test_what_is_left_over_goes_to_every_block() -> None:
    residuals = np.ones(8_000, np.int64)
    for b in range(8):
        share = share_residuals(residuals, b, 8, np.uint64(5))
        assert share.sum() == pytest.approx(1_000, abs=150)


@pytest.mark.parametrize("blocks", [1, 8])
def test_a_sweep_in_blocks_keeps_the_residuals_exact(blocks: int) -> None:
    rng = np.random.default_rng(4)
    sizes, cliques, rows = [5, 4, 3], [(0, 1), (1, 2)], 140_000
    columns = [rng.integers(0, s, rows).astype(np.uint8) for s in sizes]
    goal = np.stack([(rng.random(rows) ** 2 * s).astype(int) for s in sizes])
    wanted = counted(goal, sizes, cliques)
    residuals = wanted - counted(np.stack(columns), sizes, cliques)
    with Sweeper(columns, sizes, cliques, [1, 1], residuals, 2) as sweeper:
        before = np.abs(sweeper.residuals).sum()
        for t in range(4):
            moves = sweeper.sweep(np.arange(3), blocks, t > 0, 1, t)
            assert moves > 0 or t > 1  # two sweeps may be enough
            np.testing.assert_array_equal(sweeper.residuals, wanted - counted(np.stack(columns), sizes, cliques))
        assert np.abs(sweeper.residuals).sum() < 0.05 * before


def test_views_of_attributes_that_are_not_visited_change_nothing() -> None:
    rng = np.random.default_rng(3)
    sizes, cliques, rows = [4, 3, 5], [(0, 1), (1, 2), (1,)], 2_000
    start = [rng.integers(0, s, rows).astype(np.uint8) for s in sizes]
    goal = np.stack([rng.integers(0, s, rows) ** 2 // s for s in sizes])
    residuals = counted(goal, sizes, cliques) - counted(np.stack(start), sizes, cliques)
    made = []
    for visited in (None, frozenset({1})):
        columns = [column.copy() for column in start]
        with Sweeper(columns, sizes, cliques, [1, 2, 4], residuals, 1, visited=visited) as sweeper:
            assert sweeper.sweep(np.array([1]), 1, True, 1, 0) > 0
        made.append(np.stack(columns))
    np.testing.assert_array_equal(*made)


def test_sums_that_would_leave_32_bits_are_done_in_64() -> None:
    rows = 1_000
    columns = [np.zeros(rows, np.uint8), np.zeros(rows, np.uint8)]
    wanted = np.array([0, 0, 0, rows])
    residuals = wanted - counted(np.stack(columns), [2, 2], [(0, 1)])
    with Sweeper(columns, [2, 2], [(0, 1)], [1 << 40], residuals, 1) as sweeper:
        for t in range(2):
            sweeper.sweep(np.arange(2), 1, True, 1, t)
        assert np.abs(sweeper.residuals).sum() == np.abs(wanted - counted(np.stack(columns), [2, 2], [(0, 1)])).sum()
        assert sweeper._type == np.int64
    with Sweeper(columns, [2, 2], [(0, 1)], [1], residuals, 1) as sweeper:
        assert sweeper._type == np.int32


def heated(codes: np.ndarray, sizes: Sequence[int], wanted: Sequence[int], heat: float, start: int) -> np.ndarray:
    """Codes after one sweep of the only marginal, that of all attributes, at this heat."""
    cliques = [tuple(range(len(sizes)))]
    made = codes.copy()
    residuals = np.asarray(wanted) - counted(codes, sizes, cliques)
    layout = build_layout(sizes, cliques, [1])
    sweep_block(
        made, np.arange(len(sizes)), layout, residuals, False, np.uint64(start), heat, FORBIDDEN_SUM, NONE_IN_VAIN
    )
    np.testing.assert_array_equal(residuals, np.asarray(wanted) - counted(made, sizes, cliques))
    return made


@pytest.mark.slow
def test_at_heat_values_are_drawn_by_what_a_move_costs() -> None:
    """One row at value 0, one wanted there: moves to 1 or 2 raise the squares by 2, from 0 to 2; k is 1."""
    heat, draws = 2.0, 6_000
    found = [
        int(heated(np.zeros((1, 1), np.uint8), [3], [1, 0, 0], heat, int(streams.derive_stream(3, i)))[0, 0])
        for i in range(draws)
    ]
    chance = np.exp(-2 / heat)
    share = chance / (1 + 2 * chance)
    for value in (1, 2):
        assert abs(found.count(value) - draws * share) < 4.5 * (draws * share * (1 - share)) ** 0.5 + 0.01 * draws


def test_at_little_heat_nothing_settled_moves_and_what_is_wrong_is_mended() -> None:
    settled = np.array([[0, 0, 1, 1], [0, 1, 0, 1]], np.uint8)
    np.testing.assert_array_equal(heated(settled, [2, 2], [1, 1, 1, 1], 0.05, 5), settled)
    wrong = np.array([[0, 0, 0, 1], [0, 0, 1, 1]], np.uint8)
    made = heated(wrong, [2, 2], [1, 1, 1, 1], 0.05, 5)
    assert sorted(map(tuple, made.T.tolist())) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_at_heat_too_no_record_moves_into_a_forbidden_cell_and_those_there_leave() -> None:
    rng = np.random.default_rng(8)
    columns = [rng.integers(0, s, 3_000).astype(np.uint8) for s in (4, 5)]
    inside = np.zeros((4, 5), bool)
    inside[1, 2:] = True
    wanted = np.full(20, 150)
    residuals = wanted - counted(np.stack(columns), [4, 5], [(0, 1)])
    with Sweeper(columns, [4, 5], [(0, 1)], [1], residuals, 1, [((0, 1), inside)]) as sweeper:
        for t in range(2):
            sweeper.sweep(np.arange(2), 1, False, 1, t, heat=3.0)
            assert not inside[columns[0], columns[1]].any()
            np.testing.assert_array_equal(sweeper.residuals, wanted - counted(np.stack(columns), [4, 5], [(0, 1)]))


@pytest.mark.parametrize(("best", "heat"), [(False, 0.0), (True, 0.0), (False, 0.3)])
def test_cells_known_as_empty_are_left_for_the_best_value_and_residuals_stay_those_of_counts(
    best: bool, heat: float
) -> None:
    rng = np.random.default_rng(8)
    columns = [rng.integers(0, s, 40_000).astype(np.uint8) for s in (4, 5)]
    empty = np.zeros((4, 5), bool)
    empty[1, 2:] = empty[0, 3] = True
    wanted = np.full(20, 2_000)
    residuals = wanted - counted(np.stack(columns), [4, 5], [(0, 1)])
    with Sweeper(columns, [4, 5], [(0, 1)], [1], residuals, 1, (), empty.ravel()) as sweeper:
        np.testing.assert_array_equal(sweeper.residuals, residuals)
        sweeper.sweep(np.arange(2), 2, best, 1, 0, heat=heat)
        assert sweeper._type == np.int32
        assert not empty[columns[0], columns[1]].any()
        np.testing.assert_array_equal(sweeper.residuals, wanted - counted(np.stack(columns), [4, 5], [(0, 1)]))


def test_a_surplus_that_all_values_share_is_no_reason_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rows of the first of b's values are too many, so no value of a is better, whatever the surplus."""
    looks = []
    real = sweep_moves._choose
    monkeypatch.setattr(sweep_moves, "_choose", lambda *given: looks.append(given[1]) or real.py_func(*given))
    codes = np.array([[0, 1] * 20, [0] * 40], np.uint8)
    residuals = np.array([5, 20, 5, 20]) - counted(codes, [2, 2], [(0, 1)])
    for jitted in ("_sweep_attribute", "_load", "_store", "_record_move", "_sum_chunk"):
        monkeypatch.setattr(sweep_moves, jitted, getattr(sweep_moves, jitted).py_func)
    given = (
        codes,
        np.array([0]),
        build_layout([2, 2], [(0, 1)], [1]),
        residuals,
        True,
        np.uint64(1),
        0.0,
        FORBIDDEN_SUM,
        NONE_IN_VAIN,
    )
    assert (sweep_block(*given), looks) == (0, [])


def test_a_row_that_rules_tie_keeps_its_value() -> None:
    """b follows from a by rule, so no value of b is looked for, nor of a, though both marginals ask for others."""
    columns = [np.array([0, 1] * 50, np.uint8), np.array([0, 1] * 50, np.uint8)]
    residuals = np.array([-40, 40, 40, -40])
    tied = [((0, 1), ~np.eye(2, dtype=bool))]
    with Sweeper(columns, [2, 2], [(0,), (1,)], [1, 1], residuals, 1, tied) as sweeper:
        assert sweeper.sweep(np.arange(2), 1, True, 1, 0) == 0
        assert sweeper.sweep(np.arange(2), 1, False, 1, 1, heat=0.3) == 0
        assert sweeper._type == np.int32
    np.testing.assert_array_equal(columns[0], columns[1])


def test_scores_of_both_widths_are_drawn_alike() -> None:
    rng = np.random.default_rng(9)
    codes = np.stack([rng.integers(0, s, 2_000) for s in (7, 9)]).astype(np.uint8)
    wanted = np.full(63, 32)
    layout = build_layout([7, 9], [(0, 1)], [4])
    made = []
    for kind in (np.int32, np.int64):
        own, residuals = codes.copy(), (wanted - counted(codes, [7, 9], [(0, 1)])).astype(kind)
        sweep_block(own, np.arange(2), layout, residuals, False, np.uint64(1), 0.4, FORBIDDEN_SUM, NONE_IN_VAIN)
        made.append(own)
    np.testing.assert_array_equal(made[0], made[1])


def test_a_record_that_found_no_better_value_is_left_alone_for_two_sweeps() -> None:
    """One that is in a forbidden cell is not."""
    layout = build_layout([2, 2], [(0, 1)], [1])
    for fined, tries in ((False, 3), (True, 1)):
        codes, vain, moves = np.zeros((2, 1), np.uint8), np.zeros((2, 1), np.uint8), 0
        vain[0, 0], needed = 2, 0
        while moves == 0:
            residuals = np.array([-50, 50, 50, 50]) if fined else np.array([-1, 1, 1, 1])
            moves = sweep_block(codes, np.array([0]), layout, residuals, True, np.uint64(1), 0.0, -10, vain)
            needed += 1
        assert needed == tries
