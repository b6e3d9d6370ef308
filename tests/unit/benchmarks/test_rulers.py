"""What benchmarks/rulers.py reads off others' reports, and the tables that it makes of them."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import rulers
from benchmarks.compare_store import Run, Store
from benchmarks.relations import PublicTable
from benchmarks.rulers import (
    PLAIN,
    RULED,
    SYNMETER,
    describe_best,
    list_sdnist,
    list_two_tables,
    nist_spec,
    read_report,
    with_n,
)


def part(name: str, *texts: object) -> dict[str, object]:
    return {"metric_name": name, "attachments": {"-1": [{"name": None, "data": text} for text in texts]}}


def write_report(folder: Path, differences: str) -> None:
    """A report as SDNist writes it, cut down to what is read."""
    slopes = [{"name": "Total Population", "data": [["Regression: 0.63 slope, -0.1"], ["Regression: -0.62 slope, 0"]]}]
    slopes.append({"name": "American .. (AIANNH) Women", "data": [["0.54 slope"], ["0.29 slope"]]})
    regression = {"metric_name": "Linear Regression", "attachments": {"-1": slopes}}
    checks = ("h4child_MSP: Children (< 15)", "Highlight-192 violations", "h4infant_EDU: x", "Highlight-663 violations")
    content = {
        "utility": [
            part("K-Marginal Synopsys", "Highlight-K-Marginal Score: 976"),
            part("Propensity Mean Square Error", "Highlight-Score: 0.002"),
            part("Inconsistencies", *checks),
            regression,
        ],
        "privacy": [
            part(
                "Unique Exact Matches", "Target: -Highlight-9 (54.74%-Highlight-)", "-Highlight-5 (14.11%)-Highlight-"
            ),
            part("Apparent Match Distribution", "-Highlight-46 (0.17%)-Highlight-"),
        ],
    }
    (folder / "ui.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / differences).parent.mkdir()
    (folder / differences).write_text(",a,b,c\na,0,-0.1,0.2\nb,-0.1,0,0\nc,0.2,0,0\n", encoding="utf-8")


@pytest.mark.parametrize("differences", ["pearson/diff.csv", "pearson_correlation/correlation_difference.csv"])
def test_a_report_of_either_version_is_read(differences: str, tmp_path: Path) -> None:
    write_report(tmp_path, differences)
    figures, check = read_report(tmp_path)
    assert check == "infant_EDU"
    assert figures == {
        "k_marginal": 976,
        "pmse": 0.002,
        "broken": 663,
        "unique": 14.11,
        "apparent": 46,
        "slope.all": -0.62,
        "slope.AIANNH women": 0.29,
        "pearson": pytest.approx(0.1),  # of three pairs, not of nine cells
        "largest_pearson": 0.2,
    }


def test_null_is_n_and_whole_numbers_stay_whole() -> None:
    found = with_n(pa.table({"AGEP": [1, None], "MSP": pa.array([None, "2"])}))
    assert found.to_csv(index=False) == "AGEP,MSP\n1,N\nN,2\n"


def test_the_rules_of_a_subset_are_those_about_its_columns() -> None:
    columns = {
        "AGEP": {"kind": "integer", "min": 0, "max": 99},
        "MSP": {"kind": "categorical", "values": ["1", "2"], "nullable": True},
    }
    given = PublicTable("national2019", pa.table({"AGEP": [1], "MSP": ["1"]}), columns)
    assert nist_spec(given, PLAIN, 1.0).rules == ()
    assert {r.never for r in nist_spec(given, RULED, 1.0).rules} == {
        "AGEP < 15 and MSP is not null",
        "AGEP >= 15 and MSP is null",
    }


def test_means_over_seeds_and_the_best_bins_are_shown(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    for name, quality, outcome in (("m", 0.8, "done"), ("m, 16 own", 0.9, "done"), ("other", 0.0, "failed")):
        figures = {"quality": quality, "Column Shapes": quality, "Column Pair Trends": 0.5, "diagnostic": 1.0}
        store.add(Run(name, "1", "adult", 1.0, 0, outcome, figures, cpu=7.4, detail="cannot"))  # type: ignore[arg-type]
    assert describe_best(store, "sdmetrics", ["m"], "adult") == ".800 (.800, .500), 1.000; 7 s"
    assert describe_best(store, "sdmetrics", ["m", "m, 16 own"], "adult") == ".900 (.900, .500), 1.000 by 16 own; 7 s"
    assert describe_best(store, "sdmetrics", ["other"], "adult") == "cannot"
    store.add(Run("m", "1", "adult", 1.0, 1, "done", {**store.runs["m", "adult", 1.0, 0].figures, "quality": 0.6}))
    assert describe_best(store, "sdmetrics", ["m"], "adult") == ".700 ±.141 (.800, .500), 1.000; 7 s"
    names = ("pmse", "pearson", "largest_pearson", "broken", "unique", "apparent")
    groups = dict.fromkeys(("slope.all", "slope.Black women", "slope.Asian women", "slope.AIANNH women"), -0.5)
    for seed, score in enumerate((980.0, 990.0)):
        figures = {"k_marginal": score, **dict.fromkeys(names, 0.1), **groups}
        store.add(Run(PLAIN, "1", "national2019-demographic", 1.0, seed, "done", figures))
    assert list(list_sdnist(store))[-1].startswith("| PrivSyn Flows | 1 | 985 | .100 | .100 / .100 | -.50 |")


def test_the_least_distance_is_best_to_synmeter_and_a_limit_is_said_in_cpu_minutes(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    for name, distance in (("m", 0.2), ("m, 16 own", 0.1)):
        figures = {"synmeter": distance, **dict.fromkeys(SYNMETER, distance)}
        store.add(Run(name, "1", "adult", 1.0, 0, "done", figures, cpu=7.4))
    store.add(Run("slow", "1", "adult", 1.0, 0, "time", detail="900 s, 481 CPU s, 2000 MB"))
    parts = ", ".join([".100"] * len(SYNMETER))
    assert describe_best(store, "synmeter", ["m", "m, 16 own"], "adult") == f".100 ({parts}) by 16 own; 7 s"
    assert describe_best(store, "synmeter", ["slow"], "adult") == "stopped at 8 CPU minutes"
    assert describe_best(store, "sdmetrics", ["m"], "adult") == ""  # not laid on it yet
    store.add(replace(store.runs["m", "adult", 1.0, 0], method="real rows", cpu=None))
    assert list(list_two_tables(store, "synmeter"))[2:] == [f"| other real rows | .200 ({parts.replace('1', '2')}) |"]


def test_another_ruler_is_laid_on_kept_rows_and_runs_no_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": [1, 2]})
    given = PublicTable("adult", table, {"a": {"kind": "integer", "min": 1, "max": 2}})
    monkeypatch.setattr(rulers, "MADE", tmp_path / "made")
    monkeypatch.setattr(rulers, "load_table", lambda *_: given)
    monkeypatch.setattr(rulers, "get_version", lambda _: "1")
    laid: list[str] = []
    calls: list[int] = []

    def make(*_: object) -> tuple[pa.Table, float, float]:
        calls.append(1)
        return pa.table({"a": [1.2, 2.0]}), 1.0, 1.0

    def judge(ruler: str, _: PublicTable, made: pa.Table) -> dict[str, float]:
        assert made["a"].to_pylist() == [1, 2]
        laid.append(ruler)
        return {rulers.TWO_TABLES[ruler]: 0.5}

    monkeypatch.setattr(rulers, "make_table", make)
    monkeypatch.setattr(rulers, "judge_by", judge)
    store = Store(tmp_path / "runs")
    asked = argparse.Namespace(methods=["privsyn"], tables=["adult"], seeds=1, minutes=1, kept=False, untuned=True)
    for ruler in ("sdmetrics", "synmeter"):
        rulers.run_rulers(store, argparse.Namespace(**vars(asked), ruler=ruler))
    assert laid == ["sdmetrics", "synmeter", "synmeter"]  # the last: on the real rows
    assert len(calls) == 1
    assert store.runs["privsyn", "adult", 1.0, 0].figures == {"quality": 0.5, "synmeter": 0.5}
