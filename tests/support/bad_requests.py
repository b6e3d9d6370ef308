"""More than a thousand release requests that are wrong, each with a word that its refusal must name.

Made from a fixed seed: the same ones every time.  Every one starts from a spec and a table that are right.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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
ROW = ["30", "1.5", "a", "2015-05-05", "true", "p1"]
NAMES = list(COLUMNS)
HUGE = "x" * 10**6

Build = Callable[[Path], None]
"""Put ``spec.yaml`` and what it names into a folder that holds nothing yet."""


@dataclass(frozen=True)
class Bad:
    """One wrong request: its name, how to write it, and the words that its refusal must hold."""

    name: str
    build: Build
    words: tuple[str, ...]


def yaml(content: Any) -> str:
    """YAML flow text; what JSON cannot say (NaN, infinities, plain text for the parser) is written as YAML has it."""
    if isinstance(content, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {yaml(v)}" for k, v in content.items()) + "}"
    if isinstance(content, list | tuple):
        return "[" + ", ".join(yaml(v) for v in content) + "]"
    if isinstance(content, Raw):
        return content.text
    if isinstance(content, float):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(repr(content), repr(content))
    return json.dumps(content)


@dataclass(frozen=True)
class Raw:
    """A value exactly as it stands in the file."""

    text: str


def write(folder: Path, spec: Any = SPEC, table: bytes | None = None) -> None:
    """The spec, and the table: a right one unless told otherwise."""
    (folder / "spec.yaml").write_text(spec if isinstance(spec, str) else yaml(spec), encoding="utf-8")
    (folder / "t.csv").write_bytes(csv([ROW] * 5) if table is None else table)


def csv(rows: list[list[str]], header: list[str] = NAMES) -> bytes:
    return "".join(",".join(row) + "\n" for row in [header, *rows]).encode()


def changed(*changes: tuple[str, Any], spec: dict[str, Any] = SPEC) -> dict[str, Any]:
    """The spec with other values at dotted places; ``...`` removes one."""
    copy = json.loads(json.dumps(spec))
    for place, value in changes:
        *path, last = place.split(".")
        holder = copy
        for part in path:
            holder = holder[part]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
    return copy


def spec_case(place: str, value: Any, *words: str) -> Bad:
    spec = changed((place, value))
    return Bad(f"{place}={str(value)[:30]}", lambda folder: write(folder, spec), words or (place,))


TYPES: dict[str, str] = {
    "whole": "columns.age.min columns.age.max columns.age.bins unit.records_per_person selection.gamma "
    "consistency.rounds synthesis.rows synthesis.seed synthesis.sweeps columns.pay.decimals",
    "number": "columns.pay.min columns.pay.max privacy.epsilon privacy.delta budget.epsilon budget.delta "
    "split.one_way split.selection split.measurement compression.sigmas",
    "moment": "columns.seen.min columns.seen.max",
    "list": "columns.state.values columns.pay.edges null_values",
    "mapping": "unit privacy budget columns split compression selection consistency synthesis columns.age columns.pay "
    "columns.state columns.seen columns.ok columns.pid",
    "text": "dataset data columns.state.unlisted preset accountant columns.age.type columns.seen.resolution",
    "flag": "columns.age.nullable columns.state.nullable columns.ok.nullable",
}
WRONG: dict[str, list[Any]] = {
    "whole": [
        "many",
        1.5,
        [1],
        {"a": 1},
        float("nan"),
        float("inf"),
        10**30,
        Raw("0x" + "f" * 9_000),
        "1,5",
        True,
        False,
        Raw("007"),
    ],
    "number": [
        "much",
        [1],
        {"a": 1},
        float("nan"),
        float("inf"),
        -float("inf"),
        Raw("0x" + "f" * 9_000),
        "1,5",
        True,
        Raw("01.5"),
    ],
    "moment": [
        "soon",
        2010,
        [1],
        True,
        "2010-02-30",
        Raw("2010-13-01"),
        float("nan"),
        {"a": 1},
        "2010-01-01T00:00:00Z",
    ],
    "list": ["abc", 3, {"a": 1}, True, float("nan"), None],
    "mapping": ["abc", 3, [1], True, float("nan"), None],
    "text": [3, [1], {"a": 1}, True, float("nan"), None, HUGE],
    "flag": ["perhaps", 3, [1], {"a": 1}, float("nan"), None],
}


def wrong_types() -> Iterator[Bad]:
    for kind, places in TYPES.items():
        for place in places.split():
            for value in WRONG[kind]:
                word = place.split(".")[1] if isinstance(value, Raw) and value.text[:2] in ("00", "01", "20") else place
                if value is None and place in ("columns.pay.edges", "columns.state.unlisted"):
                    continue  # null is right there
                if isinstance(value, Raw) and not value.text.startswith("0x"):
                    yield spec_case_line(place, value)
                else:
                    yield spec_case(place, value, word)


def spec_case_line(place: str, value: Raw) -> Bad:
    """What YAML itself refuses is named by its line."""
    spec = changed((place, value))
    return Bad(f"{place}={value.text}", lambda folder: write(folder, spec), ("spec.yaml, line 1", value.text))


def wrong_bounds(chance: random.Random) -> Iterator[Bad]:
    for _ in range(15):
        low, high = sorted(chance.sample(range(-(10**6), 10**6), 2))
        for column in ("age", "pay"):
            spec = changed((f"columns.{column}", {"kind": COLUMNS[column]["kind"], "min": high, "max": low}))
            yield Bad(f"{column} {high}>{low}", lambda f, s=spec: write(f, s), (f"columns.{column}", "`min`", "`max`"))
        early, late = f"{2000 + low % 9:04d}-01-01", f"{2010 + high % 9:04d}-01-01"
        spec = changed(("columns.seen", {"kind": "datetime", "min": late, "max": early}))
        yield Bad(f"seen {late}>{early}", lambda f, s=spec: write(f, s), ("columns.seen", "`min`", "`max`"))
        edges = [0.5, *[chance.choice([0.5, 9.5, 20.0, -1.0, 3.0, 3.0]) for _ in range(3)], 9.5]
        yield spec_case("columns.pay.edges", edges if edges != sorted(set(edges)) else [9.5, 0.5], "columns.pay")
    for bound in (float("nan"), float("inf"), -float("inf")):
        for place in ("columns.age.min", "columns.age.max", "columns.pay.min", "columns.pay.max"):
            yield spec_case(place, bound)
        yield spec_case("columns.pay.edges", [0.5, bound, 9.5], "columns.pay")
    for place, values in {
        "privacy.epsilon": [0, -1, 1e7, 1e-17, 1e-40, 1e-300],
        "privacy.delta": [0, 1, -1e-9, 2],
        "budget.epsilon": [0, -3, 1e9, 1e-200],
        "unit.records_per_person": [0, -1, 10**5],
        "columns.age.bins": [0, -4, 10**6],
        "columns.state.values": [[], ["a", "a"], ["a", 1], [2**60], [None], [["a"]], [float("nan")]],
        "columns.age.edges": [[0, True, 99]],
        "columns.pay.edges": [[0.5, True, 9.5]],
        "synthesis.rows": [-1, 2**31, "all", 2.5],
        "synthesis.seed": [-1, 2**63],
        "split.one_way": [0, 1, 0.31, -0.3],
        "columns": [{}, {"pid": {"kind": "drop"}}],
        "unit": [
            {},
            {"person_id": "pid"},
            {"person_id": "age", "max_records": 2},
            {"person_id": "x", "max_records": 2},
        ],
    }.items():
        for value in values:
            yield spec_case(place, value, place.split(".")[0])


def wrong_fields(chance: random.Random) -> Iterator[Bad]:
    for place in ("dataset", "data", "unit", "privacy", "budget", "columns", "privacy.delta", "columns.age.min"):
        yield spec_case(place, ...)
    for place in ("columns.state.values", "columns.seen.max", "columns.pay.max", "columns.ok.kind", "columns.age.kind"):
        yield spec_case(place, ..., place.removesuffix(".kind"))
    for where in ("", "privacy.", "columns.age.", "columns.ok.", "synthesis.", "split."):
        for _ in range(8):
            odd = "".join(chance.choices("abcxyz_09", k=6)) + chance.choice(["", "é", " ", "/", "'", "\\"])
            yield spec_case(f"{where}{odd}", 1, odd)
    for kind in ("int", "string", "integr", "date", "", "null", HUGE, "../x", "kind"):
        yield spec_case("columns.age.kind", kind, "columns.age")
    for place in (
        "unit",
        "budget",
        "columns.age.min",
        "columns.state.values",
        "columns.pay",
        "columns.ok.kind",
        "privacy.epsilon",
    ):
        yield spec_case(place, "TODO")
    for name, word in (("", "columns"), (HUGE, "spec.yaml, line 1"), ("a" * 2_000, "spec.yaml, line 1")):
        spec = changed((f"columns.{name}", {"kind": "boolean"}))
        yield Bad(f"a column called {name[:5]!r}", lambda f, s=spec: write(f, s), (word,))
    yield spec_case("columns.state.values", ["a", HUGE], "columns.state")


TRICKS = [
    "../x",
    "a/b",
    "..",
    ".",
    "/etc",
    "a\\b",
    "C:\\x",
    "-x",
    "_x",
    "A",
    "é",
    "a b",
    "a\u0000b",
    "a\nb",
    "%2e",
    "a" * 49,
    HUGE,
    "~",
    "$HOME",
    "a;b",
    "a'b",
    "nul.",
    "\u202ex",
]
PLACES = [
    "/dev/null",
    "/dev/zero",
    "/dev/stdin",
    "/proc/self/mem",
    "/proc/self/environ",
    "../../etc/passwd",
    "..",
    ".",
    "/",
    "nowhere.csv",
    "nowhere/t.csv",
    "t.csv/t.csv",
    "t",
    "spec.yaml",
    "~nobody/t.csv",
    "x" * 5_000,
    "a\u0000b.csv",
    "a\nb.csv",
    "http://x/t.csv",
    "s3://b/t.parquet",
    "*.csv",
    "-",
    "\u202et.csv",
    HUGE,
]


def path_tricks() -> Iterator[Bad]:
    for trick in TRICKS:
        yield spec_case("dataset", trick)
    for place in PLACES:
        yield spec_case("data", place)
    makers: dict[str, Callable[[Path], None]] = {
        "pipe": lambda p: os.mkfifo(p),
        "folder": lambda p: p.mkdir(),
        "dangling": lambda p: p.symlink_to("gone.csv"),
        "loop": lambda p: p.symlink_to(p.name),
        "zero": lambda p: p.symlink_to("/dev/zero"),
        "null": lambda p: p.symlink_to("/dev/null"),
        "socket": listen,
    }
    for ending in ("csv", "parquet", "csv.gz", "tsv"):
        for name, make in makers.items():
            yield Bad(f"{name}.{ending}", special(make, f"x.{ending}"), ("data", f"x.{ending}"))
    for name, make in makers.items():
        yield Bad(f"spec is a {name}", special(make, "spec.yaml"), ("spec.yaml",))


def listen(path: Path) -> None:
    """A socket; bound by a relative name, because a whole path may be too long for one."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def special(make: Callable[[Path], None], name: str) -> Build:
    def build(folder: Path) -> None:
        write(folder, changed(("data", name)))
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return build


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
    "utf-16": "dataset: a\n".encode("utf-16"),
    "latin-1": "dataset: Größe\n".encode("latin-1"),
    "nul": b"dataset: a\0b\n",
    "bell": b"dataset: a\x07b\n",
    "gzip": gzip.compress(yaml(SPEC).encode(), mtime=0),
    "surrogate": b"dataset: \xed\xa0\x80\n",
    "half a character": yaml({**SPEC, "about": {"title": "x \ud83d"}}),
    "half a character as a name": yaml({**SPEC, "columns": {"a\ude00": {"kind": "boolean"}}}),
    "huge number": "a: " + "9" * 10_000 + "\n",
    "too many columns": yaml({**SPEC, "columns": {f"c{i}": {"kind": "boolean"} for i in range(5_001)}}),
}


def yaml_tricks() -> Iterator[Bad]:
    for name, text in TEXTS.items():

        def build(folder: Path, text: str | bytes = text) -> None:
            write(folder)
            (folder / "spec.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())

        word = {"too many columns": "columns", "merge": "dataset"}.get(name, "spec")
        yield Bad(f"yaml {name}", build, (word,))


def wrong_csv(chance: random.Random) -> Iterator[Bad]:
    def of(name: str, table: bytes, *words: str) -> Bad:
        return Bad(f"csv {name}", lambda folder: write(folder, table=table), words or ("data", "t.csv"))

    good = csv([ROW] * 40)
    for i in range(130):  # a name misspelt in the header line
        names = list(NAMES)
        odd = chance.randrange(len(names))
        names[odd], lost = f"{names[odd]}{chance.choice('xyz')}", names[odd]
        yield of(f"misspelt {i}", csv([ROW] * chance.randint(0, 3), names), "columns", lost)
    for i in range(24):
        names = list(NAMES)
        chance.shuffle(names)
        match i % 4:
            case 0:
                names.remove(lost := chance.choice(names))
                yield of(f"missing {lost}", csv([], names), "columns", lost)
            case 1:
                names.insert(chance.randrange(6), "extra")
                yield of(f"extra {i}", csv([], names), "columns", "extra")
            case 2:
                names.insert(chance.randrange(6), twice := chance.choice(names))
                yield of(f"{twice} twice", csv([], names), "data", twice)
            case 3:
                names[chance.randrange(6)] = ""
                yield of(f"no name {i}", csv([], names), "data", "t.csv")
    for name, table in {
        "empty": b"",
        "blank": b"\n\n\n",
        "spaces": b"   \n",
        "only a mark": b"\xef\xbb\xbf",
        "utf-16": good.decode().encode("utf-16"),
        "semicolons": good.replace(b",", b";"),
        "tabs": good.replace(b",", b"\t"),
        "nul header": b"a\0,b\n",
        "binary": bytes(range(256)) * 40,
        "parquet inside": b"PAR1" + bytes(100),
        "huge header cell": csv([], [*NAMES, HUGE]),
        "one huge word": HUGE.encode() * 6,
        "a hundred thousand columns": ",".join(f"c{i}" for i in range(10**5)).encode() + b"\n",
    }.items():
        yield of(name, table, "columns" if name in ("spaces", "a hundred thousand columns") else "data")
    packed = gzip.compress(good, mtime=0)
    for i in range(20):
        cut = packed[: chance.randrange(len(packed))]

        def build(folder: Path, cut: bytes = cut) -> None:
            write(folder, changed(("data", "x.csv.gz")))
            (folder / "x.csv.gz").write_bytes(cut)

        yield Bad(f"gzip cut {i}", build, ("data", "x.csv.gz"))


def arrow() -> pa.Table:
    values = {n: [v] * 50 for n, v in zip(NAMES, [30, 1.5, "a", "2015-05-05", True, "p"], strict=True)}
    return pa.table(values)


def wrong_parquet(chance: random.Random) -> Iterator[Bad]:
    def of(name: str, table: bytes | pa.Table, *words: str) -> Bad:
        def build(folder: Path) -> None:
            write(folder, changed(("data", "x.parquet")))
            if isinstance(table, bytes):
                (folder / "x.parquet").write_bytes(table)
            else:
                pq.write_table(table, folder / "x.parquet")

        return Bad(f"parquet {name}", build, words or ("data", "x.parquet"))

    sink = pa.BufferOutputStream()
    pq.write_table(arrow(), sink)
    whole = sink.getvalue().to_pybytes()
    for i in range(80):
        yield of(f"truncated {i}", whole[: chance.randrange(len(whole))])
    for i in range(40):  # garbage in the footer, or zeros through the pages
        data = bytearray(whole)
        if i % 2:
            data[-8 - chance.randint(1, 200) : -4] = chance.randbytes(50)
        else:
            data[4 : 4 + chance.randint(400, 1_500)] = bytes(400)
        yield of(f"damaged {i}", bytes(data))
    table = arrow()
    for name in NAMES:
        yield of(f"missing {name}", table.drop_columns([name]), "columns", name)
        again = pa.Table.from_arrays([*table.columns, table[name]], names=[*NAMES, name])
        yield of(f"{name} twice", again, "data", name)
        if name != "pid":
            for odd in ([[1]] * 50, [{"a": 1}] * 50, [b"x"] * 50):
                yield of(
                    f"{name} of an odd type",
                    table.set_column(NAMES.index(name), name, pa.array(odd)),
                    f"columns.{name}",
                )
    yield of("empty", b"")
    yield of("a hundred thousand columns", pa.table({f"c{i}": pa.nulls(0, pa.int8()) for i in range(3_000)}), "columns")
    yield of("no columns", pa.table({}))
    yield of("nameless", table.rename_columns(["", *NAMES[1:]]))
    yield of("extra", table.append_column("extra", pa.nulls(50, pa.int8())), "columns", "extra")
    yield of("csv inside", csv([ROW]))


def folders() -> Iterator[Bad]:
    def of(name: str, make: Callable[[Path], None], *words: str) -> Bad:
        def build(folder: Path) -> None:
            write(folder, changed(("data", "parts")))
            (folder / "parts").mkdir()
            make(folder / "parts")

        return Bad(f"folder {name}", build, words)

    def both(folder: Path) -> None:
        (folder / "a.csv").write_bytes(csv([ROW]))
        pq.write_table(arrow(), folder / "b.parquet")

    def other_columns(folder: Path) -> None:
        (folder / "a.csv").write_bytes(csv([ROW]))
        (folder / "b.csv").write_bytes(csv([], NAMES[:-1]))

    def other_type(folder: Path) -> None:
        pq.write_table(arrow(), folder / "a.parquet")
        pq.write_table(arrow().set_column(0, "age", pa.array([[1]] * 50)), folder / "b.parquet")

    def second_cut(folder: Path) -> None:
        (folder / "a.csv").write_bytes(csv([ROW]))
        (folder / "b.csv.gz").write_bytes(gzip.compress(csv([ROW] * 99), mtime=0)[:-12])

    yield of("empty", lambda f: None, "data", "parts")
    yield of("hidden only", lambda f: (f / ".a.csv").touch(), "data", "parts")
    yield of("inner", lambda f: (f / "inner.csv").mkdir(), "data", "inner.csv")
    yield of("text", lambda f: (f / "a.txt").touch(), "data", "a.txt")
    yield of("pipe", lambda f: os.mkfifo(f / "a.csv"), "data", "a.csv")
    yield of("zero", lambda f: (f / "a.csv").symlink_to("/dev/zero"), "data", "a.csv")
    yield of("mixed", both, "data", "parts")
    yield of("other columns", other_columns, "data", "pid")
    yield of("other type", other_type, "columns.age", "b.parquet")
    yield of("second cut", second_cut, "data", "b.csv.gz")


def all_bad() -> list[Bad]:
    """Every wrong request there is: more than a thousand."""
    chance = random.Random(20261121)  # noqa: S311 - cases of a test
    found = [*wrong_types(), *wrong_bounds(chance), *wrong_fields(chance), *path_tricks(), *yaml_tricks()]
    return [*found, *wrong_csv(chance), *wrong_parquet(chance), *folders()]
