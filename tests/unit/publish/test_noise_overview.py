"""The overview of a release: its bins stand as in the column."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.publish.noise_overview import sort_bins
from privsyn.tasks.estimation.recode import AttributeRecode


def recode(coarse: list[int], kept: list[bool] | None = None) -> AttributeRecode:
    n = len(coarse)
    return AttributeRecode(
        np.array(coarse, np.int32),
        np.array(kept or [True] * n),
        np.full(n, 1 / n),
        np.ones(n),
        np.ones(n),
    )


@pytest.mark.parametrize(
    ("coarse", "kept", "order"),
    [
        ([0, 0, 1, 2], None, [0, 1, 2]),
        ([2, 2, 0, 1], None, [2, 0, 1]),
        ([0, 2, 1, 2], None, [0, 1, 2]),
        ([2, 0, 2, 1], None, [0, 1, 2]),
        ([2, 0, 1, 2], [False, True, True, False], [0, 1, 2]),
        ([1, 2, 0, 2], [True, False, True, False], [1, 0, 2]),
    ],
    ids=[
        "as they are",
        "neighbours first",
        "scattered",
        "scattered from the start",
        "left out",
        "left out, others not",
    ],
)
def test_bins_stand_in_the_order_of_the_column(coarse: list[int], kept: list[bool] | None, order: list[int]) -> None:
    found = recode(coarse, kept)
    assert sort_bins(found, int(found.coarse.max()) + 1) == order
