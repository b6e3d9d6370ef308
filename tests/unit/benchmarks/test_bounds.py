"""What benchmarks/bounds.py gives to a peer, and reads from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks import bounds
from benchmarks.relations import PublicTable


def test_a_peer_gets_every_bound_as_typed_and_days_as_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PublicTable] = []

    def run(given: PublicTable, *_: object, **__: object) -> tuple[Any, ...]:
        seen.append(given)
        return given.table, 1.0, 2.5, 100.0

    monkeypatch.setattr(bounds, "run_binned", run)
    rows = bounds.make_table(50)
    rows.insert(0, "sex", np.random.default_rng(1).choice(["f", "m"], 50))
    table = pa.Table.from_pandas(rows, preserve_index=False)
    made = bounds.release_by_peer("mst-dpsynth", bounds.build_spec(1.0, 10), table, 0, minutes=1)
    pd.testing.assert_frame_equal(made, bounds.to_numbers(rows), check_dtype=False)
    assert made.attrs["cpu"] == 2.5
    columns = seen[0].columns
    assert (columns["pay"]["min"], columns["pay"]["max"]) == (0, 100_000)
    assert columns["since"] == {"kind": "integer", "min": -bounds.DAYS * 9, "max": bounds.DAYS}
