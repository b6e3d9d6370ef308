"""Smoothed one-ways and wide bins: nearer to the truth where neighbours tell, of the same sum, and falling tails."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.receipts import Query
from privsyn.engine.request import Request
from privsyn.tasks.codecs import find_two_celled_columns, plan
from privsyn.tasks.codecs.cells import AttributeBins, Points, build_cells
from privsyn.tasks.codecs.numbers import draw_falling, fit_slopes, fit_tail_shares
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.estimation.smooth_counts import smooth_counts, smooth_one_ways
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.compress_domain import compress_domain
from privsyn.tasks.steps.decode import decode
from tests.support.specs import make_spec

CELLS = 64
ZERO = Points(np.array([0]), np.array([1]), np.array([0.5]))
EXPONENTIAL = 4_000 * np.exp(-np.arange(CELLS) / 8) * (1 - np.exp(-1 / 8))


def compute_errors(truth: np.ndarray, sigma: float, widths: np.ndarray) -> tuple[float, float]:
    """Return the mean L1 error of noisy counts and of smoothed ones, over 20 draws."""
    rng = np.random.default_rng(1)
    noisy = [truth + rng.normal(0, sigma, len(truth)) for _ in range(20)]
    smooth = [smooth_counts(y, sigma, widths) for y in noisy]
    return float(np.mean([np.abs(y - truth).sum() for y in noisy])), float(
        np.mean([np.abs(y - truth).sum() for y in smooth])
    )


def test_cells_of_one_and_two_steps_are_smoothed_as_densities() -> None:
    widths = np.resize([1.0, 2.0], CELLS)
    raw, smooth = compute_errors(EXPONENTIAL * widths, 30.0, widths)
    unaware = compute_errors(EXPONENTIAL * widths, 30.0, np.ones(CELLS))[1]
    assert smooth < 0.5 * raw
    assert smooth < 0.8 * unaware


def build_recode(y: np.ndarray, sigma: float) -> AttributeRecode:
    coarse = np.minimum(np.arange(len(y)) // 16, 3).astype(np.int32)
    coarse[-1] = 4
    kept = np.ones(len(y), dtype=bool)
    return AttributeRecode(coarse, kept, np.ones(len(y)), y, np.full(len(y), sigma**2))


def test_a_zero_that_stands_out_and_null_keep_their_counts_and_shares_sum_to_one() -> None:
    sigma = 20.0
    y = np.append(np.round(EXPONENTIAL + np.random.default_rng(3).normal(0, sigma, CELLS)), 700.0)
    y[0] += 1_500
    widths = np.append(np.ones(CELLS), 0.0)
    bins = AttributeBins(np.arange(CELLS + 1, dtype=np.int32), ((0, CELLS),), True, widths, points=ZERO)
    recode = {"x": build_recode(y, sigma)}
    found = smooth_one_ways(recode, recode, {"x": bins})["x"]
    assert np.isclose(found.estimate.sum(), y.sum(), atol=0.1)
    assert abs(found.estimate[0] - y[0]) < 2 * sigma
    assert abs(found.estimate[-1] - 700) < 2 * sigma
    assert (found.estimate >= 0).all()
    assert np.allclose(np.bincount(found.coarse, weights=found.weight), 1.0)


def test_a_zero_that_does_not_stand_out_has_its_part_of_the_smoothed_density() -> None:
    sigma = 20.0
    y = np.full(CELLS, 100.0) + np.random.default_rng(4).normal(0, sigma, CELLS)
    y[0] = 20.0
    bins = AttributeBins(np.arange(CELLS, dtype=np.int32), ((0, CELLS),), True, np.ones(CELLS), points=ZERO)
    recode = {"x": build_recode(y, sigma)}
    found = smooth_one_ways(recode, recode, {"x": bins})["x"]
    assert np.isclose(found.estimate[0], found.estimate[1], atol=0.01)
    assert abs(found.estimate[0] - 100) < 25


def release_counts(truth: np.ndarray, sigma: float, seed: int, points: Points | None = None) -> np.ndarray:
    """Return the counts that rows follow, of noisy counts of a column with open bins."""
    y = truth + np.random.default_rng(seed).normal(0, sigma, len(truth))
    bins = AttributeBins(np.arange(len(y), dtype=np.int32), ((0, len(y)),), True, np.ones(len(y)), points=points)
    recode = {"x": build_recode(y, sigma)}
    return smooth_one_ways(recode, recode, {"x": bins})["x"].estimate


def compute_deviation(counts: np.ndarray) -> float:
    cells = np.arange(len(counts))
    mean = np.average(cells, weights=counts)
    return float(np.sqrt(np.average((cells - mean) ** 2, weights=counts)))


def test_noise_puts_no_rows_far_from_all_others() -> None:
    truth = np.where(np.arange(CELLS) < 12, 4_000.0 * 0.6 ** np.arange(CELLS), 0.0)
    found = [release_counts(truth, 30.0, seed) for seed in range(10)]
    assert np.mean([counts[24:].sum() for counts in found]) < 25.0  # 40 cells, of 30 rows of noise each
    assert np.median([compute_deviation(counts) for counts in found]) < 1.25 * compute_deviation(truth)
    downwards = [release_counts(truth[::-1], 30.0, seed) for seed in range(10)]
    assert np.mean([counts[:-24].sum() for counts in downwards]) < 25.0


def test_a_long_tail_and_a_value_far_out_that_many_rows_share_stay() -> None:
    truth = 3_000 / (1 + np.arange(CELLS)) ** 1.5
    truth[50] += 600
    found = np.mean([release_counts(truth, 20.0, seed) for seed in range(10)], axis=0)
    assert abs(found[50] - truth[50]) < 50
    assert abs(found[20:50].sum() - truth[20:50].sum()) < 0.25 * truth[20:50].sum()


def test_few_rows_beside_many_zeros_lie_near_them() -> None:
    truth = np.append(5_000.0, 40 * 0.8 ** np.arange(CELLS - 1))
    found = np.mean([release_counts(truth, 40.0, seed, ZERO) for seed in range(10)], axis=0)
    assert found[1:17].sum() > 3 * found[17:].sum()


EDGES = [*range(0, 200_001, 20_000), 10_000_000]
INCOME: dict[str, Any] = {"kind": "integer", "min": 0, "max": 10_000_000, "edges": EDGES}


def widths(edges: list[float], **how: Any) -> list[float]:
    return [cell.high - cell.low for cell in build_cells(edges, **how).fine]


def test_cells_of_a_wide_bin_double_away_from_its_narrow_neighbour() -> None:
    assert widths([0, 10, 40]) == [5, 5, 15, 15]  # three times as wide is not wide
    assert widths([0, 10, 160]) == [5, 5, 10, 20, 40, 80]
    assert widths([-160, -10, 0]) == [80, 40, 20, 10, 5, 5]
    assert widths([0, 10, 160], two_celled=True) == [5, 5, 75, 75]
    assert len(widths([0, 1e-300, 1e300])) <= 2 + 24


@pytest.mark.parametrize(
    "column",
    [INCOME, {**INCOME, "kind": "number", "decimals": 2}, {**INCOME, "step": 500}, {**INCOME, "heaps": [1000]}],
)
def test_every_value_comes_back_in_its_cell_and_cells_leave_no_gap(column: dict[str, Any]) -> None:
    codec = plan(make_spec({"x": column})).codecs[0]
    assert isinstance(codec, OrderedCodec)
    assert all(a.high == b.low for a, b in pairwise(codec.cells.fine))
    codes = np.repeat(np.arange(codec.size), 40)
    falling = codec.with_slopes(np.where(codec.groups == codec.groups[-1], 2.0, 0.0))
    helpers = {"x (rounded to)": np.zeros(len(codes), dtype=np.int64)}
    values = falling.decode(codes, np.random.default_rng(0), **({"helpers": helpers} if codec.helpers else {}))["x"]
    again = codec.encode({"x": values})[0]
    assert (again == codes).mean() > (0.999 if not codec.helpers else 0.6)
    assert np.array_equal(codec.groups[again], codec.groups[codes])
    low, high = codec.value_bounds()["x"]
    assert (values.to_numpy() >= low[codes]).all() and (values.to_numpy() <= high[codes]).all()


def test_full_cells_keep_their_own_shares_and_empty_ones_follow_the_tail() -> None:
    width = 2.0 ** np.arange(8)
    true = np.diff(-((1 + np.append(0, np.cumsum(width)) / 2) ** -2.5))
    noise = 30 * np.random.default_rng(0).standard_normal(8)
    odd = 100_000 * true
    odd[1] *= 1.3  # a departure from any tail
    shares = fit_tail_shares(odd + noise, np.full(8, 900.0), width, 1.0)
    assert shares[1] / (odd[1] / odd.sum()) == pytest.approx(1, abs=0.01)
    assert 0 < shares[-1] * odd.sum() < 30
    assert abs(shares.sum() - 1) < 1e-8


def test_slopes_are_those_of_a_falling_density() -> None:
    width = 2.0 ** np.arange(6)
    ends = 1 + np.append(0, np.cumsum(width))
    found = fit_slopes(np.diff(-(ends**-2.0)), width)
    assert found[1:-1] == pytest.approx(3 * np.log(2), rel=0.15)  # a density of x^-3 falls by 8 when x doubles
    parts = draw_falling(np.linspace(0, 1, 10_001)[:-1], np.full(10_000, 2.0))
    assert parts.mean() == pytest.approx(1 / 2 - 1 / np.expm1(2), abs=0.001)
    assert (parts >= 0).all() and (parts < 1).all()
    assert draw_falling(np.array([0.3]), np.array([0.0])) == [0.3]


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_the_mean_of_a_heavy_tail_comes_through_decode(kind: str) -> None:
    rng = np.random.default_rng(2)
    true = np.clip(np.exp(11.2 + 0.9 * rng.standard_normal(50_000)), 0, 1e7)
    spec = make_spec({"x": {**INCOME, "kind": kind}})
    encoding = plan(spec)
    codes = encoding.codecs[0].encode({"x": pa.array(true)})[0].astype(np.int64)
    size, sigma = encoding.domain.size("x"), 60.0
    counts = np.bincount(codes, minlength=size)
    noisy = np.round(counts + sigma * rng.standard_normal(size)).astype(np.int64)
    query = Query(("x",), size, 1, sigma)
    recode = compress_domain([noisy], [query], encoding.binning, Compression())
    coarse = recode["x"].coarse[codes].astype(np.uint8)
    table = CodeTable(Domain.of({"x": recode["x"].size}), (coarse,))
    made = pa.Table.from_batches(decode(table, recode, encoding, ["x"], 0))["x"].to_numpy()
    assert made.mean() == pytest.approx(true.mean(), rel=0.03)
    assert made.std() == pytest.approx(true.std(), rel=0.3)
    assert np.quantile(made, 0.99) == pytest.approx(np.quantile(true, 0.99), rel=0.1)


def test_a_release_of_before_is_read_with_its_own_cells() -> None:
    spec = make_spec({"x": INCOME})
    before = plan(spec, two_celled=["x"])
    assert find_two_celled_columns(plan(spec), {"x": before.domain.size("x")}) == {"x"}
    assert Request(spec, two_celled=frozenset({"x"})).encoding.domain == before.domain
    assert not find_two_celled_columns(plan(spec), {"x": plan(spec).domain.size("x")})


def test_the_sum_stays() -> None:
    y = EXPONENTIAL + np.random.default_rng(2).normal(0, 30, CELLS)
    assert np.isclose(smooth_counts(y, 30.0, np.resize([1.0, 3.0], CELLS)).sum(), y.sum())
