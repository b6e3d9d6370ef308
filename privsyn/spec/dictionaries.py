"""Data dictionaries: public facts about columns, read from the three forms that people have.

A fact that was read off the data itself (``bounds_from: observed``, a count of missing values) is a function of
private rows, so it is left out and a remark says why.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privsyn.data_contracts.columns import MAX_CODES
from privsyn.errors import RequestError

MAX_BYTES = 100_000_000
FORMS = (
    "the shared form (`columns` with `kind`, `min`, `max`, `values`), a Frictionless Table Schema or Data "
    "Package (`fields` or `resources`), or SDV metadata (`columns` or `tables` with `sdtype`)"
)
_OBSERVED = re.compile(r"observed|published file|from the data\b", re.IGNORECASE)
Scalar = bool | int | float | str | dt.datetime


@dataclass
class Facts:
    """What is publicly known about one column; None if the dictionary does not say."""

    kind: str | None = None
    type: str | None = None
    min: Scalar | None = None
    max: Scalar | None = None
    values: list[Scalar] | None = None
    nullable: bool | None = None
    unit: str = ""
    description: str = ""
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dictionary:
    """The facts by column name, and texts that mean null in CSV (None: not said)."""

    name: str
    columns: dict[str, Facts]
    null_values: list[str] | None = None


def read_dictionary(path: Path, table: str) -> Dictionary:
    """Read the dictionary ``path``; ``table``, the data's file name without ending, picks one of several.

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
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise RequestError(
                f"{path} is not a regular file", "Save the dictionary in a file", "draft_spec.dictionary"
            )
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(
                f"{path} is larger than {MAX_BYTES // 10**6} MB", "Check the path", "draft_spec.dictionary"
            )
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise RequestError(f"there is no file {path}", "Check the path", "draft_spec.dictionary") from None
    except (OSError, ValueError, RecursionError):
        raise RequestError(
            f"{path} is not a readable JSON file", f"Give {FORMS}, as JSON", "draft_spec.dictionary"
        ) from None


def _is_shared(content: Mapping[str, Any]) -> bool:
    return _columns_with(content, "kind")


def _columns_with(content: Mapping[str, Any], key: str) -> bool:
    columns = content.get("columns")
    return (
        isinstance(columns, dict) and bool(columns) and all(isinstance(c, dict) and key in c for c in columns.values())
    )


def _shared(content: Mapping[str, Any], name: str, table: str) -> Dictionary:
    return Dictionary(name, {column: _shared_column(entry) for column, entry in content["columns"].items()})


def _shared_column(entry: Mapping[str, Any]) -> Facts:
    facts = Facts(unit=_text(entry.get("unit")), description=_text(entry.get("note")))
    kind = entry["kind"]
    facts.kind = {"numeric": "integer" if entry.get("integer") is True else "number"}.get(kind, kind)
    if facts.kind not in ("integer", "number", "datetime", "categorical", "boolean", "drop"):
        facts.kind = None
    for what, keys in (("bounds", ("min", "max")), ("values", ("values",))):
        source = _text(entry.get(f"{what}_from"))
        if not any(key in entry for key in keys):
            continue
        if _OBSERVED.search(source):
            facts.remarks.append(f"the dictionary's {what} are not public, but read off the data ({source})")
        elif not source:
            facts.remarks.append(f"the dictionary does not say where its {what} come from")
        else:
            facts.remarks.append(f"{what} from: {source}")
            facts.min, facts.max = _bound(entry.get("min"), facts.kind), _bound(entry.get("max"), facts.kind)
            facts.values = _values(entry.get("values"), facts)
    if entry.get("missing_means"):
        facts.nullable = True
        facts.remarks.append(f"null means: {_text(entry['missing_means'])}")
    return facts


def _is_frictionless(content: Mapping[str, Any]) -> bool:
    return isinstance(content.get("fields"), list) or isinstance(content.get("resources"), list)


def _frictionless(content: Mapping[str, Any], name: str, table: str) -> Dictionary:
    if "resources" in content:
        by_name = {_text(r.get("name") or Path(_text(r.get("path"))).stem): r for r in content["resources"]}
        schema = _pick(by_name, table, name).get("schema")
        if not isinstance(schema, dict):
            cure = "Give the schema's own file"
            raise RequestError(f"{name} does not hold the table's schema itself", cure, "draft_spec.dictionary")
        content = schema
    missing, texts = content.get("missingValues"), None
    if isinstance(missing, list):
        texts = [_text(m.get("value") if isinstance(m, dict) else m) for m in missing]
    return Dictionary(name, {_text(f["name"]): _frictionless_field(f) for f in content["fields"]}, texts)


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


def _frictionless_field(entry: Mapping[str, Any]) -> Facts:
    rules = entry.get("constraints") or {}
    description = ". ".join(t for t in (_text(entry.get("title")), _text(entry.get("description"))) if t)
    facts = Facts(kind=_FRICTIONLESS_KINDS.get(_text(entry.get("type", "string"))), description=description)
    facts.type = "date" if entry.get("type") == "date" else None
    listed = rules.get("enum") or entry.get("categories")
    if listed:
        plain = [v.get("value") if isinstance(v, dict) else v for v in listed]
        facts.kind, facts.type = "categorical", None
        facts.values = _values(plain, facts)
    facts.min, facts.max = _bound(rules.get("minimum"), facts.kind), _bound(rules.get("maximum"), facts.kind)
    facts.nullable = facts.nullable or rules.get("required") is not True
    if rules.get("unique") is True:
        facts.remarks.append("the dictionary calls it unique: an identifier should be `kind: drop`")
    return facts


def _is_sdv(content: Mapping[str, Any]) -> bool:
    return _columns_with(content, "sdtype") or isinstance(content.get("tables"), dict)


def _sdv(content: Mapping[str, Any], name: str, table: str) -> Dictionary:
    if "tables" in content:
        content = _pick(content["tables"], table, name)
    return Dictionary(name, {column: _sdv_column(entry) for column, entry in content["columns"].items()})


def _sdv_column(entry: Mapping[str, Any]) -> Facts:
    sdtype = _text(entry.get("sdtype"))
    facts = Facts(description=_text(entry.get("description")))
    if entry.get("pii") is True or sdtype not in ("categorical", "numerical", "datetime", "boolean"):
        facts.kind = "drop"
        facts.remarks.append(f"SDV calls it {sdtype or 'of no type'}: an identifier or personal detail")
    elif sdtype == "numerical":
        representation = _text(entry.get("computer_representation"))
        facts.kind = "integer" if "int" in representation.lower() else ("number" if representation else None)
    else:
        facts.kind = sdtype
        facts.values = _values(entry.get("order"), facts)
    return facts


_FORMS: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any], str, str], Dictionary]], ...] = (
    (_is_sdv, _sdv),
    (_is_shared, _shared),
    (_is_frictionless, _frictionless),
)


def _pick(tables: Mapping[str, Any], table: str, name: str) -> Mapping[str, Any]:
    """The table called ``table``, or the only one."""
    chosen = tables.get(table) or (next(iter(tables.values())) if len(tables) == 1 else None)
    if not isinstance(chosen, dict):
        raise RequestError(
            f"{name} describes {len(tables)} tables, none of them called {table}",
            "Give a dictionary of this one table, or name its table like the data file",
            "draft_spec.dictionary",
        )
    return chosen


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _bound(value: Any, kind: str | None) -> Scalar | None:
    """A bound of the kind's own type, moments as UTC without a zone; None if it is none."""
    if kind == "datetime" and isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
            return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or kind not in ("integer", "number"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if kind == "integer":
        return (value if isinstance(value, int) else int(number)) if number.is_integer() else None
    return number if math.isfinite(number) else None


def _values(listed: Any, facts: Facts) -> list[Scalar] | None:
    """The listed values as scalars of one type without repeats; None if there are none, or too many."""
    if not isinstance(listed, list) or len(listed) > MAX_CODES:
        return None
    if None in listed:
        facts.nullable = True
    kept = [v for v in listed if isinstance(v, bool | int | float | str) and v == v]
    kinds = {type(v) for v in kept}
    if len(kinds) > 1 and kinds != {int, float}:
        kept = [str(v) for v in kept]
    return list(dict.fromkeys(kept)) or None
