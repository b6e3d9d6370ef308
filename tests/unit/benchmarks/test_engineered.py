"""The specs of benchmarks/engineered.py: what follows from a detailed column does, and the table of the runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import engineered
from benchmarks.compare_store import Run, Store
from benchmarks.engineered import (
    DETAILED,
    FOLDER,
    LARGEST,
    UNMEASURED,
    colorado_sizes,
    colorado_spec,
    colorado_table,
    fire_spec,
    markdown,
)
from privsyn.data_contracts.rules import list_computed_columns
from privsyn.tasks.codecs import plan


def test_the_made_up_table_keeps_the_rules_of_its_engineered_spec() -> None:
    if not (FOLDER / "colorado1940-domain.json").is_file():
        pytest.skip("the shared list of columns is not here")
    spec, table, sizes = colorado_spec("engineered", 1.0), colorado_table(500), colorado_sizes()
    assert set(list_computed_columns(spec.rules)) == set(DETAILED)
    rules = plan(spec).rules
    assert rules is not None
    (batch,) = table.combine_chunks().to_batches()
    columns = {name: batch[name] for name in spec.released_columns}
    assert not any(wrong.any() for wrong in rules.find_differing_rows(columns).values())
    for name in DETAILED:
        assert len(np.unique(table[f"{name}D"])) > 1
        assert np.asarray(table[name]).max() < sizes[name]


def test_a_spec_that_does_not_measure_the_largest_column_lets_nothing_follow_from_it() -> None:
    if not (FOLDER / "fire2016.parquet").is_file():
        pytest.skip("the shared table is not here")
    plain, engineered = (fire_spec(f"{how}{UNMEASURED}", 0.1) for how in ("plain", "engineered"))
    assert list(plain.unmeasured_columns) == list(engineered.unmeasured_columns) == [LARGEST]
    assert not plain.rules and len(engineered.rules) == 2
    assert engineered.columns["Box"].levels == ("Station Area",) and not fire_spec("plain", 0.1).unmeasured_columns


def test_the_table_has_the_mean_of_the_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    for seed, density in enumerate((800_000.0, 810_000.0)):
        figures = {"nist_density": density, "nist_range": 9e5, "l1_1way": 0.01, "l1_2way": 0.1, "rows": 9.0}
        store.add(Run("plain", "1", "fire2016", 1.0, seed, "done", figures, 9.0, 8.0))
    lines = markdown(store, ["fire2016"], ["plain", "engineered"], [1.0])
    assert lines[2:] == [
        "| fire2016 | 1 | plain | 2 | 805,000 ±7,071 | 900,000 ±0 | 0.0100 ±0.0000 | 0.1000 ±0.0000 | 8 |"
    ]
    assert set(engineered.SPECS) == {"fire2016", "colorado"}
