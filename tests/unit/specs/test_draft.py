"""Drafts: nothing read from rows, a TODO for whatever is not public, and YAML that loads back."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.errors import RequestError
from privsyn.specs.draft import draft, format_scalar, list_open_fields
from privsyn.specs.messages import group_todos
from privsyn.specs.spec_file import load_spec, parse_spec
from privsyn.specs.yaml_file import parse_yaml


def table(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def fill(text: str) -> str:
    """The draft with every TODO replaced by some choice."""
    for old, new in [
        ("unit: TODO", "unit: {records_per_person: 1}"),
        ("budget: TODO", "budget: {epsilon: 9, delta: 1.0e-5}"),
        ("nullable: TODO", "nullable: true"),
        ("values: TODO", "values: [a]"),
        ("kind: TODO", "kind: drop"),
    ]:
        text = text.replace(old, new)
    return "\n".join(line.replace("min: TODO", "min: 1").replace("max: TODO", "max: 9") for line in text.split("\n"))


def test_nothing_from_rows(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32()), ("f", pa.float32()), ("s", pa.string()), ("b", pa.bool_())])
    texts = set()
    full = {"n": 777_123, "f": 8.5, "s": "CANARY", "b": True}
    for rows in ([], [full] * 3, [dict.fromkeys(full)]):
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "t.parquet")
        texts.add(draft(tmp_path / "t.parquet"))
    assert len(texts) == 1 and "CANARY" not in texts.pop()


def test_csv_rows_do_not_matter(tmp_path: Path) -> None:
    texts = set()
    for body in ("", "1,x\n", "CANARY,2\nragged\n"):
        (tmp_path / "t.csv").write_text("a,b\n" + body)
        texts.add(draft(tmp_path / "t.csv"))
    assert len(texts) == 1
    text = texts.pop()
    assert text.count("kind: TODO") == 2 and "min" not in text.partition("columns:")[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CANARY,2.5,north\n3,4,south\n", "is it a record"),
        ("CANARY,2020-01-31\nb,2020-02-01\n", "is it a record"),
        ("CANARY,31.1.2020 8:30\nb,2020-02-01\n", "is it a record"),
        ("CANARY;-1,5\nb;2\n", "is it a record"),
        ("CANARY,08:30\nb,09:10\n", "is it a record"),
        ("CANARY,,x\na,b,c\n", "a column without a name"),
        ("CANARY,CANARY\na,b\n", "number 1's name"),
        ("CANARY of 2020\nage,wage\n3,4\n5,6\n", "lines before the header"),
    ],
)
def test_a_first_line_that_is_no_header_is_asked_about_and_not_repeated(tmp_path: Path, text: str, words: str) -> None:
    """A draft would be a list of one person's values."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    csv = {"delimiter": ";", "decimal": ","} if ";" in text else None
    with pytest.raises(RequestError, match=words) as caught:
        draft(path, csv=csv)
    assert "CANARY" not in str(caught.value)
    if "header" in str(caught.value):
        assert "CANARY" in draft(path, csv=csv, header=True), "who says so has checked it"


def test_names_of_years_and_ragged_records_are_a_header_if_said_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,2019,2020\n1,2,3\n")
    assert list(parse_yaml(draft(path, header=True), "draft").content["columns"]) == ["id", "2019", "2020"]
    path.write_text("a,b\nragged\nragged\nragged\n")
    assert list(parse_yaml(draft(path), "draft").content["columns"]) == ["a", "b"]


LOOKED_AT = (
    "n,f,d,m,t,ok,s,z\n1,2.0,2020-01-31,2020-01-31 08:30,08:30,yes,CANARY,NA\n2,3.5,2020-2-1,2020-02-01,9:05,no,b,\n"
)


def test_kinds_of_csv_columns_are_guessed_only_where_a_look_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(LOOKED_AT)
    assert "PRIVATE" not in draft(path) and draft(path).count("kind: TODO") == 8
    text = draft(path, look=True)
    columns = parse_yaml(text, "draft").content["columns"]
    kinds = "integer number date datetime time boolean categorical TODO"
    assert [c["kind"] for c in columns.values()] == kinds.split()
    assert "PRIVATE" in "\n".join(text.splitlines()[:4]) and "Nothing was read from rows" not in text
    assert {columns[name]["min"] for name in "nfdm"} == {"TODO"} == {columns[name]["max"] for name in "nfdm"}
    assert columns["s"]["values"] == "TODO" and "CANARY" not in text
    assert "3.5" not in text and "2020-01-31" not in text


def test_a_look_reads_numbers_as_the_csv_options_write_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b;c\n1,5;1.000;1.5\n2,5;2.000;x\n")
    text = draft(path, csv={"delimiter": ";", "decimal": ",", "thousands": "."}, look=True)
    assert [c["kind"] for c in parse_yaml(text, "draft").content["columns"].values()] == [
        "number", "integer", "categorical",
    ]  # fmt: skip


def test_a_look_takes_digits_after_a_zero_for_codes(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("zip,plain,below,mixed\n02134,0,0.5,7\n10001,10,-0.25,007\n", encoding="utf-8")
    drafted = parse_yaml(draft(table, look=True), "draft").content["columns"]
    kinds = {name: column["kind"] for name, column in drafted.items()}
    assert kinds == {"zip": "categorical", "plain": "integer", "below": "number", "mixed": "categorical"}


def test_the_categories_of_a_table_are_listed_only_where_a_look_is_asked_for(tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": pd.Categorical(["b", "CANARY"], categories=["z", "CANARY", "b"]), "n": [1, 2]})
    frame.to_parquet(tmp_path / "t.parquet")
    arrow = pa.table(frame)
    for table_ in (frame, arrow, tmp_path / "t.parquet", arrow.to_batches()[0], pl.from_pandas(frame)):
        hidden, shown = draft(table_), draft(table_, look=True)
        assert "CANARY" not in hidden and "a private look at the rows lists them" in hidden
        assert sorted(parse_yaml(shown, "draft").content["columns"]["c"]["values"])[:2] == ["CANARY", "b"]
        assert "PRIVATE" in "\n".join(shown.splitlines()[:4])
    assert parse_yaml(draft(frame, look=True), "draft").content["columns"]["c"]["values"] == ["z", "CANARY", "b"]
    drafted = privsyn.draft_spec(frame, look=True)
    assert drafted.to_yaml().startswith("# PRIVATE") and not privsyn.draft_spec(frame).to_yaml().startswith("#")


def test_columns_of_periods_and_the_like_are_refused_by_name_not_dropped(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "month": pd.period_range("2020", periods=2, freq="M"),
            "wait": pd.to_timedelta([1, 2], unit="h"),
            "band": pd.interval_range(0, 2),
        }
    )
    text = draft(frame)
    assert text.count("kind: TODO") == 3 and "kind: drop\n" not in text
    assert all(words in text for words in ("periods are not read", "durations are not read", "intervals are not read"))
    with pytest.raises(RequestError, match=r"LazyFrame.*collect"):
        draft(pl.DataFrame({"a": [1]}).lazy())  # type: ignore[arg-type]


def test_storage_types(tmp_path: Path) -> None:
    path = table(
        tmp_path / "My Table.parquet",
        i=pa.array([1], pa.int16()),
        u=pa.array([1], pa.uint64()),
        f=pa.array([1.0], pa.float32()),
        s=["x"],
        b=[True],
        d=[dt.date(2020, 1, 1)],
        t=[dt.datetime(2020, 1, 1)],
        n=[[1]],
        z=pa.nulls(1),
        c=pa.array(["CANARY"]).dictionary_encode(),
    )
    text = draft(path)
    content = parse_yaml(text, "draft").content
    kinds = {name: c["kind"] for name, c in content["columns"].items()}
    assert kinds == {
        "i": "integer",
        "u": "integer",
        "f": "number",
        "s": "categorical",
        "b": "boolean",
        "d": "date",
        "t": "datetime",
        "n": "drop",
        "z": "TODO",
        "c": "categorical",
    }
    assert content["columns"]["i"]["type"] == "int16"
    assert content["dataset"] == "my_table" and content["data"] == str(path) and "CANARY" not in text
    assert content["unit"] == content["budget"] == "TODO"


def test_refused_until_no_todo_is_left(tmp_path: Path) -> None:
    path = table(tmp_path / "t.parquet", age=[1], state=["x"])
    text = draft(path)
    assert len(list_open_fields(text)) == 7 and list_open_fields(fill(text)) == []
    for todo, field in [
        ("unit: TODO", "unit"),
        ("budget: TODO", "budget"),
        ("min: TODO", "columns.age.min"),
        ("values: TODO", "columns.state.values"),
        ("nullable: TODO", "columns.age.nullable"),
    ]:
        rest = text.replace(todo, "\0", 1)
        with pytest.raises(RequestError) as caught:
            parse_spec(fill(rest).replace("\0", todo))
        assert field in str(caught.value) and "TODO" in str(caught.value)
    (tmp_path / "t.yaml").write_text(fill(text))
    assert load_spec(tmp_path / "t.yaml").data == str(path)


def test_dictionary_facts_and_remarks(tmp_path: Path) -> None:
    path = table(tmp_path / "t.parquet", age=[44], state=["ny"], pay=[7.5], extra=[1])
    (tmp_path / "d.json").write_text(
        json.dumps(
            {
                "columns": {
                    "age": {
                        "kind": "numeric",
                        "integer": True,
                        "min": 0,
                        "max": 120,
                        "bounds_from": "codebook",
                        "unit": "years",
                    },
                    "state": {
                        "kind": "categorical",
                        "values": ["no", "ny", "1", "a: b"],
                        "values_from": "codebook",
                        "missing_means": "?",
                    },
                    "pay": {"kind": "numeric", "min": 3, "max": 98765, "bounds_from": "observed", "missing": 54321},
                    "gone": {"kind": "categorical"},
                }
            }
        )
    )
    text = draft(path, tmp_path / "d.json", dataset="people", folder=tmp_path)
    columns = parse_yaml(text, "draft").content["columns"]
    assert columns["age"] == {"kind": "integer", "min": 0, "max": 120, "nullable": True, "unit": "years"}
    assert columns["state"]["values"] == ["no", "ny", "1", "a: b"] and columns["state"]["nullable"] is True
    assert columns["pay"]["min"] == columns["pay"]["max"] == "TODO"
    assert "98765" not in text and "54321" not in text and "read off the data" in text
    assert "the dictionary does not describe it" in text and "describes gone" in text
    assert "dataset: people" in text and '\ndata: "t.parquet"\n' in text


def test_frictionless_null_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    content = {"fields": [{"name": "a", "type": "boolean"}], "missingValues": ["", "no"]}
    (tmp_path / "d.json").write_text(json.dumps(content))
    assert parse_spec(fill(draft(tmp_path / "t.csv", tmp_path / "d.json"))).null_values == ("", "no")


@pytest.mark.parametrize("stem", ["x" * 49, "a" * 47 + "_b", "A B", "_x_", "2020"])
def test_the_name_that_a_draft_makes_is_one_that_the_spec_allows(tmp_path: Path, stem: str) -> None:
    text = draft(table(tmp_path / f"{stem}.parquet", a=[True]))
    assert parse_spec(fill(text)).dataset


@pytest.mark.parametrize("name", ["A B", "x" * 49, "", "_x", "a\n", "x\ud83d"])
def test_a_name_that_the_spec_would_refuse_is_refused_by_the_draft(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match=r"^dataset: is .*, but must be 1 to 48 small letters") as caught:
        draft(table(tmp_path / "t.parquet", a=[True]), dataset=name)
    assert caught.value.exit_code == 2


def columns_of(text: str) -> str:
    return text.partition("columns:")[2]


def test_a_table_in_memory_is_drafted_as_its_parquet_file(tmp_path: Path) -> None:
    table_ = pa.table(
        {
            "i": pa.array([1, None], pa.int16()),
            "f": pa.array([1.0, None], pa.float32()),
            "s": ["CANARY", None],
            "c": pa.array(["CANARY", None]).dictionary_encode(),
            "z": pa.array([dt.datetime(2020, 1, 1)] * 2, pa.timestamp("ms", "Europe/Rome")),
            "n": [{"x": 1}, None],
        }
    )
    pq.write_table(table_, tmp_path / "t.parquet")
    text = draft(table_, dataset="people")
    assert columns_of(text) == columns_of(draft(tmp_path / "t.parquet")) and "CANARY" not in text
    content = parse_yaml(text, "draft").content
    assert content["dataset"] == "people" and "data" not in content
    assert parse_spec(fill(draft(table_.select(["i"]), dataset="people"))).data == ""
    assert parse_yaml(draft(table_), "draft").content["dataset"] == "TODO"


def test_a_pandas_table_is_drafted_without_a_look_at_its_cells(tmp_path: Path) -> None:
    cells = {"i": [1, 2], "f": [0.5, None], "s": ["CANARY", None], "b": [True, False]}
    frame = pd.DataFrame(cells, index=pd.Index([7, 8], name="who"))
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    assert columns_of(draft(frame)) == columns_of(draft(tmp_path / "t.parquet"))
    assert columns_of(draft(frame.iloc[:0])) == columns_of(draft(frame))
    kinds = [c["kind"] for c in parse_yaml(draft(pl.DataFrame(cells)), "draft").content["columns"].values()]
    assert kinds == ["integer", "number", "categorical", "boolean"]
    objects = {draft(pd.DataFrame({"o": pd.Series(c, dtype=object)})) for c in ([], [1], ["CANARY"], [object()])}
    assert len(objects) == 1 and "kind: TODO" in objects.pop()
    with pytest.raises(RequestError, match="data: the table in memory has 2 columns called 'a'"):
        draft(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_draft_reads_a_header_as_its_csv_options_say_and_has_them(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("größe;'a;b'\n1,5;2\n".encode("cp1252"))
    csv = {"delimiter": ";", "decimal": ",", "quote": "'", "encoding": "cp1252"}
    content = parse_yaml(draft(path, csv=csv), "draft").content
    assert list(content["columns"]) == ["größe", "a;b"]
    assert content["csv"] == csv
    assert "csv" not in parse_yaml(draft(pa.table({"a": [1]})), "draft").content


@pytest.mark.parametrize(
    ("csv", "words"),
    [
        ({"delimiter": "ab"}, "one character of ASCII"),
        ({"encoding": "utf-16"}, "utf-16"),
        ({"decimal": ",", "thousands": ","}, "the same mark"),
        ({"decimal": "x"}, "decimal"),
    ],
)
def test_a_wrong_csv_option_of_a_draft_is_said_with_its_name(tmp_path: Path, csv: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        draft(tmp_path / "people.csv", csv=csv)
    assert caught.value.field == "draft_spec.csv"


@pytest.mark.parametrize(("stored", "decimals"), [("int32", 0), ("decimal", 2), ("double", None)])
def test_a_number_has_the_decimals_of_its_stored_type(tmp_path: Path, stored: str, decimals: int | None) -> None:
    """Where neither the type nor the dictionary says them, the draft says what comes of it."""
    types = {"int32": pa.int32(), "decimal": pa.decimal128(5, 2), "double": pa.float64()}
    (tmp_path / "words.json").write_text(json.dumps({"columns": {"n": {"kind": "number", "min": 0, "max": 9}}}))
    text = draft(pa.table({"n": pa.array([1], types[stored])}), tmp_path / "words.json")
    assert parse_yaml(text, "draft").content["columns"]["n"].get("decimals") == decimals
    assert ("up to 17 digits" in text) == (decimals is None)


def test_open_fields_are_listed_in_groups(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    whole = pa.array([1])
    pq.write_table(pa.table({"age": whole, "pay": whole, "job": pa.array(["a"]), "a b": pa.array([True])}), table)
    open_fields = list_open_fields(draft(table))
    assert len(open_fields) == 11
    assert group_todos(open_fields) == [
        "unit",
        "budget",
        "min and max in columns of age, pay",
        "nullable in columns of age, pay, job, a b",
        "values in columns of job",
    ]
    with pytest.raises(RequestError, match=r"11 fields say TODO: unit; budget; min and max in columns of age, pay; "):
        parse_spec(draft(table))


PLAIN = "plain no NULL TODO 12 1e5 0x1F 2010-01-01 'q' \"q\" \\ - [x] *a !t %p @x 😀 ~ << = a,b |"
AWKWARD = [*PLAIN.split(), "a: b", "a #b", "? a", "a\nb", " lead", "trail ", "\u2028", "\x85", "x" * 1500]


@pytest.mark.parametrize("value", [*AWKWARD, 0, -5, 2**60, True, False, 1e-9, 1e16, 1e300, -0.5, 12345.678])
def test_scalars_load_back(value: object) -> None:
    loaded = parse_yaml(f"x: [{format_scalar(value)}]", "x").content["x"][0]  # type: ignore[arg-type]
    assert loaded == value and type(loaded) is type(value)
