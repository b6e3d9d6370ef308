"""The spec as a run form: limits in words and beside their field, and presets that the form does not overrule."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from data_contracts import spec as specs
from data_contracts.form import explain, leave_to_preset, limits_in_words
from data_contracts.spec import PRESETS, ReleaseSpec
from tests.specs import make_spec


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"minimum": 1, "maximum": 10_000}, "From 1 to 10,000."),
        ({"exclusiveMinimum": 0, "maximum": 1e6}, "More than 0 and at most 1,000,000."),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, "More than 0 and less than 1."),
        ({"minimum": 0, "exclusiveMaximum": 2**63}, "At least 0 and less than 2^63."),
        ({"minimum": -(2**53), "maximum": 2**53}, "From -2^53 to 2^53."),
        ({"minimum": 0.5}, "At least 0.5."),
        ({"pattern": "a"}, ""),
        ({}, ""),
    ],
)
def test_limits_in_words(field: dict[str, Any], words: str) -> None:
    assert limits_in_words(field) == words


def test_limits_are_said_and_repeated_and_those_of_an_optional_number_are_said() -> None:
    fields: dict[str, dict[str, Any]] = {
        "share": {"type": "number", "minimum": 0, "maximum": 1, "description": "A share."},
        "name": {"type": "string", "pattern": "^a", "description": "A name."},
        "most": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}], "description": "Most."},
        "free": {"type": "string", "description": "Free."},
    }
    explain(fields)
    assert [f["description"] for f in fields.values()] == [
        "A share. From 0 to 1.",
        "A name.",
        "Most. From 1 to 9.",
        "Free.",
    ]
    assert [f.get("allOf") for f in fields.values()] == [
        [{"minimum": 0, "maximum": 1}],
        [{"pattern": "^a"}],
        None,
        None,
    ]


def test_a_part_is_shown_by_its_own_name_not_its_model_s() -> None:
    fields = ReleaseSpec.model_json_schema()["properties"]
    assert [fields[name]["title"] for name in ("privacy", "budget", "null_values")] == [
        "Privacy",
        "Budget",
        "Null Values",
    ]


def test_a_field_of_the_preset_is_empty_and_says_both_values() -> None:
    number = {"type": "number", "default": 0.3, "description": "A share."}
    leave_to_preset(number, 0.3, "paper", 0.1)
    assert number == {"type": "number", "description": "A share. Empty: `0.3`; with the preset `paper`, `0.1`."}
    switch = {"type": "boolean", "default": True}
    leave_to_preset(switch, True, "paper", False)
    assert switch == {"enum": [True, False], "description": "Empty: `true`; with the preset `paper`, `false`."}


def sent(schema: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """What a form sends of an object that nobody typed into: every default, and the objects inside likewise."""
    values = {}
    for name, field in model["properties"].items():
        if "default" in field:
            values[name] = field["default"]
        elif "$ref" in field and name not in model.get("required", ()):
            values[name] = sent(schema, schema["$defs"][field["$ref"].split("/")[-1]])
    return values


def from_form(preset: str) -> ReleaseSpec:
    schema = ReleaseSpec.model_json_schema()
    return make_spec(**{**sent(schema, schema), "preset": preset})


@pytest.mark.parametrize("preset", PRESETS)
def test_the_form_s_defaults_leave_the_preset_as_it_is(preset: str) -> None:
    assert from_form(preset) == make_spec(preset=preset)


def test_a_form_that_sends_every_default_would_overrule_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: fields of the preset shown with a default."""
    monkeypatch.setattr(specs, "leave_to_preset", lambda *how: None)
    assert from_form("default") == make_spec()
    assert from_form("paper") != make_spec(preset="paper")


def test_a_preset_s_field_that_is_chosen_in_the_form_goes_before_the_preset() -> None:
    content = make_spec().model_dump(mode="json", exclude_unset=True)
    chosen = {**content, "preset": "paper", "split": {"again": True}, "synthesis": {"method": "sweep"}}
    jsonschema.validate(chosen, ReleaseSpec.model_json_schema())
    spec = ReleaseSpec.model_validate(chosen)
    assert (spec.split.again, spec.synthesis.method, spec.split.one_way) == (True, "sweep", 0.1)


@pytest.mark.parametrize("epsilon", [0, -1, 2e6, "much", None])
def test_a_wrong_epsilon_is_refused_by_the_schema_under_all_of_too(epsilon: Any) -> None:
    fields = ReleaseSpec.model_json_schema()["$defs"]["Guarantee"]["properties"]
    passed_on = {name: fields["epsilon"][name] for name in ("type", "allOf")}  # what Prefect's form checks with
    jsonschema.validate(1.0, passed_on)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(epsilon, passed_on)
