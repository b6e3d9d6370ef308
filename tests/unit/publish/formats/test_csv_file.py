"""The CSV holds the Parquet's values, read back by a reader that knows nothing of how they were written."""

from __future__ import annotations

import csv
import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import ValidationError

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.publish.formats.tables import (
    BATCH_ROWS,
    choose_style,
    find_formulas,
    get_null_text,
    list_ranges,
    write_csv,
)
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan
from tests.support.described import awkward, described, synthetic
from tests.support.examples import choose_example_count
from tests.support.specs import make_spec, specs


def value(text: str, type_: pa.DataType, null: str) -> Any:
    if text == null:
        return None
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_float32(type_):
        return float(np.float32(text))
    if pa.types.is_floating(type_):
        return float(text)
    if pa.types.is_date(type_):
        return dt.date.fromisoformat(text)
    return dt.datetime.fromisoformat(text) if pa.types.is_timestamp(type_) else text


def read(path: Path, table: pa.Table, null: str) -> pa.Table:
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file, strict=True)
    assert head == table.column_names
    types = table.schema.types
    return pa.Table.from_pylist(
        [{n: value(t, type_, null) for n, t, type_ in zip(head, row, types, strict=True)} for row in rows],
        schema=table.schema,
    )


def written(spec: ReleaseSpec, table: pa.Table, folder: Path) -> pa.Table:
    pq.write_table(table, folder / "t.parquet")
    ranges = list_ranges(Request(spec, tuple(spec.released_columns)))
    write_csv(folder / "t.parquet", folder / "t.csv", ranges, choose_style(spec, ranges))
    return read(folder / "t.csv", table, get_null_text(ranges))


LIKE: dict[str, Any] = {
    "größe": {"kind": "number", "min": -5, "max": 2_000, "decimals": 1, "nullable": True},
    "name": {"kind": "categorical", "values": ["a;b", "c'd", " e", "ß"], "nullable": True},
    "born": {"kind": "date", "min": "1950-01-01", "max": "2010-01-01", "format": "%d.%m.%Y", "nullable": True},
    "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "format": "%m/%d/%y %I:%M %p"},
    "fine": {
        "kind": "datetime",
        "min": "2010-01-01",
        "max": "2010-01-02",
        "bins": 24,
        "format": "%d %b %Y %H:%M:%S.%f",
    },
    "left": {"kind": "time", "format": "HH:MM"},
    "code": {"kind": "time", "format": "hhmm"},
    "yes": {"kind": "boolean", "nullable": True},
}


@pytest.mark.parametrize(
    ("csv_options", "null_values", "null"),
    [
        ({"delimiter": ";", "decimal": ",", "encoding": "cp1252", "quote": "'"}, ["-9", "k. A."], "k. A."),
        ({"delimiter": "\t"}, None, ""),
        ({}, ["-9", "NA"], "NA"),
    ],
)
def test_a_csv_like_the_source_is_read_as_the_source_is(
    csv_options: dict[str, Any], null_values: list[str] | None, null: str, tmp_path: Path
) -> None:
    """By the reader of private tables, under the same spec: every value has its code, and nothing is repaired."""
    nulls = {} if null_values is None else {"null_values": null_values}
    spec = make_spec(LIKE, csv=csv_options, like="source", formats=["parquet", "csv"], **nulls)
    table, ranges = synthetic(spec), list_ranges(Request(spec, tuple(LIKE)))
    style = choose_style(spec, ranges)
    assert style.null == null
    pq.write_table(table, tmp_path / "t.parquet")
    write_csv(tmp_path / "t.parquet", tmp_path / "t.csv", ranges, style)
    (batch,) = open_source(tmp_path / "t.csv", spec).batches()
    for codec in plan(spec, tuple(LIKE)).codecs:
        (name,) = codec.sources
        codes, repairs = codec.encode({name: batch.column(name)})
        wanted, _ = codec.encode({name: table.column(name).combine_chunks()})
        assert codes.tolist() == wanted.tolist() and not repairs
    lines = (tmp_path / "t.csv").read_text(encoding=style.encoding).splitlines()
    assert lines[0] == style.delimiter.join(LIKE) and not any(":00:00" in line for line in lines)


def test_what_the_source_cannot_hold_is_refused_before_a_release() -> None:
    named = {"town": {"kind": "categorical", "values": ["Łódź", "a,b"]}}
    with pytest.raises(ValidationError, match=r"iso8859-1 cannot encode"):
        make_spec(named, csv={"encoding": "latin-1"}, like="source")
    with pytest.raises(ValidationError, match="a delimiter or a line break"):
        make_spec(named, csv={"quote": ""}, like="source")
    make_spec(named, csv={"encoding": "latin-1", "quote": ""})


def test_every_value_comes_back(tmp_path: Path) -> None:
    spec = awkward()
    table = synthetic(spec)
    assert all(table[n].null_count for n in ("order", "select", "day", "moment", "yes"))
    assert written(spec, table, tmp_path).equals(table)


@given(spec=specs)
@settings(
    max_examples=choose_example_count(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_value_of_any_spec_comes_back(spec: ReleaseSpec, tmp_path: Path) -> None:
    table = synthetic(spec, 60)
    assert written(spec, table, tmp_path).equals(table)


def test_numbers_beyond_2_to_53_and_the_smallest_steps(tmp_path: Path) -> None:
    columns = {
        "i": {"kind": "integer", "min": -(2**53), "max": 2**53},
        "f": {"kind": "number", "min": -1e307, "max": 1e307},
        "s": {"kind": "number", "min": -1, "max": 1, "type": "float32"},
    }
    floats = [0.1, 0.1 + 2**-56, 1e307, -5e-324, -0.0, 1 / 3]
    table = pa.table(
        {
            "i": pa.array([2**53, 2**53 - 1, -(2**53), 0, 1, -1], pa.int64()),
            "f": pa.array(floats, pa.float64()),
            "s": pa.array([np.float32(v) for v in (0.1, 1 / 3, 1e-45, 1, -1, 0)], pa.float32()),
        }
    )
    back = written(make_spec(columns), table, tmp_path)
    assert back["i"].equals(table["i"])
    for name, width in (("f", np.float64), ("s", np.float32)):
        a, b = (np.array(t[name].to_numpy(), width) for t in (back, table))
        assert a.tobytes() == b.tobytes()


def test_bytes_are_those_of_rfc_4180(tmp_path: Path) -> None:
    columns = {
        'a,"b"': {"kind": "categorical", "values": ["x,y", 'say "hi"', "two\nlines", "ü"], "nullable": True},
        "n": {"kind": "integer", "min": 0, "max": 9, "nullable": True},
        "t": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01"},
        "d": {"kind": "datetime", "type": "date", "min": "2010-01-01", "max": "2020-01-01"},
        "b": {"kind": "boolean"},
    }
    moment, day = dt.datetime(2010, 1, 31, 8, 30), dt.date(2010, 1, 31)
    rows = [("x,y", 1), ('say "hi"', None), ("two\nlines", 2), (None, 3), ("ü", 4)]
    spec = make_spec(columns)
    table = pa.table(
        {
            'a,"b"': [r[0] for r in rows],
            "n": [r[1] for r in rows],
            "t": pa.array([moment] * 5, pa.timestamp("us")),
            "d": [day] * 5,
            "b": [True, False, True, False, True],
        }
    )
    written(spec, table, tmp_path)
    rest = ',"2010-01-31T08:30:00",2010-01-31,'
    expected = (
        '"a,""b""","n","t","d","b"\r\n'
        f'"x,y",1{rest}true\r\n"say ""hi""",{rest}false\r\n'
        f'"two\nlines",2{rest}true\r\n,3{rest}false\r\n"ü",4{rest}true\r\n'
    )
    assert (tmp_path / "t.csv").read_bytes() == expected.encode("utf-8")


@pytest.mark.parametrize(
    ("columns", "null"),
    [
        ({"a": ["x"], "b": ["y"]}, ""),
        ({"a": ["x"]}, "NA"),
        ({"a": ["", "x"], "b": ["y"]}, "NA"),
        ({"a": ["", "NA"], "b": ["NA_"]}, "NA__"),
        ({"a": ["NA"], "b": ["y"]}, ""),
    ],
)
def test_null_is_told_from_every_category(columns: dict[str, list[str]], null: str, tmp_path: Path) -> None:
    spec = make_spec({n: {"kind": "categorical", "values": v, "nullable": True} for n, v in columns.items()})
    assert get_null_text(list_ranges(Request(spec, tuple(columns)))) == null
    table = pa.table({n: [*v, *[None] * (3 - len(v))] for n, v in columns.items()})
    assert written(spec, table, tmp_path).equals(table)


def test_rows_are_written_batch_by_batch_in_memory_that_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec({"x": {"kind": "number", "min": 0, "max": 1}, "b": {"kind": "boolean"}})
    rows = 20 * BATCH_ROWS - 7
    table = pa.table({"x": np.random.default_rng(0).random(rows), "b": np.arange(rows) % 3 == 0})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=BATCH_ROWS)
    del table
    held, sizes, keep = [], [], pa.csv.CSVWriter.write_batch

    class Writer(pa.csv.CSVWriter):
        def write_batch(self, batch: pa.RecordBatch, *more: Any) -> None:
            held.append(pa.total_allocated_bytes())
            sizes.append(batch.num_rows)
            keep(self, batch, *more)

    monkeypatch.setattr(pa.csv, "CSVWriter", Writer)
    before = pa.total_allocated_bytes()
    ranges = list_ranges(Request(spec, ("x", "b")))
    write_csv(tmp_path / "t.parquet", tmp_path / "t.csv", ranges, choose_style(spec, ranges))
    assert (len(sizes), max(sizes), sum(sizes)) == (20, BATCH_ROWS, rows)
    assert max(held) - before < (tmp_path / "t.parquet").stat().st_size / 2
    back = pd.read_csv(tmp_path / "t.csv", float_precision="round_trip")
    assert pa.Table.from_pandas(back, preserve_index=False).equals(pq.read_table(tmp_path / "t.parquet"))


def test_no_rows_leave_the_header(tmp_path: Path) -> None:
    spec = awkward()
    written(spec, synthetic(spec).slice(0, 0), tmp_path)
    assert (tmp_path / "t.csv").read_text(encoding="utf-8").startswith('"order","größe')


def test_parts_are_written_one_by_one(tmp_path: Path) -> None:
    spec = awkward()
    release = described(spec, tmp_path, rows=50, parts=3)
    assert release.tables("csv") == [f"synthetic_csv/part-{i:05d}.csv" for i in range(3)]
    null = get_null_text(release.ranges)
    parts = [pq.read_table(tmp_path / n, partitioning=None) for n in release.tables("parquet")]
    back = [read(tmp_path / n, p, null) for n, p in zip(release.tables("csv"), parts, strict=True)]
    assert pa.concat_tables(back).to_pylist() == synthetic(spec, 50).to_pylist()


def test_what_a_spreadsheet_takes_for_a_formula_is_named_and_kept(tmp_path: Path) -> None:
    columns = {
        "plain": {"kind": "categorical", "values": ["a=b", "1-2"]},
        "texts": {"kind": "categorical", "values": ["ok", "=HYPERLINK(1)"]},
        "-name": {"kind": "integer", "min": -5, "max": 5},
    }
    spec = make_spec(columns)
    assert find_formulas(list_ranges(Request(spec, tuple(columns)))) == ["texts", "-name"]
    table = synthetic(spec, 8)
    assert written(spec, table, tmp_path).equals(table)
