"""Exact values, steps and heaps: what people write comes out as they write it, in its share."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data_contracts.tables import make_value_profile
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.codecs.ordered import OrderedCodec
from tests.support.examples import choose_example_count
from tests.support.specs import make_spec

RNG = np.random.default_rng(0)
INCOME: dict[str, Any] = {"kind": "number", "min": 0, "max": 5_000, "edges": [0, 100, 1_000, 5_000]}


def encoding(column: dict[str, Any]) -> EncodingPlan:
    return plan(make_spec({"x": column}))


def again(column: dict[str, Any], values: pa.Array) -> list[Any]:
    """Values through codes and back."""
    made = encoding(column)
    codes = {c.attribute: c.encode({"x": values})[0] for c in made.codecs}
    return made.decode(codes, RNG)["x"].to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        INCOME,
        {**INCOME, "decimals": 0},
        {**INCOME, "decimals": 2, "type": "float32"},
        {"kind": "integer", "min": 0, "max": 5_000, "edges": [0, 100, 1_000, 5_000]},
        {"kind": "integer", "min": 0, "max": 9},
        {**INCOME, "step": 5},
    ],
)
def test_exact_values_come_out_as_they_are_and_nothing_else_becomes_one(column: dict[str, Any]) -> None:
    column = {**column, "exact": [0, 7, 99_999, -1]}
    values = pa.array([0.0, 7.0, 99_999.0, -1.0, 5.0, 8.0, None, -5.0, 6_000.0] * 200)
    made = again(column, values)
    assert [set(made[i::9]) for i in range(4)] == [{0}, {7}, {99_999}, {-1}]
    assert not {0, 7, 99_999, -1} & set(made[4::9] + made[5::9])
    assert set(made[6::9]) == set(made[7::9]) == {0}  # null and what is too small are the smallest value, which is 0
    assert all(0 < value <= 5_000 for value in made[8::9])
    ranges = encoding(column).ranges()["x"]
    assert (ranges.low, ranges.high) == (-1, 99_999)


def test_bins_end_at_exact_values_and_barriers_and_are_not_combined_across_them() -> None:
    column = make_spec({"x": {**INCOME, "exact": [0, 500]}}).columns["x"]
    codec = plan(make_spec({"x": {**INCOME, "exact": [0, 500]}})).codecs[0]
    assert codec.bin_labels() == ["0", "(0, 100)", "[100, 500)", "500", "(500, 1000)", "[1000, 5000)"]
    assert codec.in_order == ((1, 3), (4, 6))
    assert np.nanmax(np.diff(codec.values(fine=True))) > 0
    number = type(codec)
    cut = number("x", column, barriers=(100, 250))  # type: ignore[call-arg, arg-type]
    assert isinstance(cut, OrderedCodec)
    assert cut.in_order == ((1, 2), (2, 3), (3, 4), (5, 7))


@pytest.mark.parametrize(("step", "many"), [(0.1, 101), (0.5, 21), (2.5, 5)])
def test_only_multiples_of_the_step_come_out(step: float, many: int) -> None:
    column = {"kind": "number", "min": 0, "max": 10, "step": step}
    values = pa.array(np.repeat(np.arange(many) * 10 / (many - 1), 20))
    made = again(column, values)
    assert {round(v / step) * step == pytest.approx(v) for v in made} == {True}
    assert all(repr(value) == repr(round(value, 1)) for value in made)
    if many <= 64:
        assert made == pytest.approx(values.to_pylist())
    assert encoding({"kind": "integer", "min": 3, "max": 90, "step": 5}).codecs[0].bin_labels()[:2] == ["5", "10"]


@st.composite
def stepped(draw: st.DrawFn) -> dict[str, Any]:
    # Two multiples of a step of up to 7 lie in any 14 integers that follow each other.
    low = draw(st.integers(-50, 50))
    column: dict[str, Any] = {"min": low, "max": low + draw(st.integers(13, 400)), "nullable": draw(st.booleans())}
    column["exact"] = draw(st.lists(st.integers(-100, 500), max_size=3, unique=True))
    column["bins"] = draw(st.none() | st.integers(1, 12))
    if draw(st.booleans()):
        column |= {"kind": "integer", "step": draw(st.none() | st.integers(1, 7))}
    else:
        column |= {"kind": "number", "step": draw(st.none() | st.sampled_from([0.1, 0.25, 2, 5]))}
    if column["step"] is None:
        del column["step"]
    return column


@settings(max_examples=choose_example_count(150), deadline=None)
@given(stepped(), st.integers(0, 2**32))
def test_codes_survive_decoding(column: dict[str, Any], seed: int) -> None:
    made, rng = encoding(column), np.random.default_rng(seed)
    drawn = {codec.attribute: rng.integers(0, codec.size, 60) for codec in made.codecs}
    codes, decoded = drawn["x"], made.decode(drawn, rng)
    batch = pa.record_batch(decoded)
    profile = make_value_profile([batch], made.ranges())
    assert not sum(profile["outside"].to_pylist()) and all(profile["type_matches"].to_pylist())
    back, repairs = made.codecs[0].encode(decoded)
    assert back.tolist() == codes.tolist() and not repairs


def test_a_heap_that_no_bin_of_the_value_has_gives_the_next_smaller_one() -> None:
    made = encoding({"kind": "integer", "min": 1, "max": 999, "edges": [1, 50, 400, 999], "heaps": [10, 100]})
    rows = 300
    codes = {"x": np.zeros(rows, dtype=np.int64), "x (rounded to)": np.full(rows, 2)}
    assert {v % 10 for v in made.decode(codes, RNG)["x"].to_pylist()} == {0}
    unknown = made.decode({**codes, "x (rounded to)": np.full(rows, 3)}, RNG)["x"].to_pylist()
    assert all(1 <= v < 50 for v in unknown)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exact": [0, 0]}, "names 0"),
        ({"exact": [float("nan")]}, "finite"),
        ({"step": 0}, "greater than 0"),
        ({"step": 2_000}, "holds no multiple of `step`"),
        ({"step": 9_000, "edges": None}, "only one value from 0 on"),
        ({"step": 0.5, "decimals": 0}, "more decimals"),
        ({"heaps": [100, 150]}, "must divide"),
        ({"heaps": [-5]}, "above 0"),
        ({"step": 7, "heaps": [100]}, "multiple of `step`"),
        ({"heaps": [1_000, 10_000]}, "no value but 0 is a multiple of 10000"),
        ({"exact": [1e39], "type": "float32"}, "cannot hold"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_spec({"x": {**INCOME, **changes}})


def test_integers_refuse_too() -> None:
    with pytest.raises(ValueError, match="leaves no other value"):
        make_spec({"x": {"kind": "integer", "min": 0, "max": 1, "exact": [0, 1]}})
    with pytest.raises(ValueError, match="cannot hold 300"):
        make_spec({"x": {"kind": "integer", "min": 0, "max": 9, "type": "int8", "exact": [300]}})
    with pytest.raises(ValueError, match="Rename it"):
        make_spec({"x": {**INCOME, "heaps": [10]}, "x (rounded to)": {"kind": "boolean"}})


def test_exact_moments() -> None:
    far = dt.datetime(9999, 12, 31)
    column = {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "exact": ["9999-12-31", "2010-01-01"]}
    values = [far, dt.datetime(2010, 1, 1), dt.datetime(2015, 5, 5), dt.datetime(2021, 1, 1)] * 50
    made = again(column, pa.array(values, pa.timestamp("us")))
    assert set(made[0::4]) == {far} and set(made[1::4]) == {dt.datetime(2010, 1, 1)}
    assert all(dt.datetime(2010, 1, 1) < value <= dt.datetime(2020, 1, 1) for value in made[2::4] + made[3::4])
    assert set(again({**column, "type": "date"}, pa.array(values, pa.timestamp("us")))[0::4]) == {far.date()}
