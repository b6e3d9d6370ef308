"""The public files that a spec names, of lookup rules, totals and the prior: read and hashed where the spec is read.

So a run takes no file of its own, but that of the prior, whose hash the spec then states.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.paths import expand_path
from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Lookup, LookupRule, infer_type
from privsyn.data_contracts.totals import MOST_COUNTS, KnownTotal
from privsyn.sources.public_table import compute_sha256, locate_public_file
from privsyn.specs import messages

MAX_BYTES = 64 << 20
"""Largest CSV file of a public table that is read whole."""

MOST_DIGITS = 18
"""Digits of a count at most: Python reads no number of thousands."""


def with_public_files(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the rows of its lookups and totals in it, and the place and SHA-256 of its prior's file.

    Paths are relative to ``folder``.  Raises RequestError (exit 2) for a file that cannot be read, lacks a column, has
    a value that does not fit, has another content than a stated hash, or is the private table itself.
    """
    return with_prior(_with_totals(with_lookup_tables(spec, folder), folder), folder)


def with_lookup_tables(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the rows of every lookup's ``table`` in it; errors as :func:`with_public_files`."""
    if not any(isinstance(rule, LookupRule) and rule.lookup.table for rule in spec.rules):
        return spec
    rules = [
        {"lookup": _fill_table(rule.lookup, spec, folder, f"rules[{i}].lookup.table")}
        if isinstance(rule, LookupRule) and rule.lookup.table
        else rule.model_dump(by_alias=True, exclude_unset=True)
        for i, rule in enumerate(spec.rules)
    ]
    return _replace_field(spec, "rules", rules)


def _with_totals(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the counts of every total's ``table`` in it, and the file's SHA-256."""
    if not any(total.table for total in spec.totals):
        return spec
    totals = [
        _fill_total(total, spec, folder, i) if total.table else total.model_dump(exclude_unset=True)
        for i, total in enumerate(spec.totals)
    ]
    return _replace_field(spec, "totals", totals)


def with_prior(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the place of its prior made absolute and the file's SHA-256 in it.

    Errors as :func:`with_public_files`.
    """
    prior = spec.prior
    if prior is None or not prior.place:
        return spec
    kind = "table" if prior.table else "release"
    field = f"prior.{kind}"
    prior = prior.model_copy(update={kind: str(folder.absolute() / expand_path(prior.place, field))})
    path = locate_public_file(prior)
    _refuse_private(path, spec, folder, field, "its statistics show in the release")
    sha256 = _hash_stated(path, prior.sha256, "prior.sha256")
    return spec.model_copy(update={"prior": prior.model_copy(update={"sha256": sha256})})


def _replace_field(spec: ReleaseSpec, name: str, value: Any) -> ReleaseSpec:
    try:
        return ReleaseSpec.model_validate({**spec.model_dump(exclude_unset=True, exclude={name}), name: value})
    except ValidationError as error:
        raise messages.request_error(messages.from_validation(error, {})) from None


def _locate_table(name: str, spec: ReleaseSpec, folder: Path, field: str) -> Path:
    """Return where the public table ``name`` lies, which is not the private one."""
    path = folder / expand_path(name, field)
    _refuse_private(path, spec, folder, field, "its rows are released")
    return path


def _refuse_private(path: Path, spec: ReleaseSpec, folder: Path, field: str, reason: str) -> None:
    """Raise RequestError for a public table that is the spec's private one, or a file of it."""
    if spec.data:
        private = (folder / spec.data).resolve()
        linked = path.exists() and private.exists() and path.samefile(private)  # hard links, too
        if linked or path.resolve() == private or private in path.resolve().parents:
            raise RequestError("is the private table itself", f"Name a public table: {reason}", field)


def _hash_stated(path: Path, stated: str, field: str) -> str:
    """Return the file's SHA-256.  Raises RequestError if another one is stated."""
    found = compute_sha256(path)
    if stated not in ("", found):
        raise RequestError(
            f"{path.name} has another content than its `sha256` says", "Name the file that was meant", field
        )
    return found


def _fill_table(lookup: Lookup, spec: ReleaseSpec, folder: Path, field: str) -> dict[str, Any]:
    names = (*lookup.from_, *lookup.to)
    path = _locate_table(lookup.table, spec, folder, field)
    rows = []
    for line, record in enumerate(_read_csv_records(path, field), start=2):
        missing = [name for name in names if record.get(name) is None]
        if missing:
            raise RequestError(
                f"{path.name} has no column {missing[0]!r}" if line == 2 else f"{path.name}, line {line}, is too short",
                "Let it be a CSV file with a header and the columns " + ", ".join(names),
                field,
            )
        rows.append(
            [_parse_value(str(record[name]), spec.columns[name], f"{path.name}, line {line}", field) for name in names]
        )
    unique = {tuple(row): row for row in rows}  # a table of more columns may say the same twice
    return {"from": list(lookup.from_), "to": list(lookup.to), "rows": list(unique.values())}


def _fill_total(total: KnownTotal, spec: ReleaseSpec, folder: Path, i: int) -> dict[str, Any]:
    place = f"totals[{i}].table"
    path = _locate_table(total.table, spec, folder, place)
    read = _read_parquet_rows if path.suffix == ".parquet" else _read_csv_rows
    rows = read(path, total, spec, place)
    if not 0 < len(rows) <= MOST_COUNTS:
        raise RequestError(
            f"{path.name} has {len(rows):,} rows, and a total has from 1 to {MOST_COUNTS:,}",
            "Let it have one row for each value",
            place,
        )
    found = _hash_stated(path, total.sha256, f"totals[{i}].sha256")
    return {**total.model_dump(exclude_unset=True, exclude={"table"}), "counts": rows, "sha256": found}


def _read_csv_rows(path: Path, total: KnownTotal, spec: ReleaseSpec, field: str) -> list[dict[str, Any]]:
    rows = []
    for line, record in enumerate(_read_csv_records(path, field), start=2):
        where = f"{path.name}, line {line}"
        _check_names(path, [name for name, text in record.items() if text is not None], total, field)
        values = {n: _parse_value(str(record[n]), spec.columns[n], where, field) for n in total.columns}
        text = str(record[total.count]).strip()
        if not text.isdecimal() or len(text) > MOST_DIGITS:
            raise RequestError(f"{where}: {text[:40]!r} is not a count", "Write a whole number, 0 or more", field)
        rows.append({**values, total.count: int(text)})
    return rows


def _check_names(path: Path, found: Sequence[str], total: KnownTotal, field: str) -> None:
    names = (*total.columns, total.count)
    missing = [name for name in names if name not in found]
    if missing:
        raise RequestError(
            f"{path.name} has no column {missing[0]!r}", f"Let it have the columns {', '.join(names)}", field
        )


def _read_parquet_rows(path: Path, total: KnownTotal, spec: ReleaseSpec, field: str) -> list[dict[str, Any]]:
    try:
        _check_names(path, pq.read_schema(path).names, total, field)
        rows = pq.read_metadata(path).num_rows
        if rows > MOST_COUNTS:
            raise RequestError(
                f"{path.name} has {rows:,} rows, and a total has at most {MOST_COUNTS:,}",
                "Let it have one row for each value",
                field,
            )
        found: list[dict[str, Any]] = pq.read_table(path, columns=[*total.columns, total.count]).to_pylist()
        return found
    except (OSError, pa.ArrowException):
        raise RequestError(
            f"{path.name} cannot be read as a Parquet file", "Let it be one beside the spec", field
        ) from None


def _read_csv_records(path: Path, field: str) -> Sequence[dict[str, str | None]]:
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


def _parse_value(text: str, column: Any, where: str, field: str) -> Any:
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
