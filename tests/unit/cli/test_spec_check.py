"""What ``privsyn spec check`` prints of a table's fit."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.console import Console

import privsyn
from privsyn.cli.spec_command import render_check
from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.households import make_household_spec, make_households
from tests.support.panels import make_panel, make_panel_spec


@pytest.mark.parametrize(
    ("spec", "table", "words"),
    [
        (make_panel_spec(), make_panel(50), "multiplies the noise of the counts of all rows only"),
        (make_household_spec(), make_households(50), "adds no noise"),
        (make_panel_spec(order=None, constant=[], with_order=[]), make_panel(50), "multiplies the noise"),
    ],
    ids=["linked rows", "households", "rows that are not linked"],
)
def test_a_check_says_what_a_larger_cap_costs(spec: ReleaseSpec, table: pa.Table, words: str) -> None:
    capped = spec.model_copy(update={"unit": spec.unit.model_copy(update={"max_records": 2})})
    printed = io.StringIO()
    render_check(privsyn.check_spec(capped, table), Console(file=printed, width=400), panel=capped.panel)
    assert f"A larger cap keeps more rows, and {words}." in printed.getvalue()
