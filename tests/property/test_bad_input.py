"""Whatever stands in a file: a spec, a table, or a RequestError that says something; nothing else."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.open_source import open_source
from privsyn.specs.dictionaries import parse_dictionary
from privsyn.specs.draft import draft, format_scalar
from privsyn.specs.spec_file import load_spec, parse_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.examples import choose_example_count

QUICK = settings(max_examples=choose_example_count(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
VALID: dict[str, Any] = {
    "dataset": "demo",
    "data": "t.csv",
    "unit": {"records_per_person": 1},
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "budget": {"epsilon": 10, "delta": 1e-8},
    "columns": {
        "age": {"kind": "integer", "min": 0, "max": 99, "bins": 10, "nullable": True, "unit": "years", "type": "int16"},
        "pay": {"kind": "number", "min": 0.5, "max": 9.5, "edges": [0.5, 3, 9.5], "decimals": 2},
        "state": {"kind": "categorical", "values": ["a", "b"], "unlisted": "other"},
        "code": {"kind": "categorical", "values": [1, 2]},
        "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "resolution": "day"},
        "ok": {"kind": "boolean"},
        "pid": {"kind": "drop"},
    },
    "split": {"one_way": 0.1, "selection": 0.1, "measurement": 0.8},
    "synthesis": {"rows": "auto", "alpha": 1.0},
    "selection": {"gamma": 5000},
    "null_values": [""],
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.just("TODO"),
    st.dates(),
    st.datetimes(),
    st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none()), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
    st.sampled_from([10**400, -(2**63), 1e308, b"x"]),
)


def says_something(error: RequestError) -> None:
    text = str(error)
    assert error.exit_code == 2 and len(text) > 20 and text.endswith(".")
    assert "\n" not in text
    assert "Traceback" not in text and "pydantic" not in text and len(text) < 5_000


def loads(path: Path) -> None:
    try:
        assert isinstance(load_spec(path), ReleaseSpec)
    except RequestError as error:
        says_something(error)


@QUICK
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))))
def test_any_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_bytes(data)
        loads(path)


@QUICK
@given(st.text(alphabet=st.sampled_from(list("a:{}[]&*!#-?|>'\"\n ,%@`0123.eE~=<\t")), max_size=80))
def test_yaml_like_text(text: str) -> None:
    try:
        parse_spec(text)
    except RequestError as error:
        says_something(error)


def places(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    if isinstance(content, dict):
        for key, value in content.items():
            found += places(value, (*here, key))
    return found


@settings(QUICK, max_examples=choose_example_count(300))
@given(st.data())
def test_mutated_specs(data: st.DataObject) -> None:
    spec = json.loads(json.dumps(VALID))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(spec)))
        holder = spec
        for key in place[:-1]:
            holder = holder[key]
        action = data.draw(st.sampled_from(["set", "remove", "rename"]))
        value = holder.pop(place[-1])
        if action == "set":
            holder[place[-1]] = data.draw(ODD)
        elif action == "rename":
            holder[data.draw(st.text(max_size=8))] = value
        if not spec:
            return
    try:
        assert isinstance(parse_spec(dump(spec)), ReleaseSpec)
    except RequestError as error:
        says_something(error)


def dump(content: Any) -> str:
    """YAML flow text of plain content (bytes and dates as YAML writes them)."""
    if isinstance(content, dict):
        return "{" + ", ".join(f"{format_scalar(str(k))}: {dump(v)}" for k, v in content.items()) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(dump(v) for v in content) + "]"
    if isinstance(content, float) and not math.isfinite(content):
        return ".nan"
    if isinstance(content, str | int | float):
        return format_scalar(content)
    return "~" if content is None else str(content)


def test_the_valid_spec_is_valid() -> None:
    assert isinstance(parse_spec(dump(VALID)), ReleaseSpec)


@QUICK
@given(st.text(max_size=30))
def test_any_text_is_a_scalar_that_loads_back(text: str) -> None:
    safe = text.encode("utf-8", "replace").decode()
    assert parse_yaml(f"{format_scalar(safe)}: [{format_scalar(safe)}]", "x").content == {safe: [safe]}


SPEC = ReleaseSpec.model_validate({**VALID, "columns": {"a": {"kind": "boolean"}, "b": {"kind": "boolean"}}})


def reads(path: Path, canary: str = "") -> None:
    try:
        for batch in open_source(path, SPEC).batches(batch_rows=7):
            assert batch.schema.names in (["a", "b"], ["b", "a"]) and batch.num_rows <= 7
    except RequestError as error:
        says_something(error)
        assert not canary or canary not in str(error)


@QUICK
@given(
    st.binary(max_size=120),
    st.sampled_from([b"", b"a,b\n", b"\xef\xbb\xbfb,a\r\n", b'"a","b"\n1,2\n']),
    st.sampled_from(["t.csv", "t.tsv", "t.csv.gz", "t.parquet"]),
)
def test_any_table_file(data: bytes, head: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(head + data)
        reads(Path(folder) / name)


@QUICK
@given(
    st.lists(st.lists(st.sampled_from(["1", "", '"', '"x', "CANARY7391", "é", "\t"]), max_size=4), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_csv_rows_never_show(rows: list[list[str]], end: str, header: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = (["a,b"] if header else []) + [",".join(row) for row in rows]
        path = Path(folder) / "t.csv"
        path.write_bytes(end.join(lines).encode())
        reads(path, "CANARY7391")


@QUICK
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=30))
def test_damaged_parquet(position: int, junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        pq.write_table(pa.table({"a": [True, None] * 20, "b": ["CANARY7391"] * 40}), path)
        whole = path.read_bytes()
        at = position % len(whole)
        path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
        reads(path, "CANARY7391")


KEYS = """columns fields resources tables name kind sdtype schema type constraints enum minimum values values_from min
bounds_from order missingValues categories a"""
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=True), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    ),
    max_leaves=12,
)
COLUMN_KEYS = ["kind", "values", "min", "max", "bounds_from", "values_from", "unit", "note"]


@settings(QUICK, max_examples=choose_example_count(300))
@given(
    st.one_of(
        JSON,
        JSON.map(lambda c: {"columns": {"a": c}}),
        JSON.map(lambda c: {"fields": [c]}),
        st.dictionaries(st.sampled_from(COLUMN_KEYS), JSON, max_size=6).map(
            lambda c: {"columns": {"a": {"kind": "numeric", **c}}}
        ),
        st.dictionaries(st.sampled_from(["type", "constraints", "title", "categories"]), JSON, max_size=4).map(
            lambda c: {"fields": [{**c, "name": "a"}]}
        ),
    )
)
def test_any_dictionary(content: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, data = Path(folder) / "d.json", Path(folder) / "t.csv"
        path.write_text(json.dumps(content))
        data.write_text("a\n1\n")
        try:
            parse_dictionary(path, "t")
            with patch("privsyn.specs.draft.read_dictionary", parse_dictionary):  # a process each takes long
                parse_spec(draft(data, path))
        except RequestError as error:
            says_something(error)
