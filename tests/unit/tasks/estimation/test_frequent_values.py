"""Frequent values: counted inside heavy cells, told from noise, and drawn as often as they are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.codecs.numbers import NO_NUMBER, FrequentValues, InsideCells
from privsyn.tasks.estimation import frequent_values
from privsyn.tasks.estimation.frequent_values import CountedValues, find_frequent_values, list_values_to_count
from privsyn.tasks.estimation.recode import AttributeRecode
from tests.support.specs import make_spec
from tests.unit.tasks.estimation.test_single_values import EQUAL_CELLS, WAGE, plan_one

ROUNDED = "x (rounded to)"
RHO = Fraction(1, 1000)
MINUTES = {"kind": "integer", "min": 0, "max": 120}


def noisy_counts(plan: EncodingPlan, values: dict[int, float]) -> np.ndarray:
    """Counts of the fine cells: so many in the cells of these values, none in others."""
    codec = plan.codecs[0]
    codes, _ = codec.encode({"x": pa.array(list(values), pa.int64())})
    return np.bincount(codes, weights=list(values.values()), minlength=codec.size)


def recode_of(counts: np.ndarray, sigma: float) -> AttributeRecode:
    size = len(counts)
    coarse, kept = np.zeros(size, dtype=np.int32), np.ones(size, dtype=bool)
    return AttributeRecode(coarse, kept, counts / counts.sum(), counts, np.full(size, sigma**2))


def test_the_values_of_heavy_cells_alone_are_counted() -> None:
    plan = plan_one(WAGE, **EQUAL_CELLS)
    (found,) = list_values_to_count(plan.wide_celled, {"x": noisy_counts(plan, {1500: 5000.0, 48_000: 100.0})}, RHO, 1)
    codec = plan.codecs[0]
    cells = [codec.labels()[code] for code in np.unique(found.cell)]
    assert cells == ["1..1562"] and found.number.tolist() == list(range(1, 1563))


@pytest.mark.parametrize("kind", [{"step": 0.1}, {"decimals": 1}])
def test_numbers_of_fractions_are_found_and_come_out(kind: dict[str, Any]) -> None:
    column = {"kind": "number", "min": 0, "max": 1000, "nullable": True, **kind}
    (codec,) = plan_one(column).wide_celled
    _, _, stored = codec.encode_with_numbers({"x": pa.array([0.3, 123.4, None, 0.0])})
    numbers = codec.find_multiples(stored)
    assert numbers.tolist() == [3, 1234, NO_NUMBER, 0]  # null has none
    codes, _ = codec.encode({"x": pa.array([123.4])})
    held = codec.with_frequent(FrequentValues(codes.astype(np.int64), numbers[1:2], np.ones(1)))
    drawn = held.decode(np.repeat(codes, 50), np.random.default_rng(0))["x"].to_pylist()
    assert set(drawn) == {123.4}
    assert held.decode_at(codes, np.array([0.7]))["x"].to_pylist() == [123.4]


def test_a_value_is_frequent_only_where_its_count_stands_out_from_noise() -> None:
    """One count above the least, one count below: no value that few have is told from none."""
    plan, sigma, many = plan_one(WAGE, **EQUAL_CELLS), 20.0, 1562
    least = frequent_values.compute_least_count(sigma, many)
    assert 4 * sigma < least < 5 * sigma
    whole = noisy_counts(plan, {1500: 3000.0})
    counted = [CountedValues("x", np.ones(many, dtype=np.int64), np.arange(1, many + 1))]
    for above, expected in ((1.0, {"x"}), (-1.0, set())):
        counts = np.zeros(many + 1, dtype=np.int64)
        counts[1499] = round(least + 3000 / many + above)
        looks = {"x": (Query(("x",), many + 1, 1, sigma), counts)}
        rounded = recode_of(np.array([4.0, 3.0, 2.0, 1.0, 0.0]), 1.0)  # to nothing, 10, 100, 1,000; 0 and the bounds
        found = find_frequent_values(counted, looks, {"x": recode_of(whole, 5.0), ROUNDED: rounded}, plan)
        assert found.keys() == expected


def test_a_cell_has_no_other_values_where_noise_explains_what_is_left() -> None:
    plan, sigma = plan_one(MINUTES, **EQUAL_CELLS), 20.0
    cell = int(plan.codecs[0].encode({"x": pa.array([42])})[0][0])
    low, high = (float(v) for v in plan.codecs[0].labels()[cell].split(".."))
    counted = [CountedValues("x", np.array([cell, cell]), np.array([low, high], dtype=np.int64))]
    for other, share in ((30, 1.0), (500, 0.75)):
        looks = {"x": (Query(("x",), 3, 1, sigma), np.array([1500, other, 0]))}
        whole = recode_of(noisy_counts(plan, {42: 1500.0 + other}), 5.0)
        found = find_frequent_values(counted, looks, {"x": whole}, plan)["x"]
        assert found.number.tolist() == [low] and found.share == pytest.approx([share])


def test_values_have_their_shares_of_a_cell_and_rise_with_the_place() -> None:
    frequent = FrequentValues(np.array([1, 1]), np.array([12, 15]), np.array([0.5, 0.2]))
    inside = InsideCells(frequent, [range(10), range(10, 20), range(20, 30)])
    assert inside.has(np.array([0, 1, 2])).tolist() == [False, True, False]
    found = inside.find(np.ones(8000, dtype=np.int64), (np.arange(8000) + 0.5) / 8000)
    assert (np.diff(found) >= 0).all()
    shares = np.bincount(found.astype(np.int64) - 10, minlength=10) / 8000
    assert shares == pytest.approx([0.0375, 0.0375, 0.5, 0.0375, 0.0375, 0.2, *[0.0375] * 4], abs=2e-3)


def test_four_values_in_wide_bounds_come_out_and_a_continuous_column_stays_one() -> None:
    rng, rows = np.random.default_rng(0), 6000
    pay = rng.choice([0, 1500, 2217, 48_003], rows, p=[0.4, 0.3, 0.2, 0.1])
    even = rng.integers(0, 100_000, rows)
    table = pa.table({"pay": pay, "even": even})
    columns = {name: {"kind": "integer", "min": 0, "max": 100_000} for name in table.column_names}
    spec = make_spec(columns, privacy={"epsilon": 2.0, "delta": 1e-9})
    request = Request(spec, tuple(table.column_names), 1)
    assert "value_counts" in split_budget(request)
    access = PrivateAccess(lambda repairs=None: table.to_batches())
    run = MemoryRun(request, build_steps(request), draw_from_seed(0), access)
    made = run.run()["decode"]["synthetic"]
    assert [q.attributes for q in run.receipts["value_counts"]] == [("pay",)]
    for value, share in ((1500, 0.3), (2217, 0.2), (48_003, 0.1)):
        assert np.mean(made["pay"].to_numpy() == value) == pytest.approx(share, abs=0.03)
    assert np.isin(made["pay"].to_numpy(), pay).mean() > 0.97
    assert len(np.unique(made["even"].to_numpy())) > 0.8 * len(np.unique(even))
