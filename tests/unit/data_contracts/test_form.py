"""The spec as a run form, and presets beneath what the spec itself says, which the form does not overrule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest
from jsonschema import Draft202012Validator
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.schema_tools.validation import validate
from pydantic import ValidationError
from ruamel.yaml import YAML

from privsyn.data_contracts import frozen_model
from privsyn.data_contracts import release_spec as specs
from privsyn.data_contracts.frozen_model import FieldError, explain, leave_to_preset
from privsyn.data_contracts.mechanism_options import Adaptive, Aim, Independent, Mst, PriorLevels, PrivBayes, PrivSyn
from privsyn.data_contracts.presets import (
    ALL_PAIRS_COLUMNS,
    RELATIONS,
    WIDE_RELATIONS,
    find_open_values,
    translate_to_current,
)
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.comparison.method import MethodSettings
from privsyn.flows.deploy import read_spec
from privsyn.flows.release import release
from privsyn.flows.schedule import scheduled_release
from tests.support.linked_tables import make_members_content, make_tables_spec, make_tree_content, make_visits_content
from tests.support.places import ROOT
from tests.support.specs import STATED_PRIOR, make_spec


@cache
def schema_validator() -> Draft202012Validator:
    """Of the spec's JSON schema, which is checked once."""
    schema = ReleaseSpec.model_json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_limits_are_said_and_repeated_and_those_of_an_optional_number_are_said() -> None:
    fields: dict[str, dict[str, Any]] = {
        "share": {"type": "number", "minimum": 0, "maximum": 0.5, "description": "A share."},
        "name": {"type": "string", "pattern": "^a", "description": "A name."},
        "long": {
            "type": "number",
            "exclusiveMinimum": -(2**53),
            "exclusiveMaximum": 2**63,
            "description": "A long one.",
        },
        "most": {
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": 9_000}, {"type": "null"}],
            "description": "Most.",
        },
        "free": {"type": "string", "description": "Free."},
    }
    explain(fields)
    assert [f["description"] for f in fields.values()] == [
        "A share. From 0 to 0.5.",
        "A name.",
        "A long one. More than -2^53 and less than 2^63.",
        "Most. From 1 to 9,000.",
        "Free.",
    ]
    assert [f.get("allOf") for f in fields.values()] == [
        [{"minimum": 0, "maximum": 0.5}],
        [{"pattern": "^a"}],
        [{"exclusiveMinimum": -(2**53), "exclusiveMaximum": 2**63}],
        None,
        None,
    ]


def sent(schema: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """What a form sends of an object that nobody typed into: every default, and the objects inside likewise.

    Of an object without any default it sends nothing; tests/browser/test_run_form_and_page.py looks.
    """
    values = {}
    for name, field in model["properties"].items():
        inner = schema["$defs"][field["$ref"].split("/")[-1]] if "$ref" in field else field
        if "default" in field:
            values[name] = field["default"]
        elif "properties" in inner and name not in model.get("required", ()):
            values[name] = sent(schema, inner)
    return {name: value for name, value in values.items() if value != {}}


def from_form(preset: str, mechanism: str, *, its_own: bool = False) -> ReleaseSpec:
    """A preset, a mechanism and a table's path chosen in the form, and nothing else.

    ``its_own``: options that the mechanism does not have are taken out of what the form sends.
    """
    schema = ReleaseSpec.model_json_schema()
    untouched = sent(schema, schema)
    options = {**untouched.get("mechanism", {}), "name": mechanism}
    if its_own:
        options = {name: value for name, value in options.items() if name in MECHANISMS[mechanism].model_fields}
    return make_spec(**{**untouched, "data": "people.parquet", "preset": preset, "mechanism": options})


@pytest.mark.parametrize("mechanism", ["privsyn", "adaptive", "independent", "mst", "privbayes", "aim"])
@pytest.mark.parametrize("preset", ["0.4", "0.3", "paper"])
def test_the_form_s_defaults_leave_the_preset_as_it_is(preset: str, mechanism: str) -> None:
    assert from_form(preset, mechanism) == make_spec(preset=preset, mechanism=mechanism)


def test_a_form_that_sends_every_default_would_overrule_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: fields of the preset, and those of one mechanism, shown with a default."""
    for module in (specs, frozen_model):
        monkeypatch.setattr(module, "leave_to_preset", lambda *how: None)
    assert from_form("0.3", "adaptive", its_own=True) == make_spec(preset="0.3", mechanism="adaptive")
    paper = make_spec(preset="paper", mechanism="adaptive")
    overruled = from_form("paper", "adaptive", its_own=True)
    assert isinstance(overruled.mechanism, Adaptive) and isinstance(paper.mechanism, Adaptive)
    assert (overruled.accountant, overruled.mechanism.split) != (paper.accountant, paper.mechanism.split)
    assert overruled.mechanism.split == Adaptive().split
    with pytest.raises(ValidationError, match="rounds"):
        from_form("0.3", "privsyn")


def test_a_preset_s_field_that_is_chosen_in_the_form_goes_before_the_preset() -> None:
    content = make_spec().model_dump(mode="json", exclude_unset=True)
    chosen = {**content, "preset": "paper", "split": {"again": True}, "synthesis": {"method": "sweep"}}
    schema_validator().validate(chosen)
    spec = ReleaseSpec.model_validate(chosen)
    options = spec.mechanism
    assert (options.split.remeasure_one_ways, options.synthesis.method, options.split.one_way) == (
        True,
        "sweep",
        0.1,
    )


def test_an_untouched_form_says_nothing_of_the_mechanism() -> None:
    schema = ReleaseSpec.model_json_schema()
    assert "mechanism" not in sent(schema, schema)
    options = schema["properties"]["mechanism"]["properties"]
    assert options["name"]["enum"] == list(MECHANISMS)
    assert all(f"`{name}`: " in options["name"]["description"] for name in MECHANISMS)
    assert set(options) == {name for model in MECHANISMS.values() for name in model.model_fields}
    assert options["rounds_share"]["description"].startswith("`adaptive`: ")
    assert options["selection"]["description"].startswith("`privsyn` and `adaptive`: ")
    sweeps = schema["$defs"]["Synthesis"]["properties"]["sweeps"]
    assert sweeps["description"] == "`sweep`: most sweeps. From 0 to 1,000. Empty: `8`."


MECHANISMS = {
    model.model_fields["name"].default: model
    for model in (PrivSyn, Adaptive, Independent, Mst, PrivBayes, Aim, PriorLevels)
}
WRONG: list[dict[str, Any]] = [
    {"name": "other"},
    {"rounds": 1},
    {"name": "privsyn", "rounds": 1},
    {"name": "adaptive", "rounds": 10},
    {"name": "independent", "rounds": 1},
    {"name": "independent", "synthesis": {"sweeps": 1}},
    {"name": "independent", "split": {}},
    {"name": "mst", "split": {}},
    {"name": "mst", "degree": 2},
    {"name": "privbayes", "degree": 0},
    {"name": "aim", "rounds": 17},
    {"name": "aim", "rounds_share": 0.5},
    {"name": "aim", "per_column": 0},
    {"name": "prior", "group": "region"},
    {"name": "prior", "group": ["region"], "turns": 0},
    {"name": "prior", "group": ["region"], "split": {}},
    {"name": "privbayes", "usefulness": 0},
    {"name": "privbayes", "synthesis": {"sweeps": 1}},
    {"selection": {"gamma": 0}},
    {"selection": {"nothing": 1}},
    {"nothing": 1},
]


@pytest.mark.parametrize("mechanism", WRONG, ids=str)
def test_the_schema_refuses_what_the_model_refuses(mechanism: dict[str, Any]) -> None:
    content = make_spec().model_dump(mode="json", exclude_unset=True)
    with pytest.raises(jsonschema.ValidationError):
        schema_validator().validate({**content, "mechanism": mechanism})
    with pytest.raises(ValidationError):
        ReleaseSpec.model_validate({**content, "mechanism": mechanism})


@pytest.mark.parametrize("mechanism", [{}, {"name": "adaptive"}, *({"name": n} for n in MECHANISMS)], ids=str)
def test_the_schema_takes_what_the_model_takes(mechanism: dict[str, Any]) -> None:
    content = make_spec().model_dump(mode="json", exclude_unset=True)
    if mechanism.get("name") == "prior":
        content, mechanism = {**content, "prior": STATED_PRIOR}, {**mechanism, "group": ["region"]}
    spec = ReleaseSpec.model_validate({**content, "mechanism": mechanism})
    for sent_as in (spec.model_dump(mode="json"), spec.model_dump(mode="json", exclude_defaults=True)):
        schema_validator().validate(sent_as)
    schema_validator().validate({**content, "mechanism": mechanism})


FLAT: dict[str, dict[str, Any]] = {
    "sections": {
        "split": {"one_way": 0.2, "selection": 0.1, "measurement": 0.7, "again": False},
        "compression": {"sigmas": 4.0},
        "selection": {"choice": "dense_marg", "gamma": 300},
        "consistency": {"firm": 1.0},
        "synthesis": {"method": "gum", "kappa": 0.0},
    },
    "rounds": {"adaptive": {"rounds": 2, "share": 0.4, "scores": 0.2, "triples": True}},
    "no rounds": {"adaptive": {"rounds": 0}, "synthesis": {"seed": 7}},
}
"""What deployments of earlier versions have stored."""


@pytest.mark.parametrize(
    "flat",
    [pytest.param(flat, id=name, marks=[] if name == "no rounds" else pytest.mark.slow) for name, flat in FLAT.items()],
)
def test_stored_parameters_with_the_earlier_spelling_pass_prefects_validation(flat: dict[str, Any]) -> None:
    """Of both flows, as they are stored and as an untouched form sends them."""
    content = make_spec().model_dump(mode="json", exclude_unset=True)
    stored = {name: value for name, value in content.items() if name != "mechanism"} | flat
    schema = ReleaseSpec.model_json_schema()
    for spec in (stored, {**sent(schema, schema), **stored}):
        for flow in (release, scheduled_release):
            validate({"spec": spec}, flow.parameters.model_dump(), raise_on_error=True)
        assert ReleaseSpec.model_validate(spec) == ReleaseSpec.model_validate(stored)
    with pytest.raises(Exception, match="Validation failed"):
        validate({"spec": {**stored, "selection": 5}}, release.parameters.model_dump(), raise_on_error=True)


@pytest.mark.parametrize(
    ("stored", "chosen", "place"),
    [
        ({"synthesis": {"sweeps": 2}}, {"synthesis": {"sweeps": 3}}, ("synthesis", "sweeps")),
        ({"split": {"again": True}}, {"split": {"remeasure_one_ways": False}}, ("split", "remeasure_one_ways")),
        ({"adaptive": {"rounds": 1}}, {"name": "independent"}, ("adaptive",)),
        ({"adaptive": {"rounds": 1}}, {"name": "adaptive", "rounds": 2}, ("adaptive",)),
    ],
    ids=["a field", "a renamed field", "another mechanism", "another number of rounds"],
)
def test_what_is_said_twice_and_differently_is_refused_at_its_place(
    stored: dict[str, Any], chosen: dict[str, Any], place: tuple[str, ...]
) -> None:
    with pytest.raises(FieldError, match="is given in the spec and in its `mechanism`") as refused:
        translate_to_current({**stored, "mechanism": chosen})
    assert refused.value.place == place
    for one in (stored, {"mechanism": chosen}):
        translate_to_current(one)


@pytest.mark.parametrize(
    "content",
    [make_visits_content(), make_members_content(), make_tree_content()],
    ids=["persons", "households", "tree"],
)
def test_the_form_takes_tables_as_people_write_them_and_as_they_are_stored(content: dict[str, Any]) -> None:
    spec = make_tables_spec(content)
    unit = spec.unit.model_dump(mode="json", exclude_unset=True)
    written = {**spec.model_dump(mode="json", exclude_unset=True), "unit": unit, "columns": {}, "tables": content}
    written = {name: value for name, value in written.items() if name not in ("data", "order", "with_order", "once")}
    for sent in (written, spec.model_dump(mode="json", exclude_defaults=True), spec.model_dump(mode="json")):
        assert ReleaseSpec.model_validate(sent) == spec
        assert validate({"spec": sent}, release.parameters.model_dump(), raise_on_error=False) == []
        schema_validator().validate(sent)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max": 1}, "1 is less than the minimum of 2"),
        ({"order": 5}, "5 is not"),
        ({"columns": 5}, "5 is not"),
        ({"rows": 5}, "Additional properties are not allowed"),
    ],
    ids=str,
)
def test_the_form_refuses_a_table_that_cannot_be(change: dict[str, Any], words: str) -> None:
    content = make_spec({}, data="", tables=make_visits_content(), unit={"person_id": "pid"})
    written = {**content.model_dump(mode="json", exclude_unset=True), "columns": {}}
    sent = {**written, "tables": make_visits_content(**change)}
    (error,) = validate({"spec": sent}, release.parameters.model_dump(), raise_on_error=False)
    assert words in error.message


RAW = re.compile(r"``|:[a-z:]+:`|`_\b|^\.\. |::$", re.MULTILINE)
"""Marks of reST, which a form shows as they are."""


def list_texts(schema: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every title and description of a schema, with its place."""
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from list_texts(item, f"{place}/{number}")
    elif isinstance(schema, dict):
        for name, item in schema.items():
            if name in ("title", "description") and isinstance(item, str):
                yield f"{place}/{name}", item
            yield from list_texts(item, f"{place}/{name}")


def test_no_form_of_a_deployment_shows_raw_markup() -> None:
    deployments = YAML(typ="safe").load((ROOT / "deployments" / "prefect.yaml").read_text(encoding="utf-8"))
    entrypoints = {entry["entrypoint"] for entry in deployments["deployments"]}
    assert entrypoints
    for entrypoint in sorted(entrypoints):
        flow: Any = load_flow_from_entrypoint(entrypoint)
        texts = [*list_texts(flow.parameters.model_dump()), ("/flow", flow.description)]
        raw = {place: text for place, text in texts if RAW.search(text) or text.count("`") % 2}
        assert raw == {}, entrypoint
        assert len(texts) > 1


def test_a_field_of_the_preset_is_empty_and_says_both_values() -> None:
    number = {"type": "number", "default": 0.3, "description": "A share."}
    leave_to_preset(number, 0.3, "paper", 0.1)
    assert number == {"type": "number", "description": "A share. Empty: `0.3`; with the preset `paper`, `0.1`."}
    switch = {"type": "boolean", "default": True}
    leave_to_preset(switch, True, "paper", False)
    assert switch == {"enum": [True, False], "description": "Empty: `true`; with the preset `paper`, `false`."}


@pytest.mark.parametrize(
    ("docstring", "text"),
    [
        ("Set to ``min``.  Else\n    null.", "Set to `min`. Else null."),
        ("One.\n\n    Two, as :func:`fold` and :py:class:`Spec` say.", "One.\n\nTwo, as `fold` and `Spec` say."),
        ("Text without any.", "Text without any."),
    ],
)
def test_a_docstring_becomes_the_text_of_a_form(docstring: str, text: str) -> None:
    assert frozen_model.write_form_text(docstring) == text


def test_the_paper_preset_is_the_paper_method() -> None:
    """One list of the paper's values: the spec's preset and the comparison's `privsyn-paper` agree."""
    assert MethodSettings.of(make_spec(preset="paper")) == MethodSettings.of(make_spec()).as_in_the_paper()


DECLINED: tuple[dict[str, Any], ...] = (
    *({"split": {name: 0}} for name in ("trends", "values")),
    *({"compression": {name: False}} for name in RELATIONS["compression"]),
    {"consistency": {"pooled": False}},
    *({"synthesis": {name: False}} for name in RELATIONS["synthesis"]),
)
OPEN = {name: {"kind": "integer", "min": 0, "max": 999} for name in "xy"}


@pytest.mark.parametrize("how", [{}, {"exclude_unset": True}, {"exclude_defaults": True}, {"mode": "json"}], ids=str)
def test_what_a_spec_declines_stays_declined_when_it_is_read_again(how: dict[str, Any]) -> None:
    """A manifest, a run's note and a spec whose public files are read are specs that were written and read again."""
    specs = [make_spec(OPEN, mechanism=declined) for declined in DECLINED]
    specs += [make_spec(OPEN, focus={"columns": ["x"], name: False}) for name in ("triples", "scores")]
    specs.append(make_spec(OPEN, workload=[{"columns": ["x", "y"], "measured": False}]))
    for spec in specs:
        assert ReleaseSpec.model_validate(spec.model_dump(**how)) == spec
    assert len({str(spec.model_dump(**how)) for spec in specs}) == len(specs)
    open_ = make_spec(OPEN).model_dump()["mechanism"]
    assert {s: {n: open_[s][n] for n in of} for s, of in RELATIONS.items()} == RELATIONS


def test_a_deployed_preset_means_the_same(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Fields that equal a class default but not the preset's value must not be left out."""
    text = """
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1, delta: 1.0e-9}
budget: {epsilon: 2, delta: 1.0e-9}
preset: paper
synthesis: {method: sweep}
columns: {happy: {kind: boolean}}
"""
    (tmp_path / "people.yaml").write_text(text, encoding="utf-8")
    spec = ReleaseSpec.model_validate(read_spec(str(tmp_path / "people.yaml"))["spec"])
    assert spec.mechanism.synthesis.method == "sweep" and spec.mechanism.split.one_way == 0.1


def test_more_columns_than_all_pairs_are_scored_of_have_trends_although_they_have_bins() -> None:
    number = {"kind": "integer", "min": 0, "max": 9, "bins": 10}
    most = {f"q{i}": number for i in range(ALL_PAIRS_COLUMNS)}
    one_more = {**most, "last": {"kind": "boolean"}}
    assert find_open_values("0.4", most) == {} == find_open_values("0.4", {**most, "id": {"kind": "drop"}})
    assert find_open_values("0.4", one_more) == WIDE_RELATIONS and find_open_values("0.3", one_more) == {}
    assert find_open_values("0.4", {name: {"kind": "boolean"} for name in one_more}) == {}
    for columns, trends in ((most, 0.0), (one_more, WIDE_RELATIONS["split"]["trends"])):
        spec = make_spec(columns=columns)
        assert (spec.mechanism.split.trends, spec.mechanism.consistency.pooled) == (trends, trends > 0)
    assert make_spec(columns=one_more, mechanism={"split": {"trends": 0.0}}).mechanism.split.trends == 0.0
