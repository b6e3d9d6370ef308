"""`defaults:` by name pattern, merge keys, and texts of digits that programs for YAML 1.1 leave bare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privsyn.base.errors import RequestError
from privsyn.specs.spec_file import load_any_spec, parse_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.commands import privsyn
from tests.unit.specs.test_spec_file import HEAD, paragraph

BOTH = (
    HEAD
    + """\
defaults:
  "*": {nullable: true}
  "q?": {kind: categorical, values: [1, 2, 3], description: an answer}
  q2: {values: [1, 2], bins: 5}
columns:
  q1:
  q2: {nullable: false}
  q10: {kind: integer, min: 0, max: 9}
  pid: {kind: drop}
"""
)
WRITTEN_OUT = (
    HEAD
    + """\
columns:
  q1: {kind: categorical, values: [1, 2, 3], description: an answer, nullable: true}
  q2: {kind: categorical, values: [1, 2], description: an answer, nullable: false}
  q10: {kind: integer, min: 0, max: 9, nullable: true}
  pid: {kind: drop}
"""
)


def test_patterns_fill_what_a_column_lacks() -> None:
    """The column's own field, then the last pattern's; fields that its kind does not have are left out."""
    spec = parse_spec(BOTH)
    assert spec == parse_spec(WRITTEN_OUT), "so a spec that is shortened costs nothing"
    assert "defaults" not in json.dumps(spec.public())
    content: dict[str, Any] = parse_yaml(BOTH, "x").content
    assert load_any_spec(content).read_at(spec.data) == spec, "a mapping from Python, too"


def test_patterns_reach_the_columns_of_tables() -> None:
    tables = {
        "persons": {"key": "pid", "columns": {"q1": None}},
        "visits": {"of": "persons", "order": "year", "max": 3, "columns": {"q2": {"nullable": True}, "year": None}},
    }
    patterns = {"q?": {"kind": "categorical", "values": [1, 2]}, "year": {"kind": "integer", "min": 0, "max": 9}}
    content = {**parse_yaml(HEAD, "x").content, "unit": {"person_id": "pid"}, "data": ""}
    spec = load_any_spec({**content, "tables": tables, "defaults": patterns})
    assert [(name, column.kind) for name, column in spec.measured_columns.items()] == [
        ("q1", "categorical"),
        ("q2", "categorical"),
        ("year", "integer"),
    ]
    assert spec.columns["q2"].nullable and not spec.columns["q1"].nullable
    with pytest.raises(RequestError, match="matches no column"):
        load_any_spec({**content, "tables": tables, "defaults": {"z*": {"nullable": True}}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "defaults: 5\ncolumns: {a: {kind: boolean}}", ["defaults (line 6)", "must be a mapping"]),
        (HEAD + "defaults: {'*': 5}\ncolumns: {a: {kind: boolean}}", ['defaults."*" (line 6)', "mapping of fields"]),
        (HEAD + "defaults: {b*: {nullable: true}}\ncolumns: {a: {kind: boolean}}", ["matches no column", "`*` stands"]),
        (
            HEAD + "defaults: {a: {nulable: true}}\ncolumns: {a: {kind: boolean}}",
            ["defaults.a.nulable (line 6)", "not a field of any kind", "Did you mean `nullable`?"],
        ),
        (
            HEAD + "defaults:\n  a: {min: 9, max: 1}\ncolumns:\n  a: {kind: integer}",
            ["columns.a", "greater than `max`"],
        ),
        (HEAD + "defaults:\n  a: {min: x}\ncolumns:\n  a: {kind: integer, max: 1}", ["columns.a.min (line 7)", "`x`"]),
        (HEAD + "defaults:\n  a: {kind: [b]}\ncolumns:\n  a: {max: 1}", ["columns.a"]),
        (HEAD + "defaults:\n  a: {min: TODO}\ncolumns:\n  a: {kind: integer, max: 1}", ["defaults.a.min (line 7)"]),
        (HEAD + "defaults: {a: {nullable: true}}\ncolumns: [a]", ["matches no column"]),
    ],
)
def test_what_is_wrong_is_named_where_it_stands(text: str, words: list[str]) -> None:
    message = paragraph(text)
    for word in words:
        assert word in message, message


def test_spec_check_prints_them_resolved(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(BOTH, encoding="utf-8")
    result = privsyn("spec", "check", path, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)["defaults"]
    assert answer["q2"] == {"kind": "categorical", "values": [1, 2], "description": "an answer"}
    assert answer["q10"] == {"nullable": True} and "pid" not in answer
    assert "Columns with fields from `defaults`" in result.output
    path.write_text(WRITTEN_OUT, encoding="utf-8")
    assert "defaults" not in privsyn("spec", "check", path, "--json").output


def test_a_merge_brings_fields_that_the_mapping_lacks() -> None:
    text = """
a: &a {x: 1, y: {z: 2}}
b: {<<: *a, x: 3}
c: {x: 5, <<: [{y: 6}, *a], w: 7}
d: {"<<": 8}
"""
    document = parse_yaml(text, "x")
    assert document.content["b"] == {"x": 3, "y": {"z": 2}}
    assert document.content["c"] == {"x": 5, "y": 6, "w": 7}
    assert document.content["d"] == {"<<": 8}, "in quotation marks it is a name like any other"
    assert document.lines["b", "x"] == 3 and document.lines["b", "y", "z"] == 2


@pytest.mark.parametrize(
    "text",
    ["a: {<<: [5]}", "a: {<<: }", "a: &a {<<: *a}", "a: {? [x] : 1, <<: {b: 1}}", "a: {<<: {b: 1}, <<: {c: 1}}"],
)
def test_other_merges_are_refused_in_words(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_yaml(text, "x")
    assert caught.value.cure


def test_listed_digits_that_yaml_1_1_takes_for_text_are_text() -> None:
    """PyYAML writes '00707', an octal number if bare, in quotation marks, and 00708 without any."""
    columns = "columns:\n  zip: {kind: categorical, values: [00708, '00707', 00999]}\nnull_values: ['', 0099]"
    spec = parse_spec(HEAD + columns)
    assert spec.columns["zip"].values == ("00708", "00707", "00999") and spec.null_values == ("", "0099")
    looked_up = "\nrules:\n- lookup: {from: zip, to: state, rows: [[00708, MA], ['00707', CT], [00999, CT]]}"
    state = columns.replace("00999]}", "00999], unlisted: '00708'}").replace(
        "\nnull", "\n  state: {kind: categorical, values: [MA, CT]}\nnull"
    )
    (rule,) = parse_spec(HEAD + state + looked_up).rules
    assert [row[0] for row in rule.lookup.rows] == ["00708", "00707", "00999"]  # rows are read as `values` are
    for wrong in (
        "lookup: {rows: [[00707]]}",
        "rows: [[00708]]",
        "values: [00707]",
        "min: 0089",
        "values: 00708",
        "values: [00708.5]",
        "values: [-008]",
    ):
        with pytest.raises(RequestError, match="leading zero"):
            parse_yaml(f"a: {{{wrong}}}", "x")
