"""Stata, SPSS and SAS files: names, types and labels, read by pyreadstat without any row.

The labels in a file are its author's codebook.  These programs allow missing values anywhere, so every column may be
null.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from privsyn.base.registry import need_package
from privsyn.extras.foreign_files.known_formats import DAYS, MOMENTS, READERS, find_catalogue, is_a_list
from privsyn.specs.dictionaries import (
    Dictionary,
    Facts,
    bound_of,
    list_values,
    make_unreadable_error,
    parse_range,
)

_FORM = "Stata, SPSS or SAS file"

_FIXED = re.compile(r"%[-0]?\d+\.([1-9]|1[0-5])fc?")
"""Stata's format with a fixed number of decimals, such as ``%9.2f``; it is never a default."""


def read(path: Path, table: str) -> Dictionary:
    """Return the facts in the file's metadata.

    For a SAS file, value labels come from the catalogue ``.sas7bcat`` beside it.
    """
    with need_package("pyreadstat", f"reading a {_FORM}", "codebooks", "draft_spec.dictionary"):
        import pyreadstat
    options: dict[str, Any] = {"metadataonly": True, **find_catalogue(path)}
    try:
        _, metadata = getattr(pyreadstat, READERS[path.suffix.lower()])(str(path), **options)
    except MemoryError:
        raise
    except Exception:  # pyreadstat raises many kinds of errors
        raise make_unreadable_error(path.name, _FORM) from None
    return Dictionary(path.name, {name: _read_column(name, metadata) for name in metadata.column_names})


def _read_column(name: str, metadata: Any) -> Facts:
    description = str(metadata.column_names_to_labels.get(name) or "").strip()
    facts = Facts(description=description, nullable=True)
    stored = str(metadata.readstat_variable_types.get(name, ""))
    form = str(metadata.original_variable_types.get(name) or "").lower()
    limits = parse_range(description)
    listed = dict(metadata.variable_value_labels.get(name) or {})
    if is_a_list(listed, str(metadata.variable_measure.get(name, ""))):
        facts.kind = "categorical"
        facts.values = list_values([_to_whole(code) for code in listed], facts)
        facts.labels = [str(label) for label in listed.values()]
    elif form.startswith((*MOMENTS, *DAYS)):
        facts.kind = "datetime"
        facts.type = None if form.startswith(MOMENTS) else "date"
    elif stored == "string":
        facts.kind = "categorical"
    elif stored:
        # whole bounds do not imply whole values: a share from 0 to 1 has fractions
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


def _to_whole(code: Any) -> Any:
    return int(code) if isinstance(code, float) and code.is_integer() else code
