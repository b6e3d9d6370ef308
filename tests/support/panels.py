"""A small panel that several tests use: persons with rows in the order of a year, and the spec of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.specs import make_spec

PANEL_COLUMNS: dict[str, Any] = {
    "pid": {"kind": "drop"},
    "year": {"kind": "integer", "min": 2000, "max": 2009},
    "sex": {"kind": "categorical", "values": ["f", "m"]},
    "age": {"kind": "integer", "min": 20, "max": 79},
    "income": {"kind": "number", "min": 0, "max": 100, "decimals": 1},
    "job": {"kind": "categorical", "values": ["none", "part", "full"]},
}


def make_panel_spec(**changes: Any) -> ReleaseSpec:
    """The spec of :func:`make_panel`; keyword arguments replace top-level fields."""
    fields: dict[str, Any] = {
        "unit": {"person_id": "pid", "max_records": 5},
        "order": "year",
        "constant": ["sex"],
        "with_order": ["age"],
    }
    return make_spec(changes.pop("columns", PANEL_COLUMNS), **{**fields, **changes})


def make_panel(persons: int, seed: int = 0, most: int = 7) -> pa.Table:
    """Rows of persons, 1 to ``most`` each, in random order: jobs mostly stay, incomes move a little."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    for person in range(persons):
        sex, born = ("f", "m")[rng.integers(2)], rng.integers(1940, 1970)
        job, income = rng.integers(3), rng.uniform(10, 60)
        for year in np.sort(rng.choice(np.arange(2000, 2010), rng.integers(1, most + 1), replace=False)):
            job = rng.integers(3) if rng.random() < 0.1 else job
            income = float(np.clip(income + rng.normal(0, 3), 0, 100))
            rows.append((f"p{person}", year, sex, year - born, income + 10 * job, ("none", "part", "full")[job]))
    order = rng.permutation(len(rows))
    columns = list(zip(*(rows[i] for i in order), strict=True))
    return pa.table(dict(zip(("pid", "year", "sex", "age", "income", "job"), map(list, columns), strict=True)))
