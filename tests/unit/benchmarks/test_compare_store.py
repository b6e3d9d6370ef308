"""The store of runs: they come back, and the last one of a version counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.compare_store import Run, Store


def run(**changes: Any) -> Run:
    content = {"method": "m", "version": "1", "table": "t", "epsilon": 1.0, "seed": 0, "outcome": "done"}
    return Run(**{**content, **changes})


def test_runs_come_back(tmp_path: Path) -> None:
    first, second = run(figures={"l1_2way": 0.1}, wall=2.0), run(seed=1, outcome="failed", detail="it broke")
    store = Store(tmp_path / "runs.jsonl")
    store.add(first)
    store.add(second)
    again = Store(tmp_path / "runs.jsonl")
    assert list(again.runs.values()) == [first, second]
    assert again.has("m", "1", "t", 1.0, 1)
    assert not again.has("m", "2", "t", 1.0, 1)  # another version is another run
    assert not again.has("m", "1", "t", 1.0, 2)


def test_a_later_run_replaces_an_earlier_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add(run(version="1"))
    store.add(run(version="2"))
    assert [r.version for r in Store(store.path).runs.values()] == ["2"]


def test_a_line_cut_short_is_dropped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    store = Store(path)
    store.add(run())
    store.add(run(seed=1))
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    again = Store(path)
    assert list(again.runs.values()) == [run()]
    again.add(run(seed=2))
    assert [r.seed for r in Store(path).runs.values()] == [0, 2]
