"""Codecs: every kind of column there and back, repairs, and numbers of a column's resolution."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.engine.request import Request
from privsyn.tasks.codecs import Codec, plan
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch, encode_batch_with_numbers, encode_finer
from privsyn.tasks.codecs.numbers import NumberCodec
from privsyn.tasks.codecs.ordered import Lattice, OrderedCodec
from tests.support.specs import make_spec

RNG = np.random.default_rng(0)


def codec(column: dict[str, Any]) -> Codec:
    return plan(make_spec({"x": column})).codecs[0]


def encode(column: dict[str, Any], values: pa.Array) -> tuple[list[int], dict[str, int]]:
    codes, repairs = codec(column).encode({"x": values})
    return codes.tolist(), dict(repairs)


def there_and_back(column: dict[str, Any], values: pa.Array) -> list[Any]:
    made = codec(column)
    codes, _ = made.encode({"x": values})
    return made.decode(codes, RNG)["x"].to_pylist()


SMALL = {"kind": "integer", "min": 0, "max": 9}


def test_integers_clamp_and_round_down() -> None:
    codes, repairs = encode(SMALL, pa.array([-5, 0, 9, 10, None, 3]))
    assert codes == [0, 0, 9, 9, 0, 3]
    assert repairs == {"below min": 1, "above max": 1, "null": 1}
    assert encode(SMALL, pa.array([3.9, np.nan, np.inf, -np.inf]))[0] == [3, 0, 9, 0]


def test_fractions_that_an_integer_column_cuts_are_repairs() -> None:
    """Outside the bounds a value is clamped, which is one repair, not two."""
    assert encode(SMALL, pa.array([0.379, 3.0, 9.9, 12.5, -0.5, None])) == (
        [0, 3, 9, 9, 0, 0],
        {"fractions rounded": 2, "above max": 1, "below min": 1, "null": 1},
    )
    assert encode(SMALL, pa.array(["0.379", "4.0", "5"])) == ([0, 4, 5], {"fractions rounded": 1})
    assert encode({**SMALL, "kind": "number"}, pa.array([0.379]))[1] == {}


def test_integers_as_text_and_decimal() -> None:
    assert encode(SMALL, pa.array(["7", " 7 ", "7.0", "x", "", None]))[0] == [7, 7, 7, 0, 0, 0]
    assert encode(SMALL, pa.array([Decimal("4.00")], pa.decimal128(5, 2)))[0] == [4]


def test_numbers_keep_bounds_edges_and_decimals() -> None:
    column = {"kind": "number", "min": 0, "max": 10, "edges": [0, 1, 10], "decimals": 1}
    made = codec(column)
    codes, repairs = made.encode({"x": pa.array([0.0, 0.99, 1.0, 10.0, 11.0, None])})
    assert made.groups[codes].tolist() == [0, 0, 1, 1, 1, 0]
    assert repairs == Counter({"above max": 1, "null": 1})
    back = made.decode(np.repeat(codes, 100), RNG)["x"].to_numpy()
    assert back.min() >= 0
    assert back.max() <= 10
    assert np.allclose(back, back.round(1))


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.1, 0.3), (1_600_000_001, 1_600_000_300), (1 / 3, 2 / 3), (-0.3, -0.1), (-3.4e38, 3.4e38), (1e-45, 1e-44)],
)
def test_float32_bounds_are_inside_and_not_one(low: float, high: float) -> None:
    made = codec({"kind": "number", "min": low, "max": high, "bins": 1, "type": "float32"})
    least, most = made.ranges()["x"].low, made.ranges()["x"].high
    assert low <= least < most <= high
    assert [float(np.float32(v)) for v in (least, most)] == [least, most]
    back = made.decode(np.tile(np.arange(made.size), 2_000), RNG)["x"]
    assert back.type == pa.float32() and least <= min(back.to_pylist()) and max(back.to_pylist()) <= most


def test_moments_of_every_source_type() -> None:
    column = {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 10, "nullable": True}
    text = pa.array(["2015-06-01", "2015-06-01T12:00:00", "1999-01-01", "nonsense", None])
    codes, repairs = encode(column, text)
    assert repairs == {"below min": 1, "unparseable": 1}
    made = codec(column)
    assert codes[3] == codes[4] == made.size - 1
    assert codes[2] == 0
    days = pa.array(["2015-06-01", "2015-06-01", "1999-01-01", None, None]).cast(pa.date32())
    assert encode(column, days)[0][::2] == codes[::2]
    assert encode(column, days.cast(pa.timestamp("ns")))[0][::2] == codes[::2]
    back = made.decode(np.array(codes), RNG)["x"]
    assert back.type == pa.timestamp("us")
    assert back.to_pylist()[0].year in (2015, 2014, 2016)
    assert back.to_pylist()[3] is None


@pytest.mark.parametrize(
    ("days", "bins", "changes"),
    [
        (31, 31, {"type": "date"}), (365, 64, {"type": "date"}), (3_652, 40, {"type": "date"}),
        (365, 64, {"resolution": "day"}), (20, 30, {"resolution": "hour"}), (40, 7, {"resolution": "minute"}),
    ],
)  # fmt: skip
def test_moments_come_back_in_their_own_bin_and_at_no_other_time_on_average(
    days: int, bins: int, changes: dict[str, Any]
) -> None:
    """Each day (hour, minute) as often as the others, the last one included."""
    first = np.datetime64("2010-01-01")
    made = codec({"kind": "datetime", "min": "2010-01-01", "max": str(first + days), "bins": bins, **changes})
    step = {"hour": "h", "minute": "m"}.get(changes.get("resolution", ""), "D")
    each = np.arange(first, first + days + np.timedelta64(1, step), dtype=f"datetime64[{step}]")
    source = pa.array(np.repeat(each, 50_000 // len(each) + 1).astype("datetime64[us]"))
    codes, _ = made.encode({"x": source})
    back = made.decode(codes, RNG)["x"]
    again, repairs = made.encode({"x": back})
    assert again.tolist() == codes.tolist()
    assert not repairs
    moments = np.asarray(back.cast(pa.timestamp("us"))).astype("datetime64[us]")
    assert np.isin(moments, each.astype("datetime64[us]")).all()
    shift = (moments - np.asarray(source)).astype(float).mean() / 86_400e6
    assert abs(shift) < 0.02 * days / bins + 0.01 * (step == "D")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"format": "%d/%m/%Y %H:%M"}, ("minute",)),
        ({"format": "%d/%m/%Y %I %p"}, ()),
        ({"format": "%m/%d/%y"}, ()),
        ({"format": "%m/%d/%y", "resolution": "hour"}, ("hour",)),
        ({"format": "%d/%m/%Y %H:%M:%S"}, ("minute", "second")),
    ],
)
def test_no_part_of_a_moment_comes_out_that_the_format_does_not_write(
    changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    made = codec({"kind": "datetime", "min": "2010-01-01", "max": "2012-01-01", **changes})
    back = made.decode(np.repeat(np.arange(made.size - 1), 20), RNG)["x"].to_pylist()
    some = {part for part in ("minute", "second") if any(getattr(moment, part) for moment in back)}
    hours = "%H" in changes["format"] or "%I" in changes["format"] or "resolution" in changes
    assert some == set(parts) - {"hour"} and any(moment.hour for moment in back) == hours


@pytest.mark.parametrize(
    "changes",
    [
        {"min": 0, "max": 100, "bins": 50, "decimals": 0},
        {"min": 0, "max": 1, "edges": [0, 0.1, 0.3, 0.7, 1], "decimals": 1},
        {"min": -3.3, "max": 2.9, "bins": 31, "decimals": 1},
        {"min": 1000.01, "max": 1000.07, "bins": 3, "decimals": 2},
    ],
)
def test_rounded_numbers_come_back_in_their_own_bin_each_as_often(changes: dict[str, Any]) -> None:
    made = codec({"kind": "number", **changes})
    low, high, unit = changes["min"], changes["max"], 10.0 ** changes["decimals"]
    each = np.round(np.arange(np.ceil(low * unit - 1e-6), np.floor(high * unit + 1e-6) + 1) / unit, changes["decimals"])
    source = np.repeat(each, 500)
    codes, repairs = made.encode({"x": pa.array(source)})
    back = made.decode(codes, RNG)["x"].to_numpy()
    assert not repairs
    assert made.groups[made.encode({"x": pa.array(back)})[0]].tolist() == made.groups[codes].tolist()
    assert np.isin(back, each).all()
    counts = np.array([(back == v).sum() for v in each])
    assert counts.min() > 300
    assert counts.max() < 700


def test_numbers_too_large_for_their_decimals_are_not_rounded() -> None:
    made = codec({"kind": "number", "min": 0, "max": 1e300, "bins": 10, "decimals": 15})
    back = made.decode(np.arange(made.size), RNG)["x"].to_numpy()
    assert np.all(np.diff(back) > 0)


@pytest.mark.parametrize(
    ("column", "values", "codes"),
    [
        ({"values": ["a", "b", "rest"], "unlisted": "rest"}, ["a", "zz", None, "rest"], [0, 2, 2, 2]),
        ({"values": ["a", "rest"], "unlisted": "rest", "nullable": True}, ["a", "zz", None], [0, 1, 2]),
        ({"values": [1, 2, 9], "unlisted": 9}, ["1", "7", "x"], [0, 2, 2]),
        ({"values": [True, False], "unlisted": False}, ["1", "7", "0"], [0, 1, 1]),
        ({"values": ["other", "a"], "unlisted": "other"}, ["a", "zz"], [1, 0]),
    ],
)
def test_unlisted_values_go_to_a_listed_one(column: dict[str, Any], values: list[Any], codes: list[int]) -> None:
    whole = {"kind": "categorical", **column}
    assert encode(whole, pa.array(values))[0] == codes
    assert codec(whole).added is None
    assert codec(whole).size == len(column["values"]) + int(column.get("nullable", False))


@pytest.mark.parametrize("unlisted", ["c", 1, True])
def test_unlisted_names_a_listed_value(unlisted: Any) -> None:
    with pytest.raises(ValueError, match="is not one of `values`"):
        codec({"kind": "categorical", "values": ["a", "b"], "unlisted": unlisted})


def test_categories_unlisted_and_null() -> None:
    column = {"kind": "categorical", "values": ["a", "b"]}
    assert encode(column, pa.array(["a", "zz", None, "b"])) == ([0, 2, 2, 1], {"unlisted": 1, "null": 1})
    assert there_and_back(column, pa.array(["a", "zz", None])) == ["a", "other", "other"]
    nullable = {**column, "nullable": True}
    assert there_and_back(nullable, pa.array(["a", "zz", None])) == ["a", None, None]
    both = {**nullable, "unlisted": "other"}
    assert there_and_back(both, pa.array(["a", "zz", None])) == ["a", "other", None]


def test_number_categories_match_text_and_floats() -> None:
    column = {"kind": "categorical", "values": [1994, 1996], "unlisted": None}
    assert there_and_back(column, pa.array([1994.0, 1995.0, np.nan, 1994.5])) == [1994, None, None, None]
    assert there_and_back(column, pa.array(["1996", "x"])) == [1996, None]
    as_text = {"kind": "categorical", "values": ["1994", "1996"]}
    assert there_and_back(as_text, pa.array([1994, 1996])) == ["1994", "1996"]
    assert there_and_back(as_text, pa.array([1994.0, 1996.0])) == ["1994", "1996"]


@pytest.mark.parametrize("grid", [{"decimals": 1}, {"step": 0.1}])
@pytest.mark.parametrize("stored", [pa.float16(), pa.float32(), pa.dictionary(pa.int8(), pa.float32())])
def test_short_floats_are_the_multiples_that_they_hold(grid: dict[str, Any], stored: pa.DataType) -> None:
    """0.7 in 32 bits is below 0.7, which is its bin, its value and the least one."""
    values = pa.array([0.7, 0.8, 0.9, 1.0, 1.3])
    made = codec({"kind": "number", "min": 0.7, "max": 1.3, "edges": [0.7, 0.9, 1.3], **grid})
    assert isinstance(made, NumberCodec)
    short = values.cast(stored.value_type if pa.types.is_dictionary(stored) else stored)
    short = short.dictionary_encode() if pa.types.is_dictionary(stored) else short
    codes, repairs = made.encode({"x": short})
    assert repairs == Counter()
    assert codes.tolist() == made.encode({"x": values})[0].tolist()
    multiples = [made.find_multiples(made.encode_with_numbers({"x": stored})[2]) for stored in (short, values)]
    assert multiples[0].tolist() == multiples[1].tolist()
    assert {7, 8, 9, 10} <= set(multiples[0])


def test_a_category_has_one_code_however_its_accents_are_spelled() -> None:
    """Unicode has two spellings of an accented letter: one character (NFC), or a letter and its accent (NFD)."""
    composed, apart = "caf\u00e9", "cafe\u0301"
    for listed in (composed, apart):
        made = codec({"kind": "categorical", "values": ["tea", listed], "unlisted": "other"})
        codes, repairs = made.encode({"x": pa.array([composed, apart, "tea", "cafe", None])})
        assert codes.tolist() == [1, 1, 0, 2, 2] and repairs == {"unlisted": 1, "null": 1}
        assert made.decode(codes[:2], RNG)["x"].to_pylist() == [listed, listed]


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


@pytest.mark.parametrize("decimals", [{}, {"decimals": 2}])
def test_labels_of_cells_beside_a_single_value_say_so(decimals: dict[str, int]) -> None:
    """The next float above 0 is 5e-324, which nobody wrote."""
    column = {"kind": "number", "min": 0, "max": 1000, **decimals}
    equal_cells = {"name": "privsyn", "compression": {"ladder": False}}
    labels = plan(make_spec({"x": column}, mechanism=equal_cells)).codecs[0].labels()
    assert labels[0] == "0" and labels[1].startswith("(0, ") and labels[-1] == "1000"
    assert labels[2].startswith("[") and not any("e-" in label for label in labels)


def test_booleans_of_every_source_type() -> None:
    assert encode({"kind": "boolean"}, pa.array([True, False, None])) == ([1, 0, 0], {"null": 1})
    assert encode({"kind": "boolean"}, pa.array(["TRUE", " no", "1", "maybe"])) == ([1, 0, 1, 0], {"unparseable": 1})
    assert there_and_back({"kind": "boolean", "nullable": True}, pa.array([1, 0, 7, None])) == [True, False, None, None]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_codes_of_chosen_cells_from_numbers_are_those_from_the_values(seed: int) -> None:
    """Of all columns: those on a ladder, round numbers, those with nulls and exact values, and the others."""
    columns = {
        "wage": {"kind": "integer", "min": 0, "max": 99_999, "nullable": True, "exact": [-1]},
        "price": {"kind": "number", "min": 0, "max": 5_000, "step": 0.05},
        "cents": {"kind": "number", "min": 0, "max": 5_000, "decimals": 2},
        "sex": {"kind": "categorical", "values": ["f", "m"], "nullable": True},
        "born": {"kind": "date", "min": "1900-01-01", "max": "2020-12-31"},
    }
    request = Request(make_spec(columns), tuple(columns))
    rng = np.random.default_rng(seed)
    batch = pa.RecordBatch.from_pydict(
        {
            "wage": [None, -1, 0, 99_999, 10**7, *rng.integers(0, 4_000, 300).tolist()],
            "price": [0.0, 0.05, 4_999.95, -3.0, 9e9, *np.round(rng.integers(0, 400, 300) * 0.05, 2).tolist()],
            "cents": [0.0, 0.01, 4_999.99, -3.0, 9e9, *np.round(rng.integers(0, 1_000, 300) * 0.01, 2).tolist()],
            "sex": ["f", "m", None, "x", "f", *rng.choice(["f", "m"], 300).tolist()],
            "born": ["1900-01-01", "2020-12-31", "1950-06-01", "x", "", *["1980-02-03"] * 300],
        }
    )
    codes, numbers = encode_batch_with_numbers(batch, request.encoding, Repairs())
    lows = {
        "wage": [0, 100, 150, 5_000],
        "price": [0, 0.25, 17.3, 21],
        "cents": [0, 5.17, 6, 900],
        "born": [-25_567, 900],
    }
    cuts = [CutCell(name, float(low), low > 500) for name, chosen in lows.items() for low in chosen]
    cut = request.cut_cells(tuple(cuts)).encoding
    assert cut.uncut is not None and cut.domain != request.encoding.domain
    finer = encode_finer(codes, numbers, cut.uncut, cut)
    assert finer.to_pydict() == encode_batch(batch, cut, Repairs()).to_pydict()


def test_dictionary_encoded_and_chunked_sources() -> None:
    values = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])
    assert encode({"kind": "categorical", "values": ["a", "b"]}, values)[0] == [0, 1, 1]
