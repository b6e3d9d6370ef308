"""Loading an itemset spec: YAML file -> ItemsetSpec, or one clear RequestError; and the release spec behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.places import expand_path, resolve_place
from privsyn.data_contracts.certificate import Manifest
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec, ListLayout, PairsLayout
from privsyn.specs.messages import describe_refused, describe_wrong_value, format_place, get_model_at, suggest_name
from privsyn.specs.yaml_file import Document, read_yaml
from privsyn.storage.named_files import ListedFile, read_listed_file

EXAMPLE = "the example of docs/itemsets.md"
"""What a spec can be made from."""


def load_itemset_spec(path: Path, epsilon: float | None = None, data: str | Path | None = None) -> ItemsetSpec:
    """Return the spec in the YAML file ``path``, its paths made absolute from its folder, its universe read.

    ``epsilon`` and ``data`` take the place of the spec's.  Raises RequestError that names the field, its line and the
    cure.  Reads this file and ``items_file``, which is public, and nothing else.
    """
    document = read_yaml(path, EXAMPLE)
    content, folder = dict(document.content), path.absolute().parent
    if epsilon is not None and isinstance(content.get("privacy"), dict):
        content["privacy"] = {**content["privacy"], "epsilon": epsilon}
    spec = check_itemset_spec(content, document)
    place = resolve_place(spec.data if data is None else data, "data", folder if data is None else None)
    content["data"] = place
    if spec.items_file:
        file = read_listed_file(folder / expand_path(spec.items_file, "items_file"), (place,), "items_file")
        content |= {"items": _read_universe(file), "items_file": "", "public_files": [file.kept.model_dump()]}
    return check_itemset_spec(content, document)


def check_itemset_spec(content: dict[str, Any], document: Document | None = None) -> ItemsetSpec:
    """Return the spec in a mapping of the YAML file's form.  Raises RequestError for its first fault."""
    try:
        return ItemsetSpec.model_validate(content)
    except ValidationError as error:
        raise _make_refusal(error, document or Document({}, {})) from None


def read_released_itemset_spec(manifest: Manifest) -> ItemsetSpec:
    """Return the request that a manifest of itemsets states; where the private table lies is not known.

    Raises RequestError for one of another version.
    """
    try:
        return ItemsetSpec.model_validate({**manifest.spec, "data": "not-known"})
    except ValidationError:
        problem = f"the manifest of {manifest.run} was written by another version of this program"
        raise RequestError(problem, "Release its itemsets again, or use that version") from None


def release_spec_of(spec: ItemsetSpec) -> ReleaseSpec:
    """Return the release spec of an itemset request: its money, its unit, and the columns that are read.

    Raises RequestError where the universe still lies in a file.
    """
    if not spec.items:
        problem = f"{spec.items_file} was not read: only loading a spec's file reads it"
        raise RequestError(problem, "Give `items`, or load the spec with load_itemset_spec", "items_file")
    layout, drop = spec.layout, {"kind": "drop"}
    listed = {"kind": "categorical", "values": list(spec.items)}
    if isinstance(layout, ListLayout):
        columns: dict[str, Any] = {layout.column: listed}
    elif isinstance(layout, PairsLayout):
        columns = {layout.transaction: drop, layout.item: listed}
    else:
        columns = {item: {"kind": "boolean"} for item in spec.items}
    return ReleaseSpec.model_validate(
        {
            "dataset": spec.dataset,
            "data": spec.data,
            "unit": {"records_per_person": spec.transactions_per_person},
            "privacy": spec.privacy.model_dump(),
            "budget": spec.budget.model_dump(),
            "accountant": spec.accountant,
            "columns": columns,
            "csv": spec.csv.model_dump(),
            "public_files": [file.model_dump() for file in spec.public_files],
        }
    )


def _read_universe(file: ListedFile) -> list[str]:
    """Return the items of a file.  An error shows none of them: it may be the private table by mistake."""
    try:
        lines = [line.strip() for line in file.content.decode("utf-8").splitlines()]
    except ValueError:
        problem = f"{file.path} cannot be read as text in UTF-8"
        raise RequestError(problem, "Name a text file with one item a line", "items_file") from None
    items = [line for line in lines if line]
    if len(set(items)) < len(items):
        raise RequestError("names an item more than once", "Keep one line of each item", "items_file")
    return items


def _make_refusal(error: ValidationError, document: Document) -> RequestError:
    first = error.errors(include_url=False)[0]
    place = tuple(p for p in first["loc"] if p not in ("list", "wide", "pairs"))
    fields = list(get_model_at(ItemsetSpec, place or ("",)).model_fields)
    if first["type"] == "extra_forbidden":
        cure = suggest_name(str(place[-1]), fields) or f"Known are {', '.join(fields)}"
        problem = "is not a field of the spec" if len(place) == 1 else f"is not a field of `{format_place(place[:-1])}`"
    elif first["type"] == "missing":
        problem, cure = "is missing", "Add it; docs/itemsets.md says what each field means"
    elif first["type"] == "value_error":
        inner = first["ctx"]["error"]
        problem, cure = describe_refused(inner)
        place = (*place, *getattr(inner, "place", ()))
    elif first["type"].startswith("union_tag"):
        problem, cure = "has no known `kind`", "Write `kind: list`, `kind: wide` or `kind: pairs`"
    else:
        problem, cure = describe_wrong_value(first)
    field = format_place(place) if place else ""
    return RequestError(problem if field else f"the spec is wrong: {problem}", cure, field, document.line_of(place))
