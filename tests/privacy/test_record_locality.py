"""Bug class 21, a parser that is not row-local: from bytes to codes, a record changes its own row only.

An open quotation mark may swallow every record after it, so adding one person would change everybody's rows.

It does not see other readers than those of CSV files and of texts of Arrow's layouts, which have tests beside each of
them, as test_row_locality.py says; nor records that may take several lines, which are not local (docs/privacy.md).
"""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privsyn.sources import file_source
from privsyn.sources.file_source import FileSource, LineReader
from privsyn.sources.private_table import LEFT_OUT, Note, check_valid_text, ignore_repairs
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from tests.support.examples import choose_example_count
from tests.support.specs import make_spec

NAMES = ("a", "b", "c")
PIECES = [b'"', b'"', b'""', b",", b",", b"a", b"1", b"NA", b"\xff", b"\xc3\xa9", b"\0", b" ", b'x"y', b"\xef\xbb\xbf"]
WHOLE = [b"1,2,3", b'"1","2","3"', b'"a,b","x""y",', b",,", b'"",a"b,"c"d']
SWALLOWED = [b"1,2,3", b'4,5,"6', b"7,8,9", b"10,11,12", b"13,14,15", b"16,17,18"]
"""Six lines that pyarrow reads as two rows, with line breaks in values or without."""

Rows = list[tuple[Any, ...]]
lines = st.sampled_from(WHOLE) | st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
files = st.lists(lines, max_size=12)
ends = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\r\n"])


def read(data: bytes, names: tuple[str, ...] = NAMES, note: Note = ignore_repairs) -> Rows:
    reader = LineReader(names, names, ",", ("", "NA"))
    return [tuple(row.values()) for batch in reader.batches(io.BytesIO(data), note) for row in batch.to_pylist()]


def assert_lines_are_read_alone(file: list[bytes], end: bytes, names: tuple[str, ...] = NAMES) -> None:
    """The rows of a file are those of its lines, each read in a file of its own; so are the counts of repairs."""
    together, alone = Repairs(), Repairs()
    whole = read(end.join(file), names, together.add)
    each = [read(line, names, alone.add) for line in file]
    assert all(len(rows) <= 1 for rows in each)
    assert whole == [row for rows in each for row in rows]
    assert together.counts == alone.counts
    assert whole == read(end.join([*file, b""]), names)  # whether the last line ends, too


@settings(max_examples=choose_example_count(300), deadline=None)
@given(files, ends, st.integers(1, 4))
@example(SWALLOWED, b"\n", 3)
@example([b'"', b"", b""], b"\n", 1)
@example([b'a"b,"c,d', b'x",1'], b"\r\n", 2)
@example([b"1,\xff", b"2,2,2", b"3,3"], b"\n", 2)
def test_21_each_line_is_read_alone(file: list[bytes], end: bytes, width: int) -> None:
    assert_lines_are_read_alone(file, end, NAMES[:width] if width < 4 else (*NAMES, "d"))


@settings(max_examples=choose_example_count(200), deadline=None)
@given(files, ends, st.integers(1, 9))
def test_21_wherever_blocks_are_cut(file: list[bytes], end: bytes, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_source, "_BLOCK", block)
        patch.setattr(file_source, "MAX_LINE_BYTES", 2 * block)
        assert_lines_are_read_alone(file, end)


@settings(max_examples=choose_example_count(100), deadline=None)
@given(st.lists(st.sampled_from(WHOLE), max_size=9), lines, st.integers(0, 9))
def test_21_a_line_changes_one_row_of_codes_at_most(others: list[bytes], line: bytes, place: int) -> None:
    spec = make_spec({name: {"kind": "integer", "min": 0, "max": 9, "nullable": True} for name in NAMES})

    def codes(file: list[bytes]) -> Counter[Any]:
        reader, encoding = LineReader(NAMES, NAMES, ",", ("",)), plan(spec)
        batches = reader.batches(io.BytesIO(b"\n".join(file)), ignore_repairs)
        made = [encode_batch(batch, encoding, Repairs()).to_pylist() for batch in batches]
        return Counter(tuple(row.values()) for rows in made for row in rows)

    without, with_it = codes(others), codes([*others[:place], line, *others[place:]])
    assert without - with_it == Counter() and (with_it - without).total() <= 1


OPTIONS = [
    {"delimiter": ";", "decimal": ","},
    {"delimiter": "\t", "quote": "'", "thousands": " "},
    {"delimiter": "|", "quote": ""},
    {"encoding": "cp1252", "decimal": ",", "thousands": "."},
    {"encoding": "latin-1", "delimiter": ";", "quote": "'"},
]
ANY = [
    b'"',
    b"'",
    b"''",
    b";",
    b",",
    b"\t",
    b"|",
    b"1",
    b"7,5",
    b"1.000",
    b"NA",
    b"\xff",
    b"\x85",
    b"\x81",
    b"\0",
    b" ",
]


@settings(max_examples=choose_example_count(150), deadline=None)
@given(
    st.sampled_from(OPTIONS), st.lists(st.lists(st.sampled_from(ANY), max_size=9).map(b"".join), max_size=9), ends,
    st.integers(0, 9), st.integers(1, 9),
)  # fmt: skip
def test_21_a_line_changes_one_row_of_codes_at_most_however_fields_are_written(
    options: dict[str, Any], file: list[bytes], end: bytes, place: int, cut: int
) -> None:
    """The codes of a file are those of its lines, each in a file of its own, wherever blocks are cut."""
    columns = {"a": {"kind": "number", "min": 0, "max": 2_000}, "b": {"kind": "categorical", "values": ["NA", "1"]}}
    spec = make_spec({name: {**column, "nullable": True} for name, column in columns.items()}, csv=options)
    encoding = plan(spec)

    def codes(lines: list[bytes]) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.csv"
            mark = (spec.csv.delimiter or ",").encode()
            path.write_bytes(end.join([b"a" + mark + b"b", *lines, b""]))
            source = FileSource.open(path, spec)
            made = [encode_batch(batch, encoding, Repairs()).to_pylist() for batch in source.batches()]
        return [tuple(row.values()) for rows in made for row in rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_source, "_BLOCK", 40 * cut)
        whole, each = codes(file), [codes([line]) for line in file]
    assert all(len(rows) <= 1 for rows in each)
    assert whole == [row for rows in each for row in rows]


def test_21_lines_that_are_no_records_are_left_out_and_counted() -> None:
    repairs = Repairs()
    broken = [*SWALLOWED, b"1,2", b"1,2,3,4", b'"1,2,3', b"1,\xff\xfe,3"]
    assert len(read(b"\n".join(broken), note=repairs.add)) == 6
    assert repairs.counts == {("", LEFT_OUT): 4, ("b", "not UTF-8"): 1}


class Whole(LineReader):
    """Planted mutant: the parser's own records, as one text."""

    line_breaks = True

    def batches(self, stream: Any, note: Note) -> Iterator[pa.RecordBatch]:
        text = stream.read()
        if text.strip():
            parse = pacsv.ParseOptions(newlines_in_values=self.line_breaks, invalid_row_handler=lambda row: "skip")
            names = pacsv.ReadOptions(column_names=self._names)
            yield from pacsv.read_csv(io.BytesIO(text), names, parse, self._unchecked).to_batches()


class WholeBlocks(Whole):
    """Planted mutant: the same, told that no value holds a line break."""

    line_breaks = False


class Counted(LineReader):
    """Planted mutant: lines are counted, but an open mark at the end of a block is not noticed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._guard = b""

    def _read_whole_block(self, block: bytes) -> pa.RecordBatch | None:
        try:
            batch = self._parse_lines(block, self._checked)
        except pa.ArrowInvalid:
            return None
        return batch if batch.num_rows == file_source._count_lines(block) else None


@pytest.mark.parametrize(
    ("mutant", "file"), [(Whole, SWALLOWED), (WholeBlocks, SWALLOWED), (Counted, [b"1,2,3", b'1,2,"3', b""])]
)
def test_21_mutant_records_that_take_in_later_lines(
    mutant: type[LineReader], file: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutants: records as the parser finds them, or lines that are counted without a guard behind them."""
    assert_lines_are_read_alone(file, b"\n")
    monkeypatch.setitem(globals(), "LineReader", mutant)
    with pytest.raises(AssertionError):
        assert_lines_are_read_alone(file, b"\n")


def test_21_mutant_a_pattern_that_does_not_see_an_open_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: marks are counted, and an even number is taken for closed."""
    file = [b'a"b,"c,d', b"1,2,3", b'4,5,"6']
    assert_lines_are_read_alone(file, b"\n")

    class Even:
        fullmatch = staticmethod(lambda line: line.count(b",") == 2 and line.count(b'"') % 2 == 0)

    monkeypatch.setattr(file_source, "_build_record_pattern", lambda fields, delimiter, quote: Even)
    with pytest.raises((AssertionError, pa.ArrowInvalid)):
        assert_lines_are_read_alone(file, b"\n")


texts = st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode)


def as_text(cells: list[bytes | None], type_: str) -> pa.Array:
    raw = pa.array(cells, pa.large_binary())
    text = raw.view(pa.large_string()) if type_ == "large_string" else raw.cast(pa.binary()).view(pa.string())
    if type_ == "string_view":
        return raw.cast(pa.binary_view()).view(pa.string_view())
    return text.dictionary_encode() if type_ == "dictionary" else text


def plain(array: pa.Array) -> list[Any]:
    return (array.dictionary_decode() if pa.types.is_dictionary(array.type) else array).to_pylist()


@settings(max_examples=choose_example_count(200), deadline=None)
@given(st.lists(texts, max_size=9), st.sampled_from(["string", "large_string", "string_view", "dictionary"]))
def test_21_each_stored_text_is_checked_alone(cells: list[bytes | None], type_: str) -> None:
    repairs = Repairs()
    array = as_text(cells, type_)
    whole = plain(check_valid_text("a", array, repairs.add))
    assert whole == [plain(check_valid_text("a", array.slice(i, 1), ignore_repairs))[0] for i in range(len(array))]
    lost = sum(cell is not None and text is None for cell, text in zip(cells, whole, strict=True))
    assert repairs.counts["a", "not UTF-8"] == lost
    assert [text.encode() for text in whole if text is not None] == [
        cell for cell, text in zip(cells, whole, strict=True) if text is not None
    ]
