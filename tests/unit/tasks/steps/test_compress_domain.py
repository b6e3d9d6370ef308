"""Filtering and combining, decided from noisy counts alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from privsyn.data_contracts.mechanism_options import Compression
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.recode import (
    compress_attribute,
    drop_unlisted,
    estimate_total,
)

ON = Compression()
PAPER = Compression(filter=True, neighbours=False)
EACH = np.arange(6, dtype=np.int32)
THREE = np.arange(3, dtype=np.int32)


def test_values_below_three_sigma_are_combined_when_their_sum_is_not() -> None:
    r = compress_attribute(np.array([500, 29, 400, 20, 25, 28]), 10.0, AttributeBins(EACH), ON)
    assert r.coarse.tolist() == [0, 2, 1, 2, 2, 2]  # theta = 30; 29+20+25+28 = 102 >= 30
    assert r.kept.all()
    assert r.size == 3


def test_values_below_the_least_count_are_low_whatever_the_noise() -> None:
    counts = np.array([500, 290, 400, 20, 350, 28])
    found = compress_attribute(counts, 1.0, AttributeBins(EACH), Compression(least_count=300))
    assert found.coarse.tolist() == [0, 3, 1, 3, 2, 3]
    assert compress_attribute(counts, 100.0, AttributeBins(EACH), Compression(least_count=5)).size == 4  # 3 sigma
    assert Compression(sigmas=4.5, least_count=800).threshold(10.0) == 800
    assert Compression(sigmas=4.5, least_count=800).threshold(1000.0) == 4500


def test_the_threshold_is_the_papers_for_bins_of_several_fine_codes_too() -> None:
    groups = np.array([0, 0, 0, 0, 1], dtype=np.int32)
    below = compress_attribute(np.array([7, 8, 7, 7, 900]), 10.0, AttributeBins(groups), PAPER)
    above = compress_attribute(np.array([7, 8, 8, 7, 900]), 10.0, AttributeBins(groups), PAPER)
    assert not below.kept[0]
    assert above.kept.all()


def test_weights_sum_to_one_and_follow_counts_only_beyond_the_noise() -> None:
    groups = np.zeros(4, dtype=np.int32)
    clear = compress_attribute(np.array([9000, 1000, 0, 0]), 10.0, AttributeBins(groups), ON)
    assert clear.weight.sum() == pytest.approx(1)
    assert clear.weight[0] == pytest.approx(0.9, abs=0.01)
    noise_only = compress_attribute(np.array([105, 95, 103, 97]), 10.0, AttributeBins(groups), ON)
    assert noise_only.weight == pytest.approx(np.full(4, 0.25))


@pytest.mark.parametrize(
    ("counts", "codes"),
    [
        ([500, 20, 15, 400, 12, 300], [0, 1, 1, 2, 3, 4]),  # theta = 30; a run that reaches it, one that does not
        ([500, 20, 15, 400, 9, 300], [0, 1, 1, 2, 2, 3]),  # 9 is less than its noise: it joins its neighbour
        ([500, 3, 400, 4, 300, 5], [0, 0, 1, 1, 2, 2]),  # what shows nothing never joins what lies elsewhere
        ([500, 3, 2, 4, 1, 300], [0, 0, 0, 1, 1, 1]),  # each joins the nearest
        ([20, 15, 20, 15, 5, 5], [0, 0, 1, 1, 1, 1]),  # what is left of a run goes with those before
        ([-5, 40, 10, -3, 12, 14], [0, 0, 1, 1, 1, 1]),
        ([1, -1, 0, 2, 0, 1], [0, 0, 0, 0, 0, 0]),
        ([50, 60, 70, 80, 90, 99], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_low_intervals_are_combined_with_their_neighbours(counts: list[int], codes: list[int]) -> None:
    r = compress_attribute(np.array(counts), 10.0, AttributeBins(EACH, in_order=((0, 6),)), ON)
    assert r.coarse.tolist() == codes
    assert r.kept.all()
    assert np.bincount(r.coarse, weights=r.weight) == pytest.approx(np.ones(r.size))


def test_a_few_of_a_large_table_have_no_code_of_their_own() -> None:
    """A thousandth of 100,000 rows is 100: the run of 90 joins its neighbours, that of 25, 80 and 20 reaches it.

    It is a share: a tenth of the counts with a tenth of the noise are coded alike.
    """
    counts = np.array([60_000, 28, 28, 20, 14, 39_700, 25, 80, 20])
    r = compress_attribute(counts, 30.0, AttributeBins(np.arange(9, dtype=np.int32), in_order=((0, 9),)), ON)
    assert r.coarse.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    fewer = compress_attribute(counts // 10, 3.0, AttributeBins(np.arange(9, dtype=np.int32), in_order=((0, 9),)), ON)
    assert fewer.size == r.size == 3


def test_neighbours_are_intervals_only() -> None:
    """A null after the intervals, and categories, share the last code as ever; two fine cells are one interval."""
    r = compress_attribute(np.array([500, 10, 10, 400, 5, 6]), 10.0, AttributeBins(EACH, in_order=((0, 4),)), ON)
    assert r.coarse.tolist() == [0, 1, 1, 2, 3, 3]
    cells = np.array([0, 0, 1, 1, 2, 3], dtype=np.int32)
    r = compress_attribute(np.array([9, 9, 8, 8, 900, 4]), 10.0, AttributeBins(cells, in_order=((0, 3),)), ON)
    assert r.coarse.tolist() == [0, 0, 0, 0, 1, 2]  # 34 of four cells of noise 10: more than 20
    r = compress_attribute(np.array([4, 5, 4, 5, 900, 4]), 10.0, AttributeBins(cells, in_order=((0, 3),)), ON)
    assert r.coarse.tolist() == [0, 0, 0, 0, 0, 1]
    plain = compress_attribute(
        np.array([500, 10, 10, 400, 5, 6]), 10.0, AttributeBins(EACH, in_order=((0, 6),)), Compression(neighbours=False)
    )
    assert plain.coarse.tolist() == [0, 2, 2, 1, 2, 2]


@pytest.mark.parametrize(
    ("counts", "codes"),
    [
        ([500, 3, 2, 4, 400, 300], [0, 0, 0, 1, 2, 3]),  # three bins on either side: 4 has no code to join
        ([9, 20, 3, 20, 9, 300], [0, 0, 0, 1, 1, 2]),  # 20 + 3 + 9 would do, were it not for the end of a section
        ([3, 2, 4, 1, 0, 2], [0, 0, 0, 1, 1, 1]),
    ],
)
def test_nothing_is_combined_across_the_end_of_a_section(counts: list[int], codes: list[int]) -> None:
    ends = (3, 4, 6) if counts[0] == 500 else (3, 6) if counts[0] == 3 else (3, 5, 6)
    sections = tuple(pairwise((0, *ends)))
    r = compress_attribute(np.array(counts), 10.0, AttributeBins(EACH, in_order=sections), ON)
    assert r.coarse.tolist() == codes
    assert r.kept.all()


def test_what_the_spec_does_not_list_is_left_out_where_its_count_is_low() -> None:
    counts = np.array([500, 20, 400, 25, 29, 300])
    r = compress_attribute(counts, 10.0, AttributeBins(EACH, added=4), ON)
    assert r.coarse.tolist() == [0, 3, 1, 3, 4, 2]
    assert r.kept.tolist() == [True, True, True, True, False, True]
    assert r.size == 4
    many = compress_attribute(np.array([500, 20, 400, 25, 30, 300]), 10.0, AttributeBins(EACH, added=4), ON)
    assert many.kept.all()
    alone = compress_attribute(np.array([1, 2, 0]), 10.0, AttributeBins(np.arange(3, dtype=np.int32), added=2), ON)
    assert alone.kept.all()  # nothing else is known
    off = compress_attribute(counts, 10.0, AttributeBins(EACH, added=4), Compression(enabled=False))
    assert off.kept.all()
    filtered = compress_attribute(np.array([500, 2, 400, -5, 9, 300]), 10.0, AttributeBins(EACH, added=4), PAPER)
    assert filtered.kept.tolist() == [True, False, True, False, False, True]
    assert filtered.size == 3 and set(filtered.coarse[~filtered.kept]) == {3}


@pytest.mark.parametrize(
    ("counts", "weights"),
    [
        ([2.0, 4.0, 3.0], [1 / 3, 2 / 3, 0.0]),
        ([0.0, 0.0, 9.0], [0.5, 0.5, 0.0]),
    ],
)
def test_where_every_count_is_low_rows_have_listed_values_only(counts: list[float], weights: list[float]) -> None:
    noisy = np.array(counts)
    found = compress_attribute(noisy, 10.0, AttributeBins(THREE, added=2), Compression())
    assert found.kept.all()
    assert found.size == 1
    found = replace(found, weight=noisy / noisy.sum())
    dropped = drop_unlisted({"x": found}, {"x": AttributeBins(THREE, added=2)}, Compression())["x"]
    assert dropped.weight == pytest.approx(weights)
    assert (dropped.coarse == found.coarse).all()


def test_many_empty_bins_take_little_from_the_full_one_that_they_join() -> None:
    noise = np.random.default_rng(5).normal(0, 10, 200)
    noise -= noise.mean()
    counts = np.round(np.append(2_000, noise)).astype(np.int64)
    r = compress_attribute(counts, 10.0, AttributeBins(np.arange(201, dtype=np.int32), in_order=((0, 201),)), ON)
    assert r.coarse[0] == 0 and (r.coarse == 0).sum() > 100
    assert r.weight[0] > 0.97
    assert np.bincount(r.coarse, weights=r.weight) == pytest.approx(np.ones(r.size))


def test_what_the_spec_does_not_list_stays_where_its_count_says_so() -> None:
    noisy = np.array([2.0, 4.0, 90.0])
    own = compress_attribute(noisy, 10.0, AttributeBins(THREE, added=2), Compression())
    later = replace(compress_attribute(noisy / 40, 10.0, AttributeBins(THREE, added=2), Compression()), estimate=noisy)
    for found in (own, later):
        assert drop_unlisted({"x": found}, {"x": AttributeBins(THREE, added=2)}, Compression())["x"] is found


def test_the_total_counts_filtered_values_and_weighs_by_noise() -> None:
    groups = np.arange(3, dtype=np.int32)
    sure = compress_attribute(np.array([930, 30, 40]), 1.0, AttributeBins(groups), Compression(sigmas=100, filter=True))
    assert not sure.kept.all()
    unsure = compress_attribute(np.array([9_000, 0, 0]), 1_000.0, AttributeBins(groups), ON)
    assert estimate_total({"a": sure}) == 1_000
    assert estimate_total({"a": sure, "b": unsure}) == pytest.approx(1_000, abs=0.1)
