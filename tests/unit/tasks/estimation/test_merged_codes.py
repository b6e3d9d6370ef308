"""Merged codes: by hand, and what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn.tasks.estimation.merged_codes import CoarseCounts, count_affordable_cells, merge_codes


def even(size: int, *, in_order: bool = True) -> CoarseCounts:
    return CoarseCounts(np.full(size, 10.0), in_order)


def test_codes_in_order_are_halved_where_their_mass_is() -> None:
    counts = CoarseCounts(np.array([50.0, 10.0, 20.0, 20.0, 4.0, 110.0]), True)
    (merge,) = merge_codes({"a": counts}, ("a",), 2)
    assert merge.tolist() == [0, 0, 0, 0, 0, 1]
    (merge,) = merge_codes({"a": counts}, ("a",), 3)
    assert merge.tolist() == [0, 1, 1, 1, 1, 2]


def test_of_cuts_that_noise_cannot_tell_apart_the_one_in_the_middle_is_taken() -> None:
    drawn = np.array([152.0, 100.0, 10.0, 100.0, 100.0, 50.0])
    (surely,) = merge_codes({"a": CoarseCounts(drawn, True)}, ("a",), 2)
    (hardly,) = merge_codes({"a": CoarseCounts(drawn, True, np.full(6, 25.0))}, ("a",), 2)
    assert surely.tolist() == [0, 0, 1, 1, 1, 1] and hardly.tolist() == [0, 0, 0, 1, 1, 1]


def test_codes_without_order_are_put_into_parts_of_like_mass() -> None:
    (merge,) = merge_codes({"a": CoarseCounts(np.array([40.0, 30.0, 30.0, 20.0]), False)}, ("a",), 2)
    assert merge.tolist() == [0, 1, 1, 0]


def test_codes_beside_those_in_order_stay_apart_and_these_are_split_by_their_own_shares() -> None:
    null = np.array([False] * 6 + [True])
    rare = CoarseCounts(np.append(np.full(6, 20.0), 2_000.0), True, None, null.astype(np.int64), True, null)
    merges = merge_codes({"a": rare, "b": even(8)}, ("a", "b"), 1)
    assert [m.tolist() for m in merges] == [[0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 1, 1, 1, 1]]
    merges = merge_codes({"a": rare, "b": even(8)}, ("a", "b"), 20)
    assert [int(m.max()) + 1 for m in merges] == [5, 4]


@pytest.mark.parametrize(("total", "sigma", "cells"), [(600.0, 10.0, 10), (-5.0, 1.0, 1), (0.0, 3.0, 1)])
def test_cells_leave_six_standard_deviations_of_rows_in_each(total: float, sigma: float, cells: int) -> None:
    assert count_affordable_cells(total, sigma) == cells


@given(
    st.lists(st.lists(st.floats(-5, 100), min_size=1, max_size=9), min_size=2, max_size=4),
    st.booleans(),
    st.integers(1, 200),
)
def test_fewer_merged_codes_of_an_attribute_are_made_of_more(
    counts: list[list[float]], in_order: bool, cells: int
) -> None:
    coarse = {str(i): CoarseCounts(np.array(own), in_order) for i, own in enumerate(counts)}
    few, many = merge_codes(coarse, tuple(coarse), cells), merge_codes(coarse, tuple(coarse), 2 * cells)
    least = np.prod([min(2, len(own)) for own in counts])
    assert np.prod([int(m.max()) + 1 for m in few]) <= max(cells, least)
    for merge, finer, own in zip(few, many, counts, strict=True):
        assert sorted(set(merge.tolist())) == list(range(int(merge.max()) + 1)) and len(merge) == len(own)
        if in_order:
            assert (np.diff(merge) >= 0).all()
        # With more cells another attribute may have grown, and this one have fewer codes.
        whole, parts = sorted((merge, finer), key=lambda m: int(m.max()))
        for code in set(parts.tolist()):
            assert len(set(whole[parts == code].tolist())) == 1
