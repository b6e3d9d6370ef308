"""Days, times of day, formats, time zones and parsers: exact, total, and blind to the clock."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.columns.ordered_columns import translate_to_pattern
from privsyn.tasks.codecs import Codec, plan
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.codecs.parsing import to_keys, to_numbers, to_seconds, to_times
from privsyn.tasks.steps.encode import encode
from tests.support.specs import make_spec

RNG = np.random.default_rng(0)
DAY: dict[str, Any] = {"kind": "date", "min": "2020-01-01", "max": "2020-02-10"}
BERLIN = "Europe/Berlin"


def codec(column: dict[str, Any]) -> Codec:
    return plan(make_spec({"x": column})).codecs[0]


def again(column: dict[str, Any], values: pa.Array) -> list[Any]:
    made = codec(column)
    return made.decode(made.encode({"x": values})[0], RNG)["x"].to_pylist()


def test_days_have_no_time_of_day() -> None:
    days = [dt.date(2020, 1, 1), dt.date(2020, 2, 10), dt.date(2020, 1, 31)]
    assert again(DAY, pa.array(days)) == days
    text = ["2020-01-01T23:59:59", "20200210", "2020-01-31 12:00"]
    assert again(DAY, pa.array(text)) == days
    wide = codec({**DAY, "max": "2029-12-31", "nullable": True})
    made = wide.decode(np.repeat(np.arange(wide.size), 50), RNG)["x"]
    assert made.type == pa.date32() and made.null_count == 50
    assert wide.ranges()["x"].high == dt.date(2029, 12, 31)
    edges = codec({**DAY, "edges": ["2020-01-01", "2020-02-01", "2020-02-10"], "exact": ["2099-12-31"]})
    assert edges.bin_labels() == ["2020-01-01..2020-01-31", "2020-02-01..2020-02-10", "2099-12-31"]


@pytest.mark.parametrize(
    ("format_", "numbers"),
    [
        ("%Y%m%d", pa.array([20200131, 20200210, None, 31], pa.int64())),
        ("%Y%m%d", pa.array([20200131.0, 20200210.0, None, 20200131.5])),
        ("%Y%m%d", pa.array([20200131, 20200210, None, -20200131], pa.int32()).cast(pa.decimal128(12, 2))),
        ("%d%m%Y", pa.array([31012020, 10022020, None, 31], pa.int64())),
        ("%m%d%y", pa.array([13120, 21020, None, 2**63], pa.uint64())),  # the zeros that a number cannot begin with
        ("%d.%m.%Y", pa.array([None, None, None, 20200131], pa.int64())),
    ],
)
def test_numbers_are_days_by_the_digits_of_the_format(format_: str, numbers: pa.Array) -> None:
    days = [dt.date(2020, 1, 31), dt.date(2020, 2, 10)] if numbers[0].is_valid else [None, None]
    column = {**DAY, "max": "2020-03-04", "nullable": True, "format": format_}
    assert again(column, numbers)[:3] == [*days, None]
    assert np.isnan(to_seconds(numbers, translate_to_pattern(format_))[0][2:]).all()


def test_a_number_without_a_format_is_no_day() -> None:
    assert np.isnan(to_seconds(pa.array([20200131, 43831]))[0]).all()


def test_midnights_of_a_zone_are_its_own_days() -> None:
    midnight = dt.datetime(2020, 1, 31, tzinfo=dt.timezone(dt.timedelta(hours=1)))  # the day before, in UTC
    stored = pa.array([midnight], pa.timestamp("us", BERLIN))
    assert again({**DAY, "zone": BERLIN}, stored) == [dt.date(2020, 1, 31)]
    assert again({**DAY, "zone": "UTC"}, stored) == [dt.date(2020, 1, 30)]
    text = pa.array(["2020-01-30T23:00:00Z", "2020-01-31", "2020-01-31T00:00:00+01:00"])
    assert again({**DAY, "zone": BERLIN}, text) == [dt.date(2020, 1, 31)] * 3


def test_clock_times_follow_summer_time() -> None:
    text = pa.array(["2020-07-01T10:00Z", "2020-01-01T10:00Z", "2020-07-01T10:00", None, "x", "9999-12-31T23:59:59Z"])
    seconds, _ = to_seconds(text, zone=BERLIN)
    utc, _ = to_seconds(text)
    assert (seconds - utc)[[0, 1, 2, 5]].tolist() == [7_200, 3_600, 0, 3_600]
    assert np.isnan(seconds[3:5]).all()


@pytest.mark.parametrize(
    ("format_", "text", "expected"),
    [
        ("%m/%d/%Y", "1/31/2020", "2020-01-31"),
        ("%d.%m.%y", "31.01.20", "2020-01-31"),
        ("%d.%m.%y", "31.01.69", "1969-01-31"),
        ("%d %b %Y", "31 Jan 2020", "2020-01-31"),
        ("%B %d, %Y", "January 31, 2020", "2020-01-31"),
        ("%Y%m%d %H:%M", "20200131 08:30", "2020-01-31T08:30"),
        ("%m/%d/%Y %I:%M %p", "1/31/2020 12:05 am", "2020-01-31T00:05"),
        ("%m/%d/%Y %I:%M %p", "1/31/2020 1:05 PM", "2020-01-31T13:05"),
        ("%m/%d/%Y", "31/1/2020", None),
        ("%m/%d/%Y", "2020-01-31", None),
        ("%d %b %Y", "31 Foo 2020", None),
        ("%m/%d/%Y", "2/30/2020", None),
        ("%m/%d/%Y %I:%M %p", "1/31/2020 13:05 PM", None),
    ],
)
def test_texts_are_read_as_their_format_says(format_: str, text: str, expected: str | None) -> None:
    from privsyn.data_contracts.columns.ordered_columns import translate_to_pattern

    found = to_seconds(pa.array([text, None]), translate_to_pattern(format_))[0]
    true = np.nan if expected is None else np.datetime64(expected, "s").astype(int)
    assert np.array_equal(found, [true, np.nan], equal_nan=True)


@pytest.mark.parametrize("format_", ["%d", "%m/%d/%Y/%Q", "%m/%m/%d/%Y", "%y%Y%m%d", "%I %Y%m%d", "x"])
def test_formats_that_name_no_date_are_refused(format_: str) -> None:
    with pytest.raises(ValueError, match="`format`"):
        codec({**DAY, "format": format_})


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", ""])
def test_unknown_zones_are_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        codec({**DAY, "zone": zone})


def test_hhmm_never_has_impossible_minutes() -> None:
    made = codec({"kind": "time", "format": "hhmm"})
    values = made.decode(np.repeat(np.arange(made.size), 300), RNG)["x"].to_numpy()
    assert (values % 100 < 60).all() and values.min() >= 0 and values.max() < 2_400
    assert len(np.unique(values)) > 1_300
    source = pa.array([1435, 5, 2400, 2359, 1299, -1, 2401, None])
    codes, repairs = made.encode({"x": source})
    assert repairs == {"unparseable": 3, "null": 1}
    assert [made.bin_labels()[made.groups[c]][:5] for c in codes] == [
        "14:00", "00:00", "00:00", "23:00", "00:00", "00:00", "00:00", "00:00"
    ]  # fmt: skip
    assert made.encode({"x": pa.array(["1435", "0005"])})[0].tolist() == codes[:2].tolist()


def test_times_of_every_form() -> None:
    times = [dt.time(9, 5), dt.time(23, 59)]
    for format_, stored in (
        ("HH:MM", pa.array(["9:05", "23:59"])),
        ("HH:MM", pa.array(times, pa.time64("us"))),
        ("HH:MM", pa.array([dt.datetime(2020, 1, 1, t.hour, t.minute) for t in times], pa.timestamp("ns"))),
        ("hhmm", pa.array([905, 2359])),
    ):
        assert to_times(stored, format_)[0].tolist() == [545, 1439]
    assert to_times(pa.array([0, 86_399, 86_400]), "seconds")[0][:2].tolist() == [0, 86_399]
    clock = codec({"kind": "time", "format": "HH:MM:SS", "bins": 4})
    made = clock.decode(np.zeros(5, dtype=np.int64), RNG)["x"]
    assert made.type == pa.time32("ms") and all(t < dt.time(6) for t in made.to_pylist())
    with pytest.raises(ValueError, match="HH:MM"):
        codec({"kind": "time", "format": "12h"})


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
