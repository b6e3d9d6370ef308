"""Transitions from noisy counts, their codes, and where values lie in them."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.panels import transitions
from privsyn.tasks.panels.gaps import Gaps
from privsyn.tasks.panels.link_rows import Places, draw_codes, fit_to_shares
from privsyn.tasks.panels.transitions import (
    Transition,
    estimate_transition,
    model_moves,
    project_to_sum,
    refine_weights,
)

SHARES, APART = np.array([0.5, 0.3, 0.2]), np.ones(3)


def make_counts(pairs: float = 10_000) -> np.ndarray:
    """Of each code 80 % stay, half of the others move to each other code."""
    moves = np.full((3, 3), 0.1) - 0.1 * np.eye(3)
    return pairs * SHARES[:, None] * np.column_stack([moves, np.full(3, 0.8)])


def test_exact_counts_give_their_transitions() -> None:
    found = estimate_transition(make_counts(), 1e-3, SHARES, 10_000, APART)
    np.testing.assert_allclose(found.same, 0.8, atol=1e-3)
    np.testing.assert_allclose(found.moves, np.full((3, 3), 0.1) - 0.1 * np.eye(3), atol=1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_noise_makes_no_probability_negative_or_its_sum_another(seed: int) -> None:
    noisy = np.random.default_rng(seed).normal(make_counts(300), 60)
    found = estimate_transition(noisy, 60.0, SHARES, 300, APART, ordered=3)
    assert (found.moves >= 0).all()
    assert (found.same >= 0).all()
    np.testing.assert_allclose(found.moves.sum(axis=1) + found.same, 1.0)
    np.testing.assert_allclose(found.reverse().next_codes.sum(axis=1), 1.0)


def test_noise_is_not_taken_for_change() -> None:
    """A column that never changes keeps nearly all of its rows, though half of the noise is above 0."""
    counts = np.column_stack([np.zeros((3, 3)), 5_000 * SHARES])
    stays = []
    for seed in range(20):
        noisy = np.random.default_rng(seed).normal(counts, 30)
        found = estimate_transition(noisy, 30.0, SHARES, 5_000, APART)
        stays.append(float(found.shares @ found.same))
    assert np.mean(stays) > 0.98


def test_no_value_moves_inside_a_code_of_one_value() -> None:
    recode = AttributeRecode(np.array([0, 1, 1]), np.ones(3, bool), np.array([1.0, 0.5, 0.5]), np.ones(3), np.ones(3))
    codes = transitions.TransitionCodes(recode, np.eye(2), 2)
    apart = codes.measure_apart(np.array([1.0, 1.0, np.inf]))
    np.testing.assert_allclose(apart, [0.0, 0.75])
    noisy = np.array([[400.0, 900.0, 4_000.0], [1_100.0, 600.0, 3_000.0]])
    found = estimate_transition(noisy, 300.0, np.array([0.5, 0.5]), 10_000, apart, ordered=2)
    assert found.moves[0, 0] == 0 < found.moves[1, 1]


def test_a_column_that_grows_keeps_its_growth() -> None:
    """Each value moves to the next code, from the last one to none: sums of rows and columns differ."""
    counts = np.column_stack([np.eye(3, k=1) * 3_000, np.full(3, 1_000.0)])
    found = estimate_transition(counts, 30.0, np.array([0.45, 0.45, 0.1]), 9_000, np.ones(3), ordered=3)
    assert found.moves[0, 1] > 0.7 and found.moves[1, 2] > 0.7
    assert found.reverse().shares[2] > 0.35


def test_high_values_may_persist_more_than_others() -> None:
    rng = np.random.default_rng(2)
    pairs = rng.exponential(size=(40_000, 2)) / rng.gamma(1.0, size=(40_000, 1))
    codes = np.searchsorted([0.5, 0.8, 0.95], pairs / (1 + pairs), side="right")  # the distribution of each value
    moves = np.zeros((4, 4))
    np.add.at(moves, tuple(codes.T), 1.0)
    found = model_moves(moves, moves.sum(axis=1), moves.sum(axis=0), 4)
    assert found[3, 3] > 0.8 * moves[3, 3]  # the best normal copula has half


def test_the_model_of_moves_has_the_sums_and_the_correlation_of_the_counts() -> None:
    rows = np.array([100.0, 200.0, 100.0])
    near = np.array([[80.0, 20, 0], [20, 160, 20], [0, 20, 80]])
    found = model_moves(near, rows, rows, 3)
    np.testing.assert_allclose(found.sum(axis=1), rows, rtol=1e-3)
    assert found[0, 0] > found[0, 1] > found[0, 2]


def test_codes_of_transitions_are_of_neighbours_and_split_the_coarse_ones() -> None:
    coarse = np.repeat([0, 1, 2], [10, 20, 1]).astype(np.int32)
    mass = np.append(np.linspace(100, 10, 30), 50.0)
    weight = mass / np.bincount(coarse, weights=mass)[coarse]
    recode = AttributeRecode(coarse, coarse >= 0, weight, mass, np.ones(31))
    codes = transitions._cut(recode, [(1, 30)], 8, 30)
    assert 4 <= codes.size <= 9
    assert (np.diff(codes.recode.coarse) >= 0).all()
    assert codes.recode.coarse[30] == codes.size - 1 == codes.ordered
    np.testing.assert_allclose(np.bincount(codes.recode.coarse, weights=codes.recode.weight), 1.0)
    np.testing.assert_allclose(codes.split.sum(axis=1), 1.0)
    again = refine_weights({"x": codes}, {"x": recode})["x"]
    np.testing.assert_allclose(again.split, codes.split)


def test_values_that_stay_keep_their_place_and_others_come_near_it() -> None:
    rng = np.random.default_rng(0)
    shares = np.full(4, 0.25)
    moves = np.full((4, 4), 0.02) + 0.42 * np.eye(4)
    moves /= 2 * moves.sum(axis=1, keepdims=True)
    places = Places(Transition(shares, moves, np.full(4, 0.5), 0.0, np.ones(4)), ordered=True)
    before, old = rng.integers(4, size=20_000).astype(np.uint8), rng.random(20_000)
    new, stayed = places.draw(before, old, before, rng)
    np.testing.assert_array_equal(new[stayed], old[stayed])
    assert 0.4 < stayed.mean() < 0.75
    assert np.corrcoef(old[~stayed], new[~stayed])[0, 1] > 0.1
    assert new.min() >= 0
    assert new.max() < 1


@pytest.mark.parametrize("skewed", [False, True])
def test_next_values_keep_the_correlation_that_values_inside_codes_have(skewed: bool) -> None:
    rng = np.random.default_rng(1)
    pairs = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 20_000)
    pairs = np.exp(pairs) if skewed else pairs
    values = np.sort(pairs.ravel()).reshape(5, -1)  # five codes, equally frequent
    before, after = (np.searchsorted(values[1:, 0], column, side="right").astype(np.uint8) for column in pairs.T)
    joint = np.zeros((5, 5))
    np.add.at(joint, (before, after), 1.0)
    sums, apart = joint.sum(axis=1), np.ones(5)
    transition = Transition(sums / joint.sum(), joint / sums[:, None], np.zeros(5), 0.0, apart)
    places, old = Places(transition, ordered=True), rng.random(len(before))
    code = draw_codes(transition.next_codes, before, rng, places.rank(before, old, rng))
    new, _ = places.draw(before, old, code, rng)
    for chosen in range(5):  # values inside each code are as frequent as they were
        assert np.histogram(new[code == chosen], 10, (0, 1))[0].std() < 2
    read = lambda codes, at: values[codes, (at * values.shape[1]).astype(int)]  # noqa: E731
    kept = np.corrcoef(read(before, old), read(code, new))[0, 1] / np.corrcoef(*pairs.T)[0, 1]
    assert 0.95 < kept < 1.08


def test_gaps_stay_inside_the_order_and_leave_room_for_the_other_rows() -> None:
    rng = np.random.default_rng(0)
    own, gap = rng.integers(0, 10, 500), rng.integers(1, 4, 500)
    before, after = np.zeros(500, np.int64), np.full(500, 3)
    gaps = Gaps(own, gap, before, after, (0, 9))
    step = gaps.fit(own, before, after)
    assert step.max() <= 6
    for left in (2, 1, 0):
        moved = gaps.move(step, np.full(500, left), rng, forward=True)
        assert (moved > step).all()
        assert moved.max() <= 9 - left
        step = moved
    back = gaps.move(np.full(500, 9), np.zeros(500, np.int64), rng, forward=False)
    assert (back < 9).all()
    assert back.min() >= 0


def test_a_relation_is_fitted_to_other_shares_and_keeps_its_association() -> None:
    counts = np.array([[40.0, 10.0], [10.0, 40.0]])
    found = fit_to_shares(counts, [np.array([30.0, 70.0]), np.array([50.0, 50.0])])
    np.testing.assert_allclose(found.sum(axis=1), [30, 70], rtol=1e-4)
    np.testing.assert_allclose(found.sum(axis=0), [50, 50], rtol=1e-4)
    odds = found[0, 0] * found[1, 1] / (found[0, 1] * found[1, 0])
    assert odds == pytest.approx(16.0, rel=1e-3)


def test_projection_keeps_the_sum_and_cuts_what_is_negative() -> None:
    found = project_to_sum(np.array([5.0, -1.0, 0.2]), 4.0)
    assert found.sum() == pytest.approx(4.0)
    assert (found >= 0).all()
    assert project_to_sum(np.array([1.0, 2.0]), 0.0).tolist() == [0.0, 0.0]


def test_reversed_transitions_give_the_joint_shares_transposed() -> None:
    forward = estimate_transition(make_counts(), 1e-3, SHARES, 10_000, APART)
    back = forward.reverse()
    joint = forward.shares[:, None] * forward.next_codes
    np.testing.assert_allclose(back.shares[:, None] * back.next_codes, joint.T, atol=1e-12)
