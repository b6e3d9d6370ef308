"""Parsers of single values: exact, total, and blind to the clock and the time zone database."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.codecs.parsing import to_keys, to_numbers, to_seconds
from privsyn.tasks.steps.encode import encode
from tests.support.specs import make_spec

EPOCH = dt.datetime(1970, 1, 1)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2010", dt.datetime(2010, 1, 1)),
        ("2010-02", dt.datetime(2010, 2, 1)),
        ("20100131", dt.datetime(2010, 1, 31)),
        (" 2010/1/5 ", dt.datetime(2010, 1, 5)),
        ("2012-02-29T01:02", dt.datetime(2012, 2, 29, 1, 2)),
        ("20100131T101112", dt.datetime(2010, 1, 31, 10, 11, 12)),
        ("2010-01-31 12:30:05.5+02:00", dt.datetime(2010, 1, 31, 10, 30, 5, 500_000)),
        ("2010-01-31T23:30:00-0130", dt.datetime(2010, 2, 1, 1, 0)),
        ("2010-01-31T12Z", dt.datetime(2010, 1, 31, 12)),
        ("2010-01-31T00:00:00.123456999", dt.datetime(2010, 1, 31, 0, 0, 0, 123_456)),
        ("0001-01-01", dt.datetime(1, 1, 1)),
        ("9999-12-31T23:59:59", dt.datetime(9999, 12, 31, 23, 59, 59)),
    ],
)
def test_iso_texts(text: str, moment: dt.datetime) -> None:
    assert to_seconds(pa.array([text]))[0][0] == pytest.approx((moment - EPOCH).total_seconds(), abs=1e-6)


NO_MOMENTS = """now today x 2010-02-29 2010-13-01 2010-00-01 2010-01-00 2010-01-31T24:00 10000-01-01 201001
2010-01-31T10:60 2010-01-31T10:00:60 -2010-01-01 31.01.2010 2010-01-31T10:00+99:00"""


@pytest.mark.parametrize("text", ["", *NO_MOMENTS.split()])
def test_what_is_no_moment(text: str) -> None:
    seconds, is_null = to_seconds(pa.array([text]))
    assert np.isnan(seconds[0]) and not is_null[0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "No/Where"])
def test_stored_moments_never_overflow_and_ignore_zone_names(unit: str, zone: str | None) -> None:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    ticks = pa.array([2**63 - 1, -(2**63), None, 7 * per], pa.int64()).view(pa.timestamp(unit, zone))
    seconds, is_null = to_seconds(ticks)
    assert seconds[[0, 1, 3]].tolist() == [pytest.approx(2**63 / per), pytest.approx(-(2**63) / per), 7]
    assert is_null.tolist() == [False, False, True, False] and np.isnan(seconds[2])
    assert to_keys(ticks, pa.string()).null_count == 1


def test_text_and_stored_moments_agree_exactly() -> None:
    moments = [dt.datetime(1950, 3, 4, 5, 6, 7, 89), dt.datetime(2010, 1, 31), dt.datetime(9999, 12, 31, 23, 59, 59)]
    stored = pa.array(moments, pa.timestamp("us"))
    assert to_seconds(pa.array([m.isoformat() for m in moments]))[0].tolist() == to_seconds(stored)[0].tolist()
    assert to_seconds(stored.cast(pa.date32()))[0].tolist() == to_seconds(stored.cast(pa.date64()))[0].tolist()


def test_numbers_in_text() -> None:
    texts = ["1e3", " +5 ", ".5", "2.", "1e999", "-Infinity", "18446744073709551615", "-1"]
    assert to_numbers(pa.array(texts))[0].tolist() == [1e3, 5, 0.5, 2, np.inf, -np.inf, 2.0**64, -1]
    assert np.isnan(to_numbers(pa.array(["1_0", "0x1", "nan", "", "x", "True", "٣", "1 2", "."]))[0]).all()


def test_decimal_keys_are_normal() -> None:
    values = [Decimal("1.50"), Decimal("-0.00"), Decimal("100.00"), Decimal("0.01"), None]
    assert to_keys(pa.array(values, pa.decimal128(9, 2)), pa.string()).to_pylist() == ["1.5", "0", "100", "0.01", None]


@pytest.mark.parametrize("start", [2**53 + 1, 10**19])
@pytest.mark.parametrize("type_", [pa.decimal128(38, 0), pa.decimal128(38, 3), pa.uint64(), pa.string()])
def test_every_person_keeps_their_rows(start: int, type_: pa.DataType) -> None:
    """End to end: 100 people of two rows each, whose identifiers a float cannot tell apart."""
    spec = make_spec({"pid": {"kind": "drop"}, "ok": {"kind": "boolean"}}, unit={"person_id": "pid", "max_records": 1})
    people = [start + i // 2 for i in range(200)]
    made = [str(p) if type_ == pa.string() else Decimal(p) if "decimal" in str(type_) else p for p in people]
    batch = pa.record_batch({"pid": pa.array(made, type_), "ok": pa.array([True] * 200)})
    repairs = Repairs()
    kept = sum(b.num_rows for b in encode(lambda _=None: [batch], plan(spec), spec.unit, repairs))
    assert kept == 100 and repairs.counts["pid", "left out"] == 100
