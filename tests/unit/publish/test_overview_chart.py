"""The public picture: small, the same for equal inputs, and drawn by another process, whose end ends nothing else."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest

from privsyn.publish.noise_overview import sort_bins
from privsyn.publish.overview_chart import Bins, MarginalOverview, OneWayOverview, draw_overview, make_data_uri
from privsyn.tasks.estimation.recode import AttributeRecode

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
