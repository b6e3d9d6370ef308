"""Codebooks as a CSV or Excel table, with a row per column or per value; read by pandas (Excel with openpyxl).

The codebook's columns are recognized by their headings, in any order and letter case.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.base.registry import make_missing_error
from privsyn.extras.foreign_files.known_formats import refuse_large_unpacked
from privsyn.specs.dictionaries import (
    Dictionary,
    Facts,
    bound_of,
    format_value,
    list_values,
    make_unreadable_error,
    parse_range,
    parse_whole_number,
)

_FIELD = "draft_spec.dictionary"

MAX_UNPACKED = 200_000_000
"""Largest unpacked size of a workbook in bytes."""

_HEADINGS = {
    "name": "name variable column field variable_name column_name field_name variable_/_field_name var",
    "description": "description label variable_label field_label question meaning definition",
    "kind": "type kind data_type datatype format field_type",
    "min": "min minimum lower from text_validation_min",
    "max": "max maximum upper to text_validation_max",
    "values": "values codes categories allowed_values permitted_values valid_values value_labels levels coding choices "
    "choices,_calculations,_or_slider_labels",
    "value": "value code",
    "value_label": "value_label code_label meaning_of_value",
    "nullable": "nullable null missing_allowed",
    "required": "required mandatory not_null required_field?",
    "unit": "unit units",
    "decimals": "decimals",
    "universe": "universe asked_of asked_if base",
}
_KNOWN = {word: heading for heading, words in _HEADINGS.items() for word in words.split()}
_KINDS = {
    "integer": "integer int whole bigint smallint",
    "number": "number numeric float double decimal real continuous",
    "boolean": "boolean bool logical yesno truefalse",
    "datetime": "date datetime timestamp moment date_ymd datetime_ymd",
    "categorical": "categorical category factor nominal ordinal string text character char enum radio dropdown select",
    "drop": "drop id identifier key uuid",
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split()}
_ONE = re.compile(r"\s*([^=:,]*?)\s*[=:,]\s*(.*?)\s*", re.DOTALL)
_SPAN = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(?:-|–|to|\.\.)\s*(-?\d+(?:\.\d+)?)\s*")


def read(path: Path, table: str) -> Dictionary:
    """Return the facts of each column; rows with the same name, or without one, add values to the column above."""
    rows = _read_rows(path)
    headings = {h: _KNOWN[w] for h in rows.columns if (w := "_".join(str(h).lower().split())) in _KNOWN}
    if "name" not in headings.values():
        raise RequestError(
            f"{path.name} has no column of names",
            "Give it the headings `name`, `description`, `type`, `min`, `max`, `values`, `nullable`, `unit`",
            "draft_spec.dictionary",
        )
    rows_by_name: dict[str, list[dict[str, str]]] = {}
    name = ""
    for row in rows.to_dict("records"):
        cells = {headings[h]: format_value(v) for h, v in row.items() if h in headings and format_value(v)}
        name = cells.get("name", name)
        if name and cells:
            rows_by_name.setdefault(name, []).append(cells)
    columns = {name: _read_column(cells) for name, cells in rows_by_name.items()}
    return Dictionary(path.name, columns, headings=tuple(map(str, rows.columns)))


def _read_rows(path: Path) -> Any:
    import pandas as pd

    try:
        if path.suffix.lower() == ".xlsx":
            refuse_large_unpacked(path, MAX_UNPACKED, "draft_spec.dictionary")
            return pd.read_excel(path, dtype=str, keep_default_na=False, engine="openpyxl")
        separator = "\t" if path.suffix.lower() == ".tsv" else None
        return pd.read_csv(path, sep=separator, engine="python", dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except ImportError:
        raise make_missing_error(
            "openpyxl", "reading an Excel codebook", "codebooks", "draft_spec.dictionary"
        ) from None
    except (MemoryError, RequestError):
        raise
    except Exception:  # pandas and openpyxl raise many kinds of errors
        raise make_unreadable_error(path.name, "table of columns") from None


def _read_column(rows: list[dict[str, str]]) -> Facts:
    cells = {heading: text for row in reversed(rows) for heading, text in row.items()}  # the first row wins
    facts = Facts(description=cells.get("description", ""), unit=cells.get("unit", ""))
    facts.universe = cells.get("universe", "")
    stated_kind = cells.get("kind", "").lower()
    facts.kind = _KIND_OF.get(re.split(r"[\s(]", stated_kind)[0]) if stated_kind else None
    facts.type = "date" if stated_kind.startswith("date") and "time" not in stated_kind else None
    decimals = parse_whole_number(cells.get("decimals", ""))
    facts.decimals = decimals if decimals is not None and 0 <= decimals <= 15 else None
    facts.nullable = not _is_yes(cells["required"]) if "required" in cells else _is_yes(cells.get("nullable", "yes"))
    span = _SPAN.fullmatch(cells.get("values", ""))
    pairs = [(row["value"], row.get("value_label", "")) for row in rows if "value" in row]
    if not pairs and "values" in cells and span is None:
        pairs = _parse_pairs(cells["values"])
    if pairs and facts.kind != "boolean":
        facts.values = list_values(_parse_numbers([code for code, _ in pairs], stated_kind), facts)
        facts.labels = [label for _, label in pairs]
        facts.kind, facts.type = "categorical", None
    limits = span.groups() if span else (cells.get("min"), cells.get("max"))
    if limits == (None, None):
        limits = parse_range(facts.description) or limits
    facts.kind = facts.kind or (
        "integer" if limits != (None, None) and not any("." in (n or "") for n in limits) else None
    )
    facts.min, facts.max = (bound_of(limit, facts.kind) for limit in limits)
    return facts


def _parse_pairs(text: str) -> list[tuple[str, str]]:
    """Return (code, label) pairs from ``1 = male; 2 = female``, ``1, male | 2, female``, lines, or a plain list."""
    separator = next((s for s in ("|", "\n", ";") if s in text), None)
    if separator is None:
        labelled = "=" in text or re.search(r"\d\s*:", text)
        separator = ","
        if not labelled:
            return [(part.strip(), "") for part in text.split(",") if part.strip()]
    parts = [part for part in text.split(separator) if part.strip()]
    matches = [_ONE.fullmatch(part) for part in parts]
    return [(m[1], m[2]) if m else (part.strip(), "") for part, m in zip(parts, matches, strict=True)]


def _parse_numbers(codes: list[str], stated_kind: str) -> list[Any]:
    """Return the codes as whole numbers if all are, without leading zeros, and the codebook does not call them text."""
    text = stated_kind.startswith(("string", "text", "char"))
    numbers = [parse_whole_number(code) for code in codes]
    return list(codes) if text or None in numbers else numbers


def _is_yes(text: str) -> bool:
    return text.strip().lower() in ("yes", "y", "true", "t", "1", "x")
