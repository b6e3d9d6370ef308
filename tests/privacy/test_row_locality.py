"""Bug class 5, wrong sensitivity: the code of a row depends on that row alone, whatever the others hold.

If one person's value could change how another's is read (a parser that picks one resolution or type for
the whole batch), adding that person would change more than their own rows.

It does not see how readers make Arrow arrays and Python objects of what is stored: each of them has tests in
tests/unit/sources (workbooks, SPSS, Stata, tables in memory) or tests/flows/test_release_from_databases.py (SQLite,
DuckDB, PostgreSQL), on the values named there, not on all; SAS files and object stores have none.  Nor does it see the
choice among the rows of a person, counts of single values, transitions and rows below another table, for which the
referee (audit/referee.py) is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.memory_source import read_objects
from privsyn.tasks.codecs import Codec, parsing, plan
from tests.support.examples import choose_example_count
from tests.support.specs import anything, make_spec, specs

KINDS: dict[str, dict[str, Any]] = {
    "integer": {"kind": "integer", "min": -5, "max": 99, "nullable": True},
    "number": {"kind": "number", "min": -5, "max": 99.5, "bins": 20, "nullable": True},
    "datetime": {"kind": "datetime", "min": "1950-01-01", "max": "2050-01-01", "bins": 50, "nullable": True},
    "text": {"kind": "categorical", "values": ["1", "a", "true", "0.5"], "unlisted": "other", "nullable": True},
    "whole": {"kind": "categorical", "values": [0, 1, 2**53 - 1], "nullable": True},
    "boolean": {"kind": "boolean", "nullable": True},
    "day": {"kind": "date", "min": "1900-01-01", "max": "2100-01-01", "zone": "Europe/Berlin", "nullable": True},
    "us_day": {"kind": "date", "min": "2000-01-01", "max": "2030-01-01", "format": "%m/%d/%Y", "nullable": True},
    "digits": {"kind": "date", "min": "1900-01-01", "max": "2100-01-01", "format": "%d%m%Y", "nullable": True},
    "zoned": {"kind": "datetime", "min": "1900-01-01", "max": "2100-01-01", "zone": "America/New_York"},
    "clock": {"kind": "time", "nullable": True},
    "hhmm": {"kind": "time", "format": "hhmm"},
    "spikes": {"kind": "number", "min": 0, "max": 9, "exact": [0, 7, 99], "step": 0.5, "nullable": True},
}
TYPES = [
    *("int8", "int64", "uint64", "float16", "float32", "float64", "bool", "string", "large_string"),
    *("date32", "date64", "timestamp[s]", "timestamp[ms]", "timestamp[us]", "timestamp[ns]"),
]

ODD_MOMENTS = [
    *("2010-01-31", "20100131", "2010", "2010-01", "2010/1/5", "2010-01-31T12:30Z", "2010-01-31 12:30:05.5+02:00"),
    *("2010-01-31T12:30:05.1234567", "2010-01-31T12:30:05.123456789", "2010-01-31 10:11:12.5 -0530"),
    *("9999-12-31", "9999-12-31T23:59:59.999999999Z", "0001-01-01", "0000-01-01", "1677-01-01", "2262-12-31"),
    *("now", "today", "NaT", "", " 2010-01-31 ", "2010-02-30", "2010-01-31T24:00", "31.1.2010", "Jan 31 2010"),
    *("10000-01-01", "-0001-01-01", "1264896000", "2010-W05", "2010-01-31T12:00[Europe/Berlin]", "٢٠١٠-01-31"),
]
ODD_NUMBERS = [
    *("1", "-1", "1.5", " 7 ", "+3", "1e5", "1e999", "-inf", "nan", "", "x", "1_000", "0x1F", "٣", "9" * 400),
    *("18446744073709551615", "-9223372036854775808", "9007199254740993", "true", "TRUE", "no", "None"),
]

digits = st.text("0123456789", min_size=1, max_size=9)
moments = st.builds(
    lambda day, time, gap, fraction, zone: f"{day}{gap}{time}{fraction}{zone}",
    st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    st.times().map(lambda t: t.strftime("%H:%M:%S")),
    st.sampled_from([" ", "T", "t", "  "]),
    st.just("") | digits.map(lambda d: f".{d}"),
    st.sampled_from(["", "Z", "z", "+00:00", "-1130", "+14", " UTC", "+99:99"]),
)
texts = st.lists(
    st.none() | st.sampled_from(ODD_MOMENTS + ODD_NUMBERS) | moments | st.text("0123456789-:.TZ+eE ", max_size=12),
    max_size=12,
).map(lambda v: pa.array(v, pa.string()))


@st.composite
def ticks(draw: st.DrawFn) -> pa.Array:
    """Moments of any unit and zone, over the whole range of their integers."""
    whole = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**18), 10**18) | st.integers(-(10**9), 10**9)
    type_ = pa.timestamp(
        draw(st.sampled_from(["s", "ms", "us", "ns"])),
        draw(st.sampled_from([None, "UTC", "Europe/Berlin", "No/Where"])),
    )
    return pa.array(draw(st.lists(st.none() | whole, max_size=12)), pa.int64()).view(type_)


decimals = st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=12).map(
    lambda v: pa.array([None if n is None else Decimal(n) for n in v], pa.decimal128(38, 0))
)
unsigned = st.lists(st.none() | st.integers(0, 2**64 - 1), max_size=12).map(lambda v: pa.array(v, pa.uint64()))
objects = st.lists(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.decimals() | st.dates() | st.times()
    | st.datetimes(timezones=st.none() | st.timezones()) | st.binary(max_size=2) | st.lists(st.none(), max_size=1)
    | st.sampled_from(ODD_MOMENTS + ODD_NUMBERS),
    max_size=12,
).map(read_objects)  # fmt: skip
arrays = anything | texts | ticks() | decimals | unsigned | objects


def assert_row_local(codec: Codec, array: pa.Array) -> None:
    """Codes and repairs of the whole are those of its rows, each encoded alone."""
    whole, repairs = codec.encode({codec.sources[0]: array})
    alone = [codec.encode({codec.sources[0]: array.slice(i, 1)}) for i in range(len(array))]
    assert whole.tolist() == [code for codes, _ in alone for code in codes.tolist()]
    assert dict(repairs) == dict(sum((found for _, found in alone), type(repairs)()))


def codecs() -> list[Codec]:
    return list(plan(make_spec(KINDS)).codecs)


@settings(max_examples=choose_example_count(100), deadline=None)
@given(specs, st.data())
def test_05_each_row_is_read_alone_under_any_spec(spec: ReleaseSpec, data: st.DataObject) -> None:
    for codec in plan(spec).codecs:
        assert_row_local(codec, data.draw(arrays))


@pytest.mark.parametrize("examples", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_05_each_row_is_read_alone_for_every_kind(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(arrays)
    def check(array: pa.Array) -> None:
        for codec in codecs():
            assert_row_local(codec, array)

    check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts_", [ODD_MOMENTS, ODD_NUMBERS, pytest.param(ODD_MOMENTS + ODD_NUMBERS, marks=pytest.mark.slow)]
)
def test_05_odd_texts(texts_: list[str]) -> None:
    for array in (pa.array([*texts_, None]), pa.array([*texts_, None]).dictionary_encode()):
        for codec in codecs():
            assert_row_local(codec, array)


@pytest.mark.parametrize("type_", TYPES)
def test_05_every_stored_type(type_: str) -> None:
    array = pa.array(["1", "0", None, "0", "1"]) if "string" in type_ else pa.array([1, 0, None, 0, 1])
    if type_.startswith(("date", "timestamp")):
        array = array.cast(pa.int32() if type_ == "date32" else pa.int64())
    array = array.cast(pa.type_for_alias(type_))
    for codec in codecs():
        assert_row_local(codec, array)


def test_05_one_persons_nanoseconds_change_nobody_elses_year() -> None:
    """The review's example: far dates beside a fraction of nine digits."""
    far = ["9999-12-31", "2015-06-01", "1500-01-01"]
    before, _ = parsing.to_seconds(pa.array(far))
    after, _ = parsing.to_seconds(pa.array([*far, "2015-06-01T00:00:00.123456789"]))
    assert after[:3].tolist() == before.tolist() and np.isfinite(after).all()


def infer_one_type(cells: list[Any]) -> pa.Array:
    """Planted mutant: objects as the one type that pandas and Arrow choose for all of them, else as texts."""
    try:
        return pa.Array.from_pandas(pd.Series(cells).infer_objects())
    except (pa.ArrowException, OverflowError):
        return pa.array([str(cell) for cell in cells])


@pytest.mark.parametrize(
    ("cells", "more"), [([dt.date(2020, 1, 2)], "x"), ([dt.datetime(2020, 1, 1, 12)], dt.date(2020, 1, 1))]
)
def test_05_mutant_one_object_changes_the_type_of_all(cells: list[Any], more: Any) -> None:
    """Planted mutant: what a table in memory was before each object was read by itself, or refused."""

    def read(make: Callable[[list[Any]], pa.Array], objects: list[Any]) -> list[list[int]]:
        return [codec.encode({codec.sources[0]: make(objects)})[0][: len(cells)].tolist() for codec in codecs()]

    assert read(read_objects, [*cells, more]) == read(read_objects, cells)
    assert read(infer_one_type, [*cells, more]) != read(infer_one_type, cells)


def old_to_seconds(source: Any, pattern: str = "", zone: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Planted mutant: the parser of pandas, which picks one resolution for all rows."""
    array = parsing.decode_dictionary(source)
    is_null = np.asarray(array.is_null())
    if not pa.types.is_string(array.type):
        return np.full(len(array), np.nan), is_null
    text = pd.Series(array.to_numpy(zero_copy_only=False), dtype=object)
    micros = pd.to_datetime(text, errors="coerce", format="ISO8601", utc=True).dt.tz_localize(None)
    found = micros.to_numpy(dtype="datetime64[us]")
    return np.where(np.isnat(found), np.nan, found.astype(np.int64) / 1e6), is_null


def old_to_numbers(source: Any) -> tuple[np.ndarray, np.ndarray]:
    """Planted mutant: missing numbers take the mean of the batch."""
    array = parsing.decode_dictionary(source).cast(pa.float64())
    numbers = array.to_numpy(zero_copy_only=False)
    return np.where(np.isnan(numbers), np.nan_to_num(numbers).mean(), numbers), np.zeros(len(array), dtype=bool)


@pytest.mark.parametrize(
    ("name", "mutant", "kind", "array"),
    [
        ("to_seconds", old_to_seconds, "datetime", pa.array(["9999-12-31", "2015-06-01T00:00:00.123456789"])),
        ("to_numbers", old_to_numbers, "number", pa.array([1.0, None, 50.0])),
    ],
)
def test_05_mutant_a_parser_that_looks_at_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch, name: str, mutant: Callable[[Any], Any], kind: str, array: pa.Array
) -> None:
    """Planted mutants: one resolution for all moments of a batch, and the batch's mean for what is missing."""
    codec = plan(make_spec({kind: KINDS[kind]})).codecs[0]
    assert_row_local(codec, array)
    monkeypatch.setattr(parsing, name, mutant)
    with pytest.raises(AssertionError):
        assert_row_local(codec, array)
