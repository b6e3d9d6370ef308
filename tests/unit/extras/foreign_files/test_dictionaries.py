"""Dictionaries: the three forms, and that nothing observed in the data passes for public."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from privsyn.base.errors import RequestError
from privsyn.specs.dictionaries import Dictionary, parse_dictionary


def load(tmp_path: Path, content: Any, table: str = "table") -> Dictionary:
    path = tmp_path / "dictionary.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return parse_dictionary(path, table)


def test_shared_form(tmp_path: Path) -> None:
    facts = load(
        tmp_path,
        {
            "columns": {
                "age": {
                    "kind": "numeric",
                    "integer": True,
                    "min": 0,
                    "max": 120.0,
                    "bounds_from": "codebook",
                    "unit": "years",
                    "missing": 0,
                },
                "rate": {"kind": "numeric", "min": 0, "max": 1, "bounds_from": "probability", "note": "a share"},
                "when": {
                    "kind": "datetime",
                    "min": "2013-01-01 05:00:00+05:00",
                    "max": "2014-01-01",
                    "bounds_from": "calendar",
                },
                "state": {"kind": "categorical", "values": ["a", "b", None, "a"], "values_from": "codebook"},
                "job": {
                    "kind": "categorical",
                    "values": ["x"],
                    "values_from": "codebook",
                    "missing_means": "under age",
                },
            }
        },
    ).columns
    assert (facts["age"].kind, facts["age"].min, facts["age"].max, facts["age"].unit) == ("integer", 0, 120, "years")
    assert type(facts["age"].max) is int and facts["age"].nullable is None
    assert (facts["rate"].kind, facts["rate"].max, facts["rate"].description) == ("number", 1.0, "a share")
    assert facts["when"].min == dt.datetime(2013, 1, 1)
    assert facts["state"].values == ["a", "b"] and facts["state"].nullable is True
    assert facts["job"].nullable is True


@pytest.mark.parametrize(
    "source", ["observed", "Observed (2013)", "rule; other end observed", "range of the published file", ""]
)
def test_what_was_observed_is_not_used(tmp_path: Path, source: str) -> None:
    facts = load(
        tmp_path,
        {
            "columns": {
                "age": {
                    "kind": "numeric",
                    "integer": True,
                    "min": 17.0,
                    "max": 9871,
                    "bounds_from": source,
                    "missing": 4321,
                },
                "state": {"kind": "categorical", "values": ["CANARY"], "values_from": source, "missing": 4321},
            }
        },
    ).columns
    assert facts["age"].min is None and facts["age"].max is None and facts["state"].values is None
    assert all(f.nullable is None and f.remarks for f in facts.values())
    assert not any(word in repr(facts) for word in ("9871", "CANARY", "4321"))


FIELDS = {
    "fields": [
        {
            "name": "age",
            "type": "integer",
            "title": "Age",
            "description": "In years",
            "constraints": {"minimum": "0", "maximum": 120, "required": True},
        },
        {"name": "born", "type": "date", "constraints": {"minimum": "1900-01-01"}},
        {"name": "size", "type": "string", "constraints": {"enum": ["S", "M"]}},
        {"name": "code", "type": "integer", "constraints": {"enum": [1, 2]}},
        {"name": "pid", "type": "string", "constraints": {"unique": True}},
        {"name": "where", "type": "geopoint"},
        {"name": "what"},
        {"name": "ok", "type": "boolean"},
        {"name": "odd", "type": "any"},
    ],
    "missingValues": ["", "-99"],
}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: s,
        lambda s: {"resources": [{"name": "other", "schema": {}}, {"path": "data/table.csv", "schema": s}]},
        lambda s: {"resources": [{"name": "whatever", "schema": s}]},
    ],
)
def test_frictionless(tmp_path: Path, wrap) -> None:  # type: ignore[no-untyped-def]
    found = load(tmp_path, wrap(FIELDS))
    facts = found.columns
    assert found.null_values == ["", "-99"]
    assert (facts["age"].kind, facts["age"].min, facts["age"].max, facts["age"].nullable) == ("integer", 0, 120, False)
    assert facts["age"].description == "Age. In years"
    assert (facts["born"].kind, facts["born"].type, facts["born"].min) == ("datetime", "date", dt.datetime(1900, 1, 1))
    assert facts["born"].nullable is True and facts["born"].max is None
    assert facts["size"].values == ["S", "M"] and facts["code"].values == [1, 2] and facts["code"].kind == "categorical"
    assert facts["where"].kind == "drop" and facts["what"].kind == "categorical" and facts["what"].values is None
    assert facts["ok"].kind == "boolean" and facts["odd"].kind is None and facts["pid"].remarks


SDV = {
    "columns": {
        "pid": {"sdtype": "id"},
        "mail": {"sdtype": "email", "pii": True},
        "sex": {"sdtype": "categorical", "order": ["f", "m"]},
        "age": {"sdtype": "numerical", "computer_representation": "Int64"},
        "pay": {"sdtype": "numerical"},
        "w": {"sdtype": "numerical", "computer_representation": "Float"},
        "seen": {"sdtype": "datetime", "datetime_format": "%Y"},
        "ok": {"sdtype": "boolean"},
        "name": {"sdtype": "categorical", "pii": True},
    },
    "primary_key": "pid",
}


@pytest.mark.parametrize(
    "content",
    [
        {**SDV, "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1"},
        {"METADATA_SPEC_VERSION": "V1", "tables": {"table": SDV, "other": {"columns": {}}}, "relationships": []},
    ],
)
def test_sdv(tmp_path: Path, content: Any) -> None:
    facts = load(tmp_path, content).columns
    kinds = {name: f.kind for name, f in facts.items()}
    assert kinds == {
        "pid": "drop",
        "mail": "drop",
        "sex": "categorical",
        "age": "integer",
        "pay": None,
        "w": "number",
        "seen": "datetime",
        "ok": "boolean",
        "name": "drop",
    }
    assert facts["sex"].values == ["f", "m"]
    assert all(f.min is None and f.nullable is None for f in facts.values())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not JSON",
        "[1]",
        "{}",
        "[" * 100_000,
        '{"columns": {}}',
        '{"columns": ["a"]}',
        '{"columns": {"a": 3}}',
        '{"fields": [3]}',
        '{"fields": [{"type": "integer"}]}',
        '{"resources": []}',
        '{"resources": [{"schema": "s.json"}]}',
        '{"tables": {"x": {}, "y": {}}}',
        '{"tables": {"table": {"columns": 3}}}',
        '{"columns": {"a": {"other": 1}}}',
    ],
)
def test_unknown_forms(tmp_path: Path, content: str) -> None:
    with pytest.raises(RequestError) as caught:
        load(tmp_path, content)
    assert "dictionary" in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("bound", "read"),
    [
        ("5.0", 5),
        ("5", 5),
        ("1e3", 1000),
        ("5.5", None),
        ("x", None),
        ("1e999", None),
        (2**60 + 1, 2**60 + 1),
        (5.0, 5),
    ],
)
def test_an_integers_bound_may_be_written_as_text(tmp_path: Path, bound: object, read: int | None) -> None:
    field = {"name": "a", "type": "integer", "constraints": {"minimum": bound}}
    found = load(tmp_path, {"fields": [field]}).columns["a"].min
    assert found == read and type(found) is type(read)
