"""Croissant: the fields of a data set's record sets, in JSON-LD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privsyn.specs.dictionaries import Dictionary, Facts, format_value, list_values, pick

_KINDS = {
    "integer": "integer",
    "int64": "integer",
    "int32": "integer",
    "float": "number",
    "float64": "number",
    "number": "number",
    "boolean": "boolean",
    "text": "categorical",
    "date": "datetime",
    "datetime": "datetime",
    "url": "drop",
}


def recognizes(content: Mapping[str, Any]) -> bool:
    """Return whether the content is Croissant."""
    return isinstance(content.get("recordSet"), list)


def read(content: Mapping[str, Any], name: str, table: str) -> Dictionary:
    """Return the facts about the record set ``table``, or the only record set that is not a list of values."""
    sets = [entry for entry in content["recordSet"] if isinstance(entry, Mapping)]
    listed = {_get_key(entry): entry for entry in sets if _is_list(entry)}
    described = {format_value(entry.get("name") or _get_key(entry)): entry for entry in sets if not _is_list(entry)}
    fields = pick(described, table, name)["field"]
    return Dictionary(name, {format_value(f.get("name") or f.get("@id")): _read_field(f, listed) for f in fields})


def _read_field(entry: Mapping[str, Any], listed: Mapping[str, Mapping[str, Any]]) -> Facts:
    facts = Facts(description=format_value(entry.get("description")), nullable=True)
    types = entry.get("dataType")
    names = [format_value(t).rpartition(":")[2].rpartition("/")[2].lower() for t in _to_list(types)]
    facts.kind = next((_KINDS[n] for n in names if n in _KINDS), None)
    facts.type = "date" if names[:1] == ["date"] else None
    references = entry.get("references")
    where = references.get("field", {}) if isinstance(references, Mapping) else {}
    target = format_value(where.get("@id") if isinstance(where, Mapping) else where)
    source = listed.get(target.partition("/")[0])
    if source is not None:
        facts.kind, facts.type = "categorical", None
        facts.values = list_values([row.get(target) for row in source["data"] if isinstance(row, Mapping)], facts)
    return facts


def _is_list(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("data"), list)


def _get_key(entry: Mapping[str, Any]) -> str:
    return format_value(entry.get("@id") or entry.get("name"))


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
