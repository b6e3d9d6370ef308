"""Releases in memory for the tests of answers: seeded noise, and the table's own rows to hold answers against."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from privsyn.answers.released_counts import MemoryCounts
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed, name_by_files
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from tests.support.specs import make_spec

COLUMNS = {
    "age": {"kind": "integer", "min": 18, "max": 89, "bins": 12, "nullable": True},
    "income": {"kind": "number", "min": 0, "max": 100_000, "bins": 10},
    "region": {"kind": "categorical", "values": ["north", "south", "east"], "unlisted": "other"},
    "happy": {"kind": "boolean"},
}


def table(rows: int, seed: int = 0) -> pa.Table:
    """A table for COLUMNS, all values inside, whose columns are related."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, rows)
    income = np.clip((age - 15) * 900 + rng.normal(0, 9_000, rows), 0, 99_999)
    region = np.where(age > 50, "north", np.where(rng.random(rows) < 0.5, "south", "east"))
    nulls = rng.random(rows) < 0.05
    return pa.table({"age": pa.array(age, mask=nulls), "income": income, "region": region, "happy": income > 30_000})


def spec(epsilon: float = 3.0, **changes: object) -> ReleaseSpec:
    """A spec of COLUMNS."""
    promise = {"epsilon": epsilon, "delta": 1e-9}
    return make_spec(COLUMNS, privacy=promise, **{"synthesis": {"sweeps": 2}, **changes})


def released(rows: pa.Table, asked: ReleaseSpec, seed: int) -> MemoryCounts:
    """A release of the table with seeded noise."""
    request = Request(asked, tuple(rows.column_names), 1)
    steps, access = build_steps(request), PrivateAccess(lambda repairs=None: rows.to_batches())
    made = MemoryRun(request, steps, draw_from_seed(seed), access).run()
    return MemoryCounts.of_run(request, name_by_files(steps, made))
