"""What the page of kept relations says is reached, on made-up runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compare_store import Run, Store
from benchmarks.relations import CHOOSING
from benchmarks.relations_page import compare_with, compute_means, hold_to, list_lines


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "runs.jsonl")
    for method, table, error, kept in (
        ("privsyn", "SLID", 0.02, 0.9),
        ("privsyn", "HI", 0.04, 0.8),
        ("0.3.0", "SLID", 0.1, 0.4),
        ("0.3.0", "HI", 0.02, 0.9),
    ):
        for seed in (0, 1):  # half a hundredth to either side
            figures = {"spearman": error + (seed - 0.5) / 100, "kept": kept}
            found.add(Run(method, "1", table, 1.0, seed, "done", figures))
    found.add(Run("mst-dpmm", "1", "SLID", 1.0, 0, "time"))
    return found


def test_means_are_compared_over_the_tables_that_both_have(store: Store) -> None:
    means = compute_means(store)
    assert compare_with("0.3.0", ["spearman"], 1.0, 0.5, by_mean=True)(means, CHOOSING) == (
        "Spearman error 0.500 times (2 tables)",
        True,
    )
    assert compare_with("0.3.0", ["spearman"], 1.0, 0.5, by_mean=True, low=20_000)(means, CHOOSING) == (
        "Spearman error 2.000 times (1 table)",
        False,
    )


def test_a_table_on_which_it_is_behind_is_named_and_what_was_stopped_is_no_win(store: Store) -> None:
    means = compute_means(store)
    assert compare_with("0.3.0", ["spearman", "kept"], 1.0, 1.0, by_mean=False)(means, CHOOSING) == (
        "Spearman error on 1 of 2 (not HI); kept on 1 of 2 (not HI)",
        False,
    )
    assert compare_with("mst-dpmm", ["spearman"], 1.0, 1.0, by_mean=False)(means, CHOOSING) is None


def test_a_limit_holds_for_the_mean_of_the_tables_of_a_size(store: Store) -> None:
    means = compute_means(store)
    assert hold_to("kept", 1.0, 0.85, at_least=True)(means, CHOOSING) == ("0.85 (2 tables)", True)
    assert hold_to("kept", 1.0, 0.85, 20_000, at_least=True)(means, CHOOSING) == ("0.8 (1 table)", False)
    assert hold_to("kept", 0.2, 0.85, at_least=True)(means, CHOOSING) is None


def test_the_lines_have_each_table_once_at_each_epsilon_with_its_spread(store: Store) -> None:
    lines = list(list_lines(store))
    assert sum(line.startswith("| SLID (7,425) |") for line in lines) == 2
    assert any("0.100 / 0.400" in line and "0.020 ±0.005 / 0.900 ±0.000" in line for line in lines)
