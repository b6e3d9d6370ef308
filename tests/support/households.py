"""A small table of households that several tests use: members with roles, and the spec of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.specs import make_spec

ROLES = ["head", "partner", "child"]
HOUSEHOLD_COLUMNS: dict[str, Any] = {
    "hid": {"kind": "drop"},
    "region": {"kind": "categorical", "values": ["north", "south"]},
    "role": {"kind": "categorical", "values": ROLES, "unlisted": "child"},
    "age": {"kind": "integer", "min": 0, "max": 89},
    "sex": {"kind": "categorical", "values": ["f", "m"]},
    "income": {"kind": "number", "min": 0, "max": 100, "decimals": 1},
}


def make_household_spec(**changes: Any) -> ReleaseSpec:
    """The spec of :func:`make_households`; keyword arguments replace top-level fields."""
    fields: dict[str, Any] = {
        "unit": {"household_id": "hid", "max_records": 5},
        "order": "role",
        "once": ["head", "partner"],
        "constant": ["region"],
    }
    return make_spec(changes.pop("columns", HOUSEHOLD_COLUMNS), **{**fields, **changes})


def make_households(households: int, seed: int = 0, children: int = 3) -> pa.Table:
    """Members of households in random order: partners of like age and mostly of other sex, children 25 years younger.

    ``children``: the most of one household.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    for household in range(households):
        region, age, sex = ("north", "south")[rng.integers(2)], int(rng.integers(25, 80)), rng.integers(2)
        own: list[tuple[Any, ...]] = [("head", age, "fm"[sex])]
        if rng.random() < 0.6:
            near = int(np.clip(age + rng.normal(0, 3), 20, 89))
            own.append(("partner", near, "fm"[sex if rng.random() < 0.05 else 1 - sex]))
        if age < 60 and rng.random() < 0.7:
            for _ in range(rng.integers(1, children + 1)):
                own.append(("child", max(0, min(24, age - 25 - int(rng.integers(0, 6)))), "fm"[rng.integers(2)]))
        for role, years, gender in own:
            income = 0.0 if role == "child" else float(np.clip(rng.normal(40, 10), 0, 100))
            rows.append((f"h{household}", region, role, years, gender, income))
    order = rng.permutation(len(rows))
    columns = list(zip(*(rows[i] for i in order), strict=True))
    return pa.table(dict(zip(HOUSEHOLD_COLUMNS, map(list, columns), strict=True)))
