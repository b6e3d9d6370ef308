"""Statistics of columns: exact real figures, bands that the noise keeps, thinning, and columns without values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.evaluation import ColumnStatistics
from privsyn.evaluation import column_statistics as module
from privsyn.evaluation.column_statistics import QUANTILES, compute_column_statistics
from privsyn.evaluation.report.page import format_statistic, is_beyond_noise
from privsyn.tasks.codecs import plan
from privsyn.tasks.estimation.recode import AttributeRecode
from tests.support.specs import make_spec

COLUMNS: dict[str, Any] = {
    "wage": {"kind": "number", "min": 0, "max": 100, "nullable": True, "unit": "EUR"},
    "age": {"kind": "integer", "min": 0, "max": 9},
    "day": {"kind": "datetime", "min": "2000-01-01", "max": "2010-01-01", "type": "date"},
    "state": {"kind": "categorical", "values": ["ny"]},
}
SPEC = make_spec(COLUMNS)
PLAN = plan(SPEC)


def batches(wage: list[float | None], size: int = 3) -> list[pa.RecordBatch]:
    rows = len(wage)
    table = pa.table(
        {
            "wage": pa.array(wage, pa.float64()),
            "age": [i % 10 for i in range(rows)],
            "day": [dt.date(2005, 1, 1)] * rows,
            "state": ["ny"] * rows,
        }
    )
    return table.to_batches(max_chunksize=size)


def noise_of(sd: float) -> dict[str, AttributeRecode]:
    found = {}
    for codec in PLAN.codecs:
        whole, flat = np.arange(codec.size, dtype=np.int32), np.zeros(codec.size)
        found[codec.attribute] = AttributeRecode(whole, whole >= 0, flat, flat, np.full(codec.size, sd**2))
    return found


def by_name(column: ColumnStatistics) -> dict[str, Any]:
    return {s.name: s for s in column.statistics}


def test_real_figures_of_an_integer_column_are_of_the_fractions_that_are_stored() -> None:
    spec = make_spec({"share": {"kind": "integer", "min": 0, "max": 1}})
    real, made = ([pa.record_batch({"share": values})] for values in ([0.25, 0.5], [0, 0]))
    (share,) = compute_column_statistics(spec, plan(spec), real, made, {})
    assert by_name(share)["mean"].real == 0.375 and by_name(share)["mean"].synthetic == 0


def test_real_figures_are_exact_and_of_values_as_stored() -> None:
    values = [1.5, 2.5, None, 4.0, 250.0, float("nan")]
    wage, age, day = compute_column_statistics(SPEC, PLAN, batches(values), batches([1.0] * 8), {})
    found, known = by_name(wage), np.array([1.5, 2.5, 4.0, 250.0])
    assert found["mean"].real == pytest.approx(known.mean()) and found["mean"].synthetic == 1.0, "not clamped to 100"
    assert found["standard deviation"].real == pytest.approx(known.std())
    assert found["95% quantile"].real == 250.0 and found["5% quantile"].real == 1.5
    assert (found["mean"].low, found["mean"].high) == (None, None), "nothing is known of the noise"
    assert [c.column for c in (wage, age, day)] == ["wage", "age", "day"], "no category has a mean"
    assert (day.form, wage.form, wage.unit) == ("date", "number", "EUR")
    assert format_statistic(by_name(day)["mean"].real, by_name(day)["mean"], day) == "2005-01-01"


@pytest.mark.slow
def test_bands_hold_what_the_noise_does() -> None:
    """Noise drawn on fine counts moves mean, spread and quantiles by less than the band in about 95 of 100 draws."""
    rng, sd, rows = np.random.default_rng(3), 10.0, 4_000
    codec = next(c for c in PLAN.codecs if c.attribute == "wage")
    middles = codec.values(fine=True)
    assert middles is not None
    cells = middles[~np.isnan(middles)]
    counts = rows * np.exp(-(((cells - 40) / 20) ** 2))
    exact = np.repeat(cells, counts.astype(int))
    names = ("mean", "standard deviation", *("median" if q == 0.5 else f"{q:.0%} quantile" for q in QUANTILES))
    inside = dict.fromkeys(names, 0)
    for _ in range(60):
        noisy = np.maximum(counts + rng.normal(0, sd, len(counts)), 0).astype(int)
        made = np.repeat(cells, noisy)
        found = by_name(
            compute_column_statistics(
                SPEC, PLAN, batches(list(exact), 1 << 20), batches(list(made), 1 << 20), noise_of(sd)
            )[0]
        )
        for name in names:
            inside[name] += not is_beyond_noise(found[name])
    assert all(times >= 48 for times in inside.values()), inside
    assert inside["mean"] < 60 or inside["standard deviation"] < 60, "a band that nothing leaves says nothing"


def test_shares_of_exact_values_have_their_own_noise() -> None:
    columns = {
        **COLUMNS,
        "wage": {**COLUMNS["wage"], "exact": [99, 0]},
        "day": {**COLUMNS["day"], "exact": ["2005-01-01"]},
    }
    spec = make_spec(columns)
    encoding = plan(spec)
    sizes = {c.attribute: c.size for c in encoding.codecs}
    noise = {
        a: AttributeRecode(np.arange(n, dtype=np.int32), np.ones(n, bool), np.zeros(n), np.zeros(n), np.full(n, 4.0))
        for a, n in sizes.items()
    }
    wage, _, day = compute_column_statistics(
        spec, encoding, batches([0, 0, 5, 99]), batches([0, 1, 5, None] * 25), noise
    )
    found = by_name(wage)
    assert (found["share of 0"].real, found["share of 0"].synthetic, found["share of 99"].real) == (0.5, 0.25, 0.25)
    assert found["share of 0"].high == pytest.approx(0.25 + 2 * 2 / 100) and found["share of 99"].low == 0.0
    assert [s.real for s in day.statistics if s.kind == "share"] == [1.0]


def test_days_and_times_of_day_are_said_as_such() -> None:
    spec = make_spec(
        {
            "day": {"kind": "date", "min": "2000-01-01", "max": "2010-01-01", "exact": ["2005-01-01"]},
            "at": {"kind": "time", "format": "HH:MM"},
            "then": {"kind": "time", "format": "seconds"},
        }
    )
    days = [dt.date(2005, 1, 1), dt.date(2005, 1, 11)]
    rows = pa.table({"day": days, "at": ["08:00", "09:00"], "then": [3_600, 7_200]}).to_batches()
    day, at, then = compute_column_statistics(spec, plan(spec), rows, rows, {})
    texts = [[format_statistic(s.real, s, c) for s in c.statistics[:3]] for c in (day, at, then)]
    assert texts == [
        ["2005-01-06", "5 days", "2005-01-01"],
        ["08:30", "30 minutes", "08:00"],
        ["01:30", "30 minutes", "01:00"],
    ]
    assert (day.statistics[-1].name, day.statistics[-1].real) == ("share of 2005-01-01", 0.5)


def test_many_values_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 100)
    values = [float(v) for v in np.random.default_rng(0).permutation(1_000) / 10]
    for size in (7, 64, 1_000):
        found = by_name(compute_column_statistics(SPEC, PLAN, batches(values, size), batches(values, size), {})[0])
        assert found["mean"].real == pytest.approx(np.mean(values))
        assert found["median"].real == pytest.approx(50, abs=12) and found["95% quantile"].real > 85


def test_large_numbers_keep_their_digits() -> None:
    spec = make_spec({"id": {"kind": "number", "min": 1e9, "max": 1e9 + 10}})
    rows = pa.table({"id": [1e9 + 1, 1e9 + 3]}).to_batches()
    (column,) = compute_column_statistics(spec, plan(spec), rows, rows, {})
    assert by_name(column)["standard deviation"].real == pytest.approx(1.0)


def test_a_column_without_values_has_no_statistics() -> None:
    wage = compute_column_statistics(SPEC, PLAN, batches([None]), batches([1.0]), noise_of(1.0))[0]
    assert wage.statistics == ()
    assert compute_column_statistics(SPEC, PLAN, [], [], {})[0].statistics == ()
