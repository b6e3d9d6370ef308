"""Whole runs in memory with random exact totals, shards, seeds and rules: no released row is one too many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.sources.open_source import open_source
from tests.support.examples import choose_example_count
from tests.support.specs import COLUMNS, make_spec, people

STATEMENT = "Residents by region, published by the office on 2026-01-01."
USED = {name: COLUMNS[name] if name in ("age", "region", "happy") else {"kind": "drop"} for name in COLUMNS}
REGIONS = ("north", "south", "east", "other")
RULES = ([], [{"never": "region == 'north' and (age < 60 or age is null)"}], [{"never": "age > 30 and not happy"}])


def synthetic(spec: Any, table: pa.Table) -> pa.Table:
    """The rows of a run with seeded noise."""
    request = Request(spec, tuple(spec.released_columns), threads=1)
    steps, draw = build_steps(request), draw_from_seed(spec.mechanism.synthesis.seed)
    private = PrivateAccess(lambda *_: open_source(table, spec).batches())
    return MemoryRun(request, steps, draw, private).run()[steps[-1].name]["synthetic"]


@settings(max_examples=choose_example_count(12), deadline=None)
@given(
    st.lists(st.integers(0, 120), min_size=8, max_size=8).filter(lambda counts: sum(counts) > 0),
    st.sampled_from(["region", "pair", "both"]),
    st.integers(20, 500),
    st.integers(0, 1_000),
    st.sampled_from(RULES),
    st.sampled_from([0.1, 1.0, 20.0]),
)
def test_released_rows_have_exact_totals(
    counts: list[int], kind: str, shard_rows: int, seed: int, rules: list[dict[str, str]], epsilon: float
) -> None:
    cells = {(r, h): n for (r, h), n in zip(((r, h) for r in REGIONS for h in (True, False)), counts, strict=True)}
    one = {r: cells[r, True] + cells[r, False] for r in REGIONS}
    by_region = {"columns": ["region"], "counts": [{"region": r, "count": n} for r, n in one.items()]}
    by_both = {
        "columns": ["region", "happy"],
        "counts": [{"region": r, "happy": h, "count": n} for (r, h), n in cells.items()],
    }
    stated = {"region": [by_region], "pair": [by_both], "both": [by_region, by_both]}[kind]
    spec = make_spec(
        USED,
        totals=[{**total, "statement": STATEMENT} for total in stated],
        rules=rules,
        privacy={"epsilon": epsilon, "delta": 1e-9},
        budget={"epsilon": 100, "delta": 1e-8},
        synthesis={"sweeps": 2, "seed": seed, "shard_rows": shard_rows},
    )
    made = synthetic(spec, people(100, seed))
    found = Counter(zip(made["region"].to_pylist(), made["happy"].to_pylist(), strict=True))
    if kind == "region":
        assert Counter(made["region"].to_pylist()) == {r: n for r, n in one.items() if n}
    else:
        assert found == {cell: n for cell, n in cells.items() if n}
    age = np.array([np.nan if a is None else a for a in made["age"].to_pylist()], dtype=float)
    region, happy = np.asarray(made["region"].cast(pa.string())), np.asarray(made["happy"])
    if "north" in str(rules):
        assert not ((region == "north") & ~(age >= 60)).any()
    elif rules:
        assert not ((age > 30) & ~happy).any()
