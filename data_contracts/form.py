"""Adapt the spec's JSON schema to a run form: limits in words, empty preset fields, one object per choice.

A form shows titles, descriptions, choices and defaults, seldom limits, and sends every default that it shows.  So
limits are said in words too.  A field whose default depends on the preset is shown empty, with its values in words;
otherwise the form would overrule the preset unasked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = dict[str, Any]

_NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_LIMITS = (*_NUMBERS, "pattern", "minLength", "maxLength")

_ROLE = re.compile(r":[a-z][a-z:]*:(?=`)")
"""reST roles before names in code quotes: ``:func:``, ``:py:class:``."""

_WHERE_BINS_ARE_OPEN = "where a column of numbers or moments has no bins of its own"


def write_form_text(docstring: str) -> str:
    """Return a docstring as Markdown for a form: one line per paragraph, single backticks around code."""
    text = _ROLE.sub("", docstring).replace("``", "`")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text.strip()))


def explain(fields: Mapping[str, Schema]) -> None:
    """Describe each property's limits in words, in place, repeat them under ``allOf``, and give it a title.

    The repetition means the same.  Prefect's form passes on only the keywords it knows, which are not the limits, but
    it passes ``allOf`` on whole.  So a wrong value is refused beside its field.
    """
    for name, field in fields.items():
        field.setdefault("title", name.replace("_", " ").title())  # otherwise the form shows the model's name
        limits = {limit: field[limit] for limit in _LIMITS if limit in field}
        if limits:
            field["allOf"] = [limits]
        numbers = [each for each in (field, *field.get("anyOf", ())) if any(limit in each for limit in _NUMBERS)]
        if numbers:
            _describe(field, describe_limits(numbers[0]))


def leave_to_preset(field: Schema, default: Any, preset: str, value: Any, where: str = "") -> None:
    """Show a property empty, in place; if it stays empty, the preset decides.

    ``value``: the value under ``preset`` instead of ``default``, possibly equal; ``where``: the columns that
    ``default`` applies to, in words, unless all.
    """
    field.pop("default", None)
    if "anyOf" in field:  # the form shows and sends a constant that comes first
        field["anyOf"].sort(key=lambda each: "const" in each)
    if field.get("type") == "boolean":  # a switch cannot be empty; a list of two can
        field["enum"] = [True, False]
        del field["type"]
    empty = f"{_format_value(default)} {where}".strip()
    if value == default and not where:
        _describe(field, f"Empty: {empty}.")
    else:
        _describe(field, f"Empty: {empty}; with the preset `{preset}`, {_format_value(value)}.")


def leave_to_ledger(field: Schema) -> None:
    """Show an optional choice as an initially empty list, in place; if it stays empty, the ledger decides."""
    field.pop("default", None)
    field |= field.pop("anyOf")[0]


def leave_options(
    options: Schema, preset: Mapping[str, Any], open_bins: Mapping[str, Any], resolve: Callable[[Schema], Schema]
) -> None:
    """Show a mechanism's options empty, in place, including those in its sections.

    ``preset``: the paper's values; ``open_bins``: the default preset's values for columns with open bins.
    """
    for name, field in options.items():
        if "$ref" in field:
            field.pop("default", None)
            leave_options(resolve(field)["properties"], preset.get(name, {}), open_bins.get(name, {}), resolve)
        elif "default" in field and name != "name":  # mechanisms share sections: describe each once
            paper = preset.get(name, field["default"])
            if name in open_bins:
                leave_to_preset(field, open_bins[name], "paper", paper, _WHERE_BINS_ARE_OPEN)
            else:
                leave_to_preset(field, field["default"], "paper", paper)


def merge_into_one_object(field: Schema, resolve: Callable[[Schema], Schema]) -> None:
    """Show a choice of models, distinguished by ``name``, as one object with all their properties, in place.

    Prefect's form matches an object to the model that has most of its properties, whatever their values are.  So it
    cannot hold models that share properties beside each other.  Here the name is a list to choose from, and each
    property says which models have it.  ``if`` and ``else``, which the form passes over, keep each model's own rules
    for everything that reads the whole schema.  ``resolve``: a schema for a reference to it.  The models' properties
    show no default (``leave_to_preset``).
    """
    choices = {resolve(each)["properties"]["name"]["const"]: each for each in field.pop("oneOf")}
    first = next(iter(choices))
    for gone in ("default", "discriminator"):
        field.pop(gone, None)
    name: Schema = {"type": "string", "enum": list(choices), "title": "Name"}
    properties: Schema = {}
    for choice, each in choices.items():
        for part, inner in resolve(each)["properties"].items():
            properties.setdefault(part, dict(inner))
        _describe(name, f"{_format_value(choice)}: {resolve(each)['properties']['name'].get('description', '')}")
    _describe(name, f"Empty: {_format_value(first)}.")
    for part, inner in properties.items():
        having = [choice for choice, each in choices.items() if part in resolve(each)["properties"]]
        if len(having) < len(choices):
            inner["description"] = f"{' and '.join(map(_format_value, having))}: {inner.get('description', '')}"
    rules: Schema = choices[first]
    for other in list(choices)[1:]:
        named = {"properties": {"name": {"const": other}}, "required": ["name"]}
        rules = {"if": named, "then": choices[other], "else": rules}
    field |= {"type": "object", "properties": {**properties, "name": name}, "additionalProperties": False, **rules}


def describe_limits(field: Mapping[str, Any]) -> str:
    """Return a sentence such as ``From 1 to 10,000.``; empty without limits on the number."""
    low, above = field.get("minimum"), field.get("exclusiveMinimum")
    high, below = field.get("maximum"), field.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"From {_format_number(low)} to {_format_number(high)}."
    words = [
        f"{phrase} {_format_number(limit)}"
        for phrase, limit in (("at least", low), ("more than", above), ("at most", high), ("less than", below))
        if limit is not None
    ]
    return " and ".join(words).capitalize() + "." if words else ""


def _describe(field: Schema, words: str) -> None:
    field["description"] = f"{field.get('description', '')} {words}".strip()


def _format_number(value: float) -> str:
    """Return ``2^53`` for a large power of two, else a number with commas or in its shortest form."""
    size = abs(int(value))
    if size > 2**31 and size & (size - 1) == 0:
        return f"{'-' if value < 0 else ''}2^{size.bit_length() - 1}"
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _format_value(value: Any) -> str:
    """Return the value as written in a spec, in code quotes."""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
