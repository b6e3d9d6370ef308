"""Spec files: what loads, and the one paragraph that each slip gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.messages import from_validation
from privsyn.specs.spec_file import load_spec, override_options, parse_spec

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
