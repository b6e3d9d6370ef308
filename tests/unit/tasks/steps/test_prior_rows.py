"""Rows of a public table by groups: numbers, groups that the table lacks, known zeros, draws."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.prior_levels import UPPER_LEVEL_ROWS, NoisyLevel, PublicSupport, iterate_group_shares
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.draw_rows import coarsen_rows, draw_rows, list_groups_with_rows, list_possible_rows

DOMAIN = Domain(("g", "x"), (4, 3))


def table(rows: list[tuple[int, int]]) -> CodeTable:
    return CodeTable(DOMAIN, tuple(np.array(c, np.uint8) for c in zip(*rows, strict=True)))


PUBLIC = table([(0, 0), (0, 1), (1, 1), (1, 1), (1, 1), (1, 2)])
"""Groups 0 and 1; groups 2 and 3 are lacking."""


def test_rows_are_as_many_as_asked_and_lacking_groups_need_a_count_that_stands_out() -> None:
    noisy = np.array([10.3, 4.5, 8.9, 9.2])
    groups = list_groups_with_rows(PUBLIC, ("g",), noisy, 3.0, 24, None)
    assert groups.codes.ravel().tolist() == [0, 1, 3] and groups.rows.tolist() == [10, 5, 9]
    assert list_groups_with_rows(PUBLIC, ("g",), noisy, 2.0, 24, None).codes.ravel().tolist() == [0, 1, 2, 3]
    assert list_groups_with_rows(PUBLIC, ("g",), -noisy, 3.0, 5, None).rows.sum() == 5
    assert list_groups_with_rows(PUBLIC, ("g",), noisy, 3.0, 0, None).rows.size == 0


def test_a_group_that_no_row_can_be_in_has_none() -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    forbidden = np.zeros((4, 3), bool)
    forbidden[1] = True
    forbidden[0, 1] = True
    can = list_possible_rows(support, KnownZeros(((("g", "x"), forbidden),)))
    assert can is not None and [c.tolist() for c in can[:2]] == [[True, False, True], [False, False, False]]
    groups = list_groups_with_rows(PUBLIC, ("g",), np.array([5.0, 5, 0, 0]), 1.0, 10, can)
    assert (groups.codes.tolist(), groups.rows.tolist()) == ([[0]], [10])
    (rows,) = draw_rows(support, groups, [np.array([0.2, 0.6, 0.2])], can, 0)
    assert np.bincount(rows.column("x")).tolist() == [5, 0, 5]
    assert list_possible_rows(support, None) is None


def test_draws_are_as_many_as_the_shares_say() -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    groups = list_groups_with_rows(PUBLIC, ("g",), np.array([600.0, 400, 0, 0]), 1.0, 1_000, None)
    shares = [np.array([0.25, 0.5, 0.25]), np.array([0.0, 0.0, 1.0])]
    (rows,) = draw_rows(support, groups, shares, None, 1)
    first = rows.column("x")[rows.column("g") == 0]
    assert np.abs(np.bincount(first, minlength=3) - [150, 300, 150]).max() <= 1
    assert set(rows.column("x")[rows.column("g") == 1]) == {2}
    assert not (np.diff(rows.column("g").astype(int)) >= 0).all()  # in random order
    (again,) = draw_rows(support, groups, shares, None, 1)
    assert all(np.array_equal(a, b) for a, b in zip(rows.columns, again.columns, strict=True))


@pytest.mark.parametrize(("noise", "told"), [(None, [0.0, 0.0, 1.0]), (1e6, [1 / 6, 4 / 6, 1 / 6])])
def test_counts_are_believed_or_drawn_to_what_the_public_table_says(noise: float | None, told: list[float]) -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    given = None if noise is None else (noise,)
    level = NoisyLevel((), np.array([90.0]), (("x",),), (np.array([[0.0, 0.0, 90.0]]),), given)
    small = NoisyLevel(("g",), np.array([40.0, 50, 0, 0]), (), (), None)
    (found,) = iterate_group_shares(
        support, (level, small), np.array([[2]]), 3, 0, own_rows=True
    )  # a group without public rows
    assert found == pytest.approx(told)


def test_a_group_begins_with_its_own_public_rows_and_some_of_the_table() -> None:
    support = PublicSupport.of(PUBLIC, ("g",))
    own, whole = np.array([0.5, 0.5, 0.0]), np.array([1 / 6, 4 / 6, 1 / 6])
    assert support.start(whole, 0) == pytest.approx((2 * own + UPPER_LEVEL_ROWS * whole) / (2 + UPPER_LEVEL_ROWS))
    assert support.start(whole, 3) == pytest.approx(whole)


def test_public_rows_of_filtered_values_are_left_out_unless_all_are() -> None:
    keep = AttributeRecode(*(np.array(v) for v in ([0, 1, 2, 3], [True] * 4, [1.0] * 4, [5.0] * 4, [1.0] * 4)))
    some = AttributeRecode(
        np.array([0, 1, 2]), np.array([True, True, False]), np.array([1.0, 1, 0]), np.ones(3), np.ones(3)
    )
    found = coarsen_rows(PUBLIC, {"g": keep, "x": some})
    assert found.rows == 5 and found.domain.sizes == (4, 2)
    assert coarsen_rows(table([(0, 2), (1, 2)]), {"g": keep, "x": some}).column("x").tolist() == [1, 1]
