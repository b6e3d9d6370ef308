"""The tables of the page of kept relations, on made-up runs and on the stored ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compare_store import Run, Store
from benchmarks.relations import CHOOSING, KEPT
from benchmarks.relations_page import MARKERS, PAGE, average, compute_means, list_averages, list_lines


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "runs.jsonl")
    for method, table, error, kept in (
        ("privsyn", "SLID", 0.02, 0.9),
        ("privsyn", "HI", 0.04, 0.8),
        ("mst-dpmm", "HI", 0.1, 0.5),
    ):
        for seed in (0, 1):  # half a hundredth to either side
            figures = {"spearman": error + (seed - 0.5) / 100, "kept": kept}
            found.add(Run(method, "1", table, 1.0, seed, "done", figures))
    found.add(Run("mst-dpmm", "1", "SLID", 1.0, 0, "time"))
    return found


def test_means_are_compared_over_the_tables_that_both_have(store: Store) -> None:
    """Ours over both tables; beside the peer over HI alone, since what was stopped has no figures."""
    means = compute_means(store)
    assert average(means, "privsyn", CHOOSING, 1.0, "spearman") == pytest.approx(0.03)
    assert average(means, "privsyn", CHOOSING, 0.2, "spearman") is None
    lines = [line for line in list_averages(means) if line.startswith("| CHOOSING, 1 |")]
    assert [line.replace(" ", "") for line in lines] == [
        "|CHOOSING,1|2|privsyn|.030|.850|||||",
        "|CHOOSING,1|1|privsyn|.040|.800|||||",
        "|CHOOSING,1|1|mst-dpmm|.100|.500|||||",
    ]


def test_the_lines_have_each_table_once(store: Store) -> None:
    lines = list(list_lines(store))
    (line,) = [line for line in lines if line.startswith("| HI (22,272) |")]
    assert line.split("|")[2:7] == [" .040 ", " .800 ", "  ", " .100 ", " .500 "]


def test_the_page_says_what_the_kept_runs_say() -> None:
    written = PAGE.read_text(encoding="utf-8").split(MARKERS[0])[1].split(MARKERS[1])[0]
    assert written.strip("\n").splitlines() == list(list_lines(Store(KEPT))), "run: python -m benchmarks.relations_page"
