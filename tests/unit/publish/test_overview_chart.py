"""The public picture: small, the same for equal inputs, and drawn by another process, whose end ends nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from math import pi, sqrt
from pathlib import Path

import numpy as np
import pytest

from privsyn.publish.noise_overview import sort_bins
from privsyn.publish.overview_chart import (
    Bins,
    DrawingError,
    MarginalOverview,
    OneWayOverview,
    draw_in_subprocess,
    draw_overview,
    make_data_uri,
)
from privsyn.tasks.estimation.recode import AttributeRecode
from tests.support.places import ROOT

EVIL = "</script><b>\"'\\ \u2028`${x}"


def column(name: str, bins: int, seed: int = 0) -> OneWayOverview:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(bins))
    noisy = shares + rng.integers(-5, 6, bins) / 1_000
    labels = tuple(f"[{i}, {i + 1})" for i in range(bins))
    return OneWayOverview(name, labels, tuple(noisy), (0.004,) * bins, tuple(shares))


@pytest.mark.slow
def test_many_columns_of_many_bins_make_one_small_png() -> None:
    columns = [column(f"column {i}", bins, i) for i, bins in enumerate([2, 5, 24, 72, 500] * 5)]
    marginals = [MarginalOverview((f"a{i}", f"b{i}"), 10 * i, i / 100, 0.05) for i in range(40)]
    png = draw_overview(columns, marginals, title="people-1")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(make_data_uri(png)) < 150_000
    assert draw_overview(columns, marginals, title="people-1") == png


def test_nothing_measured_and_awkward_names_still_make_a_picture() -> None:
    evil = OneWayOverview(EVIL, (EVIL, ""), (1.0, -0.1), (0.0, 0.0), (0.0, 0.0))
    empty = draw_overview([], [])
    assert empty.startswith(b"\x89PNG")
    assert draw_overview([evil, column("one bin", 1)], [MarginalOverview((EVIL,), 1, 0.0, 0.0)], title=EVIL) != empty


def test_a_noise_band_beyond_all_shares_is_drawn_to_100_percent() -> None:
    """0.5 ± 2 * 40 and 0.5 ± 2 * 80 are both drawn from 0 to 1; 0.5 ± 2 * 0.1 is not."""
    one, other, small = (OneWayOverview("a", ("x", "y"), (0.5, 0.5), (sd, sd), (0.6, 0.4)) for sd in (40.0, 80.0, 0.1))
    assert draw_overview([one], []) == draw_overview([other], []) != draw_overview([small], [])


def test_departure_is_in_units_of_the_expected_noise() -> None:
    # |0.5 - 0.6| + |0.5 - 0.4| = 0.2; noise of sd 0.1 in two bins makes 2 * 0.1 * sqrt(2 / pi).
    one = OneWayOverview("a", ("x", "y"), (0.5, 0.5), (0.1, 0.1), (0.6, 0.4))
    assert one.departure == pytest.approx(0.2 / (0.2 * sqrt(2 / pi)))


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="one entry for each bin"):
        OneWayOverview("a", ("x", "y"), (1.0,), (0.1, 0.1), (1.0, 0.0))


def test_merged_bins_add_shares_and_variances() -> None:
    # Five bins in two: 5 // 2 = 2 bins, then 3.  Variances: 9 + 16 = 25; 0 + 0 + 4.
    bins = Bins(tuple("abcde"), (1.0, 2.0, 3.0, 4.0, 5.0), (0.0,) * 5, (3.0, 4.0, 0.0, 0.0, 2.0)).merged(2)
    assert bins == Bins(("a … b", "c … e"), (3.0, 12.0), (0.0, 0.0), (5.0, 2.0))
    assert Bins(("a",), (1.0,), (1.0,), None).merged(1).labels == ("a",)
    assert Bins((), (), (), None).merged().labels == ()
    assert len(column("a", 601).bins().merged(60).labels) == 60
    with pytest.raises(ValueError, match="at least one bin"):
        bins.merged(0)


def recode(coarse: list[int], kept: list[bool] | None = None) -> AttributeRecode:
    n = len(coarse)
    return AttributeRecode(
        np.array(coarse, np.int32),
        np.array(kept or [True] * n),
        np.full(n, 1 / n),
        np.ones(n),
        np.ones(n),
    )


@pytest.mark.parametrize(
    ("coarse", "kept", "order"),
    [
        ([0, 0, 1, 2], None, [0, 1, 2]),
        ([2, 2, 0, 1], None, [2, 0, 1]),
        ([0, 2, 1, 2], None, [0, 1, 2]),
        ([2, 0, 2, 1], None, [0, 1, 2]),
        ([2, 0, 1, 2], [False, True, True, False], [0, 1, 2]),
        ([1, 2, 0, 2], [True, False, True, False], [1, 0, 2]),
    ],
    ids=[
        "as they are",
        "neighbours first",
        "scattered",
        "scattered from the start",
        "left out",
        "left out, others not",
    ],
)
def test_bins_stand_in_the_order_of_the_column(coarse: list[int], kept: list[bool] | None, order: list[int]) -> None:
    found = recode(coarse, kept)
    assert sort_bins(found, int(found.coarse.max()) + 1) == order


ONE_WAYS = [OneWayOverview(EVIL, ("x", "y"), (0.5, 0.5), (0.1, 0.1), (0.6, 0.4))]
MARGINALS = [MarginalOverview((EVIL, "b"), 4, 0.1, 0.2)]

LIMITED = """
import resource, sys
from tests.unit.publish.test_overview_chart import *
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    DRAW(ONE_WAYS, MARGINALS, title="t")
except DrawingError as error:
    print("left out:", error)
"""


@pytest.mark.slow
def test_it_is_the_same_picture() -> None:
    assert draw_in_subprocess(ONE_WAYS, MARGINALS, title=EVIL) == draw_overview(ONE_WAYS, MARGINALS, title=EVIL)


@pytest.mark.parametrize(
    ("draw", "outcome"),
    [
        ("draw_in_subprocess", (True, "left out: CalledProcessError\n")),
        pytest.param("draw_overview", (False, ""), marks=pytest.mark.slow),
    ],
)
def test_where_memory_is_limited_the_drawing_ends_and_the_caller_goes_on(draw: str, outcome: tuple[bool, str]) -> None:
    """A limit of 4 GiB of addresses ends a process that draws by itself, which is the planted mutant."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.replace("DRAW", draw)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0, done.stdout) == outcome


@pytest.mark.parametrize("script", ["kill -TRAP $$", "exit 1"])
def test_a_process_that_ends_without_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(DrawingError):
        draw_in_subprocess(ONE_WAYS, MARGINALS, title="t")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(DrawingError, match="FileNotFoundError"):
        draw_in_subprocess(ONE_WAYS, MARGINALS, title="t")
