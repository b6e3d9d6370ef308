"""A digest of rows: the same for equal values in whatever type they are stored, another for any other value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from privsyn.sources.row_digest import RowDigest


def digest(values: list[Any], type_: pa.DataType) -> int:
    found = RowDigest()
    found.add(pa.record_batch({"x": pa.array(values, type_)}))
    return found.content


@pytest.mark.parametrize("value", [0, 7, -7, 2**53, 2**53 + 1, -(2**53) - 1, 2**60 + 1])
def test_a_whole_number_has_one_digest_in_every_type(value: int) -> None:
    expected = digest([value, None], pa.int64())
    for type_ in (pa.decimal128(38, 0), pa.decimal128(38, 4), pa.decimal256(60, 0)):
        assert digest([Decimal(value), None], type_) == expected
    if value >= 0:
        assert digest([value, None], pa.uint64()) == expected
    if float(value) == value and abs(value) <= 2**53:
        assert digest([float(value), None], pa.float64()) == expected


@pytest.mark.parametrize("base", [2**53, 2**62, 2**63, 2**64 - 2])
def test_neighbours_of_large_numbers_differ(base: int) -> None:
    assert digest([base], pa.uint64()) != digest([base + 1], pa.uint64())
    if base < 2**63:
        assert digest([Decimal(base)], pa.decimal128(38, 2)) != digest([Decimal(base + 1)], pa.decimal128(38, 2))
    if float(base) == base:
        assert digest([base], pa.uint64()) == digest([float(base)], pa.float64())


def test_a_decimal_with_a_fraction_is_the_float_that_is_read() -> None:
    floats = digest([12.5, 0.1, None], pa.float64())
    assert digest([Decimal("12.50"), Decimal("0.10"), None], pa.decimal128(8, 2)) == floats
