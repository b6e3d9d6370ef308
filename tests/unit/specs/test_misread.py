"""Misread columns: how much was repaired, which values, and likely cures."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.evaluation.details import MISREAD_BIN, ColumnReading, add_misread
from privsyn.sources.private_table import LEFT_OUT
from privsyn.specs.misread import (
    count_repaired_rows,
    find_odd_texts,
    list_meant_repairs,
    list_misread_columns,
    suggest_cures,
)
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.encode_rows import NO_RECORD, NOT_KEPT, Repairs
from tests.support.examples import choose_example_count
from tests.support.specs import make_spec

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 0, "max": 99},
    "wage": {"kind": "number", "min": 0, "max": 1000, "nullable": True},
    "seen": {"kind": "datetime", "min": "2000-01-01", "max": "2030-01-01"},
    "state": {"kind": "categorical", "values": ["ny", "ma", "07"]},
    "other": {"kind": "categorical", "values": ["a"], "unlisted": "other"},
    "maybe": {"kind": "categorical", "values": [1, 2], "unlisted": "null"},
    "closed": {"kind": "categorical", "values": ["a", "b"], "unlisted": "b"},
    "ok": {"kind": "boolean"},
}
SPEC = make_spec(COLUMNS)
CODECS = {codec.attribute: codec for codec in plan(SPEC).codecs}


def test_columns_above_the_share_are_named_worst_first() -> None:
    counts = {("a", "unlisted"): 5, ("b", "null"): 30, ("b", "above max"): 40, ("c", "unparseable"): 6}
    found = list_misread_columns({**counts, ("pid", NOT_KEPT): 90, ("pid", NO_RECORD): 80}, 100)
    assert [m.column for m in found] == ["b", "c"], "5 of 100 is not more than 5 %; what the unit leaves out is none"
    assert list(found[0].repairs.items()) == [("above max", 0.4), ("null", 0.3)]
    assert found[0].sentence().startswith("`b`: of its values 40.0% lie above `max`, 30.0% are null")
    assert list_misread_columns({}, 0) == () and list_misread_columns({("a", "null"): 3}, 0) == ()
    (records,) = list_misread_columns({("", LEFT_OUT): 10}, 90)
    assert records.sentence() == "Of all records 10.0% cannot be read"
    assert "0.4" not in repr(found), "private shares are not printed by chance"


def test_a_share_read_as_an_integer_is_misread_and_its_cure_is_a_number() -> None:
    shares = pa.array([0.2, 0.379, 0.5, 1.0])
    repairs = CODECS["age"].inspect({"age": shares})
    (found,) = list_misread_columns({("age", repair): many for repair, many in repairs.items()}, len(shares))
    assert found.sentence() == "`age`: of its values 75.0% have a fraction, which is cut off"
    assert suggest_cures(SPEC.columns["age"], [], found.repairs) == ("Values have fractions: write `kind: number`",)
    assert count_repaired_rows(CODECS["age"], {"age": shares}).tolist() == [True, True, True, False]
    assert find_odd_texts(CODECS["age"], {"age": shares}, 5) == Counter(), "a number that was read is not odd"


def test_values_that_become_a_listed_one_are_compared_as_unrepaired() -> None:
    reading = ColumnReading(Repairs(Counter({("closed", "unlisted"): 10, ("other", "unlisted"): 10})), 100)
    columns = reading.not_meant(SPEC, COLUMNS)
    assert columns == ("closed",)
    (codec,) = (c for c in add_misread(plan(SPEC), SPEC, columns).codecs if c.attribute == "closed")
    codes, _ = codec.encode({"closed": pa.array(["a", "b", "x"])})
    assert [codec.labels()[c] for c in codes] == ["a", "b", MISREAD_BIN]


VALUES = st.one_of(
    st.none(), st.text(max_size=4), st.integers(-200, 2_000).map(str), st.sampled_from(["ny", "NA", "1,5", "true"])
)


@settings(max_examples=choose_example_count(60), deadline=None)
@given(st.lists(VALUES, max_size=40), st.sampled_from(sorted(COLUMNS)))
def test_the_mask_is_that_of_each_value_alone(values: list[str | None], name: str) -> None:
    array, codec = pa.array(values, pa.string()), CODECS[name]
    for keeping in (frozenset(), list_meant_repairs(SPEC, name)):
        alone = [set(codec.inspect({name: array.slice(i, 1)})) - keeping for i in range(len(array))]
        assert count_repaired_rows(codec, {name: array}, keeping).tolist() == [bool(repairs) for repairs in alone]


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        ("age", pa.array([5, -1, None, 100], pa.int64()), [False, True, True, True]),
        ("wage", pa.array([1.5, float("nan"), None, 2e3]), [False, False, False, True]),
        ("wage", pa.array([Decimal("1.50"), Decimal("-3.00")]), [False, True]),
        ("seen", pa.array([dt.date(2001, 1, 1), dt.date(1900, 1, 1)]), [False, True]),
        ("ok", pa.array([True, None, False]), [False, True, False]),
        ("state", pa.array(["ny", "x", "ny"]).dictionary_encode(), [False, True, False]),
        ("state", pa.nulls(2), [True, True]),
        ("state", pa.array([], pa.string()), []),
    ],
)
def test_any_stored_type_has_a_mask(name: str, array: pa.Array, expected: list[bool]) -> None:
    assert count_repaired_rows(CODECS[name], {name: array}).tolist() == expected


def test_odd_texts_are_counted_and_few() -> None:
    array = pa.array(["x", "ny", "x", "y", None, "z"])
    assert find_odd_texts(CODECS["state"], {"state": array}, 2) == {"x": 2, "y": 1}


@pytest.mark.parametrize(
    ("name", "odd", "words"),
    [
        ("seen", ["12/31/2019", "01/02/2019"], 'month first: write `format: "%m/%d/%Y"`'),
        ("seen", ["31.12.19"], 'day first: write `format: "%d.%m.%y"`'),
        ("seen", ["31/12/2019 08:30"], '`format: "%d/%m/%Y %H:%M"`'),
        ("seen", ["01/02/2019"], '`format: "%d/%m/%Y"` or `format: "%m/%d/%Y"`'),
        ("seen", ["13/02/2019", "02/13/2019"], "do not begin with the year"),
        ("seen", ["04-Mar-2019"], '"%d-%b-%Y"'),
        ("seen", ["2019-01-01 08:00:00 Europe/Berlin"], "`zone:`"),
        ("seen", ["1546300800"], "seconds or days"),
        ("seen", ["08:30"], "`kind: time`"),
        ("wage", ["1,5", "2,25"], '`csv: {decimal: ","}`'),
        ("wage", ["1.234,50"], '`csv: {decimal: ","}`'),
        ("wage", ["1,234", "12,345.50"], '`csv: {thousands: ","}`'),
        ("wage", ["$12"], "currency"),
        ("age", ["NA", "7.x"], '"NA" may mean null'),
        ("state", ["NY"], "capital letters"),
        ("state", ["7"], "zeros"),
        ("state", ["nowhere"], "List what the codebook has"),
    ],
)
def test_likely_cures(name: str, odd: list[str], words: str) -> None:
    assert words in " ".join(suggest_cures(SPEC.columns[name], odd, {}))


def test_cures_of_bounds_and_nulls_and_of_nothing() -> None:
    cures = suggest_cures(SPEC.columns["age"], [], {"above max": 0.5, "null": 0.2})
    assert [cure.split()[1] for cure in cures] == ["`max`", "`nullable:"]
    assert suggest_cures(None, [], {}) == () and suggest_cures(SPEC.columns["ok"], ["perhaps"], {}) == ()


def test_what_the_spec_says_is_meant() -> None:
    found = {name: sorted(list_meant_repairs(SPEC, name)) for name in COLUMNS}
    assert found["other"] == ["unlisted"] and found["maybe"] == ["null", "unlisted"]
    assert found["age"] == found["state"] == []
    assert found["closed"] == [], "what becomes a listed value means something else than before"
