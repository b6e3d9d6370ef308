"""Stata, SPSS and SAS files: names, types and labels, by pyreadstat; no row is read.

A file's labels are its maker's codebook.  These programs let any value be missing, so every column may be null.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from privsyn.specs.facts import (
    Dictionary,
    Facts,
    bound_of,
    list_values,
    make_missing_package_error,
    make_unreadable_error,
    parse_range,
)

_FORM = "Stata, SPSS or SAS file"
_READERS = {
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
ENDINGS = tuple(_READERS)

_DAYS = ("%td", "date9", "mmddyy", "ddmmyy", "yymmdd", "date", "adate", "edate", "sdate")
_MOMENTS = ("%tc", "datetime")
_FIXED = re.compile(r"%[-0]?\d+\.([1-9]|1[0-5])fc?")
"""Stata's format of a number with so many decimals, which nobody gets without asking for it, as ``%9.2f``."""
_FEWEST_LABELS = 2
"""Fewer labels than these mark special values of a number, not a list."""


def read(path: Path, table: str) -> Dictionary:
    """Return the facts in the file's metadata.

    With a SAS file, the catalogue ``.sas7bcat`` beside it has the value labels.
    """
    try:
        import pyreadstat
    except ImportError:
        raise make_missing_package_error("pyreadstat", f"a {_FORM}") from None
    options: dict[str, Any] = {"metadataonly": True}
    catalogue = path.with_suffix(".sas7bcat")
    if path.suffix.lower() == ".sas7bdat" and catalogue.is_file():
        options["catalog_file"] = str(catalogue)
    try:
        _, found = getattr(pyreadstat, _READERS[path.suffix.lower()])(str(path), **options)
    except MemoryError:
        raise
    except Exception:  # pyreadstat raises errors of many kinds
        raise make_unreadable_error(path.name, _FORM) from None
    return Dictionary(path.name, {name: _read_column(name, found) for name in found.column_names})


def _read_column(name: str, found: Any) -> Facts:
    description = str(found.column_names_to_labels.get(name) or "").strip()
    facts = Facts(description=description, nullable=True)
    stored = str(found.readstat_variable_types.get(name, ""))
    form = str(found.original_variable_types.get(name) or "").lower()
    limits = parse_range(description)
    listed = dict(found.variable_value_labels.get(name) or {})
    if _is_a_list(listed, str(found.variable_measure.get(name, ""))):
        facts.kind = "categorical"
        facts.values = list_values([_to_whole(code) for code in listed], facts)
        facts.labels = [str(label) for label in listed.values()]
    elif form.startswith(_MOMENTS) or form.startswith(_DAYS):
        facts.kind = "datetime"
        facts.type = None if form.startswith(_MOMENTS) else "date"
    elif stored == "string":
        facts.kind = "categorical"
    elif stored:
        # whole bounds in a label do not make the values whole: a share of 0 to 1 has fractions
        facts.kind = "integer" if stored.startswith("int") or form.endswith(".0") else "number"
    if facts.kind == "number" and (fixed := _FIXED.fullmatch(form)):
        facts.decimals = int(fixed[1])
    if limits is not None and facts.kind in ("integer", "number"):
        facts.min, facts.max = (bound_of(limit, facts.kind) for limit in limits)
        facts.remarks.append("bounds from the variable's label")
        if facts.kind == "number" and not any("." in limit for limit in limits):
            facts.remarks.append("stored as doubles: write `kind: integer` only if no value has a fraction")
    if listed and facts.values is None:
        shown = ", ".join(f"{_to_whole(code)} = {label}" for code, label in list(listed.items())[:5])
        facts.remarks.append(f"some values have labels: {shown}")
    return facts


def _is_a_list(labels: dict[Any, str], measure: str) -> bool:
    return len(labels) >= _FEWEST_LABELS and measure != "scale"


def _to_whole(code: Any) -> Any:
    return int(code) if isinstance(code, float) and code.is_integer() else code
