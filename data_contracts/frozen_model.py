"""The base of every spec model: immutable, strict about unknown fields, shown as a form; and its validators' error.

Adapt the spec's JSON schema to a run form: limits in words, empty preset fields, one object per choice.

A form shows titles, descriptions, choices and defaults, seldom limits, and sends every default that it shows.  So
limits are said in words too.  A field whose default depends on the preset is shown empty, with its values in words;
otherwise the form would overrule the preset unasked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from privsyn.data_contracts.unicode import is_unicode

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


class FieldError(ValueError):
    """A value that a model refuses.

    ``problem`` says what is wrong and ``cure`` what to do, neither with a full stop.  ``place`` is the field that the
    error is about, relative to the field or model whose validator raises it; empty for that field itself.
    """

    def __init__(self, problem: str, cure: str = "", place: tuple[str | int, ...] = ()) -> None:
        self.problem, self.cure, self.place = problem, cure, place
        super().__init__(f"{problem}. {cure}" if cure else problem)


@cache
def _find_numeric_types(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields with numbers, or lists or mappings of numbers, and without booleans."""
    parts_of = {name: set(_iterate_types(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, parts in parts_of.items() if parts & {int, float} and bool not in parts)


def _iterate_types(annotation: Any) -> Iterator[Any]:
    """Yield the types in an annotation; choices of a ``Literal`` are not types."""
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    yield from chain.from_iterable(map(_iterate_types, parts)) if parts else (annotation,)


def _refuse_booleans(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return [_refuse_booleans(item) for item in value]
    return {k: _refuse_booleans(v) for k, v in value.items()} if isinstance(value, dict) else value


class FrozenModel(BaseModel):
    """Base of every model of the spec: immutable, and unknown fields are refused.

    ``OMITTED_AT_DEFAULT``: fields that are not written where they have their defaults.  Manifests and keys of earlier
    versions do not know them, or the ledger fills them in.
    """

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans_as_numbers(cls, content: Any) -> Any:
        """Turn a boolean in a number's place into text, which is refused; otherwise true would become 1."""
        if not isinstance(content, Mapping):
            return content
        numeric = _find_numeric_types(cls)
        return {name: _refuse_booleans(value) if name in numeric else value for name, value in content.items()}

    @field_validator("*", mode="after")
    @classmethod
    def _check_characters(cls, value: Any) -> Any:
        if not is_unicode(value):
            raise FieldError(
                "holds half a character (a lone surrogate), which no file can hold", "Write the whole character"
            )
        return value

    @model_serializer(mode="wrap")
    def _serialize(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        return self.leave_out_unused(handler)

    def leave_out_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return what is written: all fields except fields in OMITTED_AT_DEFAULT that have their defaults."""
        fields, content = type(self).model_fields, handler(self)
        unused = {
            name for name in self.OMITTED_AT_DEFAULT & fields.keys() if getattr(self, name) == fields[name].default
        }
        return {name: value for name, value in content.items() if name not in unused}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema, with every limit in words, for the run form (form.py)."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        if "description" in resolved:  # the model's docstring
            resolved["description"] = write_form_text(resolved["description"])
        explain(resolved.get("properties", {}))
        return schema


class ResultModel(BaseModel):
    """A frozen model that is also its JSON file: unknown fields, NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PrivateResult(ResultModel):
    """A result that is a function of private rows: it prints no figure, so that none gets into a log or a notebook."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: PRIVATE>"

    __str__ = __repr__
