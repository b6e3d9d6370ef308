"""The note's examples run as they stand, and it says which columns were counted together, or that none were."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import privsyn
from tests.support.answered import spec, table

Save = Callable[..., str]


def released(save: Save, **changes: Any) -> Path:
    return privsyn.release(None, spec(data=save(table(500)), **changes)).folder


def blocks(note: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", note, re.DOTALL)


def test_the_examples_run_as_they_stand(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb", reason="no duckdb: install privsyn-flows[dev]")
    folder = released(save)
    note = (folder / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    (python,) = blocks(note, "python")
    exec(python, names)  # noqa: S102 - the example is what is tested
    rows = pq.read_table(folder / "synthetic.parquet")
    pd.testing.assert_frame_equal(names["rows"], rows.to_pandas())
    few, alone, joint = blocks(note, "sql")
    assert len(duckdb.sql(few).fetchall()) == 5
    recode = pq.read_table(folder / "marginals" / "recode.parquet").to_pandas()
    found = duckdb.sql(alone).df()
    assert len(found) == len(recode)
    np.testing.assert_allclose(np.sort(found.std_error), np.sort(np.sqrt(recode.variance)))
    receipts = pq.read_table(folder / "marginals" / "measured_receipts.parquet").to_pandas()
    first = receipts[receipts.attributes.map(len) == 2].iloc[0]
    counts = pq.read_table(folder / "marginals" / "measured.parquet").to_pandas()
    shown = duckdb.sql(joint).df()
    assert shown["count"].tolist() == counts[counts["query"] == first["query"]]["count"].tolist()
    assert (shown.std_error == first.sigma).all()
    assert shown["first"].nunique() * shown["second"].nunique() == first.cells


def test_the_stata_example_writes_a_file_that_holds_the_rows(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = released(save)
    (stata,) = blocks((folder / "README.md").read_text(encoding="utf-8"), "stata")
    code = stata.splitlines()[0].removeprefix("python: ").replace('"rows.dta"', repr(str(tmp_path / "rows.dta")))
    monkeypatch.chdir(folder)
    exec(code, {})  # noqa: S102 - the example is what is tested
    assert len(pd.read_stata(tmp_path / "rows.dta")) == pq.read_metadata(folder / "synthetic.parquet").num_rows


def test_measured_pairs_are_listed_with_their_noise(places: Path, save: Save) -> None:
    folder = released(save)
    note = (folder / "README.md").read_text(encoding="utf-8")
    receipts = pq.read_table(folder / "marginals" / "measured_receipts.parquet").to_pylist()
    pairs = [r for r in receipts if len(r["attributes"]) == 2]
    assert pairs and f"{len(pairs)} of 6 pairs of columns were counted together" in note
    assert all(f"| {' × '.join(r['attributes'])} | {r['sigma']:,.1f} |" in note for r in pairs)


def test_a_release_without_relations_says_so(places: Path, save: Save) -> None:
    note = (released(save, mechanism={"name": "independent"}, synthesis={}) / "README.md").read_text(encoding="utf-8")
    assert "No relation was measured: columns are independent of each other." in note
    assert "measured_receipts" not in note and "counted together" not in note
