"""Values as whole numbers of a column's resolution: exact where there is one, in order, and read back as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.tasks.codecs.encoding_plan import plan
from privsyn.tasks.codecs.ordered import Lattice, OrderedCodec
from tests.support.specs import make_spec


def get_codec(column: dict[str, Any]) -> OrderedCodec:
    codec = plan(make_spec({"x": column})).codecs[0]
    assert isinstance(codec, OrderedCodec)
    return codec


def read_back(column: dict[str, Any], values: pa.Array) -> tuple[pa.Array, list[Any]]:
    codec = get_codec(column)
    _, _, numbers = codec.encode_with_numbers({"x": values})
    assert numbers.type == pa.from_numpy_dtype(choose_code_dtype(codec.lattice.size))
    return numbers, codec.lattice.read(numbers).to_pylist()


@pytest.mark.parametrize(
    ("column", "values", "expected", "type_"),
    [
        ({"kind": "integer", "min": -5, "max": 120}, [-5, 0, 120, 500, -9], [-5, 0, 120, 120, -5], pa.uint8()),
        (
            {"kind": "integer", "min": 0, "max": 10**9, "nullable": True},
            [7, None, 10**9],
            [7, None, 10**9],
            pa.uint32(),
        ),
        ({"kind": "number", "min": 0, "max": 50, "decimals": 2}, [0.29, 0.7, 49.99], [0.29, 0.7, 49.99], pa.uint16()),
        ({"kind": "number", "min": 0, "max": 50, "step": 0.1}, [0.3, 0.34, 49.9], [0.3, 0.3, 49.9], pa.uint16()),
        ({"kind": "integer", "min": 0, "max": 99, "exact": [-9, -8]}, [-9, 5, -8], [-9, 5, -8], pa.uint8()),
        ({"kind": "integer", "min": -(2**53), "max": 2**53}, [-(2**40), 0, 2**50], [-(2**40), 0, 2**50], pa.uint64()),
    ],
)
def test_numbers_are_exact_where_the_column_has_a_resolution(
    column: dict[str, Any], values: list[Any], expected: list[Any], type_: pa.DataType
) -> None:
    numbers, read = read_back(column, pa.array(values))
    assert numbers.type == type_ and read == expected


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.5, 1e6), (-1e-9, 1e-9), (0.0, 1e300), (1e-310, 2e-310)])
def test_reals_keep_their_order_and_a_trillionth_of_the_larger_bound(bounds: tuple[float, float]) -> None:
    low, high = bounds
    values = np.sort(np.random.default_rng(0).uniform(low, high, 500))
    lattice = Lattice.of(low, high, None)
    numbers = lattice.number(values, np.full(500, -1))
    assert (np.diff(np.asarray(numbers).astype(float)) >= 0).all() and lattice.size <= 1 << 64
    read = np.asarray(lattice.read(numbers))
    assert (np.abs(read - values) <= 2.0**-40 * 2 * max(abs(low), abs(high))).all()


def test_days_and_moments_are_numbers_of_their_resolution() -> None:
    days = get_codec({"kind": "date", "min": "2000-01-01", "max": "2020-12-31"})
    _, _, numbers = days.encode_with_numbers({"x": pa.array(["2000-01-01", "2000-02-01"])})
    assert numbers.to_pylist() == [0, 31] and numbers.type == pa.uint16()
    moments = get_codec(
        {"kind": "datetime", "min": "2020-01-01T00:00", "max": "2020-01-02T00:00", "resolution": "minute", "bins": 8}
    )
    _, _, numbers = moments.encode_with_numbers({"x": pa.array(["2020-01-01T00:01:30", "2020-01-01T01:00"])})
    assert numbers.to_pylist() == [1, 60]


def test_the_number_between_two_multiples_is_the_lower_one() -> None:
    lattice = Lattice.of(0.0, 10.0, Grid.of(0.5))
    assert lattice.number(np.array([0.49, 0.5, 9.99, 10.0]), np.full(4, -1)).to_pylist() == [0, 1, 19, 20]
