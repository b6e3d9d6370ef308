"""The store of runs, and tables of pages that are made of stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import compare_page, relations_page
from benchmarks import paper_comparison as again
from benchmarks.compare import STORE
from benchmarks.compare_page import REAL
from benchmarks.compare_store import Run, Store
from benchmarks.labels import SHOWN, list_lines
from benchmarks.relations import KEPT


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
