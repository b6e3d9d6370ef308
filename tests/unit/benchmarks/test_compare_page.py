"""The store of runs, and tables of pages that are made of stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare_page, relations_page
from benchmarks import paper_comparison as again
from benchmarks.compare import STORE
from benchmarks.compare_page import REAL
from benchmarks.compare_store import Run, Store
from benchmarks.labels import SHOWN, list_lines
from benchmarks.relations import KEPT
from benchmarks.results import BEGIN, DOCS, END, FIGURES, PAGE, errors_needed, marginals, overlap, page, shape
from privsyn.data_contracts.evaluation import ComparedMethod, Comparison, EvaluationSpec, MethodRun, Metric
from privsyn.evaluation.comparison.compare_methods import METHODS


def test_the_comparison_says_what_the_kept_runs_say() -> None:
    text = compare_page.PAGE.read_text(encoding="utf-8")
    assert text.count(compare_page.BEGIN) == text.count(compare_page.END) == 1
    written = text.split(compare_page.BEGIN)[1].split(compare_page.END)[0].strip("\n").splitlines()
    found = compare_page.page(compare_page.Runs(Store(STORE).runs.values()))
    assert written == found, "run: python -m benchmarks.compare --only page"


def test_the_page_of_relations_says_what_the_kept_runs_say() -> None:
    begin, end = relations_page.MARKERS
    written = relations_page.PAGE.read_text(encoding="utf-8").split(begin)[1].split(end)[0].strip("\n").splitlines()
    assert written == list(relations_page.list_lines(Store(KEPT))), "run: python -m benchmarks.relations_page"


def store_run(**changes: Any) -> Run:
    content = {"method": "m", "version": "1", "table": "t", "epsilon": 1.0, "seed": 0, "outcome": "done"}
    return Run(**{**content, **changes})


def test_runs_come_back(tmp_path: Path) -> None:
    first, second = (
        store_run(figures={"l1_2way": 0.1}, wall=2.0),
        store_run(seed=1, outcome="failed", detail="it broke"),
    )
    store = Store(tmp_path / "runs.jsonl")
    store.add(first)
    store.add(second)
    again = Store(tmp_path / "runs.jsonl")
    assert list(again.runs.values()) == [first, second]
    assert again.has("m", "1", "t", 1.0, 1)
    assert not again.has("m", "2", "t", 1.0, 1)  # another version is another store_run
    assert not again.has("m", "1", "t", 1.0, 2)


def test_a_line_cut_short_is_dropped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    store = Store(path)
    store.add(store_run())
    store.add(store_run(seed=1))
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    again = Store(path)
    assert list(again.runs.values()) == [store_run()]
    again.add(store_run(seed=2))
    assert [r.seed for r in Store(path).runs.values()] == [0, 2]


def test_a_row_has_means_with_their_spread_what_did_not_finish_and_what_was_not_run() -> None:
    found = [
        {"of": ["OFP", 1.0, "privsyn", 0], "svm": 0.2, "trees": 0.4},
        {"of": ["OFP", 1.0, "privsyn", 1], "svm": 0.3, "trees": 0.5},
        {"of": ["OFP", 1.0, "aim-dpmm", 0], "detail": "TimeoutError: 1,200 s"},
        {"of": ["OFP", 1.0, "tab-pe", 0], "detail": "PeerError: ValueError: probabilities contain NaN"},
        {"of": ["SLID", 1.0, "real", 0], "svm": 0.1, "trees": 0.1},
    ]
    head, _, *rows = list_lines(found)
    names = [cell.strip() for cell in head.split("|")[1:-1]]
    cells = [dict(zip(names, (c.strip() for c in row.split("|")[1:-1]), strict=True)) for row in rows]
    assert [row["table"] for row in cells] == ["SLID", "OFP"]
    assert cells[1][SHOWN["privsyn"]] == "0.350 ±0.071"
    assert cells[1][SHOWN["aim-dpmm"]] == "did not finish" and not cells[1][SHOWN["mst-dpmm"]]
    assert cells[1][SHOWN["tab-pe"]] == "failed"
    assert cells[0][SHOWN["real"]] == "0.100"


def paper_run(method: str, seed: int, pairs: float, epsilon: float = 2.0) -> Run:
    figures = {"l1_2way": pairs, "range_query": 0.1, "svm": 0.2}
    return Run(method, "1", "adult", epsilon, seed, "done", figures, cpu=2.0, peak_mb=512.0, machine="a machine")


RUNS = [
    paper_run("privsyn-paper", 0, 0.25),
    paper_run("privsyn-paper", 1, 0.35),
    paper_run("equal-gaussian", 0, 0.5),
    Run(REAL, "", "adult", 0.0, 0, "done", {"svm": 0.1, "majority": 0.3}),
]


def test_the_tables_have_mean_and_spread_of_every_method_that_ran() -> None:
    lines = again.errors_table(RUNS, ("privsyn-paper", "equal-gaussian", "equal-laplace"), 2.0)
    assert lines[0] == "| method | adult, pairs | adult, SVM |"
    assert lines[2:] == ["| PrivSyn (paper) | 0.3±0.07 | 0.2±0 |", "| Equal Gaussian | 0.5 | 0.2 |"]
    assert not again.errors_table(RUNS, ("privsyn-paper",))[2:]  # nothing was paper_run at epsilon 1
    assert again.cost_table(RUNS)[2] == "| PrivSyn (paper) | 2 s |"


def run(method: str, seed: int, value: float, marginals: Any = ()) -> MethodRun:
    metric = Metric(
        name="l1_2way", title="Pairs", group="marginals", value=value, unit="u", low=0, high=2, better="lower",
        source="s", meaning="m",
    )  # fmt: skip
    return MethodRun(
        method=method, epsilon=1.0, seed=seed, outcome="done", seconds=1.0, metrics=(metric,), marginals=marginals
    )


def comparison(*runs: MethodRun) -> Comparison:
    methods = tuple(
        ComparedMethod(name=m.name, title=m.title, description="d", source="s", private=m.private)
        for m in METHODS.values()
    )
    return Comparison(
        dataset="adult", rows_real=10, rows_holdout=None, columns=("x",), delta=1e-9, unit_of_protection="one person",
        settings=EvaluationSpec(), machine="this one", methods=methods, epsilons=(1.0,), seeds=2, runs=runs,
    )  # fmt: skip


def test_verdicts_by_hand() -> None:
    """Differences 0.0295 and 0.0305: mean 0.03, standard error 0.0005, so 60 errors; of a's mean of 0.2 it is 15 %."""
    found = comparison(run("a", 0, 0.1), run("a", 1, 0.3), run("b", 0, 0.1295), run("b", 1, 0.3305))
    assert list(shape(found, "a", "b")) == ["| a < b | l1_2way | +15.0% yes |"]
    assert list(shape(found, "b", "a")) == ["| b < a | l1_2way | -13.0% **no** |"]
    assert list(shape(found, "b", "a", close=True)) == ["| b ≈ a | l1_2way | -13.0% **no** |"]
    assert list(shape(found, "a", "nobody")) == []


def test_few_seeds_need_more_standard_errors() -> None:
    """Student's t, two-sided 95 %: 12.706 for 1 degree of freedom, 2.776 for 4.  Differences 0.02 and 0.04 are 3 errors
    of 0.01 from 0: too few for two seeds.  0.02 four times and 0.04: mean 0.024, error 0.004, so 6 errors of five."""
    assert (errors_needed(2), errors_needed(5)) == (pytest.approx(12.706, abs=1e-3), pytest.approx(2.776, abs=1e-3))
    two = comparison(run("a", 0, 0.1), run("a", 1, 0.3), run("b", 0, 0.12), run("b", 1, 0.34))
    assert next(shape(two, "a", "b")).endswith(" ? |")
    ones, others = [run("a", s, 0.1) for s in range(5)], [run("b", s, 0.12 + 0.02 * (s == 4)) for s in range(5)]
    assert " yes |" in next(shape(comparison(*ones, *others), "a", "b"))
    single = comparison(run("a", 0, 0.1), run("b", 0, 0.2))
    assert next(shape(single, "a", "b")).endswith(" ? |")


def test_the_overlap_counts_the_pairs_inside_cliques() -> None:
    """Exact: x-y, x-z, y-z (one clique) and y-w; private has x-y, x-z, y-z as pairs: 3 of 4, and 0 of 1."""
    found = comparison(
        run("non-private-selection", 0, 0.1, (("x", "y", "z"), ("y", "w"))),
        run("privsyn-paper", 0, 0.1, (("x", "y"), ("x", "z"), ("y", "z"))),
        run("non-private-selection", 1, 0.1, (("x", "y"),)),
        run("privsyn-paper", 1, 0.1, (("x", "w"),)),
    )
    assert overlap(found, 1.0) == (3 / 4 + 0) / 2
    assert marginals(found, "non-private-selection", 1.0) == 1.5
    assert marginals(found, "default", 1.0) == 0.0


def test_the_page_is_generated_with_every_method_and_picture() -> None:
    made = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert {name for names, _ in FIGURES.values() for name in names} <= set(METHODS)
    for first, second in (
        ("privsyn-paper <", "equal-gaussian"), ("equal-gaussian <", "equal-laplace"),
        ("non-private-selection ≈", "privsyn-paper"),
    ):  # fmt: skip
        assert made.count(f"| {first} {second} | ") == 3
    for name in FIGURES:
        assert f"](../img/{name}.png)" in made
        assert (DOCS / "img" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    heads = [line for line in page(comparison(run("equal-laplace", 0, 0.1))) if line.startswith("| epsilon")]
    assert heads[0] in made.splitlines()
