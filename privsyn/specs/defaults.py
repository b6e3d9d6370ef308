"""``defaults:`` of a spec's file: fields shared by columns whose names match a pattern.

Everything here is public.  Fields are filled in before the spec is validated, so a release never sees ``defaults``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.specs.messages import suggest_name
from privsyn.specs.places import KINDS, format_place, get_model
from privsyn.specs.yaml_file import Document

SECTION = "defaults"

Filled = dict[str, dict[str, Any]]
"""Column -> fields filled in by patterns."""


def with_defaults(document: Document) -> tuple[Document, Filled]:
    """Return the document without ``defaults``, with columns filled in by matching patterns, and the filled fields.

    A column's own field wins, then the last matching pattern.  Fields that the column's kind lacks are left out.
    Raises RequestError for a pattern that matches no column, or a field that no kind has.
    """
    if SECTION not in document.content:
        return document, {}
    content = {name: value for name, value in document.content.items() if name != SECTION}
    lines, filled = dict(document.lines), Filled()
    places = list(_iterate_sections(content))
    patterns = _read_patterns(document, {str(name) for _, columns in places for name in columns})
    for place, columns in places:
        described: dict[str, Any] = {}
        for name, column in columns.items():
            fields, sources = _apply_to_column(str(name), column, patterns)
            filled |= {name: fields} if fields else {}
            column = {} if column is None and sources else column
            described[name] = {**fields, **column} if isinstance(column, Mapping) else column
            for field, pattern in sources.items():
                _copy_lines(lines, (SECTION, pattern, field), (*place, name, field))
        content = _replace(content, place, described)
    return Document(content, lines), filled


def _iterate_sections(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the place and content of every mapping of columns: the spec's and its tables'."""
    if isinstance(content.get("columns"), dict):
        yield ("columns",), content["columns"]
    tables = content.get("tables")
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if isinstance(table, dict) and isinstance(table.get("columns"), dict):
            yield ("tables", name, "columns"), table["columns"]


def _replace(content: Mapping[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the content with ``value`` at ``place``."""
    first, *inner = place
    return {**content, first: _replace(content[first], tuple(inner), value) if inner else value}


def _read_patterns(document: Document, columns: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return pattern -> fields, checked."""
    section = document.content[SECTION]
    if not isinstance(section, Mapping):
        raise _make_refusal(document, (SECTION,), "must be a mapping", 'Write `defaults: {"q*": {kind: boolean}}`')
    field_names = {field for kind in KINDS for field in get_model(("columns", "c", "x"), kind).model_fields}
    for pattern, fields in section.items():
        pattern_place = (SECTION, pattern)
        if not isinstance(fields, Mapping):
            raise _make_refusal(document, pattern_place, "must be a mapping of fields", "Write `{field: value, ...}`")
        if not any(fnmatchcase(name, str(pattern)) for name in columns):
            cure = "Correct the pattern: `*` stands for any text, `?` for one character"
            raise _make_refusal(document, pattern_place, "matches no column under `columns`", cure)
        for field in fields:
            if field not in field_names:
                cure = suggest_name(str(field), sorted(field_names)) or f"Known are {', '.join(sorted(field_names))}"
                raise _make_refusal(document, (*pattern_place, field), "is not a field of any kind of column", cure)
    return {str(pattern): dict(fields) for pattern, fields in section.items()}


def _apply_to_column(
    name: str, column: Any, patterns: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields that patterns add to a column, and the pattern of each field."""
    if column is not None and not isinstance(column, Mapping):
        return {}, {}
    stated = column or {}
    defaults: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for pattern, fields in patterns.items():
        if fnmatchcase(name, pattern):
            defaults |= fields
            sources |= dict.fromkeys(fields, pattern)
    kind = stated.get("kind", defaults.get("kind"))
    is_kind = isinstance(kind, str) and kind in KINDS
    has = set(get_model(("columns", name, "x"), kind).model_fields) if is_kind else set(defaults)
    lacking = [field for field in defaults if field in has and field not in stated]
    return {f: defaults[f] for f in lacking}, {f: sources[f] for f in lacking}


def _copy_lines(lines: dict[tuple[str | int, ...], int], old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Give a filled field the line of its pattern, for error messages."""
    inner = {(*new, *place[len(old) :]): line for place, line in lines.items() if place[: len(old)] == old}
    lines |= inner


def _make_refusal(document: Document, place: tuple[str, ...], problem: str, cure: str) -> RequestError:
    return RequestError(problem, cure, format_place(place), document.line_of(place))
