"""What is wrong with a release spec, in one paragraph: the field's dotted path, its value, and the cure.

Belongs here: words only.  Does not belong here: reading files (flows/spec/file.py) and the rules
themselves (data_contracts/spec.py).  A spec is public, so its values may be shown.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from data_contracts import columns as kinds_module
from data_contracts.spec import ReleaseSpec
from flows.errors import RequestError, sentence

KINDS: dict[str, type[BaseModel]] = {
    "integer": kinds_module.IntegerColumn,
    "number": kinds_module.NumberColumn,
    "datetime": kinds_module.DatetimeColumn,
    "categorical": kinds_module.CategoricalColumn,
    "boolean": kinds_module.BooleanColumn,
    "drop": kinds_module.DropColumn,
}
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
    "date": "datetime",
    "time": "datetime",
    "timestamp": "datetime",
    "id": "drop",
    "ignore": "drop",
}
_UNIT_FORMS = (
    "Write `unit: {records_per_person: K}` if it is publicly known that nobody has more than K rows, or "
    "`unit: {person_id: COLUMN, max_records: K}` to keep at most K rows of each value of COLUMN"
)
_CURES = {
    "dataset": "Add `dataset: NAME`, the ledger's name for the private data set",
    "data": "Add `data: PATH`, the CSV or Parquet file or folder, relative to the spec",
    "unit": _UNIT_FORMS,
    "privacy": "Add `privacy: {epsilon: 1.0, delta: 1.0e-9}` with what this release may cost",
    "budget": "Add `budget: {epsilon: 10.0, delta: 1.0e-8}` with the data set's lifetime cap",
    "columns": "List every column of the table under `columns`; `privsyn spec draft` writes a start",
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
    "tuple_type": "a list, such as [1, 2, 3]",
    "finite_number": "a finite number",
    "datetime_parsing": "a date or moment, such as 2010-01-31",
    "datetime_type": "a date or moment, such as 2010-01-31",
    "datetime_from_date_parsing": "a date or moment, such as 2010-01-31",
    "date_from_datetime_parsing": "a day, such as 2026-11-21",
}
DATASET_RULE = "1 to 48 small letters, digits, - and _, starting with a letter or digit"
_PATTERNS: dict[tuple[str | int, ...], str] = {
    ("dataset",): DATASET_RULE,
    ("engine", "address"): "tcp://, tls://, ws:// or wss:// and a host with its port, such as tls://scheduler:8786",
}
_BOUNDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}
_BRANCHES = {"bool", "int", "float", "str"}
SHOWN = 3
"""Problems that one message lists; it counts the rest."""


@dataclass(frozen=True)
class Problem:
    """One thing to correct: where, what and how."""

    field: str
    text: str
    cure: str


def request_error(problems: Sequence[Problem]) -> RequestError:
    """One paragraph on the first few problems; ``problems`` is not empty."""
    first, others = problems[0], problems[1:SHOWN]
    sentences = [first.cure, *(part for p in others for part in (f"Also {p.field}: {p.text}", p.cure))]
    if len(problems) > SHOWN:
        sentences.append(f"And {len(problems) - SHOWN} more after these")
    return RequestError(first.text, " ".join(sentence(t) for t in sentences if t), first.field)


def from_validation(error: ValidationError, lines: Mapping[tuple[str | int, ...], int] | None = None) -> list[Problem]:
    """The problems of a pydantic error, one a place of the spec, with line numbers where known."""
    seen: dict[tuple[str | int, ...], Problem] = {}
    for entry in error.errors(include_url=False):
        place = _place(entry["loc"])
        if place not in seen and not _counts_right_items_only(entry):
            seen[place] = _problem(entry, place, _where(place, lines or {}))
    return list(seen.values())


def _counts_right_items_only(entry: Any) -> bool:
    """Whether a list is called too short only for its wrong items, which have problems of their own."""
    return entry["type"] == "too_short" and len(entry["input"]) >= entry["ctx"]["min_length"]


def todo(place: tuple[str | int, ...], line: int | None) -> Problem:
    """The problem of a TODO that the draft left."""
    where = _where(place, {} if line is None else {place: line})
    if place[:1] == ("unit",):
        return Problem(where, "still says TODO", _UNIT_FORMS)
    if place[-1] == "kind":
        return Problem(where, "still says TODO", f"Write one of the kinds {', '.join(KINDS)}")
    if place[0] == "columns":
        return Problem(
            where,
            "still says TODO",
            "Replace it from a public source, such as a codebook; "
            "a value read off the private data would itself be a leak",
        )
    return Problem(where, "still says TODO", "Choose a value: there is no default for it")


def dotted(place: Sequence[str | int]) -> str:
    """``columns.age.min``; odd names stand in quotation marks, list positions in brackets."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = re.fullmatch(r"[\w-]+", part) is not None
            text += ("." if text else "") + (_clipped(part) if plain else f'"{_clipped(part)}"')
    return text or "the spec"


def suggestion(name: str, known: Sequence[str]) -> str:
    """``Did you mean `x`?`` without its full stop, or an empty text."""
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    return f"Did you mean `{close[0]}`?" if close else ""


def _clipped(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _short(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 1_000:  # Python refuses to write thousands of digits
        return f"a number of about {round(value.bit_length() * math.log10(2)):,} digits"
    return _clipped(" ".join(str(value).split()))


def _shown(value: Any) -> str:
    if isinstance(value, dict | BaseModel):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value is None:
        return "empty (null)"
    if value == "":
        return "empty text"
    return f"`{_short(value)}`"


def _place(loc: Sequence[str | int]) -> tuple[str | int, ...]:
    """The place as the spec's author knows it: without pydantic's names of union branches."""
    parts = list(loc)
    if len(parts) > 2 and parts[0] == "columns" and parts[2] in KINDS:
        del parts[2]
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
    return tuple(parts)


def _where(place: tuple[str | int, ...], lines: Mapping[tuple[str | int, ...], int]) -> str:
    line = lines.get(place)
    return dotted(place) + (f" (line {line})" if line else "")


def model_at(root: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """The model, inside ``root``, whose field stands last in ``place``; of several kinds of a column, none."""
    model = root
    for part in place[:-1]:
        field = model.model_fields.get(str(part))
        inner = [] if field is None else list(_models(field.annotation))
        model = inner[0] if len(inner) == 1 else model
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _model_of(place: Sequence[str | int], kind: str | None = None) -> type[BaseModel]:
    return KINDS[kind] if kind in KINDS and place[0] == "columns" else model_at(ReleaseSpec, place)


def _problem(entry: Any, place: tuple[str | int, ...], where: str) -> Problem:
    type_, value, context = entry["type"], entry.get("input"), entry.get("ctx", {})
    kind = next((p for p in entry["loc"][2:3] if p in KINDS), None)
    if type_ == "missing":
        return Problem(where, "is missing", _missing_cure(place, kind))
    if type_ == "extra_forbidden":
        return _unknown_field(place, where, kind)
    if type_ in ("union_tag_not_found", "union_tag_invalid"):
        return _bad_kind(place, where, context.get("tag"))
    if not place:
        return _whole_spec(str(entry["msg"]))
    if entry["loc"][-1] == "[key]":
        return Problem(where, "is not text", "Put quotation marks around the column's name")
    if place == ("unit",):
        return Problem(where, f"is {_shown(value)}: how many records can one person have", _UNIT_FORMS)
    if type_ == "value_error":
        text, _, cure = str(entry["msg"]).removeprefix("Value error, ").rstrip(".").partition("; ")
        return Problem(where, text, cure[:1].upper() + cure[1:])
    return wrong_value(entry, where, _special_rule(type_, place))


def wrong_value(entry: Any, where: str, rule: str = "") -> Problem:
    """The problem of one value, from pydantic's entry; ``rule``: what it must be, where that is known better."""
    type_, value, context = entry["type"], entry.get("input"), entry.get("ctx", {})
    if not rule and type_.endswith("_type") and type_.startswith(("model", "dict")):
        return Problem(
            where,
            f"is {_shown(value)}, but must be a mapping of fields",
            "Write `{field: value, ...}` or indented `field: value` lines",
        )
    return Problem(
        where, f"is {_shown(value)}, but must be {rule or _rule(type_, context, entry['msg'])}", "Correct the value"
    )


def _whole_spec(message: str) -> Problem:
    """A rule over several fields; its text starts with the field it is about, then a colon."""
    where, _, text = message.removeprefix("Value error, ").partition(": ")
    return Problem(where, text, "") if text and " " not in where else Problem("the spec", message, "")


def _special_rule(type_: str, place: tuple[str | int, ...]) -> str:
    """What the value at a place of the spec must be, where more is known than its type; else empty."""
    if place[0] == "columns" and place[2:3] == ("values",) and isinstance(place[-1], int):
        return "text, a number, true or false (put quotation marks around dates and other text)"
    if place == ("synthesis", "rows"):
        return "`auto` or a whole number"
    return _PATTERNS.get(place, "") if type_ == "string_pattern_mismatch" else ""


def _rule(type_: str, context: Mapping[str, Any], message: str) -> str:
    bounds = [f"{words} {context[key]:g}" for key, words in _BOUNDS.items() if key in context]
    if bounds:
        return bounds[0]
    lengths = [f"{words} {context[key]:,}" for key, words in _LENGTHS.items() if key in context]
    if lengths:
        what, many = ("text", "character") if type_.startswith("string") else ("a list", "item")
        return f"{what} of {lengths[0]} {many}{'' if lengths[0] == 'at least 1' else 's'}"
    if type_ == "literal_error":
        return f"one of {context['expected']}".replace(" or ", ", ")
    return _MUST_BE.get(type_, "right: " + message[:1].lower() + message[1:])


def _missing_cure(place: tuple[str | int, ...], kind: str | None) -> str:
    if len(place) == 1 and place[0] in _CURES:
        return _CURES[str(place[0])]
    name = str(place[-1])
    field = _model_of(place, kind).model_fields.get(name)
    meaning = f": {field.description.rstrip('.')}" if field is not None and field.description else ""
    return f"Add `{name}`{meaning}"


def _unknown_field(place: tuple[str | int, ...], where: str, kind: str | None) -> Problem:
    name, known = str(place[-1]), list(_model_of(place, kind).model_fields)
    inside = f"a column of kind {kind}" if kind else ("the spec" if len(place) == 1 else f"`{place[0]}`")
    return Problem(
        where, f"is not a field of {inside}", f"{suggestion(name, known)} Its fields are {', '.join(known)}".strip()
    )


def _bad_kind(place: tuple[str | int, ...], where: str, tag: Any) -> Problem:
    listed = f"The kinds are {', '.join(KINDS)}"
    if tag is None:
        return Problem(where, "has no `kind`", f"Add `kind: ...`. {listed}")
    meant = _SYNONYMS.get(str(tag).lower()) or next(iter(difflib.get_close_matches(str(tag)[:100], KINDS, n=1)), None)
    hint = f"Did you mean `kind: {meant}`? " if meant else ""
    return Problem(where, f"has the unknown kind `{_short(tag)}`", hint + listed)
