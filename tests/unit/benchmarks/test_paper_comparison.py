"""Figures 4 to 7 anew: the tables by hand, and every method known."""

from __future__ import annotations

from benchmarks import paper_comparison as again
from benchmarks.compare_page import REAL
from benchmarks.compare_store import Run


def run(method: str, seed: int, pairs: float, epsilon: float = 2.0) -> Run:
    figures = {"l1_2way": pairs, "range_query": 0.1, "svm": 0.2}
    return Run(method, "1", "adult", epsilon, seed, "done", figures, cpu=2.0, peak_mb=512.0, machine="a machine")


RUNS = [
    run("privsyn-paper", 0, 0.25),
    run("privsyn-paper", 1, 0.35),
    run("equal-gaussian", 0, 0.5),
    Run(REAL, "", "adult", 0.0, 0, "done", {"svm": 0.1, "majority": 0.3}),
]


def test_the_tables_have_mean_and_spread_of_every_method_that_ran() -> None:
    lines = again.errors_table(RUNS, ("privsyn-paper", "equal-gaussian", "equal-laplace"), 2.0)
    assert lines[0] == "| method | adult, pairs | adult, SVM |"
    assert lines[2:] == ["| PrivSyn (paper) | 0.3±0.07 | 0.2±0 |", "| Equal Gaussian | 0.5 | 0.2 |"]
    assert not again.errors_table(RUNS, ("privsyn-paper",))[2:]  # nothing was run at epsilon 1
    assert again.cost_table(RUNS)[2] == "| PrivSyn (paper) | 2 s |"
