"""Columns that are never read: evenly drawn from their public domains, in their released types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privsyn.data_contracts.tables import make_value_profile
from privsyn.tasks.codecs import EncodingPlan, plan, plan_every_column
from tests.support.specs import make_spec

ROWS = 20_000
X = {"x": {"kind": "boolean"}}
KINDS: dict[str, tuple[dict[str, Any], int, int]] = {
    "whole": ({"kind": "integer", "min": -3, "max": 8, "edges": [-3, 7, 8], "type": "int8"}, 12, 2),
    "even": ({"kind": "integer", "min": 1, "max": 100, "step": 7}, 14, 14),
    "tenths": ({"kind": "number", "min": -0.5, "max": 0.5, "decimals": 1, "bins": 4}, 11, 4),
    "quarters": ({"kind": "number", "min": 0.1, "max": 2, "step": 0.25}, 8, 8),
    "day": ({"kind": "date", "min": "2020-01-01", "max": "2020-01-10"}, 10, 10),
    "hour": ({"kind": "datetime", "min": "2020-01-01", "max": "2020-01-02", "resolution": "hour", "bins": 6}, 25, 6),
    "dated": ({"kind": "datetime", "min": "2020-01-01", "max": "2020-01-03", "type": "date", "bins": 2}, 3, 2),
    "minute": ({"kind": "time", "format": "hhmm"}, 1_440, 24),
    "listed": ({"kind": "categorical", "values": ["a", "other", "c"], "unlisted": "other"}, 3, 3),
    "open": ({"kind": "categorical", "values": ["a", "b"], "unlisted": "other"}, 2, 2),
    "or_null": ({"kind": "categorical", "values": ["a", "b"], "unlisted": "null"}, 2, 2),
    "numbered": ({"kind": "categorical", "values": [3, 1, 2]}, 3, 3),
    "truth": ({"kind": "boolean"}, 2, 2),
}
"""Kind -> column, how many different values it may have, and how many bins."""


def planned(column: dict[str, Any], **more: Any) -> EncodingPlan:
    return plan(make_spec({**X, "y": {**column, "measured": False, **more}}))


def drawn(found: EncodingPlan) -> pa.Array:
    array = found.decode({"x": np.zeros(ROWS, np.int64)}, np.random.default_rng(0))["y"]
    (row,) = make_value_profile([pa.record_batch({"y": array})], {"y": found.ranges()["y"]}).to_pylist()
    assert (row["outside"], row["unwanted_nulls"], row["type_matches"]) == (0, 0, True)
    return array


@pytest.mark.parametrize("kind", KINDS)
def test_every_possible_value_is_as_likely(kind: str) -> None:
    column, values, _ = KINDS[kind]
    array = drawn(planned(column))
    assert array.null_count == 0
    counts = np.array([row["counts"] for row in pc.value_counts(array).to_pylist()])
    assert len(counts) == values
    assert np.abs(counts - ROWS / values).max() < 6 * np.sqrt(ROWS / values)


@pytest.mark.parametrize("kind", KINDS)
def test_null_is_as_likely_as_one_listed_value_or_one_bin_where_it_may_be(kind: str) -> None:
    column, _, bins = KINDS[kind]
    array = drawn(planned(column, nullable=True))
    wanted = ROWS / (bins + 1)
    assert abs(array.null_count - wanted) < 6 * np.sqrt(wanted)


def test_it_is_no_attribute_and_not_what_an_evaluation_compares() -> None:
    spec = make_spec({**X, "y": {"kind": "time", "measured": False}})
    for found in (plan(spec), plan(spec, ("y", "x"))):
        assert found.domain.attributes == ("x",) and list(found.ranges()) == ["x", "y"]
    assert plan_every_column(spec, ("y", "x")).domain.attributes == ("x",)


def test_the_domain_has_no_value_that_only_unlisted_ones_become() -> None:
    found = planned(KINDS["open"][0]).ranges()["y"]
    assert found.values is not None and found.values.to_pylist() == ["a", "b"]
    assert not planned(KINDS["or_null"][0]).ranges()["y"].nullable
