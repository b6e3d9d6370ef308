"""Dictionaries in JSON: the shared form, Frictionless, Croissant and SDV.

A fact that was read off the data itself is a function of private rows.  Examples are ``bounds_from: observed`` and a
count of missing values.  Such a fact is left out, and a remark says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.extras.foreign_files.codebooks import croissant_fields
from privsyn.specs.dictionaries import Dictionary, Facts, bound_of, format_value, list_values, pick

FORMS = (
    "as JSON the shared form (`columns` with `kind`, `min`, `max`, `values`), a Frictionless Table Schema or Data "
    "Package (`fields` or `resources`), Croissant or SDV metadata (`columns` or `tables` with `sdtype`); a DDI "
    "codebook (.xml); a Stata, SPSS or SAS file with labels; SQL `CREATE TABLE` (.sql); or a table of columns (.csv, "
    ".tsv, .xlsx)"
)
_OBSERVED = re.compile(r"observed|published file|from the data\b", re.IGNORECASE)


def read(path: Path, table: str) -> Dictionary:
    """Return the dictionary ``path``; ``table``, the data's file name without ending, picks one of several.

    Raises RequestError if the file is unreadable or of none of the known forms.
    """
    content = _read_json(path)
    if isinstance(content, dict):
        for recognizes, convert in _FORMS:
            if recognizes(content):
                try:
                    return convert(content, path.name, table)
                except (TypeError, AttributeError, KeyError):
                    break
    raise RequestError(
        f"{path.name} is not a data dictionary of a known form", f"Give {FORMS}", "draft_spec.dictionary"
    )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        raise RequestError(f"{path} is not a readable JSON file", f"Give {FORMS}", "draft_spec.dictionary") from None


def _is_shared(content: Mapping[str, Any]) -> bool:
    return _has_columns_with(content, "kind")


def _has_columns_with(content: Mapping[str, Any], key: str) -> bool:
    columns = content.get("columns")
    return (
        isinstance(columns, dict) and bool(columns) and all(isinstance(c, dict) and key in c for c in columns.values())
    )


def _read_shared(content: Mapping[str, Any], name: str, table: str) -> Dictionary:
    return Dictionary(name, {column: _read_shared_column(entry) for column, entry in content["columns"].items()})


def _read_shared_column(entry: Mapping[str, Any]) -> Facts:
    facts = Facts(unit=format_value(entry.get("unit")), description=format_value(entry.get("note")))
    facts.universe = format_value(entry.get("universe") or entry.get("missing_means"))
    kind = entry["kind"]
    facts.kind = {"numeric": "integer" if entry.get("integer") is True else "number"}.get(kind, kind)
    if facts.kind not in ("integer", "number", "datetime", "categorical", "boolean", "drop"):
        facts.kind = None
    for part, keys in (("bounds", ("min", "max")), ("values", ("values",))):
        source = format_value(entry.get(f"{part}_from"))
        if not any(key in entry for key in keys):
            continue
        if _OBSERVED.search(source):
            facts.remarks.append(f"the dictionary's {part} are not public, but read off the data ({source})")
        elif not source:
            facts.remarks.append(f"the dictionary does not say where its {part} come from")
        else:
            facts.remarks.append(f"{part} from: {source}")
            facts.min, facts.max = bound_of(entry.get("min"), facts.kind), bound_of(entry.get("max"), facts.kind)
            facts.values = list_values(entry.get("values"), facts)
    if entry.get("missing_means"):
        facts.nullable = True
        facts.remarks.append(f"null means: {format_value(entry['missing_means'])}")
    return facts


def _is_frictionless(content: Mapping[str, Any]) -> bool:
    return isinstance(content.get("fields"), list) or isinstance(content.get("resources"), list)


def _read_frictionless(content: Mapping[str, Any], name: str, table: str) -> Dictionary:
    if "resources" in content:
        by_name = {
            format_value(r.get("name") or Path(format_value(r.get("path"))).stem): r for r in content["resources"]
        }
        schema = pick(by_name, table, name).get("schema")
        if not isinstance(schema, dict):
            cure = "Give the schema's own file"
            raise RequestError(f"{name} does not hold the table's schema itself", cure, "draft_spec.dictionary")
        content = schema
    missing, texts = content.get("missingValues"), None
    if isinstance(missing, list):
        texts = [format_value(m.get("value") if isinstance(m, dict) else m) for m in missing]
    columns = {format_value(f["name"]): _read_frictionless_field(f) for f in content["fields"]}
    key = content.get("primaryKey")
    names = key if isinstance(key, list) else [key]
    if len(names) == 1 and names[0] in columns:
        columns[names[0]].unique = True
    return Dictionary(name, columns, texts)


_FRICTIONLESS_KINDS = {
    "integer": "integer",
    "year": "integer",
    "number": "number",
    "boolean": "boolean",
    "string": "categorical",
    "date": "datetime",
    "datetime": "datetime",
    "object": "drop",
    "array": "drop",
    "geojson": "drop",
    "geopoint": "drop",
    "list": "drop",
}


def _read_frictionless_field(entry: Mapping[str, Any]) -> Facts:
    rules = entry.get("constraints") or {}
    description = ". ".join(t for t in (format_value(entry.get("title")), format_value(entry.get("description"))) if t)
    facts = Facts(kind=_FRICTIONLESS_KINDS.get(format_value(entry.get("type", "string"))), description=description)
    facts.type = "date" if entry.get("type") == "date" else None
    listed = rules.get("enum") or entry.get("categories")
    if listed:
        plain = [v.get("value") if isinstance(v, dict) else v for v in listed]
        facts.kind, facts.type = "categorical", None
        facts.values = list_values(plain, facts)
    facts.min, facts.max = bound_of(rules.get("minimum"), facts.kind), bound_of(rules.get("maximum"), facts.kind)
    facts.nullable = facts.nullable or rules.get("required") is not True
    if rules.get("unique") is True:
        facts.unique = True
        facts.remarks.append("the dictionary calls it unique: an identifier should be `kind: drop`")
    return facts


def _is_sdv(content: Mapping[str, Any]) -> bool:
    return _has_columns_with(content, "sdtype") or isinstance(content.get("tables"), dict)


def _read_sdv(content: Mapping[str, Any], name: str, table: str) -> Dictionary:
    if "tables" in content:
        content = pick(content["tables"], table, name)
    return Dictionary(name, {column: _read_sdv_column(entry) for column, entry in content["columns"].items()})


def _read_sdv_column(entry: Mapping[str, Any]) -> Facts:
    sdtype = format_value(entry.get("sdtype"))
    facts = Facts(description=format_value(entry.get("description")))
    if entry.get("pii") is True or sdtype not in ("categorical", "numerical", "datetime", "boolean"):
        facts.kind = "drop"
        facts.remarks.append(f"SDV calls it {sdtype or 'of no type'}: an identifier or personal detail")
    elif sdtype == "numerical":
        representation = format_value(entry.get("computer_representation"))
        facts.kind = "integer" if "int" in representation.lower() else ("number" if representation else None)
    else:
        facts.kind = sdtype
        facts.values = list_values(entry.get("order"), facts)
    return facts


_FORMS: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any], str, str], Dictionary]], ...] = (
    (croissant_fields.recognizes, croissant_fields.read),
    (_is_sdv, _read_sdv),
    (_is_shared, _read_shared),
    (_is_frictionless, _read_frictionless),
)
