"""Columns that move together: one shape inside codes unless noise does not explain the difference, and no straggler."""

from __future__ import annotations

import numpy as np

from privsyn.tasks.compress_domain import AttributeRecode
from privsyn.tasks.moving_together import gather, with_common_shapes

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


def test_a_value_far_from_the_others_of_its_row_moves_to_them_and_null_and_exact_ones_stay() -> None:
    cells = np.array([-1, 0, 0, 1, 1, 2, 2, 3, 3], dtype=np.int32)  # an exact value, then bins of two cells; 9: null
    codes = {
        "a": np.array([1, 1, 1, 9, 9, 8]),
        "b": np.array([2, 3, 8, 9, 2, 8]),
        "c": np.array([8, 5, 0, 1, 8, 1]),
    }
    places = {a: np.full(6, place) for a, place in (("a", 0.1), ("b", 0.2), ("c", 0.3))}
    gather(codes, places, [["a", "b", "c"]], dict.fromkeys(codes, cells))
    assert codes["a"].tolist() == [1, 1, 1, 9, 9, 8]
    assert codes["b"].tolist() == [2, 3, 8, 9, 2, 8]
    assert codes["c"].tolist() == [1, 5, 0, 1, 8, 8]
    assert places["c"].tolist() == [0.1, 0.3, 0.3, 0.3, 0.3, 0.1]


def test_of_two_columns_none_moves() -> None:
    cells, codes = np.arange(4, dtype=np.int32), {"a": np.array([0]), "b": np.array([3])}
    gather(codes, {a: np.zeros(1) for a in codes}, [["a", "b"]], dict.fromkeys(codes, cells))
    assert {a: c.tolist() for a, c in codes.items()} == {"a": [0], "b": [3]}
