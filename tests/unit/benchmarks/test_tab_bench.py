"""The figures of benchmarks/tab_bench.py against numbers by hand, and codes that come back as the values they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.compare_store import Run
from benchmarks.tab_bench import BINS, METHODS, OWN_SPLIT, REAL, Coder, list_lines, load_table, make, split
from benchmarks.tab_bench_figures import (
    compute_disclosure,
    compute_query_error,
    compute_total_variation,
    compute_wasserstein,
    draw_members,
    measure_nearest,
)
from benchmarks.tab_bench_trees import score

REAL_ROWS = pd.DataFrame({"x": [0.0, 0.0, 99.0, 99.0], "c": ["a", "b", "a", "b"]})
MADE_ROWS = pd.DataFrame({"x": [0.0, 49.6, 99.0, 99.0], "c": ["a", "a", "a", "z"]})


def test_total_variation_is_that_of_a_hundred_cuts() -> None:
    found = compute_total_variation(REAL_ROWS, MADE_ROWS, ["x"])
    # x moves one row of four, c two (both b: one to a, one to z); pairs: (0, b) and (99, b) are gone
    assert found["tvd1"] == pytest.approx((0.25 + 0.5) / 2)
    assert found["tvd2"] == pytest.approx(0.5)
    near = MADE_ROWS.assign(x=[0.4, 0.0, 99.0, 98.6], c=REAL_ROWS["c"])  # within half a cut
    assert compute_total_variation(REAL_ROWS, near, ["x"])["tvd2"] == 0


def test_query_errors_are_differences_of_shares() -> None:
    assert compute_query_error(REAL_ROWS, REAL_ROWS, ["x"]) == 0
    flat = pd.DataFrame({"c": ["a", "b"]})
    assert compute_query_error(flat, pd.DataFrame({"c": ["a", "a"]}), []) == pytest.approx(0.5)


def test_wasserstein_distances_are_the_cheapest_moves() -> None:
    found = compute_wasserstein(REAL_ROWS, MADE_ROWS, ["x"])
    # x: half of one row; c: two rows of four; together (0, b) to (49.6, a), and (99, b) to (99, z)
    assert found["wasserstein1"] == pytest.approx((49.6 / 99 / 4 + 0.5) / 2)
    assert found["wasserstein2"] == pytest.approx((49.6 / 99 + 1 + 1) / 4)


def test_disclosure_is_what_membership_changes_most() -> None:
    members = np.array([[True, False], [False, True], [True, True], [False, False]])
    distances = np.array([[0.1, 0.3], [0.5, 0.2], [0.1, 0.2], [0.3, 0.3]])
    assert compute_disclosure(distances, members) == pytest.approx(0.4 - 0.1)
    with pytest.raises(ValueError, match="in some of the releases"):
        compute_disclosure(distances, np.ones_like(members))


def test_nearest_rows_are_measured_by_the_ranges_of_the_real_rows() -> None:
    found = measure_nearest(REAL_ROWS, MADE_ROWS.iloc[:1], ["x"])
    assert found == pytest.approx(np.sqrt(np.array([0, 1, 1, 2]) / 2))


def test_trees_are_scored_by_hits_and_ranks() -> None:
    found = score(np.array([0, 0, 1, 1]), np.array([0.2, 0.6, 0.4, 0.9]))
    assert found == pytest.approx({"accuracy": 0.5, "f1": 0.5, "auc": 0.75})


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    wide = np.concatenate([rng.uniform(0, 10, 400), [100.0]])
    return pd.DataFrame({"wide": wide, "few": rng.integers(0, 5, 401), "y": rng.choice(["no", "yes"], 401)})


def test_codes_come_back_as_values_of_the_same_bin(frame: pd.DataFrame) -> None:
    coder = Coder(frame, ["wide", "few"])
    assert coder.domain.size("wide") < BINS  # empty bins have no code
    codes = coder.encode(frame)
    back = coder.decode(codes, 0)
    assert (back[["few", "y"]] == frame[["few", "y"]]).all(axis=None)
    assert (np.abs(back["wide"] - frame["wide"]) <= 100 / BINS).all()
    assert (coder.encode(back).column("wide") == codes.column("wide")).all()


@pytest.mark.parametrize("method", ["focus", "bounds, focus"])
def test_rows_of_our_methods_are_values_again(frame: pd.DataFrame, method: str) -> None:
    table = split("adult", frame, ["wide", "few"], "y")
    assert [len(part) for part in (table.train, table.val, table.test)] == [256, 64, 81]
    made, _ = make(table, method, 1.0, 0, table.train)
    assert list(made) == list(table.train)
    assert set(made["y"]) <= {"no", "yes"}
    assert set(made["few"]) <= set(range(5))


def test_the_page_has_means_and_spreads_and_who_did_not_finish() -> None:
    runs = [Run("default", "1", "adult", 1.0, seed, "done", {"tvd1": 0.1 + seed / 10}, cpu=2.0) for seed in (0, 1)]
    runs += [Run("aim-dpmm", "1", "adult", 1.0, 0, "time"), Run(REAL, "1", "adult", 0.0, 0, "done", {"tvd1": 0.0})]
    lines = list(list_lines(runs))
    assert lines[3].startswith("| | real rows | 1 | 0.0000 |")
    assert lines[4].startswith("| 1 | PrivSyn Flows | 2 | 0.1500 ±.0707 |")
    assert lines[5].startswith("| 1 | AIM (dpmm) | | did not finish |")
    heads = lines[1].count("|")
    assert {line.count("|") for line in lines[1:6]} == {heads}
    assert set(METHODS) >= {run.method for run in runs}


def test_margnets_own_parts_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data" / "adult"
    folder.mkdir(parents=True)
    for place, part in enumerate(("train", "pretrain", "val")):
        np.save(folder / f"X_num_{part}.npy", np.array([[7.0, place]]))
        np.save(folder / f"X_cat_{part}.npy", np.array([["3"]], dtype=object))
        np.save(folder / f"y_{part}.npy", np.array([1]))
    monkeypatch.setenv("TAB_BENCH_SOURCE", str(tmp_path))
    assert load_table(OWN_SPLIT, None) is None  # no clone of MargNet: its codes are not described
    (folder / "domain.json").write_text("{}", encoding="utf-8")
    table = load_table(OWN_SPLIT, None)
    assert table is not None
    assert (table.numbers, table.label) == (("num0", "num1"), "y")
    rows = [part.iloc[0].tolist() for part in (table.train, table.val, table.test)]
    assert rows == [[7.0, place, "3", "1"] for place in (0.0, 1.0, 2.0)]


def test_members_are_in_half_of_the_releases() -> None:
    assert (draw_members(6, 50).sum(axis=0) == 3).all()
