"""The figures of benchmarks/relations.py on made-up tables, against numbers by hand, and the specs that it makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks import tables
from benchmarks.compare_store import Run
from benchmarks.relations import (
    CHOOSING,
    MEASURING,
    PublicTable,
    cut_column,
    describe_column,
    release_in_memory,
    round_outward,
    summarize,
)
from benchmarks.relations_figures import Shape, compute_figures, compute_share_figures, fit_regressions
from privsyn.tasks.codecs import plan

REAL = pa.table({"a": [0.0, 1.0, 2.0, 3.0], "b": [0.0, 2.0, 4.0, 6.0], "c": ["x", "x", "y", None]})
MADE = pa.table({"a": [0.0, 1.0, 2.0, 3.0], "b": [6.0, 2.0, 4.0, 0.0], "c": ["x", "y", "y", None]})
SHAPE = Shape({"a": (0.0, 8.0), "b": (0.0, 8.0)}, {"c": ("x", "y")})


def test_the_figures_are_those_computed_by_hand() -> None:
    found = compute_figures(REAL, MADE, SHAPE)
    # r(a, b): 1 in the real rows; in the others (-1.5 * 3 - .5 * -1 + .5 * 1 + 1.5 * -3) / 10 = -.8, so are the ranks
    assert found["pearson"] == pytest.approx(1.8)
    assert found["spearman"] == pytest.approx(1.8)
    assert found["kept"] == pytest.approx(-0.8)
    assert found["strong"] == 1
    assert found["zeros"] == 0
    # a = b, a < b: 1/4 and 3/4; then a = b in rows 1 (no), 2 (1 < 2), 3 (2 < 4), 4 (3 > 0)
    assert found["order"] == pytest.approx(0.25)
    # one-ways: a and b have the same values, c moves one row of four
    assert found["l1_1way"] == pytest.approx((0 + 0 + 0.5) / 3)
    # pairs: a, b moves two rows; a, c one; b, c: (0, x) (2, x) (4, y) (6, null) -> (6, x) (2, y) (4, y) (0, null)
    assert found["l1_2way"] == pytest.approx((1.0 + 0.5 + 1.5) / 3)
    assert found["mean"] == found["sd"] == found["q99"] == 0


def test_zero_shares_and_ordered_shares_are_absolute_errors() -> None:
    real = {"a": np.array([0.0, 0, 5, 5]), "b": np.array([1.0, 1, 6, 6])}
    made = {"a": np.array([0.0, 7, 5, 5]), "b": np.array([1.0, 1, 6, 5])}
    found = compute_share_figures(real, made, SHAPE)
    assert found == {"zeros": 0.25, "order": 0.5}  # a < b in all four rows, then in two


def test_a_slope_differs_by_so_many_of_its_standard_errors() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=10_000)
    real = {"x": x, "y": 2 * x + rng.normal(size=len(x))}
    made = {"x": x, "y": real["y"] + 0.1 * x}
    _, own = sorted(fit_regressions(real, made), key=lambda fit: fit.real[0])
    assert own.scores == pytest.approx([10], rel=0.05)  # 0.1 / (1 / sqrt(10,000))
    assert own.relative_errors == pytest.approx([0.05], rel=0.05)  # 0.1 of 2
    unrelated = fit_regressions({**real, "y": rng.normal(size=len(x))}, made)
    assert all(fit.relative_errors.size == 0 for fit in unrelated)


def test_slopes_that_noise_alone_moves_count_as_within_two_errors_and_biased_ones_do_not() -> None:
    def count(centre: float, spread: float, seeds: int) -> float:
        drawn = np.random.default_rng(4).normal(centre, spread, (seeds, 400))
        slopes = [{f"regression.0.{i}": float(z) for i, z in enumerate(own)} for own in drawn]
        return summarize([Run("m", "1", "t", 1.0, s, "done", f, 1, 1) for s, f in enumerate(slopes)])["regressions"]

    assert count(0, 3, 20) == pytest.approx(0.96, abs=0.02)
    assert count(0, 3, 2) > 0.8  # .7 by the spread about the mean of the two
    assert count(9, 0.3, 20) == 0


def test_columns_have_public_bounds_and_steps_and_no_bins() -> None:
    assert round_outward(23.7, 1234.0) == (0, 1300)
    assert describe_column(pd.Series([1.25, 130.5, None])) == {
        "kind": "number",
        "min": 0.0,
        "max": 140.0,
        "step": 0.01,
        "nullable": True,
    }
    assert describe_column(pd.Series([3, 40])) == {"kind": "integer", "min": 3, "max": 40, "nullable": False}
    assert describe_column(pd.Series(["b", "a", "b"]))["values"] == ["a", "b"]
    assert describe_column(pd.Series([7, 7]))["kind"] == "drop"


def test_a_release_of_a_small_table_has_every_figure() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 100, 600)
    frame = pd.DataFrame({"a": a, "b": a + rng.integers(0, 30, 600), "c": np.where(a > 50, "high", "low")})
    columns = {name: describe_column(frame[name]) for name in frame}
    given = PublicTable("tiny", pa.Table.from_pandas(frame, preserve_index=False), columns)
    made = release_in_memory(given, given.spec(100.0), 0)
    found = compute_figures(given.table, made, given.shape)
    assert found["kept"] > 0.5 > 0.3 > found["l1_1way"]
    assert {"spearman", "order", "regression.0.0", "q99"} <= set(found)


@pytest.mark.slow
def test_codes_of_equal_mass_keep_relations_that_32_bins_lose_in_noise_and_pooling_more() -> None:
    rng = np.random.default_rng(2)
    a = np.exp(rng.normal(5, 0.7, 4_000)).round()
    frame = pd.DataFrame({"a": a, "b": (a * rng.uniform(0.3, 3, 4_000)).round(), "c": rng.integers(0, 90, 4_000)})
    frame["d"] = frame["c"] + rng.integers(0, 120, 4_000)
    frame = frame.astype(np.int64)
    given = PublicTable(
        "tiny", pa.Table.from_pandas(frame, preserve_index=False), {n: describe_column(frame[n]) for n in frame}
    )
    errors = {
        method: np.mean(
            [
                compute_figures(given.table, release_in_memory(given, given.spec(0.5, method), seed), given.shape)[
                    "spearman"
                ]
                for seed in range(8)
            ]
        )
        for method in ("preset-0.3", "equal-mass", "privsyn")
    }
    assert errors["equal-mass"] < 0.7 * errors["preset-0.3"]
    assert errors["privsyn"] < 0.8 * errors["equal-mass"]


def test_the_lists_share_no_table() -> None:
    assert not set(CHOOSING) & set(MEASURING)
    assert len(set(MEASURING)) == 10


def test_a_peer_that_is_given_cuts_gets_equal_ones_and_not_the_cells_of_ours() -> None:
    """Cells that ours would choose by a first look are no cuts between public bounds."""
    columns = {
        "pay": {"kind": "number", "min": 0.0, "max": 1_000.0, "step": 0.01},
        "few": {"kind": "integer", "min": 1, "max": 4},
    }
    given = PublicTable("made", pa.table({"pay": [1.0, 2.0], "few": [1, 2]}), columns)
    for bins, sizes in (((), {"pay": 32, "few": 4}), (("equal", 8), {"pay": 8, "few": 4})):
        cut = {c: cut_column(content, *bins) for c, content in given.columns.items()}
        encoding = plan(replace(given, columns=cut).spec(1.0))
        assert {c.attribute: int(c.groups.max()) + 1 for c in encoding.codecs} == sizes
    edges = cut_column(columns["pay"], "doubling", 8)["edges"]
    assert edges[0] == 0.0
    assert edges[-1] == 1_000.0
    widths = np.diff(edges)
    assert (widths[1:] > widths[:-1]).all()


def test_tables_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    (tmp_path / "adult.parquet").touch()
    assert tables.keep_present(["adult-small", "adult", "slid", "gss-small"], "-small") == ["adult-small", "adult"]
    assert "slid, gss-small" in capsys.readouterr().err
    assert tables.keep_present(["adult"]) == ["adult"] and not capsys.readouterr().err
