"""A release whose cells a first look chose is improved, made again and evaluated as any other."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.pipelines.rung_steps import CUTS_FILE
from privsyn.tasks.estimation.rungs import read_cuts
from tests.unit.tasks.estimation.test_rungs import WEIGHT, weights


@pytest.mark.slow
def test_chosen_cells_go_through_improvement_rerun_and_evaluation(places: Path) -> None:
    rows = weights()
    spec = {
        "dataset": "weights",
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "budget": {"epsilon": 10.0, "delta": 1e-9},
        "columns": dict.fromkeys(rows.column_names, WEIGHT),
    }
    first = privsyn.release(rows, spec)
    second = privsyn.improve(first, epsilon=1.0, data=rows)
    for release in (first, second):
        cuts = read_cuts(pq.read_table(release.folder / CUTS_FILE))
        assert {cut.attribute for cut in cuts} == {"person", "household", "even"}
        assert privsyn.rerun(release).agrees
    assert privsyn.evaluate(second, rows).scores["release"]["l1_1way"] < 0.1
