"""Wrong requests of every kind: no refusal names another field, is without a cure, or spends or leaves something.

Each request is a spec and a table that are right but for one thing.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command

from privsyn import cli
from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.engine import step
from privsyn.ledgers.ledger import Ledger
from privsyn.server import temporary_server
from tests.support.examples import choose_example_count, keep_first

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 0, "max": 99, "bins": 10, "nullable": True},
    "pay": {"kind": "number", "min": 0.5, "max": 9.5, "edges": [0.5, 3.0, 9.5], "decimals": 2},
    "state": {"kind": "categorical", "values": ["a", "b"], "unlisted": "other"},
    "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 4},
    "ok": {"kind": "boolean"},
    "pid": {"kind": "drop"},
}
SPEC: dict[str, Any] = {
    "dataset": "people",
    "data": "t.csv",
    "unit": {"records_per_person": 1},
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "budget": {"epsilon": 5.0, "delta": 1e-9},
    "columns": COLUMNS,
    "split": {"one_way": 0.25, "selection": 0.02, "measurement": 0.73},
    "compression": {"sigmas": 3.0},
    "selection": {"gamma": 5000},
    "consistency": {"rounds": 10},
    "synthesis": {"rows": 50, "seed": 0, "sweeps": 2},
    "null_values": ["", "NA"],
}
NAMES = list(COLUMNS)
ROW = ["30", "1.5", "a", "2015-05-05", "true", "p1"]
TABLE = pa.table({n: [v] * 50 for n, v in zip(NAMES, [30, 1.5, "a", "2015-05-05", True, "p"], strict=True)})
HUGE = "x" * 10**6
LONGEST = 1_000
"""Characters of a refusal; the longest ones list the fields of the spec."""

Build = Callable[[Path], Any]
"""What makes a request wrong, in a folder that holds a right one."""


def yaml(content: Any) -> str:
    """YAML flow text, with numbers that JSON does not have."""
    if isinstance(content, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {yaml(v)}" for k, v in content.items()) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(map(yaml, content)) + "]"
    if isinstance(content, float):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(repr(content), repr(content))
    return json.dumps(content)


def csv(rows: list[list[str]], header: list[str] = NAMES) -> bytes:
    return "".join(",".join(row) + "\n" for row in [header, *rows]).encode()


def write(folder: Path, *changes: tuple[str, Any]) -> None:
    """A right table, and the spec with other values at dotted places; ``...`` removes one."""
    spec = json.loads(json.dumps(SPEC))
    for place, value in changes:
        *path, last = place.split(".", 2)
        holder = spec
        for part in path:
            holder = holder[part]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
    (folder / "spec.yaml").write_text(yaml(spec), encoding="utf-8")
    (folder / "t.csv").write_bytes(csv([ROW] * 5))


@cache
def put_command_together() -> Any:
    """Return the command, which is made once: that takes longer than a refusal."""
    return get_command(cli.app)


class Desk:
    """Asks for releases in a folder of its own; whatever gets as far as starting Prefect or a step fails."""

    def __init__(self, places: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = places / "request", capsys
        self.ledger, self.settings = Ledger(Settings().ledger), Settings()
        self.command = put_command_together()
        self.told: list[PrivsynError] = []
        put = PrivsynError.paragraph

        def paragraph(error: PrivsynError, *words: Any) -> str:
            self.told.append(error)
            return put(error, *words)

        def start(*_: object) -> None:
            raise AssertionError("the release would have been started")

        patch.setattr(PrivsynError, "paragraph", paragraph)
        patch.setattr(temporary_server, "start_temporary_server", start)
        patch.setattr(step, "run_steps", start)

    def ask(self, build: Build, *changes: tuple[str, Any], options: tuple[str, ...] = ()) -> tuple[int, str]:
        """Exit code and standard error of ``privsyn release``; nothing may be on standard output."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        write(self.folder, *changes)
        build(self.folder)
        with pytest.raises(SystemExit) as ended:
            self.command(["release", str(self.folder / "spec.yaml"), *options], prog_name="privsyn")
        shown = self.capsys.readouterr()
        assert shown.out == ""
        return int(str(ended.value.code)), shown.err.removeprefix("Starting Prefect ...\n")

    def refuse(self, field: str, *words: str, build: Build = lambda folder: None, changes: Any = ()) -> None:
        """The request is refused for this field, or one inside it, in these words, and costs nothing.

        Without a field, the words alone say what is wrong.
        """
        code, shown = self.ask(build, *changes)
        assert faults(self.told[-1], code, shown, field, *words) == [], shown[:400]
        assert (self.ledger.export(), self.ledger.summary()) == ([], [])  # not even the data set's name
        assert not list(self.settings.released_root.glob("*"))
        kept = {p.name for p in self.settings.private_root.rglob("*") if p.is_file() and p.suffix != ".lock"}
        assert kept <= {".key", "key-check"}


def faults(error: PrivsynError, code: int, shown: str, field: str, *words: str) -> list[str]:
    """What is wrong with a refusal itself; a problem that says what must hold needs no cure."""
    found = [f"exit code {code}"] if code != 2 else []
    if field and error.field != field and not error.field.startswith((f"{field}.", f"{field}[")):
        found.append(f"names {error.field!r}, not {field!r}")
    if not error.cure and not re.search(r"\bmust\b|at most|list the column", str(error.problem)):
        found.append("no cure")
    found += [f"no word of {word!r}" for word in words if word not in shown]
    if not shown.startswith("privsyn: ") or not shown.rstrip("\n").isprintable() or not shown.endswith(".\n"):
        found.append("not one paragraph")
    if len(shown) > LONGEST or "Traceback" in shown or "pydantic" in shown:
        found.append("not for people")
    return found


@pytest.fixture
def desk(places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(places, monkeypatch, capsys)


def tries(count: int) -> settings:
    return settings(
        max_examples=choose_example_count(count),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


ENDLESS = [float("nan"), float("inf"), -float("inf")]
MAPPING, LIST = {"a": 1}, [1]
KINDS: dict[str, tuple[str, list[Any]]] = {
    "columns.age.min columns.age.max columns.age.bins unit.records_per_person selection.gamma consistency.rounds "
    "synthesis.rows synthesis.seed synthesis.sweeps columns.pay.decimals": (
        "whole",
        ["many", 1.5, LIST, MAPPING, *ENDLESS[:2], 10**30, "1,5", True, False, "TODO"],
    ),
    "columns.pay.min columns.pay.max privacy.epsilon privacy.delta budget.epsilon budget.delta split.one_way "
    "split.selection split.measurement compression.sigmas": (
        "number",
        ["much", LIST, MAPPING, *ENDLESS, "1,5", True, "TODO"],
    ),
    "columns.seen.min columns.seen.max": (
        "moment",
        ["soon", 2010, LIST, True, "2010-02-30", float("nan"), MAPPING, "2010-01-01T00:00:00Z"],
    ),
    "columns.state.values columns.pay.edges null_values": ("list", ["abc", 3, MAPPING, True, float("nan")]),
    "unit privacy budget columns split compression selection consistency synthesis columns.age columns.pay "
    "columns.state columns.seen columns.ok columns.pid": ("mapping", ["abc", 3, LIST, True, float("nan"), None]),
    "dataset data columns.state.unlisted preset accountant columns.age.type columns.seen.resolution": (
        "text",
        [3, LIST, MAPPING, True, float("nan"), HUGE],
    ),
    "columns.age.nullable columns.state.nullable columns.ok.nullable": (
        "flag",
        ["perhaps", 3, LIST, MAPPING, float("nan"), None],
    ),
}
"""Places of one kind of value -> values of other kinds."""
RANGES: dict[str, list[Any]] = {
    "privacy.epsilon": [0, -1, 1e7, 1e-17, 1e-300],
    "privacy.delta": [0, 1, -1e-9, 2],
    "budget.epsilon": [0, -3, 1e9, 1e-200],
    "unit.records_per_person": [0, -1, 10**5],
    "columns.age.bins": [0, -4, 10**6],
    "columns.age.kind": ["int", "string", "date", "", "null", HUGE, "../x", "kind"],
    "columns.state.values": [[], ["a", "a"], ["a", 1], [2**60], [None], [["a"]], [float("nan")], ["a", HUGE]],
    "columns.pay.edges": [
        [9.5, 0.5],
        [0.5, 3.0, 3.0, 9.5],
        [0.5, True, 9.5],
        *([0.5, bound, 9.5] for bound in ENDLESS),
    ],
    "synthesis.rows": [-1, 2**31, "all", 2.5],
    "synthesis.seed": [-1, 2**63],
    "split.one_way": [0, 1, 0.31, -0.3],
    "columns": [{}, {"pid": {"kind": "drop"}}],
    "unit": [{}, {"person_id": "pid"}, *({"person_id": name, "max_records": 2} for name in ("age", "x"))],
    "dataset": ["../x", "a/b", "..", "/etc", "a\\b", "-x", "_x", "A", "é", "a b", "a\0b", "%2e", "$HOME", "a" * 49],
    "data": [
        *("/dev/null", "/dev/zero", "/dev/stdin", "/proc/self/mem", "../../etc/passwd", "..", ".", "/", "nowhere.csv"),
        *("nowhere/t.csv", "t", "t.csv/t.csv", "spec.yaml", "~nobody/t.csv", "http://x/t.csv", "s3://b/t.parquet"),
        *("*.csv", "-", "\u202et.csv", "x" * 5_000, "a\0b.csv", "a\nb.csv", HUGE),
    ],
}
"""Place -> values of the right kind that it cannot have."""
JUDGED_WITH = {"columns.age.kind": "columns.age", "columns.pay.edges": "columns.pay", "split.one_way": "split"}
JUDGED_WITH |= {"privacy.epsilon": "privacy", "budget.epsilon": "budget"}
"""Place -> the part that is named, for values of the right kind: others in it may be the wrong ones."""
WRONG = [(place, place, v) for places, (_, values) in KINDS.items() for place in places.split() for v in values]
WRONG += [(JUDGED_WITH.get(place, place), place, v) for place, values in RANGES.items() for v in values]


@tries(300)
@given(st.sampled_from(WRONG))
def test_a_wrong_value_is_refused_by_its_field(desk: Desk, wrong: tuple[str, str, Any]) -> None:
    field, *change = wrong
    desk.refuse(field, changes=[change])


@tries(50)
@given(st.sampled_from(["age", "pay", "seen"]), st.integers(-(10**6), 10**6), st.integers(0, 10**6))
def test_bounds_the_wrong_way_round_are_refused_by_their_column(desk: Desk, name: str, low: int, more: int) -> None:
    ends = (low, low - 1 - more) if name != "seen" else (f"{2010 + more % 9}-01-01", f"{2009 - more % 9}-01-01")
    column = {"kind": COLUMNS[name]["kind"], "min": ends[0], "max": ends[1]}
    desk.refuse(f"columns.{name}", "`min`", "`max`", changes=[(f"columns.{name}", column)])


@tries(50)
@given(st.sampled_from(["", "privacy.", "columns.age.", "columns.ok.", "synthesis.", "split."]), st.data())
def test_a_field_that_no_spec_has_is_refused_by_its_name(desk: Desk, where: str, data: st.DataObject) -> None:
    odd = data.draw(st.text("abcxyz_09", min_size=6, max_size=6)) + data.draw(st.sampled_from(["", "é", " ", "/", "'"]))
    desk.refuse("", odd, changes=[(f"{where}{odd}", 1)])


MISSING = ["dataset", "data", "unit", "privacy", "budget", "columns", "privacy.delta", "columns.age.min"]
MISSING += ["columns.pay.max", "columns.seen.max", "columns.state.values", "columns.ok.kind"]


@pytest.mark.parametrize("place", MISSING)
def test_a_field_that_is_missing_is_refused_by_its_name(desk: Desk, place: str) -> None:
    desk.refuse(place.removesuffix(".kind"), changes=[(place, ...)])


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "blank": " \n\n",
    "a list": "- a\n- b\n",
    "a word": "hello",
    "laughs": LAUGHS,
    "itself": "a: &a [*a]\n",
    "merge": "a: &a {b: 1}\nc: {<<: *a}\n",
    "tag": "a: !!python/object/apply:os.system ['true']\n",
    "own tag": "a: !secret 1\n",
    "two": "a: 1\n---\nb: 2\n",
    "old": "%YAML 1.1\n---\na: no\n",
    "deep list": "a: " + "[" * 10_000,
    "deep map": "a: " + "{a: " * 10_000,
    "deep lines": "".join(" " * i + "a:\n" for i in range(500)),
    "dashes": "- " * 10_000,
    "open quote": 'a: "' + "x" * 10_000,
    "tab": "a:\n\tb: 1\n",
    "alias": "a: *b\n",
    "twice": yaml(SPEC)[:-1] + ', "data": "x"}',
    "twice in a column": yaml(SPEC).replace('"min": 0,', '"min": 0, "min": 1,'),
    "list as key": "? [a, b]\n: 1\n",
    "digits of another base": yaml(SPEC).replace('"bins": 10', '"bins": 0x' + "f" * 9_000),
    "a number after a zero": yaml(SPEC).replace('"bins": 10', '"bins": 007'),
    "a date that is none": yaml(SPEC).replace('"2010-01-01"', "2010-13-01"),
    "utf-16": "dataset: a\n".encode("utf-16"),
    "latin-1": "dataset: Größe\n".encode("latin-1"),
    "nul": b"dataset: a\0b\n",
    "bell": b"dataset: a\x07b\n",
    "gzip": gzip.compress(yaml(SPEC).encode(), mtime=0),
    "surrogate": b"dataset: \xed\xa0\x80\n",
    "half a character": yaml({**SPEC, "about": {"title": "x \ud83d"}}),
    "half a character as a name": yaml({**SPEC, "columns": {"a\ude00": {"kind": "boolean"}}}),
    "a huge name": yaml({**SPEC, "columns": {HUGE: {"kind": "boolean"}}}),
    "no name": yaml({**SPEC, "columns": {"": {"kind": "boolean"}}}),
    "huge number": "a: " + "9" * 10_000 + "\n",
    "huge": b" " * 20_000_001,
    "too many columns": yaml({**SPEC, "columns": {f"c{i}": {"kind": "boolean"} for i in range(5_001)}}),
}


WORDS = {"too many columns": "columns", "no name": "columns", "digits of another base": "columns", "merge": "dataset"}
"""Text of mappings -> what is named; of all others the file is."""


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_no_spec_is_refused_by_its_file_or_line(desk: Desk, name: str) -> None:
    text = TEXTS[name]
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    word = WORDS.get(name, "spec.yaml")
    desk.refuse("", word, build=lambda folder: (folder / "spec.yaml").write_bytes(content))


def put(name: str, content: bytes | pa.Table) -> tuple[Build, list[tuple[str, Any]]]:
    """A table of this content under this name, and the change of the spec that names it."""

    def build(folder: Path) -> None:
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            pq.write_table(content, folder / name)

    return build, [("data", name)]


@tries(60)
@given(st.data())
def test_a_header_line_of_other_columns_is_refused_by_a_column(desk: Desk, data: st.DataObject) -> None:
    names = data.draw(st.permutations(NAMES))
    at = data.draw(st.integers(0, 5))
    field, word = "columns", names[at]
    match data.draw(st.sampled_from(["misspelt", "missing", "extra", "twice", "nameless"])):
        case "misspelt":
            names[at] += data.draw(st.sampled_from("xyz"))
        case "missing":
            names.remove(word)
        case "extra":
            names.insert(at, word := "extra")
        case "twice":
            field = "data"
            names.insert(at, word)
        case _:
            field, names[at], word = "data", "", "t.csv"
    build, changes = put("t.csv", csv([ROW] * data.draw(st.integers(0, 3)), names))
    desk.refuse(field, word, build=build, changes=changes)


GOOD = csv([ROW] * 40)
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n\n\n",
    "only a mark": b"\xef\xbb\xbf",
    "utf-16": GOOD.decode().encode("utf-16"),
    "semicolons": GOOD.replace(b",", b";"),
    "tabs": GOOD.replace(b",", b"\t"),
    "nul header": b"a\0,b\n",
    "binary": bytes(range(256)) * 40,
    "parquet inside": b"PAR1" + bytes(100),
    "huge header cell": csv([], [*NAMES, HUGE]),
    "one huge word": HUGE.encode() * 6,
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_csv_is_refused_by_the_file(desk: Desk, name: str) -> None:
    build, changes = put("t.csv", BROKEN[name])
    desk.refuse("data", "t.csv", build=build, changes=changes)


def parquet(table: pa.Table) -> bytes:
    pq.write_table(table, sink := pa.BufferOutputStream())
    return sink.getvalue().to_pybytes()


WHOLE = {"x.parquet": parquet(TABLE), "x.csv.gz": gzip.compress(GOOD, mtime=0)}


@tries(120)
@given(st.sampled_from(["x.parquet", "x.parquet, damaged", "x.csv.gz"]), st.floats(0, 1, exclude_max=True), st.binary())
def test_a_file_that_was_cut_or_damaged_is_refused_by_its_name(desk: Desk, of: str, at: float, junk: bytes) -> None:
    name, _, damaged = of.partition(", ")
    content = WHOLE[name]
    end = len(content) - 8
    if damaged:  # the footer, or the pages
        content = content[: end - 60] + junk[:50].ljust(50, b"\xff") + content[end - 10 :] if at < 0.5 else content
        content = content[:4] + bytes(400 + int(at * 1_000)) + content[404 + int(at * 1_000) :]
    else:
        content = content[: int(at * end)]
    build, changes = put(name, content)
    desk.refuse("data", name, build=build, changes=changes)


ODD_TYPES = [pa.array([[1]] * 50), pa.array([{"a": 1}] * 50), pa.array([b"x"] * 50)]
PARQUET: list[tuple[str, str, pa.Table]] = [
    *(("columns", name, TABLE.drop_columns([name])) for name in NAMES),
    *(("data", n, pa.Table.from_arrays([*TABLE.columns, TABLE[n]], names=[*NAMES, n])) for n in NAMES),
    ("columns", "age", pa.table({f"c{i}": pa.nulls(0, pa.int8()) for i in range(3_000)})),
    ("columns", "extra", TABLE.append_column("extra", pa.nulls(50, pa.int8()))),
    ("data", "x.parquet", pa.table({})),
    ("data", "x.parquet", TABLE.rename_columns(["", *NAMES[1:]])),
]


@pytest.mark.parametrize(("field", "word", "table"), PARQUET)
def test_a_parquet_file_of_other_columns_is_refused_by_them(desk: Desk, field: str, word: str, table: pa.Table) -> None:
    build, changes = put("x.parquet", table)
    desk.refuse(field, word, build=build, changes=changes)


@pytest.mark.parametrize("odd", keep_first(ODD_TYPES), ids=["list", "mapping", "bytes"])
def test_a_column_of_a_type_that_is_no_value_is_refused_by_its_name(desk: Desk, odd: pa.Array) -> None:
    for place, name in enumerate(NAMES[:-1]):
        build, changes = put("x.parquet", TABLE.set_column(place, name, odd))
        desk.refuse(f"columns.{name}", "x.parquet", build=build, changes=changes)


def listen(path: Path) -> None:
    """A socket; bound by a relative name, because a whole path may be too long for one."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


MAKERS: dict[str, Build] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "dangling": lambda path: path.symlink_to("gone.csv"),
    "loop": lambda path: path.symlink_to(path.name),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "null": lambda path: path.symlink_to("/dev/null"),
    "socket": listen,
}


@pytest.mark.parametrize("name", keep_first(["x.csv", "x.parquet", "spec.yaml", "x.csv.gz", "x.tsv"], 3))
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_no_file_is_refused_by_its_name(desk: Desk, maker: str, name: str) -> None:
    def build(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        MAKERS[maker](folder / name)

    of_the_spec = name == "spec.yaml"
    desk.refuse("" if of_the_spec else "data", name, build=build, changes=[] if of_the_spec else [("data", name)])


FOLDERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "empty": ("data", {}, "parts"),
    "hidden only": ("data", {".a.csv": GOOD}, "parts"),
    "inner": ("data", {"inner.csv": Path.mkdir}, "inner.csv"),
    "text": ("data", {"a.txt": b""}, "a.txt"),
    "pipe": ("data", {"a.csv": os.mkfifo}, "a.csv"),
    "zero": ("data", {"a.csv": MAKERS["zero"]}, "a.csv"),
    "mixed": ("data", {"a.csv": GOOD, "b.parquet": TABLE}, "parts"),
    "other columns": ("data", {"a.csv": GOOD, "b.csv": csv([], NAMES[:-1])}, "pid"),
    "other type": ("columns.age", {"a.parquet": TABLE, "b.parquet": TABLE.set_column(0, "age", ODD_TYPES[0])}, "b."),
    "second cut": ("data", {"a.csv": GOOD, "b.csv.gz": WHOLE["x.csv.gz"][:-12]}, "b.csv.gz"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_no_table_is_refused_by_what_is_in_it(desk: Desk, name: str) -> None:
    field, files, word = FOLDERS[name]

    def build(folder: Path) -> None:
        (folder / "parts").mkdir()
        for file, content in files.items():
            if callable(content):
                content(folder / "parts" / file)
            else:
                put(file, content)[0](folder / "parts")

    desk.refuse(field, word, build=build, changes=[("data", "parts")])


@pytest.mark.parametrize("options", [(), ("--prefect",)], ids=["here", "with Prefect"])
def test_what_is_right_gets_through_and_what_is_wrong_does_not(desk: Desk, options: tuple[str, ...]) -> None:
    """The requests above have the faults that are named; with Prefect, they are found before a server is started."""
    code, shown = desk.ask(lambda folder: None, options=options)
    assert (code, "AssertionError" in shown) == (1, True)
    code, shown = desk.ask(lambda folder: None, ("columns.age.min", "many"), options=options)
    assert faults(desk.told[-1], code, shown, "columns.age.min") == []


def test_faults_of_a_refusal_are_found() -> None:
    good = PrivsynError("is wrong", "Mend it", "columns.age")
    shown = "privsyn: columns.age: is wrong. Mend it.\n"
    assert faults(good, 2, shown, "columns", "wrong") == []
    assert faults(good, 1, shown, "columns")
    assert faults(good, 2, shown, "columns.pay")
    assert faults(good, 2, shown, "columns.age", "pay")
    assert faults(PrivsynError("is wrong", "", "columns.age"), 2, shown, "columns.age")
    assert all(faults(good, 2, other, "columns.age") for other in (shown + shown, "wrong.\n", shown * 40))


def test_a_refusal_comes_before_prefect_is_even_loaded(places: Path) -> None:
    write(places)
    (places / "t.csv").write_bytes(csv([], ["age"]))
    program = (
        "import sys; from privsyn.cli import app\n"
        "try: app(['release', sys.argv[1]])\n"
        "except SystemExit as end: print(end.code, 'prefect' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(places / "spec.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.split() == ["2", "False"]
    assert "which t.csv does not have" in done.stderr


def test_a_cell_of_a_million_characters_is_a_value_like_any_other(desk: Desk) -> None:
    """In the rows it fails nothing, because nothing about a value may; it is unlisted, or cannot be parsed."""
    huge = ["9" * 10**6] * 5 + ["p"]
    code, shown = desk.ask(put("t.csv", csv([huge, huge]))[0], ("synthesis.rows", 5))
    assert (code, "AssertionError" in shown) == (1, True)


LOAD = """
import resource, sys
from pathlib import Path
from privsyn.base.errors import RequestError
from privsyn.specs.spec_file import load_spec
try: load_spec(Path(sys.argv[1]))
except RequestError as error: print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def memory_of(spec: Path) -> tuple[int, str]:
    """Peak memory (MiB) of loading a spec, and what was said of it."""
    command = [sys.executable, "-c", LOAD, str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    *said, peak = done.stdout.split("\n")[:-1]
    return int(peak), "\n".join(said)


@pytest.fixture(scope="module")
def memory_of_a_plain_spec(tmp_path_factory: pytest.TempPathFactory) -> int:
    folder = tmp_path_factory.mktemp("plain")
    write(folder)
    peak, nothing = memory_of(folder / "spec.yaml")
    assert nothing == ""
    return peak


@pytest.mark.parametrize("name", keep_first(["laughs", "itself", "deep list", "huge number"]))
def test_a_bomb_takes_little_memory(places: Path, memory_of_a_plain_spec: int, name: str) -> None:
    (places / "spec.yaml").write_text(str(TEXTS[name]), encoding="utf-8")
    peak, said = memory_of(places / "spec.yaml")
    assert "spec.yaml" in said
    assert peak < memory_of_a_plain_spec + 200
