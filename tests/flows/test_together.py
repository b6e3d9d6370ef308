"""A release whose times move together, as the docs have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import privsyn
from privsyn.base.settings import Settings
from privsyn.ledgers.ledger import Ledger
from tests.support.documented import read_example
from tests.support.releases import run
from tests.support.specs import make_spec

pytestmark = pytest.mark.usefixtures("places")

Save = Callable[..., str]
HOUR = 3_600


def calls(rows: int) -> pa.Table:
    """Calls of a year; what is sent follows within minutes, and a third never arrives."""
    rng = np.random.default_rng(0)
    called = np.datetime64("2025-01-01") + rng.integers(0, 364 * 86_400, rows).astype("timedelta64[s]")
    sent = called + rng.integers(60, HOUR, rows).astype("timedelta64[s]")
    arrived = np.where(rng.random(rows) < 1 / 3, np.datetime64("NaT"), sent + np.timedelta64(HOUR, "s"))
    columns: dict[str, Any] = {"called": called, "sent": sent, "arrived": arrived}
    return pa.table(
        {name: pa.array(v, pa.timestamp("s")) for name, v in columns.items()} | {"calls": rng.integers(0, 10, rows)}
    )


def close(folder: str | Path) -> float:
    """The share of rows in which what is sent is sent within six hours of the call."""
    table = privsyn.open_release(folder).table
    apart = pc.abs(pc.subtract(table["sent"].cast(pa.int64()), table["called"].cast(pa.int64())))
    return float(pc.mean(pc.less(apart, 6 * HOUR * 1_000_000).cast(pa.float64())).as_py())


def test_the_example_of_the_docs_is_released(save: Save) -> None:
    example = read_example("docs/columns.md")
    data, columns = save(calls(3_000)), example.pop("columns")
    privacy: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-9}
    budget = {"epsilon": 50.0, "delta": 1e-8}
    common = {"data": data, "synthesis": {"sweeps": 2}, "privacy": privacy, "budget": budget}
    plain = run(make_spec(columns, **common))
    paid = Ledger(Settings().ledger).summary()[0].rho
    made = run(make_spec(columns, **common, **example))
    assert Ledger(Settings().ledger).summary()[0].rho == paid  # only the last step is made again
    assert close(plain.released) < 0.1
    assert close(made.released) > 0.8
    note = (Path(made.released) / "README.md").read_text(encoding="utf-8")
    assert "## Columns that move together" in note and "- called, sent, arrived" in note
    assert "move together" not in (Path(plain.released) / "README.md").read_text(encoding="utf-8")
    ours, theirs = (privsyn.open_release(m.released).table for m in (plain, made))
    for name in columns:
        nulls = {t[name].null_count for t in (ours, theirs)}
        assert len(nulls) == 1


@pytest.mark.slow
def test_round_values_move_together_and_single_values_are_looked_for_anew(save: Save) -> None:
    """Of columns in `together` no single value is asked, so one without it looks for them anew."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 600, 4_000) * 10
    x[:1_500] = 1_230
    y = np.clip(x + rng.integers(-20, 20, len(x)) * 10, 0, 9_990)
    columns = {name: {"kind": "integer", "min": 0, "max": 9_999} for name in "xy"}
    common: dict[str, Any] = {"data": save(pa.table({"x": x, "y": y})), "synthesis": {"sweeps": 2}}
    common |= {"privacy": {"epsilon": 8.0, "delta": 1e-9}, "budget": {"epsilon": 50.0, "delta": 1e-8}}
    with_it, without = (run(make_spec(columns, **common, **more)) for more in ({"together": [["x", "y"]]}, {}))
    frequent = [
        int((privsyn.open_release(made.released).to_pandas()["x"] == 1_230).sum()) for made in (with_it, without)
    ]
    assert frequent[0] < 500 and 1_200 < frequent[1] < 1_800
