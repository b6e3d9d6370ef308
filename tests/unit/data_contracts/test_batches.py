"""How many rows are read or decoded at a time."""

from __future__ import annotations

import pytest

from privsyn.data_contracts.tables import BATCH_COLUMNS, BATCH_ROWS, choose_batch_rows


@pytest.mark.parametrize("columns", [BATCH_COLUMNS + 1, 1_000, 5_000])
def test_a_batch_of_a_wide_table_has_as_many_values(columns: int) -> None:
    assert BATCH_ROWS * BATCH_COLUMNS - columns < choose_batch_rows(columns) * columns <= BATCH_ROWS * BATCH_COLUMNS


def test_a_batch_has_never_few_rows() -> None:
    assert choose_batch_rows(1_000_000) == 1_024
