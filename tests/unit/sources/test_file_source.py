"""A private table in files: structure checks, streams, and errors that never hold a row."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import CsvOptions, ReleaseSpec
from privsyn.sources.file_source import MAX_LINE_BYTES, FileSource
from privsyn.sources.open_source import list_table_columns, open_source
from privsyn.storage.table_files import read_csv_header
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.codecs.parsing import to_keys, to_seconds
from tests.support.specs import make_spec

CANARY = "CANARY7391"


def spec_of(*names: str, drop: tuple[str, ...] = (), unit: dict[str, object] | None = None) -> ReleaseSpec:
    columns = {name: {"kind": "drop" if name in drop else "boolean"} for name in names}
    promise = {"epsilon": 1, "delta": 1e-9}
    return ReleaseSpec.model_validate(
        {
            "dataset": "t",
            "data": "t",
            "unit": unit or {"records_per_person": 1},
            "privacy": promise,
            "budget": promise,
            "columns": columns,
            "null_values": ("", "NA"),
        }
    )


ABC = spec_of("a", "b", "c", drop=("c",))


def rows_of(source: FileSource, batch_rows: int = 100_000) -> list[dict[str, object]]:
    return [row for batch in source.batches(batch_rows=batch_rows) for row in batch.to_pylist()]


def read(path: Path, data: bytes | None = None, spec: ReleaseSpec = ABC) -> list[dict[str, object]]:
    if data is not None:
        path.write_bytes(data)
    return rows_of(FileSource.open(path, spec))


def refused(path: Path, data: bytes | None = None, spec: ReleaseSpec = ABC) -> str:
    with pytest.raises(RequestError) as caught:
        read(path, data, spec)
    message = str(caught.value)
    assert CANARY not in message and "\n" not in message
    error: BaseException | None = caught.value
    while error is not None:  # the parser's own words are not even in the chain of errors
        assert CANARY not in str(error)
        error = error.__context__
    return message


@pytest.mark.parametrize(
    "data",
    [
        b"a,b,c\n1,2,x\n4,5,y\n",
        b"a,b,c\r\n1,2,x\n4,5,y",
        b"\xef\xbb\xbfa,b,c\n1,2,x\r\n4,5,y\r\n",
        b'"a","b",c\n1,"2",x\n\n4,5,y',
        b"\na,b,c\n1,2,x\n4,5,y",
    ],
    ids=["plain", "mixed endings", "BOM", "quoted", "leading empty line"],
)
def test_csv_is_text(tmp_path: Path, data: bytes) -> None:
    assert read(tmp_path / "t.csv", data) == [{"a": "1", "b": "2"}, {"a": "4", "b": "5"}]


def test_options_of_csv_files_are_not_ignored_beside_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["1"], "b": ["2"], "c": ["3"]}), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet") == [{"a": "1", "b": "2"}]
    spec = ABC.model_copy(update={"csv": CsvOptions(decimal=",", delimiter=";")})
    assert refused(tmp_path / "t.parquet", spec=spec).startswith("csv: describes CSV files")


def test_csv_values(tmp_path: Path) -> None:
    rows = read(tmp_path / "t.csv", 'a,b,c\n"x, ""q""",NA,1\n,é\x00,2\na"b,"c"d"e",3\n'.encode())
    assert rows == [{"a": 'x, "q"', "b": None}, {"a": None, "b": "é\x00"}, {"a": 'a"b', "b": 'cd"e"'}]


def test_line_breaks_in_values_only_where_the_spec_says_so(tmp_path: Path) -> None:
    data = 'a,b,c\n"x\ny, ""q""",NA,1\n4,5\n4,é,6\n'.encode() + b"7,\xff,9\n"
    rows, kept = [{"a": 'x\ny, "q"', "b": None}], [{"a": "4", "b": "é"}, {"a": "7", "b": None}]
    assert read(tmp_path / "t.csv", data) == kept
    spec = ABC.model_copy(update={"csv": CsvOptions(line_breaks=True)})
    repairs = Repairs()
    assert read(tmp_path / "t.csv", data, spec) == rows + kept
    list(FileSource.open(tmp_path / "t.csv", spec).batches(repairs))
    assert repairs.counts == {("", "record left out"): 1, ("b", "not UTF-8"): 1}
    assert read(tmp_path / "t.csv", b"a,b,c\n", spec) == []
    open_mark = b'a,b,c\n1,2,"' + f"{CANARY}\n".encode() * 2_000_000
    assert "open quotation mark" in refused(tmp_path / "t.csv", open_mark, spec)
    assert read(tmp_path / "t.csv", open_mark) == []


def test_gzip_and_tsv(tmp_path: Path) -> None:
    assert read(tmp_path / "t.csv.gz", gzip.compress(b"a,b,c\n1,2,3\n")) == [{"a": "1", "b": "2"}]
    assert read(tmp_path / "t.tsv", b"a\tb\tc\n1,1\t2\t3\n") == [{"a": "1,1", "b": "2"}]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"A,b,c\n1,2,3\n", ["'a'", "capital letters"]),
        (b"a,b,c,extra\n", ["'extra'", "kind: drop"]),
        (b"a;b;c\n1;2;3\n", ["not separated by commas"]),
        (f"{CANARY},2,3\n1,2,3\n".encode(), ["'a', 'b', 'c'", "does not have"]),
        (f"{CANARY},{CANARY},3\n1,2,3\n".encode(), ["2 columns called number 1's name"]),
    ],
    ids=range(5),
)
def test_broken_csv(tmp_path: Path, data: bytes, words: list[str]) -> None:
    message = refused(tmp_path / "t.csv", data)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("broken", "kept", "repairs"),
    [
        (b"1,2", [], {("", "record left out"): 1}),
        (b"1,2,3,4", [], {("", "record left out"): 1}),
        (b'1,2,"3', [], {("", "record left out"): 1}),
        (b"\xff\n1,\xff,3,4", [], {("", "record left out"): 2}),
        (b"7," + b"x" * (MAX_LINE_BYTES - 3) + b",3", [], {("", "record left out"): 1}),
        (b"7," + b"x" * 9 + b"\xff,3", [{"a": "7", "b": None}], {("b", "not UTF-8"): 1}),
        (b"7,8,\xff", [{"a": "7", "b": "8"}], {}),
    ],
    ids=["few fields", "many fields", "open mark", "not UTF-8 and fields", "long", "not UTF-8", "dropped"],
)
@pytest.mark.parametrize(
    "before", [pytest.param(0, id="first"), pytest.param(3_000_000, id="in a later block", marks=pytest.mark.slow)]
)
def test_a_broken_record_is_left_out_alone(
    tmp_path: Path, broken: bytes, kept: list[dict[str, object]], repairs: dict[tuple[str, str], int], before: int
) -> None:
    lines = b"a,b,c\n" + b"1,2,3\n" * before + broken + b"\n4,5,6\n"
    (tmp_path / "t.csv").write_bytes(lines)
    found, rows, last = Repairs(), 0, []
    source = FileSource.open(tmp_path / "t.csv", ABC)
    source.check_rows()
    for batch in source.batches(found):
        rows += batch.num_rows
        last = (last + batch.slice(max(0, batch.num_rows - 2)).to_pylist())[-2:]
    assert rows == before + len(kept) + 1
    assert last[-1 - len(kept) :] == [*kept, {"a": "4", "b": "5"}]
    assert found.counts == repairs


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, words in [
        (tmp_path / "none.csv", "there is no file"),
        (tmp_path / "empty", "holds no table"),
        (Path("/dev/null"), "neither a file nor a folder"),
        (Path("a\0b.csv"), "data"),
    ]:
        assert words in refused(path)
    assert "no known format" in refused(tmp_path / "t.xlsx", b"x")
    assert "Parquet" in refused(tmp_path / "t.parquet", b"PAR1 not whole")


def parquet(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def test_parquet_types_survive(tmp_path: Path) -> None:
    moment = dt.datetime(2020, 1, 1, 12)
    arrays = {
        "i8": pa.array([1, None], pa.int8()),
        "u64": pa.array([1, 2], pa.uint64()),
        "f": pa.array([1.5, None], pa.float32()),
        "dec": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "s": pa.array(["a", None]),
        "ls": pa.array(["a", "b"], pa.large_string()),
        "d": pa.array(["a", "b"]).dictionary_encode(),
        "b": pa.array([True, None]),
        "d32": pa.array([moment.date(), None], pa.date32()),
        "ts": pa.array([moment, None], pa.timestamp("us")),
        "tz": pa.array([moment, None], pa.timestamp("ms", "Europe/Rome")),
        "t": pa.array([dt.time(1), None], pa.time64("us")),
        "null": pa.nulls(2),
        "a.b": pa.array([1, 2]),
        "a": pa.array([3, 4]),
    }
    path = parquet(tmp_path / "t.parquet", **arrays)
    source = FileSource.open(path, spec_of(*arrays))
    batches = list(source.batches())
    assert source.columns == tuple(arrays)
    assert batches[0].schema.names == list(arrays)
    assert dict(zip(batches[0].schema.names, batches[0].schema.types, strict=True)) == {
        n: a.type for n, a in arrays.items()
    }


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1], [2]]),
        pa.array([{"x": 1}, {"x": 2}]),
        pa.array([b"x", b"y"]),
        pa.array([1, 2], pa.duration("s")),
    ],
)
def test_nested_types_only_dropped(tmp_path: Path, array: pa.Array) -> None:
    path = parquet(tmp_path / "t.parquet", a=[True, False], odd=array)
    assert "columns.odd" in refused(path, spec=spec_of("a", "odd"))
    assert read(path, spec=spec_of("a", "odd", drop=("odd",))) == [{"a": True}, {"a": False}]


def test_a_far_moment_of_96_bits_lies_at_its_own_end(tmp_path: Path) -> None:
    """Spark writes such moments; as nanoseconds the year 9999 would be 1816."""
    moments = [dt.datetime(2015, 1, 1), dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)]
    table = pa.table({"seen": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    spec = make_spec({"seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01"}})
    (batch,) = FileSource.open(tmp_path / "t.parquet", spec).batches()
    assert batch.column(0).to_pylist() == moments


def test_damaged_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", a=[CANARY * 50] * 100, b=[1.5] * 100, c=[1] * 100)
    whole = path.read_bytes()
    assert "t.parquet" in refused(path, whole[:-20])
    assert "t.parquet" in refused(path, whole[:4] + b"\xff" * 200 + whole[204:])


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_text_in_parquet_that_is_not_utf8(tmp_path: Path, type_: pa.DataType) -> None:
    """One person's cell fails no release: it is null, and counted."""
    cells = pa.array([b"fine", CANARY.encode() + b"\xff\xfe", None], pa.binary())
    text = cells.cast(pa.large_binary()).view(type_) if type_ == pa.large_string() else cells.view(type_)
    path = parquet(tmp_path / "t.parquet", a=text)
    repairs = Repairs()
    source = FileSource.open(path, spec_of("a"))
    source.check_rows()
    assert [row for batch in source.batches(repairs) for row in batch["a"].to_pylist()] == ["fine", None, None]
    assert repairs.counts == {("a", "not UTF-8"): 1}
    assert read(parquet(tmp_path / "u.parquet", a=text, b=[True] * 3), spec=spec_of("a", "b", drop=("a",)))


def test_unknown_time_zones_are_read_as_utc(tmp_path: Path) -> None:
    """The instant is stored in UTC; the zone's name, foreign or broken, is never looked up."""
    moments = pa.array([0, 10**15, None], pa.int64())
    seen = {}
    for zone in (None, "Europe/Berlin", "No/Where"):
        path = parquet(tmp_path / "t.parquet", a=moments.view(pa.timestamp("us", zone)))
        (batch,) = FileSource.open(path, spec_of("a")).batches()
        seen[zone] = (to_seconds(batch.column(0))[0][:2].tolist(), to_keys(batch.column(0), pa.string()).to_pylist())
    assert seen[None] == seen["Europe/Berlin"] == seen["No/Where"]


def test_folder(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "2.csv").write_bytes(b"c,b,a\n3,2,1\n")
    (folder / "1.csv").write_bytes(b"a,b,c\n4,5,6\n")
    (folder / ".hidden.csv").write_bytes(b"x\n1\n")
    (folder / "_SUCCESS").write_bytes(b"")
    source = FileSource.open(folder, ABC)
    assert source.columns == ("a", "b", "c") and [f.name for f in source.files] == ["1.csv", "2.csv"]
    assert rows_of(source) == [{"a": "4", "b": "5"}, {"a": "1", "b": "2"}]


def test_parquet_folder_with_differing_row_groups_and_types(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    parquet(folder / "1.parquet", a=pa.array([1, 2, 3], pa.int8()))
    pq.write_table(pa.table({"a": ["x"] * 5}), folder / "2.parquet", row_group_size=5)
    assert [r["a"] for r in read(folder, spec=spec_of("a"))] == [1, 2, 3, "x", "x", "x", "x", "x"]


def test_person_id_is_read_though_dropped(tmp_path: Path) -> None:
    spec = spec_of("a", "b", "c", drop=("b", "c"), unit={"person_id": "c", "max_records": 1})
    assert read(tmp_path / "t.csv", b"a,b,c\n1,2,3\n", spec) == [{"a": "1", "c": "3"}]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_batches_are_bounded(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "t.csv":
        path.write_bytes(b"a\n" + b"1\n" * 10_000)
    else:
        pq.write_table(pa.table({"a": ["1"] * 10_000}), path)
    sizes = [b.num_rows for b in FileSource.open(path, spec_of("a")).batches(batch_rows=768)]
    assert max(sizes) <= 768 and sum(sizes) == 10_000
    with pytest.raises(ValueError, match="batch_rows"):
        next(FileSource.open(path, spec_of("a")).batches(batch_rows=0))


def test_a_huge_name_is_no_header_whatever_limit_another_package_set(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("x" * 200_000 + "\n1\n", encoding="utf-8")
    before = csv.field_size_limit(10**9)
    try:
        with pytest.raises(RequestError, match="does not start with a header line"):
            read_csv_header(table)
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize("url", ["s3://user:secret@bucket/x.parquet", "postgresql://user:secret@host/db"])
def test_a_url_is_refused_by_that_name_and_shows_no_password(url: str) -> None:
    with pytest.raises(RequestError, match="URLs are not read") as refused:
        list_table_columns(str(Path(url).absolute()), spec_of("a"))
    assert "secret" not in str(refused.value)


def test_a_column_is_a_short_float_if_any_file_has_it_so(tmp_path: Path) -> None:
    spec = spec_of("a", "b")
    columns = {name: {"kind": "number", "min": 0, "max": 1, "decimals": 1} for name in "ab"}
    spec = ReleaseSpec.model_validate(spec.model_dump(exclude_unset=True) | {"columns": columns})
    for name, type_ in (("1", pa.float64()), ("2", pa.float32())):
        pq.write_table(pa.table({"a": pa.array([0.7], type_), "b": [0.7]}), tmp_path / f"{name}.parquet")
    assert FileSource.open(str(tmp_path), spec).types == {"a": pa.float32(), "b": pa.float64()}


@pytest.mark.parametrize(("named", "stored"), [("\u00e9", "e\u0301"), ("e\u0301", "\u00e9")])
def test_names_that_differ_by_unicode_normalization_are_one(tmp_path: Path, named: str, stored: str) -> None:
    """In every kind of source: an accented letter is one character (NFC), or a letter and its accent (NFD)."""
    rows = pa.table({stored: pa.array([1, 2, 2]), "x": pa.array([0, 1, 1])})
    pq.write_table(rows, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(f"{stored},x\n1,0\n2,1\n2,1\n", encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "t.db")) as base, base:
        base.execute(f'create table t ("{stored}" integer, x integer)')
        base.executemany("insert into t values (?, ?)", [(1, 0), (2, 1), (2, 1)])
    whole = {"kind": "integer", "min": 0, "max": 9}
    spec = make_spec({named: whole, "x": whole})
    places = (tmp_path / "t.parquet", tmp_path / "t.csv", f"sqlite:///{tmp_path}/t.db?table=t", rows, rows.to_pandas())
    for place in places:
        source = open_source(place, spec)
        assert source.columns == source.read == (named, "x") == list_table_columns(place, spec)
        (batch,) = source.batches()
        assert batch.schema.names == [named, "x"] and [str(v) for v in batch.column(0).to_pylist()] == ["1", "2", "2"]
    both = pa.table({"\u00e9": [1], "e\u0301": [2]})
    with pytest.raises(RequestError, match="does not list"):  # two columns of the table are two
        open_source(both, make_spec({named: whole}))
