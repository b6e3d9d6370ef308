"""Error messages for a release spec: one paragraph with the field's dotted path, its value, and the cure.

A spec is public, so its values may be shown.

Places in a spec: the path of a field, as the file's author wrote it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.wording import Text, join_sentences, mention, refer_to_action
from privsyn.data_contracts.columns import Column
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.linked_tables import OF_ROWS
from privsyn.data_contracts.mechanism_options import AnyMechanism
from privsyn.data_contracts.presets import as_written
from privsyn.data_contracts.release_spec import ReleaseSpec


def _name_models(choice: Any, literal: str) -> dict[str, type[BaseModel]]:
    """Return name -> model of a choice of models, which the field ``literal`` tells apart."""
    models = get_args(get_args(choice)[0])
    return {get_args(model.model_fields[literal].annotation)[0]: model for model in models}


KINDS, MECHANISMS = _name_models(Column, "kind"), _name_models(AnyMechanism, "name")

RULES = ("never", "derive", "lookup", "one_of")

_BRANCHES = {"bool", "int", "float", "str"}


def _spell_inside_tables(
    place: tuple[str | int, ...], lines: Mapping[tuple[str | int, ...], int]
) -> list[tuple[str | int, ...]]:
    """Return the spellings of ``place`` inside tables of the file that have it."""
    inside = place
    if place[:1] == ("unit",) and place[-1] == "max_records":
        inside = ("max",)
    elif place[:1] not in (("columns",), *((field,) for field in OF_ROWS)):
        return []
    tables = [here[1] for here in lines if len(here) == 2 and here[0] == "tables"]
    return [("tables", table, *inside) for table in tables if ("tables", table, *inside[:2]) in lines]


def drop_table(place: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return a place without the table that the column is in; other places unchanged."""
    return place[2:] if place[:1] == ("tables",) and place[2:3] == ("columns",) else place


def format_place(place: Sequence[str | int]) -> str:
    """Return a place as text such as ``columns.age.min``, with unusual names quoted and list positions in brackets."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = re.fullmatch(r"[\w-]+", part) is not None
            text += ("." if text else "") + (clip_text(part) if plain else f'"{clip_text(part)}"')
    return text or "the spec"


def clip_text(text: str, limit: int = 60) -> str:
    """Return the text, cut to ``limit`` characters with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def locate_field(entry: Any) -> tuple[str | int, ...]:
    """Return the place of a pydantic error in the spec, without pydantic's names of union branches."""
    parts = list(entry["loc"])
    if len(parts) > 2 and parts[0] == "columns" and parts[2] in KINDS:
        del parts[2]
    if len(parts) > 2 and parts[0] == "rules" and parts[2] in RULES:
        del parts[2]
    if len(parts) > 1 and parts[0] == "mechanism" and parts[1] in MECHANISMS:
        del parts[1]
    if (
        len(parts) > 1
        and isinstance(parts[-1], str)
        and (
            parts[-1].startswith("literal[")
            or parts[-1] == "[key]"
            or (parts[-1] in _BRANCHES and (isinstance(parts[-2], int) or parts[-2] == "rows"))
        )
    ):
        parts.pop()
    error = entry.get("ctx", {}).get("error")
    return (*parts, *(error.place if isinstance(error, FieldError) else ()))


def get_model_at(root: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """Return the model inside ``root`` that has the last field of ``place``; models of a union are not entered."""
    model = root
    for part in place[:-1]:
        field = model.model_fields.get(str(part))
        inner = [] if field is None else list(_iterate_models(field.annotation))
        model = inner[0] if len(inner) == 1 else model
    return model


def _iterate_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _iterate_models(part)


def get_model(place: Sequence[str | int], kind: str | None = None) -> type[BaseModel]:
    """Return the model that has the last field of ``place``, in a column or mechanism of this ``kind``."""
    if kind in MECHANISMS:
        return get_model_at(MECHANISMS[kind], place[1:])
    return KINDS[kind] if kind in KINDS and place[0] == "columns" else get_model_at(ReleaseSpec, place)


_SYNONYMS = {
    "int": "integer",
    "numeric": "number",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "string": "categorical",
    "text": "categorical",
    "str": "categorical",
    "category": "categorical",
    "enum": "categorical",
    "bool": "boolean",
    "timestamp": "datetime",
    "id": "drop",
    "ignore": "drop",
}
_UNIT_FORMS = (
    "Write `unit: {records_per_person: K}` if it is publicly known that nobody has more than K rows. Otherwise write "
    "`unit: {person_id: COLUMN, max_records: K}`, which keeps at most K rows of each value of COLUMN; `household_id` "
    "in its place protects whole households"
)
_CURES: dict[str, Text] = {
    "dataset": "Add `dataset: NAME`, the ledger's name for the private data set",
    "data": "Add `data: PATH`, the CSV or Parquet file or folder, relative to the spec",
    "unit": _UNIT_FORMS,
    "privacy": "Add `privacy: {epsilon: 1.0, delta: 1.0e-9}` with what this release may cost",
    "budget": "Add `budget: {epsilon: 10.0, delta: 1.0e-8}` with the data set's lifetime cap",
    "columns": "List every column of the table under `columns`; " + refer_to_action("draft_spec") + " writes a start",
}
_MUST_BE = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of reasonable size",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text (put quotation marks around it)",
    "string_unicode": "text without half characters (lone surrogates)",
    "tuple_type": "a list",
    "finite_number": "a finite number",
    "datetime_parsing": "a date or moment, such as 2010-01-31",
    "datetime_type": "a date or moment, such as 2010-01-31",
    "datetime_from_date_parsing": "a date or moment, such as 2010-01-31",
    "date_from_datetime_parsing": "a day, such as 2026-11-21",
}
DATASET_RULE = "1 to 48 small letters, digits, - and _, starting with a letter or digit"
_BOUNDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}
MAX_SHOWN_PROBLEMS = 3
"""Largest number of problems in one message; the rest are counted."""


@dataclass(frozen=True)
class Problem:
    """One error: the field, its line in the file if known, the problem and the cure."""

    field: str
    text: str
    cure: Text = ""
    line: int | None = None


def request_error(problems: Sequence[Problem]) -> RequestError:
    """Return one error for the first few problems; ``problems`` is not empty."""
    first, texts = problems[0], [problems[0].cure]
    for other in problems[1:MAX_SHOWN_PROBLEMS]:
        line = f" (line {other.line})" if other.line else ""
        texts += ["Also " + mention(other.field) + f"{line}: {other.text}", other.cure]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        texts.append(f"And {len(problems) - MAX_SHOWN_PROBLEMS} more after these")
    return RequestError(first.text, join_sentences(texts), first.field, first.line)


def from_validation(error: ValidationError, lines: Mapping[tuple[str | int, ...], int] | None = None) -> list[Problem]:
    """Return the problems of a pydantic error, one per place of the spec as the file spells it, with its line if known.

    Options of a mechanism may be at its top level or have earlier names; columns and fields about rows may be in a
    table of ``tables``.
    """
    seen: dict[tuple[str | int, ...], Problem] = {}
    lines = lines or {}
    for entry in error.errors(include_url=False):
        place = locate_field(entry)
        if entry["type"] == "too_short" and len(entry["input"]) >= entry["ctx"]["min_length"]:
            continue  # too short only because of its wrong items, which are separate problems
        if place not in seen:
            text, cure = _describe_error(entry, place)
            spellings = [*_spell_inside_tables(place, lines), *as_written(place)]
            known = [spelling for spelling in spellings if spelling in lines]
            above = [spelling for spelling in spellings if any(spelling[: len(each)] == each for each in lines if each)]
            written = (known or above or spellings)[0]
            seen[place] = Problem(format_place(written), text, cure, lines.get(written))
    return list(seen.values())


def make_todo_error(place: tuple[str | int, ...], line: int | None) -> Problem:
    """Return the problem of a TODO left from a draft."""
    cure = "Choose a value: there is no default for it"
    if place[:1] == ("unit",):
        cure = _UNIT_FORMS
    elif place[-1] == "kind":
        cure = f"Write one of the kinds {', '.join(KINDS)}"
    elif place[-1] == "source" and "rules" in place:
        cure = "Name a public source for the rule, such as a codebook or a law; the private rows are not a source"
    elif drop_table(place)[0] == "columns":
        cure = (
            "Replace it from a public source, such as a codebook; "
            "a value read off the private data would itself be a leak"
        )
    return Problem(format_place(place), "still says TODO", cure, line)


def group_todos(places: Sequence[tuple[str | int, ...]]) -> list[str]:
    """Return open fields as texts: each setting alone, and each field of columns with all its columns."""
    groups: dict[tuple[str, str], list[str]] = {}
    single = []
    for place in places:
        in_column = drop_table(place)
        if in_column[0] == "columns" and len(in_column) == 3:
            table = format_place(place[: len(place) - 2])
            groups.setdefault((table, str(in_column[2])), []).append(str(in_column[1]))
        else:
            single.append(format_place(place))
    by_columns: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (table, field), columns in groups.items():
        by_columns.setdefault((table, tuple(columns)), []).append(field)
    return single + [
        f"{' and '.join(fields)} in {table} of {', '.join(f'`{c}`' if ',' in c else c for c in columns)}"
        for (table, columns), fields in by_columns.items()
    ]


def make_todos_error(places: Sequence[tuple[str | int, ...]], lines: Mapping[Any, int]) -> RequestError:
    """Return one error for the TODOs left from a draft: the first one's cure, and a list of all fields if many."""
    problems = [make_todo_error(place, lines.get(place)) for place in places]
    if len(problems) <= MAX_SHOWN_PROBLEMS:
        return request_error(problems)
    first, left = problems[0], "; ".join(group_todos(places))
    texts = [first.cure, f"{len(problems)} fields say TODO: {left}"]
    return RequestError(first.text, join_sentences(texts), first.field, first.line)


def suggest_name(name: str, known: Sequence[str]) -> str:
    """Return ``Did you mean `x`?``, or an empty text."""
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    return f"Did you mean `{close[0]}`?" if close else ""


def _shorten(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 1_000:  # Python refuses to write thousands of digits
        return f"a number of about {round(value.bit_length() * math.log10(2)):,} digits"
    return clip_text(" ".join(str(value).split()))


def _show_value(value: Any) -> str:
    if isinstance(value, dict | BaseModel):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value is None:
        return "empty (null)"
    if value == "":
        return "empty text"
    return f"`{_shorten(value)}`"


def _describe_error(entry: Any, place: tuple[str | int, ...]) -> tuple[str, Text]:
    type_, value = entry["type"], entry.get("input")
    kind = next((p for p in entry["loc"][2:3] if p in KINDS), None)
    if entry["loc"][:1] == ("mechanism",):
        kind = next((p for p in entry["loc"][1:2] if p in MECHANISMS), None)
    if type_ == "missing":
        return "is missing", _suggest_missing(place, kind)
    if type_ == "extra_forbidden":
        return _describe_unknown_field(place, kind)
    if type_ == "value_error" and place in (("unit",), ("mechanism",)):
        wrong, cure = describe_refused(entry["ctx"]["error"])
        return wrong, cure or (_UNIT_FORMS if place == ("unit",) else "")
    if place == ("mechanism",):
        tag = entry.get("ctx", {}).get("tag")
        wrong = f"has the unknown name `{_shorten(tag)}`" if tag else f"is {_show_value(value)}"
        return wrong, f"Write `{{name: NAME, ...}}` with one of the names {', '.join(MECHANISMS)}"
    if type_ in ("union_tag_not_found", "union_tag_invalid"):
        return _describe_bad_kind(entry["ctx"].get("tag"))
    if type_ == "no_rule":
        return "is not a rule", "Write `never: CONDITION`, `derive: {...}`, `lookup: {...}` or `one_of: [...]`"
    if entry["loc"] and entry["loc"][-1] == "[key]":
        return "is not text", "Put quotation marks around the column's name"
    if place == ("unit",):
        return f"is {_show_value(value)}: how many records can one person have", _UNIT_FORMS
    if type_ == "value_error":
        return describe_refused(entry["ctx"]["error"])
    return describe_wrong_value(entry, _find_special_rule(type_, place))


def describe_refused(error: ValueError) -> tuple[str, str]:
    """Return the problem and the cure (which may be empty) from a model's validator."""
    return (error.problem, error.cure) if isinstance(error, FieldError) else (str(error), "")


def describe_wrong_value(entry: Any, rule: str = "") -> tuple[str, str]:
    """Return problem and cure of a value, from pydantic's entry; ``rule``: what it must be (empty: from the entry)."""
    type_, value, context = entry["type"], entry.get("input"), entry.get("ctx", {})
    if not rule and type_.endswith("_type") and type_.startswith(("model", "dict")):
        return (
            f"is {_show_value(value)}, but must be a mapping of fields",
            "Write `{field: value, ...}` or indented `field: value` lines",
        )
    in_list = f"Write `[{_shorten(value)}]`" if type_ == "tuple_type" and isinstance(value, str | int | float) else ""
    return (
        f"is {_show_value(value)}, but must be {rule or _describe_rule(type_, context, entry['msg'])}",
        in_list or "Correct the value",
    )


def _find_special_rule(type_: str, place: tuple[str | int, ...]) -> str:
    """Return what the value at a place of the spec must be, if there is more to say than its type; else empty."""
    if place[0] == "columns" and place[2:3] == ("values",) and isinstance(place[-1], int):
        return "text, a number, true or false (put quotation marks around dates and other text)"
    if place == ("mechanism", "synthesis", "rows"):
        return "`auto` or a whole number"
    return DATASET_RULE if (type_, place) == ("string_pattern_mismatch", ("dataset",)) else ""


def _describe_rule(type_: str, context: Mapping[str, Any], message: str) -> str:
    bounds = [f"{words} {context[key]:g}" for key, words in _BOUNDS.items() if key in context]
    if bounds:
        return bounds[0]
    lengths = [f"{words} {context[key]:,}" for key, words in _LENGTHS.items() if key in context]
    if lengths:
        subject, many = ("text", "character") if type_.startswith("string") else ("a list", "item")
        return f"{subject} of {lengths[0]} {many}{'' if lengths[0] == 'at least 1' else 's'}"
    if type_ == "literal_error":
        return f"one of {context['expected']}".replace(" or ", ", ")
    return _MUST_BE.get(type_, "right: " + message[:1].lower() + message[1:])


def _suggest_missing(place: tuple[str | int, ...], kind: str | None) -> Text:
    if len(place) == 1 and place[0] in _CURES:
        return _CURES[str(place[0])]
    name = str(place[-1])
    field = get_model(place, kind).model_fields.get(name)
    meaning = f": {field.description.rstrip('.')}" if field is not None and field.description else ""
    return f"Add `{name}`{meaning}"


def _describe_unknown_field(place: tuple[str | int, ...], kind: str | None) -> tuple[str, Text]:
    if place == ("engine", "address"):
        return "is not the spec's to say", "The operator names the cluster: " + mention("settings.dask")
    name, fields = str(place[-1]), list(get_model(place, kind).model_fields)
    inside = "the spec" if len(place) == 1 else f"`{place[-2]}`"
    if len(place) == 2 and kind is None and name in ReleaseSpec.model_fields:
        return f"is a field of the spec itself, not of {inside}", f"Write `{name}` beside `{place[0]}`, not inside it"
    if kind in MECHANISMS and len(place) == 2:
        inside = f"the mechanism `{kind}`"
    elif kind in KINDS:
        inside = f"a column of kind {kind}"
    return f"is not a field of {inside}", f"{suggest_name(name, fields)} Its fields are {', '.join(fields)}".strip()


def _describe_bad_kind(tag: Any) -> tuple[str, str]:
    listed = f"The kinds are {', '.join(KINDS)}"
    if tag is None:
        return "has no `kind`", f"Add `kind: ...`. {listed}"
    meant = _SYNONYMS.get(str(tag).lower()) or next(iter(difflib.get_close_matches(str(tag)[:100], KINDS, n=1)), None)
    hint = f"Did you mean `kind: {meant}`? " if meant else ""
    return f"has the unknown kind `{_shorten(tag)}`", hint + listed
