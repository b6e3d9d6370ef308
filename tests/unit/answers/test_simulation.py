"""Releases of the model are made by the steps that made the release."""

from __future__ import annotations

import pytest

from privsyn.answers.simulated import make_replicate, remake_rows
from tests.support.answered import released, spec, table
from tests.support.examples import keep_first

ROWS = table(3_000)


@pytest.mark.parametrize("mechanism", ["privsyn", "independent", "adaptive", "mst", "privbayes", "aim"])
@pytest.mark.parametrize("epsilon", keep_first([3.0, 0.2]))
def test_the_released_counts_make_the_released_rows_again(mechanism: str, epsilon: float) -> None:
    asked = spec(epsilon, synthesis={}, mechanism={"name": mechanism})
    found = released(ROWS, asked, 5)
    again = remake_rows(found, found.measured)
    assert again.cast(found.table.schema).equals(found.table)
    assert not make_replicate(found, 0).cast(found.table.schema).equals(found.table)
