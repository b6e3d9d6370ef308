"""The note's examples run as they stand, and it says which columns were counted together, or that none were."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import defusedxml.ElementTree as defused
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.settings import Settings
from privsyn.data_contracts.certificate import NO_RELATION_MEASURED
from privsyn.engine.step import LookDescription
from privsyn.flows.run_page import format_certificate_page
from privsyn.pipelines.one_shot import JOINT_COUNTS, SINGLE_COUNTS
from privsyn.pipelines.registry import plan_release
from privsyn.publish.release_note import (
    MOST_LINES,
    RelatedPair,
    _compute_chance,
    draw_picture,
    find_column_codes,
    list_related_pairs,
)
from privsyn.storage.released_files import read_certificate
from privsyn.tasks.estimation.recode import recode_from_table
from tests.support.answered import COLUMNS, spec, table
from tests.support.releases import release_in_process
from tests.support.specs import make_spec

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


R = shutil.which("Rscript")


def r_says(code: str, folder: Path) -> str:
    """What R prints of it, run in the folder."""
    return subprocess.run([str(R), "-e", code], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(R is None, reason="needs R (Debian: r-base-core)")
def test_the_r_example_without_arrow_reads_the_rows(places: Path, save: Save) -> None:
    folder = released(save, formats=["parquet", "csv"])
    _, code = blocks((folder / "README.md").read_text(encoding="utf-8"), "r")
    rows = pq.read_table(folder / "synthetic.parquet")
    said = r_says(f"{code.strip()}; cat(nrow(rows), sum(is.na(rows)), names(rows), sep = '\\n')", folder)
    nulls = sum(column.null_count for column in rows.columns)
    assert said.splitlines() == [str(rows.num_rows), str(nulls), *rows.column_names]


@pytest.mark.skipif(R is None, reason="needs R (Debian: r-base-core)")
def test_the_r_example_with_arrow_reads_the_rows(places: Path, save: Save) -> None:
    folder = released(save)
    if r_says("cat(requireNamespace('arrow', quietly = TRUE))", folder) != "TRUE":
        pytest.skip("needs R's package arrow, which Debian does not have")
    code, _ = blocks((folder / "README.md").read_text(encoding="utf-8"), "r")
    said = r_says(f"{code.strip()}; cat(nrow(rows))", folder)
    assert said == str(pq.read_metadata(folder / "synthetic.parquet").num_rows)


def test_measured_pairs_are_listed_with_their_strength_and_noise(places: Path, save: Save) -> None:
    folder = released(save)
    note = (folder / "README.md").read_text(encoding="utf-8")
    receipts = pq.read_table(folder / "marginals" / "measured_receipts.parquet").to_pylist()
    pairs = [r for r in receipts if len(r["attributes"]) == 2]
    said = "All 6 pairs" if len(pairs) == 6 else f"{len(pairs)} of 6 pairs"
    assert pairs and f"{said} of columns {'was' if len(pairs) == 1 else 'were'} counted together" in note
    assert ("Other pairs follow" in note) == (len(pairs) < 6)
    for r in pairs:
        assert re.search(rf"\| {' × '.join(r['attributes'])} \| [0-9.]+ % \| {r['sigma']:,.1f} \|", note)
    assert "](relations.svg)" in note and (folder / "relations.svg").read_text().count("<path") == len(pairs)


def test_a_pair_inside_a_larger_marginal_has_the_noise_of_its_sums() -> None:
    counts = np.zeros((2, 2, 3))
    counts[0, 0], counts[1, 1] = 10, 30  # the first two are one column twice, the third is independent of them
    rows = [(["a"], [30, 90], 1.0), (["b"], [30, 90], 1.0), (["c"], [40, 40, 40], 1.0), (["a", "b", "c"], counts, 2.0)]
    table = pa.table(
        {
            "attributes": [names for names, _, _ in rows],
            "counts": [list(np.ravel(c).astype(float)) for _, c, _ in rows],
            "sigma": [sigma for _, _, sigma in rows],
        }
    )
    first, *others = list_related_pairs(table, {})
    assert first.columns == ("a", "b") and first.sigma == pytest.approx(2 * 3**0.5)
    assert first.strength == pytest.approx(0.5 * 4 * 0.25 * 0.75)  # four cells, each off by p (1 - p)
    assert [p.strength for p in others] == pytest.approx([0, 0]) and others[0].sigma == pytest.approx(2 * 2**0.5)


def test_pairs_that_were_only_scored_stand_in_the_note_with_their_score(places: Path, save: Save) -> None:
    """A tree counts three of six pairs together."""
    folder = privsyn.release(None, make_spec(COLUMNS, data=save(table(500)), mechanism={"name": "mst"})).folder
    note = (folder / "README.md").read_text(encoding="utf-8")
    receipts = pq.read_table(folder / "marginals" / "scores_receipts.parquet").to_pylist()
    scores = pq.read_table(folder / "marginals" / "scores.parquet").to_pylist()
    consistent = pq.read_table(folder / "marginals" / "consistent.parquet").to_pylist()
    counted = {frozenset(row["attributes"]) for row in consistent if len(row["attributes"]) == 2}
    rows = sum(next(row["counts"] for row in consistent if len(row["attributes"]) == 1))
    left = [(r, s) for r, s in zip(receipts, scores, strict=True) if frozenset(r["attributes"]) not in counted]
    assert left and f"{len(left):,} pairs of columns were scored and not counted together" in note
    for receipt, score in left:
        a, b = receipt["attributes"]
        (line,) = [line for line in note.splitlines() if line.startswith(f"| {a} × {b} |")]
        shown = [cell.strip() for cell in line.split("|")[2:5]]
        assert shown[0] == f"{100 * score['count'] / (2 * rows):.1f} %"
        assert shown[2] == f"{100 * receipt['sigma'] / (2 * rows):.1f} %"


def test_independent_columns_score_about_what_stands_under_chance() -> None:
    rng, rows = np.random.default_rng(2), 3_000
    shares = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(5))
    found = []
    for _ in range(40):
        counts = rng.multinomial(rows, np.outer(*shares).ravel()).reshape(8, 5)
        expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / rows
        found.append(0.5 * np.abs(counts - expected).sum() / rows)
    assert _compute_chance(shares, [np.zeros(8), np.zeros(5)], rows) == pytest.approx(np.mean(found), rel=0.1)


def test_noise_in_the_counts_that_scores_are_distances_from_is_chance() -> None:
    rng, rows, sigma = np.random.default_rng(3), 3_000, 80.0
    shares = rng.dirichlet(np.full(8, 5.0)), rng.dirichlet(np.full(5, 5.0))
    found = []
    for _ in range(100):
        counts = rng.multinomial(rows, np.outer(*shares).ravel()).reshape(8, 5)
        ones = [np.maximum(counts.sum(axis=1 - i) + rng.normal(0, sigma, s.size), 0) for i, s in enumerate(shares)]
        expected = rows * np.outer(*(one / one.sum() for one in ones))
        found.append(0.5 * np.abs(counts - expected).sum() / rows)
    noise = [np.full(s.size, sigma / rows) for s in shares]
    assert _compute_chance(shares, noise, rows) == pytest.approx(np.mean(found), rel=0.1)


def test_the_strength_of_a_split_column_is_that_of_the_column(places: Path, save: Save) -> None:
    """A computed column splits the hour's codes; rows of one hour with other minutes are no other hour."""
    rng = np.random.default_rng(3)
    hour, minute = rng.integers(0, 24, 5_000), rng.integers(0, 60, 5_000)
    data = pa.table({"hour": hour, "minute": minute, "time": 100 * hour + minute, "late": minute + hour > 40})
    columns = {
        "hour": {"kind": "integer", "min": 0, "max": 23},
        "minute": {"kind": "integer", "min": 0, "max": 59},
        "time": {"kind": "integer", "min": 0, "max": 2400, "bins": 32},
        "late": {"kind": "boolean"},
    }
    how = {"preset": "0.3", "privacy": {"epsilon": 50.0, "delta": 1e-9}, "budget": {"epsilon": 99.0, "delta": 1e-9}}
    spec = make_spec(columns, data=save(data), rules=[{"derive": {"time": "hour * 100 + minute"}}], **how)
    folder = Path(release_in_process(spec, Settings()).released)
    request = plan_release(spec, column_order=("hour", "minute", "time", "late")).request
    recode = recode_from_table(pq.read_table(folder / "marginals" / "recode.parquet"))
    codes = find_column_codes(recode, request.encoding.codecs)
    assert list(codes) == ["hour"] and codes["hour"].max() + 1 == 24 < recode["hour"].size
    joint = np.zeros((24, 2))
    np.add.at(joint, (hour, data["late"].to_numpy(zero_copy_only=False).astype(int)), 1 / 5_000)
    real = 0.5 * np.abs(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0))).sum()
    consistent = pq.read_table(folder / "marginals" / "consistent.parquet")
    found = {pair.columns: pair.strength for pair in list_related_pairs(consistent, codes)}
    assert found["hour", "late"] == pytest.approx(real, abs=0.01)
    assert {p.columns: p.strength for p in list_related_pairs(consistent, {})}["hour", "late"] > real + 0.01


def test_the_picture_escapes_names_and_leaves_out_the_weakest() -> None:
    names = [f"<c{i}&>" for i in range(20)]
    pairs = [RelatedPair((a, b), 0.3, 1.0) for a, b in combinations(names, 2)]
    drawn = draw_picture(pairs)
    root = defused.fromstring(drawn)  # well-formed, and names are text
    assert drawn.count("<path") == MOST_LINES < len(pairs) and f"{MOST_LINES} strongest of {len(pairs)}" in drawn
    assert "<c0&>" in {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert drawn == draw_picture(list(pairs))


def test_a_release_without_relations_says_so(places: Path, save: Save) -> None:
    folder = released(save, mechanism={"name": "independent"}, synthesis={})
    note = (folder / "README.md").read_text(encoding="utf-8")
    certificate = read_certificate(folder)
    assert certificate.relations == NO_RELATION_MEASURED
    assert f"**N{NO_RELATION_MEASURED[1:]}.**" in format_certificate_page(
        certificate, defaultdict(lambda: LookDescription(counted="", reason=lambda r: ""))
    )
    assert not (folder / "relations.svg").exists()
    assert "No relation was measured: columns are independent of each other." in note
    assert "measured_receipts" not in note and "counted together" not in note


def test_where_no_pair_was_worth_its_noise_the_costs_name_no_related_columns(places: Path, save: Save) -> None:
    folder = released(save, epsilon=0.05, synthesis={})
    note = (folder / "README.md").read_text(encoding="utf-8")
    assert read_certificate(folder).relations == NO_RELATION_MEASURED
    assert f"| {SINGLE_COUNTS} |" in note and JOINT_COUNTS not in note
