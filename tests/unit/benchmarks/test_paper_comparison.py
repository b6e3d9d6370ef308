"""Figures 4 to 7 anew: the page by hand, every method known, a run that is kept is not run again."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks import paper_comparison as again
from benchmarks.compare import Job, method_version
from benchmarks.compare_page import REAL
from benchmarks.compare_store import Run, Store
from privsyn.comparison.method import DomainTooLargeError, Method
from privsyn.comparison.methods import METHODS
from tests.unit.comparison.test_methods import rows, trial


def run(method: str, seed: int, pairs: float, epsilon: float = 2.0) -> Run:
    figures = {"l1_2way": pairs, "range_query": 0.1, "svm": 0.2}
    return Run(method, "1", "adult", epsilon, seed, "done", figures, cpu=2.0, peak_mb=512.0, machine="a machine")


RUNS = [
    run("privsyn-paper", 0, 0.25),
    run("privsyn-paper", 1, 0.35),
    run("equal-gaussian", 0, 0.5),
    Run(REAL, "", "adult", 0.0, 0, "done", {"svm": 0.1, "majority": 0.3}),
]


def test_every_figure_compares_methods_that_exist() -> None:
    assert {m for _, names in again.FIGURES.values() for m in names} <= set(METHODS)
    assert {*again.TIMED, *again.LIMITED} <= set(METHODS)


def test_the_tables_have_mean_spread_and_what_is_best() -> None:
    lines = again.errors_table(RUNS, ("privsyn-paper", "equal-gaussian", "equal-laplace"))
    assert "| adult | pairs | 2 | **0.3 ±0.07** | 0.5 |  |" in lines
    assert not [line for line in lines if "| pairs | 1 |" in line]  # nothing was run there
    assert again.cost_table(RUNS)[3] == "| PrivSyn (paper) | 2 s, 0.50 GB |"


def test_a_method_that_did_not_fit_is_told() -> None:
    large = Run("equal-laplace", "1", "adult", 2.0, 0, "memory", detail="too large")
    lines = again.errors_table([*RUNS, large], ("privsyn-paper", "equal-laplace", "equal-gaussian"))
    assert "| adult | pairs | 2 | **0.3 ±0.07** | did not fit | 0.5 |" in lines


def test_what_does_not_fit_and_what_is_not_installed_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(method: Method, *rest: object) -> Run:
        raise DomainTooLargeError("too large") if method.name == "mcf" else ModuleNotFoundError("No module named 'mbi'")

    store = Store(tmp_path / "kept.jsonl")
    store.add(RUNS[-1])
    monkeypatch.setattr(again, "given", lambda name: Mock(train=rows(), trial=lambda epsilon, seed: trial()))
    monkeypatch.setattr(again, "measured", fails)
    again.run_all(store, [Job(m, "adult", 1.0, 0) for m in ("mcf", "mst-pgm")])
    assert [(r.method, r.outcome, r.detail) for r in Store(store.path).runs.values()][1:] == [
        ("mcf", "memory", "too large")
    ]


def test_the_picture_has_a_panel_a_metric_and_the_lines_of_reference() -> None:
    drawn = json.dumps(again.chart(RUNS, ("privsyn-paper", "equal-gaussian"), "Noise"))
    assert all(words in drawn for words in ("NonPriv", "Majority", "Equal Gaussian", *again.METRICS.values()))
    assert "Equal Laplace" not in drawn


def test_what_is_kept_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "kept.jsonl")
    store.add(Run("default", method_version("default"), "adult", 1.0, 0, "done"))
    monkeypatch.setattr(again, "given", lambda name: pytest.fail(f"{name} was run again"))
    again.run_all(store, [Job("default", "adult", 1.0, 0)])


def test_seeds_come_last_so_that_a_cut_run_has_every_table() -> None:
    wanted = list(again.jobs(["adult", "loans"], 2))
    assert [j.seed for j in wanted] == [0] * (len(wanted) // 2) + [1] * (len(wanted) // 2)
    assert len(set(wanted)) == len(wanted)
