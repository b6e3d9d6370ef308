"""The difference of two columns as an attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.derived import DifferenceCodec
from tests.support.specs import make_spec

KINDS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "integer": ({"kind": "integer", "min": 0, "max": 999}, pa.array([7, 7, 8, 3, 999]), pa.array([7, 8, 7, 9, 0])),
    "decimals": (
        {"kind": "number", "min": 0, "max": 9.99, "decimals": 2},
        pa.array([0.07, 0.07, 0.08, 0.03, 9.99]),
        pa.array([0.07, 0.08, 0.07, 0.09, 0.0]),
    ),
    "date": (
        {"kind": "date", "min": "1970-01-01", "max": "1972-09-26"},
        pa.array([7, 7, 8, 3, 999], pa.date32()),
        pa.array([7, 8, 7, 9, 0], pa.date32()),
    ),
}


def build_codec(column: dict[str, Any]) -> DifferenceCodec:
    (codec,) = plan(make_spec({"a": column, "b": column}, compare=[["a", "b"]])).differences
    return codec


@pytest.mark.parametrize("kind", KINDS)
def test_codes_say_sign_and_size(kind: str) -> None:
    column, a, b = KINDS[kind]
    codec = build_codec(column)
    codes, repairs = codec.encode({"a": a, "b": b})
    zero = codec.zero
    assert codes.tolist() == [zero, zero - 1, zero + 1, zero - 3, zero + 10]  # 6 is from 4 to 7, 999 from 512 to 1023
    assert not repairs
    assert codec.signs[codes].tolist() == [0, -1, 1, -1, 1]


def test_null_is_missing_and_values_outside_are_counted_as_the_columns_count_them() -> None:
    codec = build_codec({"kind": "integer", "min": 0, "max": 9, "nullable": True})
    codes, _ = codec.encode({"a": pa.array([None, 3, -50]), "b": pa.array([3, None, 0])})
    assert codes.tolist() == [codec.missing, codec.missing, codec.zero]


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_difference_has_its_code(kind: str) -> None:
    codec = build_codec(KINDS[kind][0])
    codes = np.repeat(np.arange(codec.missing), 50)
    drawn = codec.draw(codes, np.random.default_rng(0))
    assert np.array_equal(codec.find_codes(drawn, np.zeros(len(drawn))), codes)


def test_values_on_no_grid_have_a_cell_for_equality_alone() -> None:
    codec = build_codec({"kind": "number", "min": 0, "max": 1})
    found = codec.find_codes(np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.5 + 1e-12, 0.5 - 1e-12]))
    assert found.tolist() == [codec.zero, codec.zero - 1, codec.zero + 1]
