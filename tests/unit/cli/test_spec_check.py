"""What ``privsyn spec check`` prints of a table's fit."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import privsyn
from privsyn.cli.spec_command import render_check
from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.households import make_household_spec, make_households
from tests.support.panels import make_panel, make_panel_spec
from tests.support.specs import make_spec


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


def make_accounts(rows: int = 2_000) -> pa.Table:
    """Return accounts of which who takes part could, and every sum is that of its parts."""
    draws = np.random.default_rng(3)
    could, base, bonus = draws.random(rows) < 0.5, draws.integers(0, 900, rows), draws.integers(0, 400, rows)
    took = could & (draws.random(rows) < 0.5)
    return pa.table({"could": could, "took part": took, "base": base, "bonus": bonus, "gross pay": base + bonus})


def make_accounts_spec(**fields: Any) -> ReleaseSpec:
    amounts = {n: {"kind": "integer", "min": 0, "max": 2_000} for n in ("base", "bonus", "gross pay")}
    return make_spec({"could": {"kind": "boolean"}, "took part": {"kind": "boolean"}, **amounts}, **fields)


def test_advice_stands_in_its_private_frame_with_yaml_that_no_line_breaks() -> None:
    """Nothing of it stands outside the frame, and without a table there is none."""
    printed = io.StringIO()
    render_check(privsyn.check_spec(make_accounts_spec(), make_accounts()), Console(file=printed, width=60))
    text = printed.getvalue()
    start, end = text.index("PRIVATE - advice before paying"), text.index("PRIVATE - end of the advice")
    assert "gross pay" not in text[end:] and "implies" not in text[:start]
    advice = text[start:end].splitlines()
    counts_left_out = [re.sub(r"\(\d+ ", "(# ", line) for line in advice]
    assert "`took part` implies `could` (# rows), in all 2,000 rows: a rule?" in counts_left_out
    at = advice.index('  - derive: {gross pay: "base + bonus"}')
    assert advice[at + 1] == "    source: TODO"
    assert '  - never: "`took part` and not could"' in advice
    public = io.StringIO()
    render_check(privsyn.check_spec(make_accounts_spec()), Console(file=public, width=60))
    assert "advice" not in public.getvalue() and "PRIVATE" not in public.getvalue()


def test_a_spec_that_says_all_gets_no_frame() -> None:
    rules = [{"derive": {"gross pay": "base + bonus"}}, {"never": "`took part` and not could", "source": "the law"}]
    printed = io.StringIO()
    report = privsyn.check_spec(make_accounts_spec(rules=rules), make_accounts())
    render_check(report, Console(file=printed, width=60))
    assert "advice" not in printed.getvalue()
