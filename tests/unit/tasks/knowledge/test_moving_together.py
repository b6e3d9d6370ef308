"""Columns that move together: one shape inside codes unless noise does not explain the difference, and no straggler."""

from __future__ import annotations

import numpy as np

from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.steps.decode import gather, with_common_shapes

BINS = np.repeat(np.arange(4), 2).astype(np.int32)
SIGMA = 30.0


def recode(counts: list[float], weights: list[float], null: bool = False) -> AttributeRecode:
    """Four bins of two cells, each bin one code, and null."""
    coarse = np.append(BINS, [4] * null).astype(np.int32)
    size = len(coarse)
    weight, y = np.append(weights, [1.0] * null), np.append(counts, [500.0] * null)
    return AttributeRecode(coarse, np.ones(size, dtype=bool), weight, y, np.full(size, SIGMA**2))


def shares(counts: list[float]) -> list[float]:
    pairs = np.array(counts).reshape(-1, 2)
    found: list[float] = (pairs / pairs.sum(axis=1, keepdims=True)).ravel().tolist()
    return found


ONE = [300.0, 330.0, 500.0, 480.0, 800.0, 820.0, 90.0, 100.0]
LIKE = [320.0, 310.0, 480.0, 500.0, 790.0, 840.0, 100.0, 90.0]
UNLIKE = [320.0, 310.0, 480.0, 500.0, 1500.0, 10.0, 100.0, 90.0]


def test_shapes_that_differ_by_noise_are_the_same_and_others_stay() -> None:
    found = {"a": recode(ONE, shares(ONE)), "b": recode(LIKE, shares(LIKE), null=True)}
    common = with_common_shapes(found, [["a", "b"]], {"a": BINS, "b": BINS})
    assert np.allclose(common["a"].weight, common["b"].weight[:8])
    assert np.allclose(common["a"].weight, shares([a + b for a, b in zip(ONE, LIKE, strict=True)]))
    assert common["b"].weight[8] == 1.0
    found["b"] = recode(UNLIKE, shares(UNLIKE))
    common = with_common_shapes(found, [["a", "b"]], {"a": BINS, "b": BINS})
    assert np.allclose(common["b"].weight[4:6], shares(UNLIKE)[4:6], atol=0.01)
    for one in common.values():
        assert np.allclose(np.bincount(one.coarse, weights=one.weight), 1.0)


def test_what_has_no_common_cells_or_no_group_is_as_it_was() -> None:
    found = {"a": recode(ONE, shares(ONE)), "b": recode(LIKE, shares(LIKE))}
    other = np.repeat(np.arange(2), 4).astype(np.int32)
    common = with_common_shapes(found, [["a", "b"]], {"a": BINS, "b": other})
    assert np.allclose(common["b"].weight, shares(LIKE))
    assert with_common_shapes(found, [], {}) == found


CELLS = np.array([-1, 0, 0, 1, 1, 2, 2, 3, 3], dtype=np.int32)
"""An exact value, then bins of two cells; code 9 is null."""


def gathered(columns: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
    names = "abcdefgh"[: len(columns)]
    codes = {a: np.array(c) for a, c in zip(names, columns, strict=True)}
    places = {a: np.full(len(c), i / 10) for i, (a, c) in enumerate(codes.items())}
    gather(codes, places, [list(names)], dict.fromkeys(names, CELLS), np.random.default_rng(1))
    return [c.tolist() for c in codes.values()], [p.tolist() for p in places.values()]


def test_values_that_are_near_and_null_and_exact_ones_stay() -> None:
    columns = [[1, 3, 0, 9, 9, 0], [2, 5, 8, 9, 2, 0], [4, 4, 9, 1, 9, 9]]
    assert gathered(columns) == (columns, [[0.0] * 6, [0.1] * 6, [0.2] * 6])


def test_values_that_are_far_move_to_one_of_their_row_and_each_is_taken_as_often() -> None:
    rows = 6_000
    (a, b, c), places = gathered([[1] * rows, [8] * rows, [2] * rows])
    found = np.array([a, b, c])
    assert set(map(tuple, found.T.tolist())) == {(1, 1, 2), (8, 8, 8), (1, 2, 2)}
    taken = [float((row == found.T).all(axis=1).mean()) for row in ([1, 1, 2], [8, 8, 8], [1, 2, 2])]
    assert np.allclose(taken, 1 / 3, atol=0.03)
    assert np.array_equal(np.array(places[1])[found[1] == 1], np.zeros((found[1] == 1).sum()))


def test_columns_without_any_relation_keep_their_counts() -> None:
    rng = np.random.default_rng(2)
    columns = [rng.choice(np.arange(1, 9), 20_000, p=np.repeat([0.35, 0.1, 0.05, 0.0], 2)).tolist() for _ in range(5)]
    for before, after in zip(columns, gathered(columns)[0], strict=True):
        shares = [np.bincount(codes, minlength=9) / len(codes) for codes in (before, after)]
        assert np.abs(shares[0] - shares[1]).max() < 0.02
