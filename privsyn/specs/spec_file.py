"""Load a release spec: YAML file, mapping or model -> ReleaseSpec, or one RequestError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from privsyn.base.data_url import resolve_place
from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs import messages
from privsyn.specs.defaults import with_defaults
from privsyn.specs.places import drop_table
from privsyn.specs.public_inputs import with_public_inputs
from privsyn.specs.yaml_file import Document, parse_yaml, read_yaml

_FREE_LISTS = ("values", "null_values")
_FREE_TEXTS = ("description", "unit")


AnySpec: TypeAlias = ReleaseSpec | Mapping[str, Any] | str | Path
"""A release spec: the model, a mapping in the form of the YAML file (such as a draft), or the path of the file."""


def load_spec(path: Path) -> ReleaseSpec:
    """Return the spec in the YAML file ``path``; a relative ``data`` is resolved from the spec's folder.

    Raises RequestError (exit 2) that names the file, line or field, and the cure; a ``TODO`` left from ``spec draft``
    is refused.  Reads only this file and the public tables that its rules, totals and prior name.
    """
    path = Path(path)
    folder = path.absolute().parent
    spec = _set_data(_validate(read_yaml(path)), folder)
    return with_public_inputs(spec, folder)


def load_any_spec(spec: AnySpec, changes: Mapping[str, Mapping[str, Any]] | None = None) -> ReleaseSpec:
    """Return the valid spec from a model, a mapping in the form of a YAML file, or the path of such a file.

    ``changes``: section -> fields that replace the spec's (None: keep the spec's).  Raises RequestError that names
    the field that is wrong or still a TODO.
    """
    stated_changes = {
        name: {k: v for k, v in fields.items() if v is not None} for name, fields in (changes or {}).items()
    }
    if isinstance(spec, str | Path):
        spec = load_spec(Path(spec))
    if isinstance(spec, ReleaseSpec):
        if not any(stated_changes.values()):
            return spec
        content = spec.model_dump(exclude_unset=True)  # fields from the preset stay unset
    elif isinstance(spec, Mapping):
        content = deepcopy(to_plain_values(spec))
    else:
        raise RequestError(
            f"is of the type {type(spec).__name__}, not a spec",
            "Hand over a draft or another mapping, a ReleaseSpec, or the path of a spec's YAML file",
            "release.spec",
        )
    for name, fields in stated_changes.items():
        section = content.get(name)
        if fields:
            content[name] = {**(section if isinstance(section, Mapping) else {}), **fields}
    return with_public_inputs(check_spec_content(content), Path())


def parse_spec(text: str, name: str = "the spec") -> ReleaseSpec:
    """Return the spec in YAML ``text``; ``data`` stays as written.  Raises RequestError."""
    return _validate(parse_yaml(text, name))


def check_spec_content(content: Mapping[str, Any]) -> ReleaseSpec:
    """Return the spec in a mapping in the form of a YAML file; ``data`` stays as written.  Raises RequestError."""
    return _validate(Document(dict(content), {}))


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


def _set_data(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    if spec.data:
        return spec.read_at(_resolve(spec.data, "data", folder, needs_rows=not spec.query), spec.query)
    if not spec.tables:
        return spec
    return spec.read_at({n: _resolve(t.data, "tables", folder) if t.data else "" for n, t in spec.tables.items()})


def _resolve(place: str, field: str, folder: Path, *, needs_rows: bool = True) -> str:
    if "\0" in place:
        raise RequestError("has a character that is not valid in a path", "Correct the path", field)
    return resolve_place(place, field, folder, needs_rows=needs_rows)


def _validate(document: Document) -> ReleaseSpec:
    todos = list(find_todos(document.content))
    if todos:
        raise messages.make_todos_error(todos, document.lines)
    document = with_defaults(document)[0]
    try:
        return ReleaseSpec.model_validate(document.content)
    except ValidationError as error:
        raise messages.request_error(messages.from_validation(error, document.lines)) from None


def to_plain_values(value: Any) -> Any:
    """Return mappings and sequences as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {name: to_plain_values(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_values(inner) for inner in value]
    return value


def find_todos(content: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield places whose value is still the placeholder ``TODO``, in document order.

    Listed categories and free text may be the word TODO.
    """
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
