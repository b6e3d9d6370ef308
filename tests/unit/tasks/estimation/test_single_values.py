"""Cells of one value: 0 and the bounds of a column of numbers, kept where they stand out from noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import Points
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.estimation.fine_weights import weigh_inside

WAGE = {"kind": "integer", "min": 0, "max": 99_999}


EQUAL_CELLS = {"mechanism": {"name": "privsyn", "compression": {"ladder": False}}}
"""Of specs whose columns have the equal cells that follow from bounds alone."""


def plan_one(column: dict[str, Any], **spec: Any) -> EncodingPlan:
    content = {
        "dataset": "people",
        "data": "people.parquet",
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "budget": {"epsilon": 10.0, "delta": 1e-6},
        "columns": {"x": column},
        **spec,
    }
    return plan(ReleaseSpec.model_validate(content))


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (WAGE, {"0", "99999"}),
        ({"kind": "integer", "min": -50_000, "max": 50_000}, {"-50000", "0", "50000"}),
        ({"kind": "number", "min": 0, "max": 10, "step": 0.01}, {"0", "10"}),
        ({"kind": "number", "min": 0, "max": 1}, {"0", "1"}),
        ({"kind": "number", "min": -1.25, "max": 7, "decimals": 1}, {"0", "7"}),  # -1.25 cannot be released
    ],
)
def test_zero_and_the_bounds_have_cells_of_their_own(column: dict[str, Any], labels: set[str]) -> None:
    codec = plan_one(column, **EQUAL_CELLS).codecs[0]
    assert codec.points is not None
    assert {codec.labels()[i] for i in codec.points.cell} == labels
    values = np.array([float(label) for label in sorted(labels)] + [0.4 * column["min"] + 0.5 * column["max"] + 0.03])
    codes, _ = codec.encode({"x": pa.array(values)})
    assert [codec.labels()[code] for code in codes[:-1]] == sorted(labels)
    assert codes[-1] not in codec.points.cell
    again = codec.decode(codes, np.random.default_rng(0))["x"].to_numpy()
    assert again[:-1] == pytest.approx(values[:-1], abs=0)


@pytest.mark.parametrize(
    ("low", "high", "decimals", "values"),
    [(0, 1, 0, [0, 1]), (0, 2, 1, [i / 10 for i in range(21)]), (0.05, 0.75, 1, [i / 10 for i in range(1, 8)])],
)
def test_few_values_of_decimals_have_a_cell_each(low: float, high: float, decimals: int, values: list[float]) -> None:
    column = {"kind": "number", "min": low, "max": high, "decimals": decimals}
    (codec,) = plan_one(column).codecs
    codes, _ = codec.encode({"x": pa.array(values, pa.float64())})
    assert codes.tolist() == list(range(codec.size)) and len(values) == codec.size
    assert codec.decode(codes, np.random.default_rng(0))["x"].to_pylist() == values
    assert plan_one(column, preset="0.3").codecs[0].size == 64


@pytest.mark.parametrize(("rule", "asked", "forbidden"), [("x > 0.6", "x <= 0.6", 2), ("x == 0.6", "x != 0.6", 1)])
def test_a_rule_and_a_question_with_one_threshold_make_one_edge(rule: str, asked: str, forbidden: int) -> None:
    column = {"kind": "number", "min": 0, "max": 1, "decimals": 1, "bins": 2}
    columns = {"x": column, "s": {"kind": "boolean"}}
    both, question = (
        plan_one(column, columns=columns, workload=[{"question": f"s where {asked}"}], rules=rules)
        for rules in ([{"never": rule}], [])
    )
    assert both.codecs[0].labels() == question.codecs[0].labels()
    assert both.rules is not None
    cells = {"x": both.codecs[0].value_bounds()["x"]}
    assert both.rules.find_impossible_cells(both.rules.conditions[0], cells, [["x"]]).sum() == forbidden


@pytest.mark.parametrize(
    ("column", "spec"),
    [
        (WAGE | {"bins": 20}, {}),
        (WAGE | {"edges": [0, 100, 99_999]}, {}),
        (WAGE, {"preset": "0.3"}),
        ({"kind": "integer", "min": 0, "max": 40}, {}),  # a cell each anyway
        ({"kind": "number", "min": 0, "max": 20, "step": 0.5}, {}),
    ],
)
def test_columns_with_bins_few_values_or_earlier_defaults_have_none(column: Any, spec: Any) -> None:
    assert all(bins.points is None for bins in plan_one(column, **spec).binning.values())


POINTS = Points(np.array([0]), np.array([1]), np.array([0.01]))
GROUPS, ONE_CODE = np.array([0, 1, 2], dtype=np.int32), np.zeros(3, dtype=np.int32)


def test_a_value_that_noise_could_have_made_has_the_even_share_of_its_neighbour() -> None:
    weights = weigh_inside(np.array([12.0, 45, 55]), 5.0, GROUPS, ONE_CODE, points=POINTS)
    assert weights.sum() == pytest.approx(1)
    assert weights[0] == pytest.approx(0.01 * (weights[0] + weights[1]))
    without = weigh_inside(np.array([12.0, 45, 55]), 5.0, GROUPS, ONE_CODE)
    assert without[0] > 0.1  # what it was taken for before


FOUR = np.array([0, 1, 2, 3], dtype=np.int32)
THREE_AND_ONE = np.array([0, 0, 0, 1], dtype=np.int32)


def test_a_bin_that_stands_out_takes_nothing_from_noise_below_zero() -> None:
    weights = weigh_inside(np.array([-4.0, 100.0, 4.0, 5.0]), 1.0, FOUR, THREE_AND_ONE)
    assert weights[0] == 0
    assert weights[1] == pytest.approx(0.98)


def test_residuals_no_larger_than_the_noise_are_spread_evenly() -> None:
    weights = weigh_inside(np.array([99.0, 100.0, 101.0, 5.0]), 50.0, FOUR, THREE_AND_ONE)
    assert weights == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])
