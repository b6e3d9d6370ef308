"""Spec files: what loads, defaults by name pattern, merge keys, and the one paragraph that each slip gets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.messages import from_validation
from privsyn.specs.spec_file import load_any_spec, load_spec, override_options, parse_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.commands import privsyn
from tests.support.specs import PEOPLE_YAML

HEAD = """\
dataset: demo
data: table.csv
unit: {records_per_person: 1}
privacy: {epsilon: 1.0, delta: 1.0e-9}
budget: {epsilon: 10, delta: 1e-8}
"""
COMPUTED = HEAD + "columns: {a: {kind: boolean}, b: {kind: boolean}, c: {kind: boolean}}\n"
COLUMNS = "columns: {age: {kind: integer, min: 0, max: 99}}\n"


def paragraph(text: str) -> str:
    with pytest.raises(RequestError) as caught:
        parse_spec(text)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message and "pydantic" not in message and "Traceback" not in message
    return message


def test_yaml_types() -> None:
    spec = parse_spec(
        HEAD
        + """
columns:
  yn: {kind: categorical, values: [no, yes]}
  n: {kind: categorical, values: [1, 2]}
  f: {kind: categorical, values: [1, 2.5]}
  t: {kind: categorical, values: ["01", "TODO"]}
  2019: {kind: boolean}
  no: {kind: drop}
"""
    )
    assert spec.columns["yn"].values == ("no", "yes")
    assert [type(v) for v in spec.columns["n"].values] == [int, int]
    assert spec.columns["f"].values == (1.0, 2.5)
    assert "2019" in spec.columns and "no" in spec.columns


def column(fields: str, name: str = "t") -> str:
    """The spec with one column, of these fields."""
    return HEAD + f"columns: {{{name}: {{{fields}}}}}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + COLUMNS + "dataset: again\n", ["line 7", "`dataset` for the second time (first on line 1)"]),
        (
            HEAD.replace("unit: {records_per_person: 1}\n", "") + COLUMNS,
            ["unit: is missing", "records_per_person: K", "person_id: COLUMN, max_records: K"],
        ),
        (HEAD.replace("{records_per_person: 1}", "{}") + COLUMNS, ["unit (line 3)", "person_id: COLUMN"]),
        (HEAD.replace("delta: 1.0e-9", "dleta: 1") + COLUMNS, ["privacy.delta: is missing", "Did you mean `delta`?"]),
        (column("min: 1, max: 3", "age"), ["columns.age", "no `kind`", "integer, number, datetime"]),
        (column("kind: string", "age"), ["columns.age", "`string`", "Did you mean `kind: categorical`?"]),
        (column("kind: integer, min: TODO, max: 3", "age"), ["columns.age.min (line 6): still says TODO"]),
        (column("kind: TODO", "age"), ["columns.age.kind (line 6): still says TODO", "integer"]),
        (HEAD + "columns: {'a b': {kind: integer, min: 5, max: x}}", ['columns."a b".max']),
        (column("kind: datetime, min: 2010-01-01, max: 2020-01-01T00:00:00Z"), ["columns.t.max", "time zone"]),
        (column("kind: number, min: -1.0e308, max: 1.0e308"), ["columns.t", "`edges`"]),
        (
            column("kind: number, type: float32, min: 1.0e39, max: 2.0e39"),
            ["columns.t", "`type: float32` cannot hold", "float64"],
        ),
        (
            column("kind: number, type: float32, min: 1600000001, max: 1600000100"),
            ["columns.t", "cannot hold", "from 1600000001.0 to 1600000100.0"],
        ),
        (
            column("kind: integer, min: 9007199254740991, max: 9007199254740992"),
            ["columns.t", "`max` (9007199254740992) is too large", "Write at most 9007199254740991"],
        ),
        (column("kind: number, min: 1, max: 1", "k"), ["`min` and `max` are both 1.", "Widen"]),
        (column("kind: number, min: 5, max: 1.5", "k"), ["`min` (5) is greater than `max` (1.5)"]),
        (column("kind: number, min: 1, max: 2, edges: [1, 1, 2]", "k"), ["`edges` must be strictly"]),
        (
            column("kind: datetime, min: 2020-02-01, max: 2020-01-01"),
            ["`min` (2020-02-01 00:00:00) is greater than `max` (2020-01-01 00:00:00)"],
        ),
        (COMPUTED + "rules: [{derive: {b: '5'}}]", ["rules[0].derive.b", "names no column"]),
        (COMPUTED + "rules: [{derive: {a: b}}, {derive: {b: a}}]", ["rules (line 7)", "are computed from each other"]),
        (column("kind: categorical, values: [2010-01-01]", "c"), ["columns.c.values[0]", "quotation marks"]),
        (HEAD + f"columns: {{c: {{kind: categorical, values: [{10**400}, 1.5]}}}}", ["columns.c.values", "2**53"]),
        (column("kind: categorical, values: [02134]", "c"), ["line 6", "leading zero"]),
        (HEAD + COLUMNS + "accountant: pld", ["accountant (line 7)", "'gaussian', 'tight', 'paper'"]),
        (
            HEAD.replace("{records_per_person: 1}", "{person_id: pid, max_records: 2}") + COLUMNS,
            ["unit.person_id", "'pid'"],
        ),
        (
            HEAD.replace("{records_per_person: 1}", "{household_id: hid}") + COLUMNS,
            ["unit (line 3)", "`household_id` and `max_records` go together", "`household_id` in its place protects"],
        ),
        (
            HEAD + COLUMNS + "about: {title: " + "x" * 201 + "}",
            ["about.title", "must be text of at most 200 characters"],
        ),
        (
            HEAD + COLUMNS + "engine: {kind: dask, address: x}",
            ["engine.address (line 7): is not the spec's to say", "The operator names the cluster: PRIVSYN_DASK"],
        ),
        (HEAD + COLUMNS + "engine: {worker: 1}", ["Did you mean `workers`? Its fields are kind, workers."]),
        (HEAD + COLUMNS + "adaptive: {turns: 1}", ["`adaptive`. Its fields are rounds, share, scores, triples."]),
        (
            HEAD + COLUMNS + "about: {order: x}",
            ["a field of the spec itself", "Write `order` beside `about`, not inside it"],
        ),
        (HEAD + COLUMNS + "about: {titel: x}", ["`about`. Did you mean `title`? Its fields are title,"]),
    ],
)
def test_paragraphs(text: str, words: list[str]) -> None:
    message = paragraph(text)
    for word in words:
        assert word in message, message


def test_an_escaped_emoji_is_one_character() -> None:
    spec = parse_spec(
        HEAD
        + 'columns: {"\\ud83d\\ude00": {kind: boolean, description: "a \\ud83d\\ude00 b"}}\n'
        + 'about: {keywords: ["\\ud83d\\ude00"]}'
    )
    assert spec.columns["\U0001f600"].description == "a \U0001f600 b"
    assert spec.about.keywords == ("\U0001f600",)


@pytest.mark.parametrize(
    "wrong",
    ['{"x\\ud83d": {kind: boolean}}', '{x: {kind: boolean,\n  description: "\\ude00\\ud83d"}}'],
)
def test_half_a_character_is_refused_by_its_line(wrong: str) -> None:
    line = HEAD.count("\n") + 1 + wrong.count("\n")
    assert f"line {line} has half of a character" in paragraph(HEAD + "columns: " + wrong)


TWO_TABLES = """\
dataset: demo
unit: {person_id: pid}
privacy: {epsilon: 1.0, delta: 1.0e-9}
budget: {epsilon: 10, delta: 1e-8}
tables:
  persons:
    key: pid
    columns: {city: {kind: integer, min: 0, max: 9}}
  visits:
    of: persons
    order: year
    max: 3
    columns:
      year: {kind: integer, min: 0, max: 9}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("city: {kind: integer, min: 0", "city: {kind: integer, min: a", "tables.persons.columns.city.min (line 8)"),
        ("year: {kind: integer", "year: {kind: whole", "tables.visits.columns.year (line 14): has the unknown kind"),
        ("year: {kind: integer, min: 0", "year: {kind: integer, min: TODO", "tables.visits.columns.year.min (line 14)"),
        ("order: year", "order: 3", "tables.visits.order (line 11)"),
        ("max: 3", "max: many", "tables.visits.max (line 12)"),
    ],
)
def test_an_error_in_one_of_two_tables_is_named_by_its_table_and_line(right: str, wrong: str, words: str) -> None:
    assert right in TWO_TABLES and paragraph(TWO_TABLES.replace(right, wrong)).startswith(words)


def numeric_fields(model: type[BaseModel]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The dotted places of every number in a section of the spec, with a mapping that puts true there.

    A section with a choice of options (the mechanism) is walked for each choice; of a list (the workload) an entry is;
    a mapping (the tables) has names of its own.
    """
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is dict:
            continue
        listed = get_origin(field.annotation) is tuple
        choices = [a for a in (field.annotation, *get_args(field.annotation)) if isinstance(a, type)]
        models = [choice for choice in choices if issubclass(choice, BaseModel)]
        for inner in models:
            tag = {"name": inner.model_fields["name"].default} if len(models) > 1 else {}
            for place, true in numeric_fields(inner):
                section = {**tag, **true}
                yield (f"{name}[0].{place}", {name: [section]}) if listed else (f"{name}.{place}", {name: section})
        annotation = str(field.annotation)
        if not models and re.search(r"\b(int|float)\b", annotation) and "bool" not in annotation:
            yield name, {name: True}


NUMERIC = list(numeric_fields(ReleaseSpec))


@pytest.mark.parametrize(("place", "true"), NUMERIC)
def test_true_is_no_number(place: str, true: dict[str, Any]) -> None:
    content = {**parse_spec(HEAD + COLUMNS).model_dump(exclude_defaults=True), **true}
    with pytest.raises(ValidationError) as caught:
        ReleaseSpec.model_validate(content)
    (problem,) = (p for p in from_validation(caught.value) if p.field == place)
    assert problem.text.startswith("is `true`, but must be ") and "number" in problem.text


HALF = "x \ud83d"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dataset": HALF}, "dataset"),
        ({"null_values": ["", HALF]}, "null_values"),
        ({"about": {"keywords": [HALF]}}, "about.keywords"),
        ({"columns": {HALF: {"kind": "boolean"}}}, "columns"),
        ({"columns": {"a": {"kind": "boolean", "description": HALF}}}, "columns.a.description"),
        ({"columns": {"a": {"kind": "categorical", "values": ["x", HALF]}}}, "columns.a.values"),
    ],
)
def test_half_a_character_in_a_dictionary_is_refused_by_its_field(change: dict[str, object], field: str) -> None:
    content = parse_spec(HEAD + COLUMNS).model_dump()
    with pytest.raises(ValidationError) as caught:
        ReleaseSpec.model_validate({**content, **change})
    (problem,) = from_validation(caught.value)
    assert problem.field == field and "half" in problem.text


@pytest.mark.parametrize("values", ["[~]", "[[a]]", "[{a: 1}]"])
def test_a_list_of_one_wrong_item_has_one_problem(values: str) -> None:
    message = paragraph(HEAD + f"columns: {{c: {{kind: categorical, values: {values}}}}}")
    assert "columns.c.values[0]" in message and "Also" not in message and "tuple" not in message


def test_three_problems_and_a_count() -> None:
    columns = "".join(f"  c{i}: {{kind: integer, min: x, max: 1}}\n" for i in range(5))
    message = paragraph(HEAD + "columns:\n" + columns)
    assert "columns.c2.min" in message and "columns.c3" not in message and "2 more" in message


def test_load_reads_data_relative_to_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + COLUMNS).encode())
    assert load_spec(path).data == str(tmp_path / "table.csv")
    path.write_text((HEAD + COLUMNS).replace("table.csv", "/data/t.csv"))
    assert load_spec(path).data == "/data/t.csv"


def test_override() -> None:
    spec = parse_spec(HEAD + COLUMNS)
    changed = override_options(spec, epsilon=2, delta=1e-10, data="elsewhere.csv", seed=7)
    assert (changed.privacy.epsilon, changed.privacy.delta, changed.mechanism.synthesis.seed) == (2, 1e-10, 7)
    assert changed.data == str(Path("elsewhere.csv").absolute())
    assert override_options(spec) == spec
    assert isinstance(spec, ReleaseSpec) and spec.privacy.epsilon == 1


def test_the_description_of_a_column_of_two_tables_may_be_the_word_todo() -> None:
    spec = parse_spec(TWO_TABLES.replace("year: {kind: integer", "year: {kind: integer, description: TODO"))
    assert spec.columns["year"].description == "TODO"


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


def test_a_wrong_place_is_told_after_the_faults_of_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "people.yaml"
    wrong_place = PEOPLE_YAML.replace("data: people.parquet", "data: foo://x")
    path.write_text(wrong_place.replace("{records_per_person: 1}", "5"))
    with pytest.raises(RequestError) as refused:
        load_spec(path)
    assert refused.value.field == "unit" and refused.value.line == 3
    path.write_text(wrong_place)
    with pytest.raises(RequestError) as refused:
        load_spec(path)
    assert refused.value.field == "data"
