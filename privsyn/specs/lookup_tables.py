"""The public tables that lookup rules name: read where a spec is read, so that a run takes no file of its own."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.paths import expand_path
from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Lookup, LookupRule, infer_type
from privsyn.specs import messages

MAX_BYTES = 64 << 20
"""Largest file of a public table."""


def with_lookup_tables(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the rows of every lookup's ``table`` in it; paths are relative to ``folder``.

    Raises RequestError (exit 2) for a file that cannot be read, lacks a column, has a value that does not fit, or is
    the private table itself.
    """
    if not any(isinstance(rule, LookupRule) and rule.lookup.table for rule in spec.rules):
        return spec
    rules = [
        {"lookup": _fill_table(rule.lookup, spec, folder, f"rules[{i}].lookup.table")}
        if isinstance(rule, LookupRule) and rule.lookup.table
        else rule.model_dump(by_alias=True, exclude_unset=True)
        for i, rule in enumerate(spec.rules)
    ]
    try:
        return ReleaseSpec.model_validate({**spec.model_dump(exclude_unset=True, exclude={"rules"}), "rules": rules})
    except ValidationError as error:
        raise messages.request_error(messages.from_validation(error, {})) from None


def _fill_table(lookup: Lookup, spec: ReleaseSpec, folder: Path, field: str) -> dict[str, Any]:
    names = (*lookup.from_, *lookup.to)
    path = folder / expand_path(lookup.table, field)
    refuse_private(path, spec, folder, field)
    rows = []
    for line, record in enumerate(read_csv_records(path, field), start=2):
        missing = [name for name in names if record.get(name) is None]
        if missing:
            raise RequestError(
                f"{path.name} has no column {missing[0]!r}" if line == 2 else f"{path.name}, line {line}, is too short",
                "Let it be a CSV file with a header and the columns " + ", ".join(names),
                field,
            )
        rows.append(
            [parse_value(str(record[name]), spec.columns[name], f"{path.name}, line {line}", field) for name in names]
        )
    unique = {tuple(row): row for row in rows}  # a table of more columns may say the same twice
    return {"from": list(lookup.from_), "to": list(lookup.to), "rows": list(unique.values())}


def refuse_private(path: Path, spec: ReleaseSpec, folder: Path, field: str) -> None:
    """Raise RequestError for a public table that is the spec's private one, or a file of it."""
    if spec.data:
        private = (folder / spec.data).resolve()
        linked = path.exists() and private.exists() and path.samefile(private)  # hard links, too
        if linked or path.resolve() == private or private in path.resolve().parents:
            raise RequestError("is the private table itself", "Name a public table: its rows are released", field)


def read_csv_records(path: Path, field: str) -> Sequence[dict[str, str | None]]:
    """Return the rows of a CSV file of at most MAX_BYTES.  Raises RequestError that names the field."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(
                f"{path.name} is larger than {MAX_BYTES >> 20} MiB", "Keep the columns of the rule", field
            )
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error):
        raise RequestError(
            f"{path.name} cannot be read as a CSV file", "Let it be CSV in UTF-8 with a header, beside the spec", field
        ) from None


def parse_value(text: str, column: Any, where: str, field: str) -> Any:
    """Return the text as a value of the column; empty is null, unless a value of the column is."""
    kind = infer_type(column)
    if text == "" and not (isinstance(column, CategoricalColumn) and "" in column.values):
        return None
    if kind == "text":
        return text
    try:
        if kind == "truth":
            return {"true": True, "false": False, "1": True, "0": False}[text.strip().lower()]
        if kind == "number":
            number = float(text)
            return int(number) if number.is_integer() else number
    except (KeyError, ValueError):
        pass
    raise RequestError(f"{where}: {text[:40]!r} is not a value of that column", "Correct the table", field)
