"""Excel, SPSS, Stata, SAS and Feather files: the rows of the same table in Parquet, and what is refused."""

from __future__ import annotations

import datetime as dt
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pyreadstat
import pytest

from privsyn.base.errors import RequestError
from privsyn.extras.foreign_files import workbook
from privsyn.sources.open_source import list_table_columns, open_source
from privsyn.sources.stream_source import read_schema
from privsyn.specs.draft import draft
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.steps.encode import encode
from tests.support.specs import make_spec

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 18, "max": 89, "nullable": True},
    "income": {"kind": "number", "min": 0, "max": 200_000, "bins": 50, "nullable": True},
    "region": {"kind": "categorical", "values": ["north", "south", "east"], "unlisted": "other", "nullable": True},
    "day": {"kind": "date", "min": "2010-01-01", "max": "2020-01-01", "bins": 40, "nullable": True},
    "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 40, "nullable": True},
}
SPEC = make_spec(COLUMNS)


def rows(number: int = 500) -> pa.Table:
    """Whole numbers, floats, texts, days and moments, some of them null."""
    rng = np.random.default_rng(0)
    days = [dt.date(2009, 6, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 4_000, number)]
    seen = [dt.datetime(2009, 6, 1) + dt.timedelta(seconds=int(s)) for s in rng.integers(0, 4_000 * 86_400, number)]
    none = rng.random(number) < 0.1
    return pa.table(
        {
            "age": pa.array(rng.integers(15, 95, number).astype(float), mask=none),
            "income": pa.array(rng.normal(50_000, 30_000, number), mask=none),
            "region": pa.array(rng.choice(["north", "south", "west"], number), pa.string()),  # no row is empty
            "day": pa.array(days, pa.date32(), mask=none),
            "seen": pa.array(seen, pa.timestamp("us"), mask=none),
        }
    )


def to_frame(table: pa.Table) -> pd.DataFrame:
    frame = table.to_pandas()
    return frame.assign(region=frame["region"].astype(object).where(frame["region"].notna(), ""))


def write_xlsx(table: pa.Table, path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(table.column_names)
    for row in table.to_pylist():
        book.active.append(list(row.values()))
    book.save(path)


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "xlsx": write_xlsx,
    "sav": lambda table, path: pyreadstat.write_sav(to_frame(table), path),
    "dta": lambda table, path: pyreadstat.write_dta(to_frame(table), path),
    "feather": lambda table, path: feather.write_feather(table, str(path), chunksize=100),
}


def codes(place: str, spec: Any = SPEC, **how: Any) -> dict[str, list[int]]:
    source = open_source(place, spec)
    assert source.columns == list_table_columns(place, spec)
    encoding = plan(spec, tuple(spec.released_columns))
    return pa.Table.from_batches(list(encode(source.batches, encoding, spec.unit, Repairs()))).to_pydict()


@pytest.mark.parametrize("ending", WRITERS)
def test_equal_rows_have_equal_codes_in_every_file(ending: str, tmp_path: Path) -> None:
    table = rows()
    pq.write_table(table, tmp_path / "people.parquet")
    WRITERS[ending](table, tmp_path / f"people.{ending}")
    assert codes(str(tmp_path / f"people.{ending}")) == codes(str(tmp_path / "people.parquet"))
    text = draft(tmp_path / f"people.{ending}", folder=tmp_path)
    assert f'data: "people.{ending}"' in text or f"data: people.{ending}" in text


def test_a_sheet_and_the_row_of_its_names_are_told_in_a_url(tmp_path: Path) -> None:
    """As agencies write them: two lines of a title above the names, and a sheet of remarks."""
    table, book = rows(40), openpyxl.Workbook()
    pq.write_table(table, tmp_path / "people.parquet")
    book.active.title = "Remarks"
    sheet = book.create_sheet("People of 2020")
    for line in (["A register, 2020"], [], table.column_names, *(list(row.values()) for row in table.to_pylist())):
        sheet.append(line)
    book.save(tmp_path / "people.xlsx")
    place = f"excel:///{tmp_path}/people.xlsx"
    whole = f"{place}?sheet=People%20of%202020&header=3"
    assert codes(whole) == codes(str(tmp_path / "people.parquet"))
    text = draft(whole, folder=tmp_path)
    assert "excel:///people.xlsx?sheet=People%20of%202020&header=3" in text and "region" in text
    for options, words in {
        "": r"has 2 sheets, and one is read.*excel:///FILE\?sheet=NAME",
        "?sheet=None": "has no sheet of cells called 'None'",
        "?sheet=People%20of%202020": "'seen', which people.xlsx does not have",
        "?sheet=People%20of%202020&header=900": "people.xlsx has no columns",
        "?sheet=People%20of%202020&header=0": "has the header '0', which is not a row's number",
        "?header=0000000019999999999": "which is not a row's number",
        "?table=people": "Known are sheet, header",
    }.items():
        with pytest.raises(RequestError, match=words):
            open_source(place + options, SPEC)
    with pytest.raises(RequestError, match=r"row 1 of people.xlsx should have the names.*cell 2 is empty"):
        draft(f"{place}?sheet=People%20of%202020", folder=tmp_path)
    with pytest.raises(RequestError, match="names no file"):
        open_source("excel:///?header=2", SPEC)


@pytest.mark.parametrize("ending", ["sav", "dta"])
def test_labels_become_categories_and_missing_values_what_the_spec_says(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"survey.{ending}"
    missing: Any = 9 if ending == "sav" else "a"
    labels = {"q": {1: "yes", 2: "no", missing: "refused"}}
    answers = pd.DataFrame({"q": pd.Series([1, 2, missing, None, 3], dtype=object), "n": [1.5, 2, 3, 4, 5]})
    if ending == "sav":
        answers["q"] = answers["q"].astype(float)
        marked = {"q": [9], "n": [{"lo": 4, "hi": 5}]}
        pyreadstat.write_sav(answers, file, variable_value_labels=labels, missing_ranges=marked)
    else:
        pyreadstat.write_dta(answers, file, variable_value_labels=labels, missing_user_values={"q": ["a"]})
    number = {"kind": "number", "min": 0, "max": 10, "bins": 10, "nullable": True}

    def read(values: list[Any], name: str = "q") -> list[Any]:
        column = {"kind": "categorical", "values": values, "unlisted": "null", "nullable": True}
        source = open_source(str(file), make_spec({"q": column, "n": number}))
        return pa.Table.from_batches(list(source.batches())).column(name).to_pylist()

    assert read(["yes", "no"]) == ["yes", "no", None, None, "3"]
    assert read(["yes", "no", "refused"]) == ["yes", "no", "refused", None, "3"]
    assert read([1, 2])[:2] == ["1", "2"] and read([1, 2])[2] is None
    assert read(["yes"], "n") == ([1.5, 2, 3, None, None] if ending == "sav" else [1.5, 2, 3, 4, 5])
    whole = make_spec({"q": {"kind": "integer", "min": 0, "max": 9, "nullable": True}, "n": number})
    found = pa.Table.from_batches(list(open_source(str(file), whole).batches()))
    assert found.column("q").to_pylist() == [1, 2, None, None, 3]


def test_what_is_no_such_file_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ending in WRITERS:
        file = tmp_path / f"CANARY.{ending}"
        file.write_text("CANARY7391 is no such file" * 50)
        with pytest.raises(RequestError, match="cannot be read, breaks off or is damaged") as caught:
            open_source(str(file), SPEC)
        assert "CANARY7391" not in str(caught.value) and caught.value.__context__ is None
        with pytest.raises(RequestError, match="there is no file"):
            open_source(str(tmp_path / f"none.{ending}"), SPEC)
    book = openpyxl.Workbook()
    book.create_sheet("second")
    book.save(tmp_path / "two.xlsx")
    with pytest.raises(RequestError, match="has 2 sheets, and one is read"):
        open_source(str(tmp_path / "two.xlsx"), SPEC)
    write_xlsx(rows(5), tmp_path / "macros.xlsx")
    with zipfile.ZipFile(tmp_path / "macros.xlsx", "a") as parts:
        parts.writestr("xl/vbaProject.bin", b"macro")
    with pytest.raises(RequestError, match="has macros"):
        open_source(str(tmp_path / "macros.xlsx"), SPEC)
    write_xlsx(rows(5), tmp_path / "large.xlsx")
    monkeypatch.setattr(workbook, "MAX_UNPACKED", 1_000)
    with pytest.raises(RequestError, match="unpacks to more than"):
        open_source(str(tmp_path / "large.xlsx"), SPEC)


def test_a_file_that_changes_between_two_passes_is_refused(tmp_path: Path) -> None:
    table, file = rows(50), tmp_path / "people.feather"
    feather.write_feather(table, str(file))
    source = open_source(str(file), SPEC)
    source.check_rows()
    feather.write_feather(table.slice(1), str(file))
    with pytest.raises(RequestError, match="changed while it was read"):
        list(source.batches())


def test_12_no_warning_shows_a_cell_of_a_workbook(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """openpyxl warns with the value of a cell that has the format of a day and is none."""
    write_xlsx(rows(20), tmp_path / "t.xlsx")
    book = openpyxl.load_workbook(tmp_path / "t.xlsx")
    for row in (1, 5):
        book.worksheets[0].cell(row, 6, 98_765_432_123).number_format = "yyyy-mm-dd"
    book.save(tmp_path / "t.xlsx")
    recwarn.clear()
    reader = workbook.WorkbookReader(tmp_path / "t.xlsx")
    assert sum(batch.num_rows for batch in reader.read(list(COLUMNS), 7, lambda *note: None)) == 20
    assert [str(w.message) for w in recwarn if "98765432123" in str(w.message)] == []


@pytest.mark.parametrize(("ending", "column"), [("sav", "c"), ("sav", "größe"), ("dta", "c")])
def test_a_text_that_is_not_utf8_is_null_and_no_other_changes(ending: str, column: str, tmp_path: Path) -> None:
    """pyreadstat ends the reading of a file at such a text."""
    frame = pd.DataFrame({column: ["x", "yéz", "ü", ""], "n": [1.0, 2.0, 3.0, None], "t": ["é", "a", "b", "c"]})
    path = tmp_path / f"t.{ending}"
    (pyreadstat.write_dta if ending == "dta" else pyreadstat.write_sav)(frame, str(path))
    spec = make_spec(
        {
            column: {"kind": "categorical", "values": ["x", "yéz", "ü"], "nullable": True},
            "n": {"kind": "integer", "min": 0, "max": 9, "nullable": True},
            "t": {"kind": "categorical", "values": ["é", "a", "b", "c"]},
        }
    )
    whole = codes(str(path), spec)
    assert whole[column] == [0, 1, 2, 3] and whole["t"] == [0, 1, 2, 3]
    content = path.read_bytes()
    assert content.count("yéz".encode()) == 1
    path.write_bytes(content.replace("yéz".encode(), b"y\xff\xfez"))
    repairs = Repairs()
    source = open_source(str(path), spec)
    for rows_at_once in (1, 2, 10):
        read = pa.Table.from_batches(list(source.batches(repairs, batch_rows=rows_at_once))).to_pydict()
        assert (
            read[column] == ["x", None, "ü", None] and read["n"] == [1, 2, 3, None] and read["t"] == frame["t"].tolist()
        )
    assert repairs.counts[column, "not UTF-8"] == 3


RAW_CELLS = {
    "a number that is none": (b'<c r="A5" t="n"><v>abc</v></c>', "null"),
    "not a number": (b'<c r="A5"><v>NaN</v></c>', "null"),
    "a number of 5,000 digits": (b'<c r="A5"><v>' + b"9" * 5_000 + b"</v></c>", "max"),
    "a day that is none": (b'<c r="A5" t="d"><v>2020-13-45</v></c>', "null"),
    "a text that the workbook does not have": (b'<c r="A5" t="s"><v>9</v></c>', "null"),
    "the last of all texts": (b'<c r="A5" t="s"><v>-1</v></c>', "null"),
    "a text of no number": (b'<c r="A5" t="s"><v>x</v></c>', "null"),
    "an error": (b'<c r="A5" t="e"><v>#DIV/0!</v></c>', "null"),
    "an error that is none": (b'<c r="A5" t="e"/>', "null"),
    "no truth": (b'<c r="A5" t="b"><v>x</v></c>', "null"),
    "an unknown type": (b'<c r="A5" t="?"><v>1</v></c>', 1),
    "a style that is none": (b'<c r="A5" s="x"><v>1</v></c>', 1),
    "a place that is none": (b'<c r="?"><v>1</v></c>', 1),
    "a place far away": (b'<c r="ZZZ5"><v>1</v></c>', "null"),
    "a text with a wrong size": (b'<c r="A5" t="inlineStr"><is><r><rPr><sz val="x"/></rPr><t>1</t></r></is></c>', 1),
    "a text with odd marks": (b'<c r="A5" t="inlineStr"><is><r><rPr><b val="?"/></rPr><t>1</t></r></is></c>', 1),
}
"""Fifth rows' first cells as other programs may write them, and what a column of 0 to 10 has there."""


@pytest.mark.parametrize("kind", RAW_CELLS)
@pytest.mark.parametrize("row", [b'<row r="5">', b'<row r="1048577">', b'<row r="x">', b'<row r="2">', b"<row>"])
def test_a_cell_of_a_workbook_that_cannot_be_read_is_its_own_repair(tmp_path: Path, kind: str, row: bytes) -> None:
    """It moves no other cell and ends no sheet, whatever number its row states."""
    raw, expected = RAW_CELLS[kind]
    book = openpyxl.Workbook()
    for line in (["a", "c"], [1, "x"], [2, "y"], [3, "x"], [4, "y"], [5, "x"], [6, "y"]):
        book.worksheets[0].append(line)
    book.save(tmp_path / "t.xlsx")
    with zipfile.ZipFile(tmp_path / "t.xlsx") as parts:
        contents = {name: parts.read(name) for name in parts.namelist()}
    sheet = contents["xl/worksheets/sheet1.xml"]
    changed = re.sub(rb'<c r="A5"[^>]*>.*?</c>', lambda _: raw, sheet).replace(b'<row r="5">', row)
    assert changed != sheet
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as parts:
        for name, content in {**contents, "xl/worksheets/sheet1.xml": changed}.items():
            parts.writestr(name, content)
    columns = {"a": {"kind": "integer", "min": 0, "max": 10, "nullable": True}}
    spec = make_spec({**columns, "c": {"kind": "categorical", "values": ["x", "y"]}})
    number = {"null": 11, "max": 10}.get(str(expected), expected)
    whole = codes(str(tmp_path / "t.xlsx"), spec)
    assert whole == {"a": [1, 2, 3, number, 5, 6], "c": [0, 1, 0, 1, 0, 1]}


def test_a_text_of_all_texts_whose_format_is_wrong_ends_no_workbook(tmp_path: Path) -> None:
    """As programs write them that keep every text once, which openpyxl does not."""
    book = openpyxl.Workbook()
    for line in (["a"], [1], [2], [3]):
        book.worksheets[0].append(line)
    book.save(tmp_path / "t.xlsx")
    with zipfile.ZipFile(tmp_path / "t.xlsx") as parts:
        contents = {name: parts.read(name) for name in parts.namelist()}
    namespace = b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
    texts = [
        b"<t>unused</t>",
        b"<t>x</t>",
        b'<r><rPr><sz val="big"/></rPr><t>one</t></r><!-- --><r><t> two</t></r><rPh sb="x"><t>wan</t></rPh>',
        b"<t>y</t>",
    ]
    contents["xl/sharedStrings.xml"] = namespace + b"".join(b"<si>" + text + b"</si>" for text in texts) + b"</sst>"
    kind = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    override = b'<Override PartName="/xl/sharedStrings.xml" ContentType="' + kind + b'"/></Types>'
    types = contents["[Content_Types].xml"]
    if kind not in types:
        contents["[Content_Types].xml"] = types.replace(b"</Types>", override)
    sheet = contents["xl/worksheets/sheet1.xml"]
    contents["xl/worksheets/sheet1.xml"] = re.sub(rb'(<c r="A[234]") t="n"', rb'\1 t="s"', sheet)
    assert contents["xl/worksheets/sheet1.xml"] != sheet
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as parts:
        for name, content in contents.items():
            parts.writestr(name, content)
    spec = make_spec({"a": {"kind": "categorical", "values": ["x", "y", "one two"]}})
    assert codes(str(tmp_path / "t.xlsx"), spec) == {"a": [0, 2, 1]}


def test_a_remark_beside_one_row_is_no_column(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for line in (["a"], [1], [2, None, "who is this?"], [3]):
        book.worksheets[0].append(line)
    book.save(tmp_path / "t.xlsx")
    assert codes(str(tmp_path / "t.xlsx"), make_spec({"a": {"kind": "integer", "min": 0, "max": 9}})) == {
        "a": [1, 2, 3]
    }


def test_a_time_of_day_beyond_a_day_fails_no_release(tmp_path: Path) -> None:
    times = pa.array([0, 2**63 - 1, None], pa.int64()).cast(pa.time64("us"))
    feather.write_feather(pa.table({"at": times}), tmp_path / "t.feather")
    source = open_source(str(tmp_path / "t.feather"), make_spec({"at": {"kind": "time", "nullable": True}}))
    assert sum(batch.num_rows for batch in source.batches()) == 3


def test_12_a_damaged_dictionary_is_refused_without_its_codes(tmp_path: Path) -> None:
    cells = pa.DictionaryArray.from_arrays(pa.array([0, 9, 1], pa.int8()), pa.array(["x", "y"]), safe=False)
    batch = pa.record_batch([cells], names=["a"])
    with pa.OSFile(str(tmp_path / "t.feather"), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    spec = make_spec({"a": {"kind": "categorical", "values": ["x", "y"]}})
    with pytest.raises(RequestError, match=r"^data: t\.feather is damaged") as caught:
        list(open_source(str(tmp_path / "t.feather"), spec).batches())
    assert caught.value.__context__ is None and "9" not in str(caught.value)


def test_12_the_first_record_of_a_workbook_without_names_stands_in_no_draft(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["Canary Person", 4711], ["B", 2]):
        book.worksheets[0].append(row)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(RequestError, match="is it a record") as caught:
        draft(tmp_path / "t.xlsx")
    assert "Canary" not in str(caught.value) and "4711" not in str(caught.value)
    assert "Canary Person" in draft(tmp_path / "t.xlsx", header=True)


def test_a_catalogue_of_sas_names_values_and_the_rows_have_their_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No free program writes SAS files: one of SPSS stands for it, which pyreadstat's own reading of labels refuses."""
    path, (read, write) = tmp_path / "people.sas7bdat", (pyreadstat.read_sav, pyreadstat.write_sav)
    labels = {"sex": {1.0: "male", 2.0: "female"}}
    write(pd.DataFrame({"sex": [1.0, 2.0, None]}), str(path), variable_value_labels=labels)
    path.with_suffix(".sas7bcat").write_bytes(b"")

    def read_sas(file: str, catalog_file: str = "", **options: Any) -> Any:
        if catalog_file and not options.get("metadataonly"):
            raise TypeError("Unsupported dataframe type")
        frame, found = read(file, **options)
        if not catalog_file:
            found.variable_value_labels = {}
        return frame, found

    monkeypatch.setattr(pyreadstat, "read_sas7bdat", read_sas)
    spec = make_spec({"sex": {"kind": "categorical", "values": ["male", "female"], "nullable": True}})
    batches = list(open_source(str(path), spec).batches())
    assert pa.Table.from_batches(batches).to_pydict() == {"sex": ["male", "female", None]}


@pytest.mark.parametrize(
    ("form", "type_"), [("E8601DT19", "timestamp[us]"), ("MMYY7", "date32[day]"), ("TIME8", "double")]
)
def test_days_and_moments_of_sas_are_known_by_their_formats(
    form: str, type_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / "people.sas7bdat", pyreadstat.read_sav
    pyreadstat.write_sav(pd.DataFrame({"x": [1.0]}), str(path))

    def read_sas(file: str, **options: Any) -> Any:
        frame, found = read(file, **options)
        found.original_variable_types = {"x": form}
        return frame, found

    monkeypatch.setattr(pyreadstat, "read_sas7bdat", read_sas)
    assert str(read_schema(str(path)).field("x").type) == type_
