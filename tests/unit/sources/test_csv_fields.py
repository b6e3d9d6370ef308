"""CSV as people have it: delimiters, marks of numbers, encodings, quotation marks and texts that mean null."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.base.errors import RequestError
from privsyn.data_contracts.csv_options import USUAL_NULLS, CsvOptions
from privsyn.engine.request import Request
from privsyn.pipelines.common_steps import ENCODE
from privsyn.sources.file_source import NOT_A_NUMBER, FileSource, parse_numbers
from tests.support.specs import make_spec

NUMBER = {"kind": "number", "min": 0, "max": 10_000, "nullable": True}
TEXT = {"kind": "categorical", "values": ["\u00fc", "b;c", "NA"], "nullable": True}


def rows(folder: Path, content: bytes, columns: dict[str, Any], **csv: Any) -> list[tuple[Any, ...]]:
    path = folder / "t.csv"
    path.write_bytes(content)
    source = FileSource.open(path, make_spec(columns, csv=csv))
    return [tuple(row.values()) for batch in source.batches() for row in batch.to_pylist()]


BOTH = {"n": NUMBER, "t": TEXT}


def test_a_german_spreadsheet(tmp_path: Path) -> None:
    content = 'n;t\r\n1.234,5;\u00fc\r\n7;"b;c"\r\n1.5;NA\r\n;\r\n'.encode("cp1252")
    found = rows(tmp_path, content, BOTH, delimiter=";", decimal=",", thousands=".", encoding="windows-1252")
    assert found == [("1234.5", "\u00fc"), ("7", "b;c"), (NOT_A_NUMBER + "1.5", "NA"), (None, None)]


def test_categories_with_decimals_have_the_files_mark(tmp_path: Path) -> None:
    column = {"kind": "categorical", "values": [1.5, -3.0]}
    assert rows(tmp_path, b"n;t\n1,5;1,5\n2;-3,0\n", {"n": NUMBER, "t": column}, delimiter=";", decimal=",") == [
        ("1.5", "1.5"),
        ("2", "-3.0"),
    ]


def test_other_quotation_marks_and_none(tmp_path: Path) -> None:
    assert rows(tmp_path, b"n,t\n1,'b,\"c'\n", BOTH, quote="'") == [("1", 'b,"c')]
    assert rows(tmp_path, b'n|t\n1|"b\n2|c"\n', BOTH, quote="", delimiter="|") == [("1", '"b'), ("2", 'c"')]


@pytest.mark.parametrize(
    ("options", "text", "number"),
    [
        ({"decimal": ","}, "1,5", "1.5"),
        ({"decimal": ","}, "1.5", None),
        ({"thousands": ","}, "1,234,567.8", "1234567.8"),
        ({"thousands": ","}, "12,34", None),
        ({"thousands": ","}, "1234.5", "1234.5"),
        ({"thousands": "'"}, "-1'000", "-1000"),
        ({"thousands": " "}, "1 000", "1000"),
        ({"decimal": ","}, " +1,5e3 ", " +1.5e3 "),
        ({"decimal": ","}, ",5", ".5"),
        ({"decimal": ","}, "x", None),
    ],
)
def test_marks_of_numbers(options: dict[str, Any], text: str, number: str | None) -> None:
    found = parse_numbers(pa.array([text, None]), CsvOptions(**options)).to_pylist()
    assert found == [NOT_A_NUMBER + text if number is None else number, None]


def test_usual_texts_are_null_unless_listed(tmp_path: Path) -> None:
    other = {"kind": "categorical", "values": ["x"], "nullable": True}
    content = b"t,o\n" + b"".join(f"{text},{text}\n".encode() for text in USUAL_NULLS if text) + b"x,x\n"
    found = rows(tmp_path, content, {"t": TEXT, "o": other})
    assert {row[0] for row in found} == {None, "NA", "x"}
    assert [row[1] for row in found] == [None] * (len(USUAL_NULLS) - 1) + ["x"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delimiter": ";;"}, "one character"),
        ({"delimiter": "5"}, "part of a number"),
        ({"delimiter": "\n"}, "one character"),
        ({"delimiter": "'", "quote": "'"}, "same mark"),
        ({"decimal": ",", "thousands": ","}, "same mark"),
        ({"encoding": "utf-16"}, "one damaged byte"),
        ({"encoding": "shift_jis"}, "one damaged byte"),
        ({"encoding": "utf-7"}, "one damaged byte"),
        ({"encoding": "klingon"}, "is not known"),
        ({"encoding": "rot13"}, "one damaged byte"),
    ],
)
def test_what_cannot_be_read_safely_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CsvOptions(**options)


def test_a_wrong_delimiter_is_heard_of(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="delimiter"):
        rows(tmp_path, b"n;t\n1;2\n", BOTH)


def test_zoned_parquet_needs_a_zone(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"seen": pa.array([0], pa.timestamp("us", "Europe/Berlin"))}), path)
    column = {"kind": "datetime", "min": "1970-01-01", "max": "1980-01-01"}
    with pytest.raises(RequestError, match=r"columns\.seen\.zone.*Write `zone: Europe/Berlin`"):
        FileSource.open(path, make_spec({"seen": column}))
    utc = make_spec({"seen": {**column, "zone": "UTC"}})
    assert FileSource.open(path, utc)
    assert ENCODE.build_key(Request(utc)) == ENCODE.build_key(Request(make_spec({"seen": column})))
