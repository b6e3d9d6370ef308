"""A table in memory: the rules of files, a fingerprint of its content, and errors that never hold a cell."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.sources import memory_source
from privsyn.sources.memory_source import iterate_canonical_bytes, read_objects
from privsyn.sources.open_source import open_source
from privsyn.sources.row_digest import compute_rows_fingerprint
from privsyn.specs.misread import find_odd_texts
from privsyn.storage.store import Store
from privsyn.tasks.codecs import parsing, plan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.steps.encode import encode
from tests.support.examples import choose_example_count
from tests.support.linked_tables import make_tables_spec, make_tree, make_tree_content
from tests.support.specs import anything, make_spec, people

CANARY = "CANARY7391"
MOMENT = dt.datetime(2015, 6, 1, 12, 30)
NUMBER = {"kind": "number", "min": 0, "max": 10, "bins": 1000, "nullable": True}
WHOLE = {"kind": "integer", "min": 0, "max": 10, "nullable": True}
TEXT = {"kind": "categorical", "values": ["a", "b", "1.5", "true"], "unlisted": "other", "nullable": True}
TRUTH = {"kind": "boolean", "nullable": True}
SEEN = {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 1000, "nullable": True, "zone": "UTC"}
TYPED: dict[str, tuple[Any, pa.Array]] = {
    "i8": (WHOLE, pa.array([1, None, 11], pa.int8())),
    "u64": (WHOLE, pa.array([1, 2, 2**64 - 1], pa.uint64())),
    "f32": (NUMBER, pa.array([1.5, None, 9.9], pa.float32())),
    "dec": (NUMBER, pa.array([Decimal("1.50"), None, Decimal("9.99")], pa.decimal128(9, 2))),
    "dec_text": (TEXT, pa.array([Decimal("1.50"), None, Decimal("9.99")], pa.decimal128(9, 2))),
    "s": (TEXT, pa.array(["a", None, "z"])),
    "large": (TEXT, pa.array(["a", None, "z"], pa.large_string())),
    "view": (TEXT, pa.array(["a", None, "z"], pa.string_view())),
    "dict": (TEXT, pa.array(["b", None, "a"]).dictionary_encode()),
    "b": (TRUTH, pa.array([True, None, False])),
    "b_text": (TEXT, pa.array([True, None, False])),
    "d32": (SEEN, pa.array([MOMENT.date(), None, MOMENT.date()], pa.date32())),
    "ts": (SEEN, pa.array([MOMENT, None, MOMENT], pa.timestamp("ns"))),
    "tz": (SEEN, pa.array([MOMENT, None, MOMENT], pa.timestamp("ms", "Europe/Rome"))),
    "null": (TEXT, pa.nulls(3)),
}


def spec_for(columns: dict[str, Any], **changes: Any) -> ReleaseSpec:
    return make_spec(columns, **changes)


def booleans(*names: str, drop: tuple[str, ...] = ()) -> ReleaseSpec:
    return spec_for({name: {"kind": "drop"} if name in drop else TRUTH for name in names})


def codes(data: Any, spec: ReleaseSpec) -> dict[str, list[int]]:
    source = open_source(data, spec)
    encoding = plan(spec, tuple(c for c in source.columns if c in spec.released_columns))
    encoded = list(encode(source.batches, encoding, spec.unit, Repairs()))
    return pa.Table.from_batches(encoded).to_pydict()


def refused(data: Any, spec: ReleaseSpec) -> RequestError:
    with pytest.raises(RequestError) as caught:
        for _ in open_source(data, spec).batches():
            pass
    error: BaseException | None = caught.value
    while error is not None:  # another library's words are not even in the chain of errors
        assert CANARY not in str(error)
        error = error.__context__
    assert "\n" not in str(caught.value)
    return caught.value


# the same rows as from a file


def test_arrow_types_are_encoded_as_from_parquet(tmp_path: Path) -> None:
    table = pa.table({name: array for name, (_, array) in TYPED.items()})
    pq.write_table(table, tmp_path / "t.parquet")
    spec = spec_for({name: column for name, (column, _) in TYPED.items()})
    expected = codes(tmp_path / "t.parquet", spec)
    assert codes(table, spec) == expected
    assert codes(table.to_batches()[0], spec) == expected
    assert codes(Exported(table), spec) == expected
    assert expected["b_text"][0] == 3 and expected["dec_text"][0] == 2 and len(set(expected["tz"])) == 2


def test_columns_of_text_views_can_be_filtered_by_person(tmp_path: Path) -> None:
    unit = {"person_id": "who", "max_records": 1}
    columns = {"who": {"kind": "drop"}, "view": TEXT, "dict": TEXT}
    view = pa.array(["a", "b", "a"], pa.string_view())
    table = pa.table({"who": pa.array(["p", "p", "q"], pa.string_view()), "view": view, "dict": ["a", "b", "b"]})
    pq.write_table(table, tmp_path / "t.parquet")
    spec = spec_for(columns, unit=unit)
    assert codes(table, spec) == codes(tmp_path / "t.parquet", spec)
    assert [len(rows) for rows in codes(table, spec).values()] == [2, 2]


class Exported:
    """A table of some other library: all that is known is that it exports an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


PANDAS: dict[str, tuple[Any, Any]] = {
    "int": (WHOLE, np.array([1, 2, 11], np.int16)),
    "float": (NUMBER, [1.5, np.nan, 9.9]),
    "Int64": (WHOLE, pd.array([1, None, 11], "Int64")),
    "Float32": (NUMBER, pd.array([1.5, None, 9.9], "Float32")),
    "boolean": (TRUTH, pd.array([True, None, False], "boolean")),
    "str": (TEXT, ["a", None, "z"]),
    "string": (TEXT, pd.array(["a", None, "z"], "string")),
    "category": (TEXT, pd.Categorical(["b", None, "a"])),
    "arrow": (NUMBER, pd.array([Decimal("1.5"), None, Decimal("2")], pd.ArrowDtype(pa.decimal128(5, 2)))),
    "moment": (SEEN, pd.to_datetime([MOMENT, None, MOMENT])),
    "zone": (SEEN, pd.to_datetime([MOMENT, None, MOMENT]).tz_localize("Europe/Rome")),
    "text_objects": (TEXT, pd.Series(["a", None, "z"], dtype=object)),
    "truth_objects": (TRUTH, pd.Series([True, None, np.nan], dtype=object)),
    "whole_objects": (WHOLE, pd.Series([1, None, 2], dtype=object)),
    "float_objects": (NUMBER, pd.Series([1.5, None, 2.0], dtype=object)),
    "date_objects": (SEEN, pd.Series([MOMENT.date(), None, MOMENT.date()], dtype=object)),
    "moment_objects": (SEEN, pd.Series([MOMENT, None, MOMENT.replace(year=2012)], dtype=object)),
    "no_objects": (TEXT, pd.Series([None, None, None], dtype=object)),
    "object_categories": (TEXT, pd.Categorical(["b", None, "a"], pd.Index(["a", "b"], dtype=object))),
}


def test_pandas_columns_are_encoded_as_from_the_frames_own_parquet_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({name: cells for name, (_, cells) in PANDAS.items()})
    assert frame["str"].dtype != object
    frame.to_parquet(tmp_path / "t.parquet")
    spec = spec_for({name: column for name, (column, _) in PANDAS.items()})
    assert codes(frame, spec) == codes(tmp_path / "t.parquet", spec)


def test_polars_columns_are_encoded_as_from_the_frames_own_parquet_file(tmp_path: Path) -> None:
    columns = {
        "i": (WHOLE, pl.Series([1, None, 11], dtype=pl.UInt8)),
        "f": (NUMBER, pl.Series([1.5, None, 9.9])),
        "dec": (NUMBER, pl.Series(["1.5", None, "2"]).cast(pl.Decimal(9, 2))),
        "s": (TEXT, pl.Series(["a", None, "z"])),
        "cat": (TEXT, pl.Series(["b", None, "a"], dtype=pl.Categorical)),
        "enum": (TEXT, pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"]))),
        "b": (TRUTH, pl.Series([True, None, False])),
        "date": (SEEN, pl.Series([MOMENT.date(), None, MOMENT.date()])),
        "tz": (SEEN, pl.Series([MOMENT, None, MOMENT]).dt.replace_time_zone("Europe/Rome")),
    }
    frame = pl.DataFrame({name: cells for name, (_, cells) in columns.items()})
    frame = pl.concat([frame, frame.reverse()])  # in two chunks
    frame.write_parquet(tmp_path / "t.parquet")
    spec = spec_for({name: column for name, (column, _) in columns.items()})
    found = codes(frame, spec)
    assert found == codes(tmp_path / "t.parquet", spec)
    assert found["cat"] == [1, 5, 0, 0, 5, 1] == found["enum"]


def test_dropped_columns_are_neither_read_nor_converted() -> None:
    frame = pd.DataFrame({"a": [True], "odd": pd.Series([object()], dtype=object), "list": [[1]]})
    source = open_source(frame, booleans("a", "odd", "list", drop=("odd", "list")))
    assert source.columns == ("a", "odd", "list") and source.read == ("a",) == tuple(source.types)
    assert [batch.to_pylist() for batch in source.batches()] == [[{"a": True}]]
    nested = pa.table({"a": [True], "odd": [[1]]})
    assert refused(nested, booleans("a", "odd")).field == "columns.odd"
    assert codes(nested, booleans("a", "odd", drop=("odd",))) == {"a": [1]}


def test_the_index_is_not_part_of_the_table() -> None:
    frame = pd.DataFrame({"a": [True, False]}, index=pd.Index(["x", "y"], name="who"))
    assert open_source(frame, booleans("a")).columns == ("a",)
    assert "'who', which the table in memory does not have" in str(refused(frame, booleans("a", "who")))


@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_batches_are_bounded_whatever_the_chunks(rows: int) -> None:
    table = pa.concat_tables([pa.table({"a": pa.array([True] * n, pa.bool_())}) for n in (3, 0, 250, 1, 46)])
    source = open_source(table, booleans("a"))
    sizes = [batch.num_rows for batch in source.batches(batch_rows=rows)]
    assert sum(sizes) == 300 and set(sizes[:-1]) <= {rows} and sizes[-1] <= rows
    assert list(open_source(table.slice(0, 0), booleans("a")).batches()) == []
    with pytest.raises(ValueError, match="batch_rows"):
        next(source.batches(batch_rows=0))


# a column of objects: no row changes how another is read

KINDS = {
    "whole": {"kind": "integer", "min": -5, "max": 99, "nullable": True},
    "number": {"kind": "number", "min": -5, "max": 99.5, "step": 0.5, "nullable": True},
    "texts": {"kind": "categorical", "values": ["1", "a", "true", "2020-01-02", "0.5"], "unlisted": "other"},
    "numbers": {"kind": "categorical", "values": [0, 1, 2], "unlisted": "null"},
    "fractions": {"kind": "categorical", "values": [0.5, 1.5], "unlisted": "null"},
    "truth": TRUTH,
    "day": {"kind": "date", "min": "1900-01-01", "max": "2100-01-01", "format": "%m/%d/%Y", "zone": "UTC"},
    "seen": {"kind": "datetime", "min": "1950-01-01", "max": "2050-01-01", "zone": "Europe/Berlin", "nullable": True},
    "clock": {"kind": "time", "zone": "Asia/Tokyo", "nullable": True},
    "hhmm": {"kind": "time", "format": "hhmm", "zone": "UTC", "nullable": True},
}
"""Columns of every kind, all of one pandas column's objects."""

MOMENTS = frozenset({"seen", "clock"})
"""Those that no number is a value of."""

RAISING = type("Raising", (), {"__str__": lambda self: 1 / 0, "__float__": lambda self: 1 / 0, "__eq__": None})()
BERLIN = dt.timezone(dt.timedelta(hours=2))
ODD_OBJECTS = [
    *(None, pd.NA, pd.NaT, float("nan"), Decimal("NaN"), Decimal("sNaN"), np.datetime64("NaT"), np.timedelta64("NaT")),
    *(True, np.bool_(False), "x", "1", " 1 ", "", "\0", "true", "12:30", "1230", "01/02/2020", CANARY + "\udcff"),
    *(1, 2.5, 1.0, -0.0, float("inf"), np.int8(1), np.uint64(2**64 - 1), np.float32(0.5), np.float16(1), 1230),
    *(2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, -(10**5_000), np.longdouble("1e4000")),
    *(
        Decimal("1.0"),
        Decimal("1E+999999"),
        Decimal("-1E-999999"),
        Decimal("-Infinity"),
        Decimal("0.1" + "0" * 40 + "1"),
    ),
    *(b"1", bytearray(b"x"), [1], (), {"x": CANARY}, {1}, np.array([1, 2]), np.array(1), 1j, object(), RAISING, int),
    *(dt.date(2020, 1, 2), dt.date.min, dt.date.max, dt.datetime.min, dt.datetime.max, dt.time(12, 30), MOMENT),
    *(MOMENT.replace(tzinfo=dt.UTC), MOMENT.replace(tzinfo=BERLIN), dt.datetime.max.replace(tzinfo=dt.UTC)),
    *(dt.datetime.min.replace(tzinfo=BERLIN), dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=9)))),
    *(
        pd.Timestamp("2020-01-02T12:30", tz="Asia/Tokyo"),
        pd.Timestamp.min,
        pd.Timestamp.max,
        pd.Timestamp(np.datetime64("30000-01-01")),
    ),
    *(np.datetime64("2020-01-02"), np.datetime64(10**18, "Y"), np.datetime64(2**63 - 1, "s"), np.datetime64(1, "as")),
    *(pd.Timedelta(1), dt.timedelta(1), np.timedelta64(1, "s"), pd.Period("2020"), pd.Interval(0, 1), Path("x")),
]


def codes_of_objects(cells: list[Any]) -> list[tuple[int, ...]]:
    """Return the codes that each cell has in columns of every kind."""
    column = pd.Series(np.fromiter(cells, dtype=object, count=len(cells)), dtype=object)
    return list(zip(*codes(pd.DataFrame(dict.fromkeys(KINDS, column)), spec_for(KINDS)).values(), strict=True))


ATTRIBUTES = tuple(codes(pd.DataFrame(dict.fromkeys(KINDS, pd.Series([None], dtype=object))), spec_for(KINDS)))


def test_each_odd_object_is_read_by_itself() -> None:
    alone = [codes_of_objects([cell])[0] for cell in ODD_OBJECTS]
    assert codes_of_objects(ODD_OBJECTS) == alone
    assert codes_of_objects(ODD_OBJECTS[::-1]) == alone[::-1]
    frame = pd.DataFrame(dict.fromkeys(KINDS, pd.Series(np.fromiter(ODD_OBJECTS, dtype=object), dtype=object)))
    source, encoding = open_source(frame, spec_for(KINDS)), plan(spec_for(KINDS), tuple(KINDS))
    for rows in (1, 7):
        parts = (encode_batch(batch, encoding, Repairs()) for batch in source.batches(batch_rows=rows))
        assert list(zip(*pa.Table.from_batches(parts).to_pydict().values(), strict=True)) == alone


OBJECTS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3) | st.dates()
OBJECTS = (
    OBJECTS | st.datetimes(timezones=st.none() | st.timezones()) | st.times() | st.decimals() | st.binary(max_size=2)
)


@settings(max_examples=choose_example_count(25), deadline=None)
@given(st.lists(OBJECTS | st.sampled_from(ODD_OBJECTS), max_size=6))
def test_each_object_is_read_by_itself(cells: list[Any]) -> None:
    alone = [codes_of_objects([cell])[0] for cell in cells]
    assert (codes_of_objects(cells) if cells else []) == alone


AS_TYPED: list[tuple[Any, pa.Array]] = [
    (True, pa.array([True])),
    (np.bool_(False), pa.array([False])),
    (1, pa.array([1])),
    (1, pa.array([1.0])),
    (1, pa.array([1], pa.uint64())),
    (1.0, pa.array([1])),
    (1.5, pa.array([1.5])),
    (np.float32(0.5), pa.array([0.5], pa.float32())),
    (1230, pa.array([1230], pa.int16())),
    (2020, pa.array([2020])),
    (2**63, pa.array([2**63], pa.uint64())),
    (-(2**63), pa.array([-(2**63)])),
    (10**30, pa.array([Decimal(10**30)], pa.decimal128(38, 0))),
    (-(10**30), pa.array([Decimal(-(10**30))], pa.decimal128(38, 0))),
    (Decimal("1.50"), pa.array([1.5])),
    (Decimal("1.50"), pa.array([Decimal("1.50")], pa.decimal128(9, 2))),
    (float("-inf"), pa.array([float("-inf")])),
    (float("nan"), pa.array([float("nan")])),
    (None, pa.nulls(1, pa.string())),
    ("1", pa.array(["1"])),
    ("01/02/2020", pa.array(["01/02/2020"])),
    (dt.date(2020, 1, 2), pa.array([dt.date(2020, 1, 2)])),
    (MOMENT, pa.array([MOMENT], pa.timestamp("us"))),
    (pd.Timestamp(MOMENT), pa.array([MOMENT], pa.timestamp("us"))),
    (np.datetime64(MOMENT), pa.array([MOMENT], pa.timestamp("us"))),
    (MOMENT.replace(tzinfo=BERLIN), pa.array([MOMENT.replace(tzinfo=BERLIN)], pa.timestamp("us", "UTC"))),
    (pd.Timestamp(MOMENT, tz="Asia/Tokyo"), pa.array([pd.Timestamp(MOMENT, tz="Asia/Tokyo")])),
    (dt.time(12, 30), pa.array([dt.time(12, 30)])),
]


@pytest.mark.parametrize(("cell", "typed"), AS_TYPED, ids=range(len(AS_TYPED)))
def test_an_object_is_read_as_in_a_column_of_its_type(cell: Any, typed: pa.Array) -> None:
    """Whatever stands beside it: so one row more, which makes objects of a column, changes no other.

    A column of numbers is not one of moments by its type: it is refused.
    """
    refused = MOMENTS if parsing.is_number(typed.type) else frozenset()
    kinds = {name: column for name, column in KINDS.items() if name not in refused}
    expected = codes(pa.table(dict.fromkeys(kinds, typed)), spec_for(kinds))
    for beside in (cell, "x", [1]):
        found = dict(zip(ATTRIBUTES, codes_of_objects([beside, cell])[1], strict=True))
        assert {name: found[name] for name in expected} == {name: column[0] for name, column in expected.items()}


@pytest.mark.parametrize("value", [1, 2**31, 2**53 - 1, -7])
def test_a_whole_number_has_one_text_in_every_type(value: int) -> None:
    """pandas makes floats of whole numbers beside a null or a fraction, objects of them beside a text."""
    columns = {"text": {"kind": "categorical", "values": [str(value), "x"], "unlisted": "other", "nullable": True}}
    columns["whole"] = {"kind": "categorical", "values": [value, 0], "unlisted": "null"}
    for beside in (5, 2.5, None, 2**63, 2**64, True, "x", Decimal(1), pd.NA):
        cells = pd.Series([value, beside])
        found = codes(pd.DataFrame(dict.fromkeys(columns, cells)), spec_for(columns))
        assert (found["text"][0], found["whole"][0]) == (0, 0), cells.dtype


def test_an_object_that_no_column_holds_is_a_repair_and_not_null() -> None:
    repairs = Repairs()
    spec = spec_for({"text": TEXT, "number": NUMBER})
    objects = pd.Series([[CANARY], b"a", None, "\udcff"], dtype=object)
    source = open_source(pd.DataFrame({"text": objects, "number": objects}), spec)
    encoded = pa.Table.from_batches(encode(source.batches, plan(spec), spec.unit, repairs)).to_pydict()
    assert encoded["text"] == [4, 4, 5, 4] and len(set(encoded["number"])) == 1
    assert repairs.counts == {("text", "unlisted"): 3, ("number", "unparseable"): 3}


def test_persons_of_objects_are_equal_where_their_texts_are() -> None:
    """Rows of nobody are left out: a list names no person."""
    persons = [1, 1.0, "1", Decimal("1.0"), np.int8(1), 2**64, "18446744073709551616", [1], b"1", None, "q"]
    frame = pd.DataFrame({"who": pd.Series(persons, dtype=object), "a": True})
    spec = spec_for({"who": {"kind": "drop"}, "a": TRUTH}, unit={"person_id": "who", "max_records": 1})
    assert codes(frame, spec) == {"a": [1, 1, 1]}


def test_a_text_with_half_a_character_fails_no_column_of_text() -> None:
    texts = pd.Series(["a", "\udcff", None], dtype=pd.StringDtype("python"))
    assert codes(pd.DataFrame({"a": texts}), spec_for({"a": TEXT})) == {"a": [0, 4, 5]}


def test_a_date_among_moments_does_not_cut_them() -> None:
    """What Arrow's own choice would do, and a moment more or less would then change the others."""
    cells = pd.Series([MOMENT.date(), MOMENT], dtype=object)
    assert pa.array(cells).type == pa.date32()
    assert codes(pd.DataFrame({"clock": cells}), spec_for({"clock": KINDS["clock"]}))["clock"] == [48, 25]


def test_a_category_of_objects_is_read_as_its_object() -> None:
    categories = pd.Categorical.from_codes([0, 1, -1, 2, 3, 4], pd.Index([1, "a", False, b"x", 0.5], dtype=object))
    column = pd.Series([1, "a", None, False, b"x", 0.5], dtype=object)
    spec = spec_for(KINDS)
    assert codes(pd.DataFrame(dict.fromkeys(KINDS, categories)), spec) == codes(
        pd.DataFrame(dict.fromkeys(KINDS, column)), spec
    )


def test_tables_of_objects_are_joined_as_typed_ones() -> None:
    """Keys, orders and values of a tree of tables, in the passes over the rows of each person."""
    tables, spec = make_tree(60), make_tables_spec(make_tree_content())

    def read(data: Any) -> list[list[tuple[Any, ...]]]:
        source = open_source(data, spec)
        source.check_rows()
        released = tuple(name for name in source.columns if name in spec.released_columns)
        found = []
        for name, pair_request in Request(spec, released).table_pairs.items():
            rows = RowsOfPersons(source.further_tables.get(name, source).batches)
            records = pa.Table.from_batches(encode(rows, pair_request.encoding, pair_request.spec.unit, Repairs()))
            found.append(sorted(zip(*records.to_pydict().values(), strict=True)))
        return found

    objects = {name: table.to_pandas().astype(object) for name, table in tables.items()}
    assert read(objects) == read(tables)


def test_objects_have_the_fingerprint_of_a_column_of_their_one_type(tmp_path: Path) -> None:
    """What was paid for tables of objects stays paid."""
    kept, types = store(tmp_path), {"s": pa.large_string(), "n": pa.int64(), "b": pa.bool_(), "d": pa.date32()}
    cells = {"s": ["a", None, "é"], "n": [1, None, 3], "b": [None, True, False], "d": [MOMENT.date(), None, None]}
    typed = pa.table({name: pa.array(cells[name], type_) for name, type_ in types.items()})
    objects = pd.DataFrame({name: pd.Series(cells[name], dtype=object) for name in types})
    spec = spec_for(dict.fromkeys(types, TEXT))
    marks = [open_source(data, spec).fingerprint(kept) for data in (typed, objects, objects.iloc[::-1])]
    assert marks[0] == marks[1] != marks[2]
    changed = []
    for column, cell in (("s", 1), ("s", "1"), ("s", True), ("n", "1"), ("n", 2.5), ("d", [1]), ("d", MOMENT)):
        frame = objects.copy()
        frame.at[0, column] = cell
        changed.append(open_source(frame, spec).fingerprint(kept))
    assert len({*marks, *changed}) == 2 + len(changed)


def test_rows_of_objects_and_of_far_moments_are_compared_with_public_ones() -> None:
    far = pa.array([2**63 - 1, 0, -(2**63) + 1], pa.int64())
    for type_ in (pa.timestamp("us"), pa.timestamp("s", "No/Where"), pa.time64("us"), pa.date64()):
        batch = pa.record_batch({"a": far.view(type_)})
        assert compute_rows_fingerprint([batch], ["a"])[0] == 3
    cells = [1, "x", True, 2.5, None, MOMENT, dt.date(2020, 1, 2)]
    objects = pa.record_batch({"a": read_objects(cells)})
    texts = pa.record_batch({"a": ["1.0", "X", "yes", "2.50", "", "01.06.2015 12:30", "20200102"]})
    assert compute_rows_fingerprint([objects], ["a"], ["a"]) == compute_rows_fingerprint([texts], ["a"], ["a"])


def test_odd_objects_are_listed_as_texts() -> None:
    cells = ["a", 7, 7.0, "7", True, [1], None, 2.25, "a", b"x", dt.date(2020, 1, 2)] * 30
    source = open_source(pd.DataFrame({"a": pd.Series(cells, dtype=object)}), spec_for({"a": TEXT}))
    (batch,) = source.batches()
    odd = find_odd_texts(plan(spec_for({"a": TEXT})).codecs[0], {"a": batch.column("a")}, 10)
    assert odd == {"7": 90, "2.25": 30, "2020-01-02": 30}


# what is refused


def test_a_union_of_another_program_is_refused() -> None:
    """Its cells may be of types that no column can hold."""
    cells = read_objects([1, CANARY])
    assert refused(pa.table({"odd": cells}), booleans("odd")).field == "columns.odd"


def test_a_type_that_cannot_be_read_is_named_in_a_word() -> None:
    error = refused(pd.DataFrame({"odd": pd.cut([1, 2, 3], 2)}), booleans("odd"))
    assert error.problem == "its type in the table in memory is pandas.interval, which cannot be encoded"


def not_utf8() -> pa.Array:
    return pa.array([b"fine", CANARY.encode() + b"\xff\xfe"], pa.binary()).view(pa.string())


def bad_index() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a", CANARY]), safe=False)


@pytest.mark.parametrize("chunks", [[not_utf8()], [pa.array(["x"]), not_utf8()], [not_utf8().dictionary_encode()]])
def test_text_that_is_not_utf8_is_null_and_counted(chunks: list[pa.Array], tmp_path: Path) -> None:
    repairs = Repairs()
    source = open_source(pa.table({"a": pa.chunked_array(chunks)}), booleans("a"))
    source.check_rows()
    assert source.fingerprint(store(tmp_path))
    rows = [value for batch in source.batches(repairs) for value in batch["a"].to_pylist()]
    assert rows[-2:] == ["fine", None] and repairs.counts == {("a", "not UTF-8"): 1}


def test_damaged_buffers(tmp_path: Path) -> None:
    table, spec = pa.table({"a": bad_index()}), booleans("a")
    assert refused(table, spec).field == "columns.a"
    source = open_source(table, spec)
    for look in (source.check_rows, lambda: source.fingerprint(store(tmp_path))):
        with pytest.raises(RequestError, match="damaged"):
            look()


class Failing:
    """A table whose library fails, with a value in its words."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        raise KeyError(CANARY)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pa.table({"a": [True]}).to_reader(), "read only once"),
        ({"a": [CANARY]}, "is of the type dict, not a table"),
        (None, "is of the type NoneType, not a table"),
        (pl.LazyFrame({"a": [CANARY]}), "is of the type LazyFrame, not a table"),
        (pd.Series([CANARY]), "is of the type Series, and cannot be read"),
        (Failing(), "is of the type Failing, and cannot be read"),
        (pd.DataFrame({0: [CANARY]}), "not text (number 1)"),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", CANARY), ("a", "y")])), "not text (number 1)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "2 columns called 'a'"),
        (pd.DataFrame([[1, 2]], columns=[CANARY, CANARY]), "2 columns called number 1's name"),
        (pa.table([[1], [2]], ["a", "a"]), "2 columns called 'a'"),
        (pa.table([[1], [2]], ["a", ""]), "without a name (number 2)"),
        (pa.table({}), "has no columns"),
        (pd.DataFrame(), "has no columns"),
        ("", "names no table"),
    ],
    ids=range(15),
)
def test_what_is_not_a_table(data: Any, words: str) -> None:
    error = refused(data, booleans("a"))
    assert error.field == "data" and words in error.problem


# the fingerprint


def store(folder: Path) -> Store:
    return Store(folder / "private", folder / "released", "people")


@pytest.fixture(scope="module")
def fingerprint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], str]:
    kept = store(tmp_path_factory.mktemp("store"))

    def of(data: Any) -> str:
        names = data.columns if isinstance(data, pd.DataFrame | pl.DataFrame) else data.schema.names
        return open_source(data, spec_for(dict.fromkeys(names, TEXT))).fingerprint(kept)

    return of


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 12))
    arrays = [draw(anything.filter(lambda a: len(a) >= 1)) for _ in range(draw(st.integers(1, 4)))]
    picked = [array.take(pa.array([i % len(array) for i in range(rows)])) for array in arrays]
    return pa.table({f"c{i}": array for i, array in enumerate(picked)})


def junk_under_nulls(array: pa.Array) -> pa.Array:
    """The same values at an offset, with something else under the nulls and set bits after the end of the bitmaps."""
    if pa.types.is_boolean(array.type) or pa.types.is_string(array.type):
        shifted = pa.concat_arrays([array.slice(0, 1), array, array.slice(0, 1)])
        return shifted.slice(1, len(array))
    _, values = array.buffers()
    valid = np.asarray(array.is_valid())
    width = array.type.bit_width // 8
    cells = np.frombuffer(values, np.uint8, len(array) * width, array.offset * width).reshape(-1, width).copy()
    cells[~valid] = 0x5A
    bits = np.packbits(np.concatenate([[True] * 3, valid, [True] * 9]), bitorder="little")
    buffers = [pa.py_buffer(bits.tobytes()), pa.py_buffer(b"\x11" * 3 * width + cells.tobytes())]
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=3)


@settings(max_examples=choose_example_count(100), deadline=None)
@given(tables(), st.data())
def test_equal_tables_have_one_fingerprint(
    fingerprint: Callable[[Any], str], table: pa.Table, data: st.DataObject
) -> None:
    first = fingerprint(table)
    cut = data.draw(st.integers(0, table.num_rows))
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    wider = pa.concat_tables([table, chunked, table]).combine_chunks().slice(table.num_rows, table.num_rows)
    arrays = [column.combine_chunks() for column in table.columns]
    arrays = [a.chunk(0) if isinstance(a, pa.ChunkedArray) else a for a in arrays]
    junk = pa.table([junk_under_nulls(array) for array in arrays], table.schema.names)
    dictionaries = pa.table([array.dictionary_encode() for array in arrays], table.schema.names)
    reversed_dictionaries = pa.table([in_reversed_order(array) for array in arrays], table.schema.names)
    layouts = [
        pa.table([a.cast(type_) if pa.types.is_string(a.type) else a for a in arrays], table.schema.names)
        for type_ in (pa.large_string(), pa.string_view())
    ]
    assert junk.equals(table) or any(pa.types.is_floating(t) for t in table.schema.types)  # NaN is not equal to itself
    same = [
        chunked,
        wider,
        junk,
        dictionaries,
        reversed_dictionaries,
        *layouts,
        table.replace_schema_metadata({"a": "b"}),
    ]
    assert {fingerprint(other) for other in same} == {first}


def in_reversed_order(array: pa.Array) -> pa.Array:
    """A dictionary array of the same values whose dictionary is in another order and has a null."""
    encoded = array.dictionary_encode()
    count = len(encoded.dictionary)
    turned = encoded.dictionary.take(pa.array(range(count - 1, -1, -1), pa.int64()))
    values = pa.concat_arrays([pa.nulls(1, array.type), turned])
    indices = [0 if i is None else count - i for i in encoded.indices.to_pylist()]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int16()), values)


@settings(max_examples=choose_example_count(100), deadline=None)
@given(tables(), st.data())
def test_any_change_of_content_has_another_fingerprint(
    fingerprint: Callable[[Any], str], table: pa.Table, data: st.DataObject
) -> None:
    first = fingerprint(table)
    column = data.draw(st.integers(0, table.num_columns - 1))
    row = data.draw(st.integers(0, table.num_rows - 1))
    name, cells = table.schema.names[column], table.column(column)
    lone = cells.slice(row, 1)
    other = pa.nulls(1, cells.type) if lone.null_count == 0 else pa.array([value_of(cells.type)], cells.type)
    one_cell = pa.chunked_array([*cells.slice(0, row).chunks, other, *cells.slice(row + 1).chunks], cells.type)
    changed = [
        table.set_column(column, name, one_cell),
        table.slice(0, table.num_rows - 1),
        pa.concat_tables([table, table.slice(0, 1)]),
        table.append_column("more", cells),
        table.rename_columns([f"x{n}" for n in table.schema.names]),
    ]
    if OTHER_TYPE.get(cells.type) is not None:
        changed.append(table.set_column(column, name, cells.cast(OTHER_TYPE[cells.type], safe=False)))
    if table.num_columns > 1:
        changed.append(table.select(table.schema.names[::-1]))
    backwards = table.take(pa.array(range(table.num_rows - 1, -1, -1), pa.int64()))
    if repr(backwards.to_pydict()).replace("-0.0", "0.0") != repr(table.to_pydict()).replace("-0.0", "0.0"):
        changed.append(backwards)
    found = [fingerprint(other) for other in changed]
    assert first not in found and len(set(found)) == len(found)


OTHER_TYPE = {
    pa.int64(): pa.uint64(),
    pa.float64(): pa.float32(),
    pa.bool_(): pa.int8(),
    pa.timestamp("us"): pa.timestamp("us", "UTC"),
    pa.date32(): pa.timestamp("s"),
}


def value_of(type_: pa.DataType) -> Any:
    if pa.types.is_string(type_):
        return ""
    return pa.scalar(0, pa.int64() if not pa.types.is_date32(type_) else pa.int32()).cast(type_).as_py()


def test_texts_are_told_apart_by_their_boundaries(fingerprint: Callable[[Any], str]) -> None:
    cells = [["ab", "c"], ["a", "bc"], ["abc", ""], ["abc", None], [None, "abc"], ["ab\0", "c"], ["ab", "\0c"]]
    assert len({fingerprint(pa.table({"a": pa.array(c)})) for c in cells}) == len(cells)
    across = [pa.table({"a": ["x", "y"], "b": ["z", ""]}), pa.table({"a": ["x", "yz"], "b": ["", ""]})]
    assert len({fingerprint(table) for table in across}) == 2


def test_one_table_of_three_libraries_has_one_fingerprint(fingerprint: Callable[[Any], str]) -> None:
    columns = {"n": [1, 2, 3], "s": ["a", None, "b"], "b": [True, False, True]}
    frame = pd.DataFrame(columns)
    frames = [pa.table(columns), frame, frame.astype({"s": "category", "n": "Int64"}), pl.DataFrame(columns)]
    assert len({fingerprint(table) for table in frames}) == 1


@pytest.mark.parametrize("width", [2, 4, 8])
def test_every_nan_is_one_and_so_is_every_zero(fingerprint: Callable[[Any], str], width: int) -> None:
    numbers = np.array([np.nan, 0.0, 1.5, -2.0], f"f{width}")
    other = numbers.copy()
    other[:2] = -other[:2]
    assert other.tobytes() != numbers.tobytes()
    assert fingerprint(pa.table({"a": numbers})) == fingerprint(pa.table({"a": other}))
    assert fingerprint(pa.table({"a": numbers})) != fingerprint(pa.table({"a": -numbers}))


def test_large_tables_in_many_chunks(fingerprint: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch) -> None:
    table = people(1_000)
    chunks = pa.concat_tables([table.slice(i, 13) for i in range(0, 1_000, 13)])
    for rows in (1 << 16, 100):
        monkeypatch.setattr(memory_source, "FINGERPRINT_ROWS", rows)
        assert fingerprint(chunks) == fingerprint(table) != fingerprint(table.slice(1))


def test_a_file_and_a_table_in_memory_are_different_sources_and_the_key_matters(tmp_path: Path) -> None:
    table, spec = pa.table({"a": [True]}), booleans("a")
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = store(tmp_path / "a"), store(tmp_path / "b")
    source = open_source(table, spec)
    content = b"".join(iterate_canonical_bytes(table.schema, source.batches()))
    (tmp_path / "bytes").write_bytes(content)
    marks = [
        source.fingerprint(one),
        source.fingerprint(other),
        open_source(tmp_path / "t.parquet", spec).fingerprint(one),
        one.fingerprint([tmp_path / "bytes"]),
        one.mac(tmp_path / "bytes"),
        hashlib.sha256(content).hexdigest(),
    ]
    assert len(set(marks)) == len(marks)


def test_a_change_in_place_is_noticed(tmp_path: Path) -> None:
    numbers = np.arange(5.0)
    source = open_source(pd.DataFrame({"a": numbers}, copy=False), booleans("a"))
    before = source.fingerprint(store(tmp_path))
    assert source.fingerprint(store(tmp_path)) == before
    numbers[3] = 7
    assert source.fingerprint(store(tmp_path)) != before


def test_the_canonical_bytes_last() -> None:
    """Releases were paid for under fingerprints of these bytes: another pyarrow must not change them."""
    table = pa.table({name: array for name, (_, array) in TYPED.items()})
    source = open_source(table, spec_for({name: column for name, (column, _) in TYPED.items()}))
    content = b"".join(iterate_canonical_bytes(table.schema, source.batches()))
    assert hashlib.sha256(content).hexdigest() == "5dc7b62eb0ac27079d27c1699d6e3df6958967660af2affa5698aa68d2518686"
    small = pa.table({"a": pa.array([1, None], pa.int8()), "s": ["é", None]})
    header = b'[["a", "int8"], ["s", "text"]]'
    assert b"".join(iterate_canonical_bytes(small.schema, small.to_batches())) == b"".join(
        [
            len(header).to_bytes(8, "little"),
            header,
            (2).to_bytes(8, "little"),
            b"\x80\x01\x00",
            b"\x80" + (2).to_bytes(8, "little") + bytes(8) + "é".encode(),
        ]
    )


@pytest.mark.parametrize(
    ("column", "stored", "words"),
    [
        ({"kind": "date", "min": "2019-01-01", "max": "2024-01-01"}, pa.array([43831, 44000]), "%Y%m%d"),
        ({"kind": "date", "min": "2019-01-01", "max": "2024-01-01"}, pa.array([20230623.0, None]), "%Y%m%d"),
        ({"kind": "datetime", "min": "2019-01-01", "max": "2024-01-01"}, pa.array([1, 2]), "kind: integer"),
        ({"kind": "time"}, pa.array([905, 1430]), "hhmm"),
    ],
)
@pytest.mark.parametrize("values", [True, False], ids=["as they are", "all null"])
def test_numbers_are_no_moments_whatever_their_values(
    column: dict[str, Any], stored: pa.Array, words: str, values: bool
) -> None:
    table = pa.table({"x": stored if values else pa.nulls(2, stored.type)})
    with pytest.raises(RequestError, match=r"columns\.x\.format.*a number is not a") as refused:
        open_source(table, make_spec({"x": column}))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "stored", [pa.array([20230623]), pa.array([20230623.0]), pa.array(["2023-06-23"]), pa.nulls(1)]
)
def test_numbers_with_a_format_and_texts_are_read(stored: pa.Array) -> None:
    named = {"format": "%Y%m%d"} if stored.type in (pa.int64(), pa.float64()) else {}
    column = {"kind": "date", "min": "2019-01-01", "max": "2024-01-01", **named}
    assert open_source(pa.table({"x": stored}), make_spec({"x": column})).check_rows() == 1
