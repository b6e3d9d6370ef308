"""A digest of rows: the same for equal values in whatever type they are stored, another for any other value."""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.sources import row_digest
from privsyn.sources.row_digest import RowDigest, compute_rows_fingerprint

KEY = b"a key that nobody else may know "


def digest_table(table: pa.Table, key: bytes = KEY, batch_rows: int = 1000) -> RowDigest:
    """The digest of a table by a key."""
    found = RowDigest(key)
    for batch in table.to_batches(max_chunksize=batch_rows):
        found.add(batch)
    return found


def digest(values: list[Any], type_: pa.DataType | None = None) -> int:
    return digest_table(pa.table({"x": pa.array(values, type_)})).content


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


def test_layouts_of_one_value_have_one_digest() -> None:
    text = digest(["a", None, "ä"])
    for type_ in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        assert digest_table(pa.table({"x": pa.array(["a", None, "ä"]).cast(type_)})).content == text
    assert digest([None, float("nan")], pa.float64()) == digest([None, None]) == digest([None, None], pa.string())
    assert digest([-0.0], pa.float64()) == digest([0]) == digest([False])
    days = [dt.date(2024, 1, 5), dt.date(1950, 7, 1)]
    moments = [dt.datetime(day.year, day.month, day.day) for day in days]
    assert {digest(moments, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")} == {digest(days, pa.date32())}
    assert digest([dt.time(1, 2)], pa.time32("s")) == digest([dt.time(1, 2)], pa.time64("ns"))


def test_values_of_other_kinds_differ() -> None:
    second = dt.datetime(1970, 1, 1, 0, 0, 1)
    values: list[list[Any]] = [[1], ["1"], [1.5], [None], [""], ["\0"], [second], [dt.time(0, 0, 1)], [2**63], [-1]]
    values.append([second + dt.timedelta(microseconds=1)])
    types = {8: pa.uint64()}
    assert len({digest(value, types.get(i)) for i, value in enumerate(values)}) == len(values)


def test_cells_of_a_row_are_told_apart_by_their_boundaries() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("abc", None), (None, "abc"), ("c", "ab")]
    found = [digest_table(pa.table({"a": pa.array([a]), "b": pa.array([b])})).content for a, b in rows]
    assert len(set(found)) == len(rows)


def test_it_does_not_depend_on_batches_nor_on_the_order_of_columns() -> None:
    numbers = np.random.default_rng(1).integers(0, 9, 40_000)
    table = pa.table({"b": numbers, "a": pa.array([f"n{n}" for n in numbers])})
    whole = digest_table(table, batch_rows=1 << 20)
    for other in (digest_table(table, batch_rows=777), digest_table(table.select(["a", "b"]).combine_chunks())):
        assert (other.rows, other.content, other.order) == (whole.rows, whole.content, whole.order)
    turned = digest_table(table.take(np.arange(40_000)[::-1]))
    assert turned.content == whole.content and turned.order != whole.order


def test_it_is_a_sum_of_keyed_hashes_of_rows() -> None:
    table = pa.table({"n": pa.array([-3, None, -3]), "text": ["ä", "", "ä"]})

    def hash_row(*cells: tuple[int, int], text: str = "") -> int:
        content = b"".join(struct.pack("<QI", *cell) for cell in cells) + text.encode()
        return int.from_bytes(hashlib.blake2b(content, key=KEY, digest_size=32, person=b"row").digest(), "little")

    integer, text, null = 0xFFFFFFFE, 0xFFFFFFFA, 0xFFFFFFFF
    twice = hash_row((2**64 - 3, integer), (2, text), text="ä")
    assert digest_table(table).content == (2 * twice + hash_row((0, null), (0, text))) % 2**256


def test_another_key_gives_another_digest() -> None:
    table = pa.table({"x": [1, 2]})
    one, other = digest_table(table), digest_table(table, KEY[::-1])
    assert one.content != other.content and one.order != other.order
    with pytest.raises(ValueError, match="32 bytes"):
        RowDigest(b"short")


def test_what_is_compared_with_public_inputs_is_keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute() -> tuple[int, int]:
        return compute_rows_fingerprint(pa.table({"x": [1, 2]}).to_batches(), ["x"])

    before = compute()
    assert compute() == before and before[0] == 2
    monkeypatch.setattr(row_digest, "_KEY", KEY)
    assert compute()[1] != before[1]
