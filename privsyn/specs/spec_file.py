"""Load a release spec and the public files that it names: YAML file, mapping or model -> ReleaseSpec.

Whatever is wrong is one RequestError.  A run needs no other public file.  When it is opened,
privsyn/engine/checks.py checks that none of them is the private table under another name.

``defaults:`` of a spec's file: fields shared by columns whose names match a pattern.

Everything here is public.  Fields are filled in before the spec is validated, so a release never sees ``defaults``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.places import expand_path, resolve_place
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs import messages
from privsyn.specs.messages import KINDS, drop_table, format_place, get_model, suggest_name
from privsyn.specs.public_files import with_public_inputs
from privsyn.specs.yaml_file import Document, parse_yaml, read_yaml

SECTION = "defaults"

EACH = "*"
PLACES = (
    ("data",),
    ("tables", EACH, "data"),
    ("prior", "table"),
    ("prior", "release"),
    ("cells", "release"),
    ("rules", EACH, "lookup", "table"),
    ("totals", EACH, "table"),
)
"""The fields that name a file or a folder."""

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
            for field, pattern in sources.items():  # for error messages
                written = {at[3:]: line for at, line in lines.items() if at[:3] == (SECTION, pattern, field)}
                lines |= {(*place, name, field, *inner): line for inner, line in written.items()}
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
    first, *inner = place
    return {**content, first: _replace(content[first], tuple(inner), value) if inner else value}


def _read_patterns(document: Document, columns: Collection[str]) -> dict[str, dict[str, Any]]:
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


def _make_refusal(document: Document, place: tuple[str, ...], problem: str, cure: str) -> RequestError:
    return RequestError(problem, cure, format_place(place), document.line_of(place))


_FREE_LISTS = ("values", "null_values")
_FREE_TEXTS = ("description", "unit")


AnySpec: TypeAlias = ReleaseSpec | Mapping[str, Any] | str | Path
"""A release spec: the model, a mapping in the form of the YAML file (such as a draft), or the path of the file."""


def load_spec(path: Path) -> ReleaseSpec:
    """Return the spec in the YAML file ``path``; its paths are relative to the spec's folder.

    Raises RequestError (exit 2) that names the file, line or field, and the cure; a ``TODO`` left from ``spec draft``
    is refused.  Reads only this file and the public tables that its rules, totals and prior name.
    """
    return load_any_spec(Path(path))


def load_any_spec(
    spec: AnySpec, changes: Mapping[str, Mapping[str, Any]] | None = None, folder: Path | None = None
) -> ReleaseSpec:
    """Return the valid spec from a model, a mapping in the form of a YAML file, or the path of such a file.

    ``changes``: section -> fields that replace the spec's (None: keep the spec's).  ``folder``: where the paths in a
    model or a mapping begin (None: the working folder).  Raises RequestError that names the field that is wrong or
    still a TODO.
    """
    stated = {name: {k: v for k, v in fields.items() if v is not None} for name, fields in (changes or {}).items()}
    if isinstance(spec, ReleaseSpec) and folder is None and not any(stated.values()):
        return spec
    document = _open_document(spec)
    for name, fields in stated.items():
        section = document.content.get(name)
        if fields:
            document.content[name] = {**(section if isinstance(section, Mapping) else {}), **fields}
            for field in fields:
                document.lines.pop((name, field), None)
    own_folder = Path(spec).absolute().parent if isinstance(spec, str | Path) else Path()
    valid = _validate(document, folder or own_folder)
    return with_public_inputs(valid)


def _open_document(spec: AnySpec) -> Document:
    """Return the content of a spec in any form, which may be changed, with the lines of a file."""
    if isinstance(spec, str | Path):
        return read_yaml(Path(spec))
    if isinstance(spec, ReleaseSpec):
        spec = spec.model_dump(exclude_unset=True, by_alias=True)  # fields from the preset stay unset
    if isinstance(spec, Mapping):
        return Document(deepcopy(to_plain_values(spec)), {})
    raise RequestError(
        f"is of the type {type(spec).__name__}, not a spec",
        "Hand over a draft or another mapping, a ReleaseSpec, or the path of a spec's YAML file",
        "release.spec",
    )


def parse_spec(text: str, name: str = "the spec") -> ReleaseSpec:
    """Return the spec in YAML ``text``; ``data`` stays as written.  Raises RequestError."""
    return _validate(parse_yaml(text, name))


def override_options(
    spec: ReleaseSpec,
    epsilon: float | None = None,
    delta: float | None = None,
    data: str | Path | None = None,
    seed: int | None = None,
    engine: str | None = None,
) -> ReleaseSpec:
    """Return the spec with the command line's options, validated again; None keeps the spec's value.

    ``epsilon`` > 0 and 0 < ``delta`` < 1 replace ``privacy``; ``data`` is relative to the working folder;
    ``seed`` >= 0 is ``synthesis.seed``; ``engine`` is an engine's kind.  Raises RequestError.
    """
    content = spec.model_dump(exclude_unset=True)  # unset fields stay unset
    rows = content["mechanism"].setdefault("synthesis", {})
    changes: list[tuple[dict[str, Any], str, Any]] = [
        (content["privacy"], "epsilon", epsilon),
        (content["privacy"], "delta", delta),
        (content, "data", None if data is None else resolve_place(data, "release.data")),
        (content, "query", None if data is None else ""),
        (rows, "seed", seed),
        (content, "engine", None if engine is None else {"kind": engine}),
    ]
    for section, field, value in changes:
        if value is not None:
            section[field] = value
    return _validate(Document(content, {}))


def _validate(document: Document, folder: Path | None = None) -> ReleaseSpec:
    """Return the valid spec; ``folder``: make the paths in the document absolute from it (None: leave them)."""
    todos = list(find_todos(document.content))
    if todos:
        raise messages.make_todos_error(todos, document.lines)
    document = with_defaults(document)[0]
    faults = [] if folder is None else _place_files(document.content, folder)
    try:
        spec = ReleaseSpec.model_validate(document.content)
    except ValidationError as error:
        raise messages.request_error(messages.from_validation(error, document.lines)) from None
    if faults:  # after the faults of the spec itself, which have lines
        raise faults[0]
    return spec


def _place_files(content: dict[str, Any], folder: Path) -> list[RequestError]:
    """Make the paths in ``content`` absolute; return a fault for each path that is not valid."""
    faults = []
    for section, name, field in [place for path in PLACES for place in _iterate_places(content, path)]:
        try:
            section[name] = _resolve(section, name, field, folder)
        except RequestError as fault:
            faults.append(fault)
    return faults


def _iterate_places(
    section: Any, path: tuple[str, ...], before: tuple[str | int, ...] = ()
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield each section with a file or folder at the end of ``path``, its key there, and its field in the spec."""
    name, *inner = path
    if name == EACH:
        entries = (
            section.items() if isinstance(section, dict) else enumerate(section if isinstance(section, list) else ())
        )
        for key, entry in entries:
            yield from _iterate_places(entry, tuple(inner), (*before, key if isinstance(key, int) else str(key)))
    elif inner and isinstance(section, dict):
        yield from _iterate_places(section.get(name), tuple(inner), (*before, name))
    elif isinstance(section, dict) and isinstance(section.get(name), str) and section[name]:
        yield section, name, format_place((*before, name))


def _resolve(section: Mapping[str, Any], name: str, field: str, folder: Path) -> str:
    """Return the place in a section, absolute from ``folder``; only private tables may be URLs."""
    if name != "data":
        return str(folder.absolute() / expand_path(section[name], field))
    if "\0" in section[name]:
        raise RequestError("has a character that is not valid in a path", "Correct the path", field)
    return resolve_place(section[name], field, folder, needs_rows=not section.get("query"))


def to_plain_values(value: Any) -> Any:
    """Return mappings and sequences as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {name: to_plain_values(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_values(inner) for inner in value]
    return value


def find_todos(content: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield places whose value is still ``TODO``, in order; listed categories and free text may be that word."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from find_todos(value, (*place, key))
    elif isinstance(content, list):
        if not (place and place[-1] in _FREE_LISTS):
            for i, value in enumerate(content):
                yield from find_todos(value, (*place, i))
    elif isinstance(content, str) and content.strip() == "TODO" and place:
        in_column = drop_table(place)
        is_free = in_column[0] == "columns" and len(in_column) > 2 and place[-1] in _FREE_TEXTS
        if not is_free:
            yield place
