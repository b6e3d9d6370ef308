"""The public files that a spec names, read together with the spec, so that a run needs no other file.

When a run is opened, privsyn/engine/public_inputs.py checks that none is the private table under another name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.paths import expand_path
from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Lookup, LookupRule, infer_type
from privsyn.data_contracts.totals import MOST_COUNTS, KnownTotal
from privsyn.sources.public_table import (
    ListedFile,
    compute_sha256,
    locate_public_file,
    read_earlier_cells,
    read_listed_file,
    read_records,
    refuse_private_file,
)
from privsyn.specs import messages

_LOOKUP, _TOTAL = "rules[{}].lookup.table", "totals[{}].table"
"""Fields that name a file."""

MOST_DIGITS = 18
"""Largest number of digits of a count: Python refuses numbers with thousands of digits."""


def with_public_inputs(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the rows of its lookup and total files, its earlier cells, and the hash of its prior.

    Paths are relative to ``folder``; ``public_files`` lists the files read.  Raises RequestError (exit 2) for a file
    that cannot be read, lacks a column or has a value that does not fit.  Raises RequestError also for a file that does
    not match a stated hash, or is the private table itself.
    """
    spec = _with_prior(spec, folder)
    read = {
        field: read_listed_file(place, folder, spec.private_places, field) for field, place in _list_named_files(spec)
    }
    if read:
        rules = [
            {
                **rule.model_dump(exclude={"lookup"}, exclude_unset=True),
                "lookup": _fill_lookup(rule.lookup, spec, read[_LOOKUP.format(i)]),
            }
            if isinstance(rule, LookupRule) and rule.lookup.table
            else rule.model_dump(by_alias=True, exclude_unset=True)
            for i, rule in enumerate(spec.rules)
        ]
        totals = [
            _fill_total(total, spec, read[_TOTAL.format(i)], i) if total.table else total.model_dump(exclude_unset=True)
            for i, total in enumerate(spec.totals)
        ]
        files = [file.model_dump() for file in (*spec.public_files, *(file.kept for file in read.values()))]
        filled = {"rules": rules, "totals": totals, "public_files": files}
        content = spec.model_dump(exclude_unset=True, exclude=set(filled))
        try:
            spec = ReleaseSpec.model_validate({**content, **{name: value for name, value in filled.items() if value}})
        except ValidationError as error:
            raise messages.request_error(messages.from_validation(error, {})) from None
    if spec.cells is None or not spec.cells.release:
        return spec
    folder = folder.absolute() / expand_path(spec.cells.release, "cells.release")
    return spec.with_cells(*read_earlier_cells(folder, spec))


def _list_named_files(spec: ReleaseSpec) -> Iterator[tuple[str, str]]:
    """Yield the field and the path of every file of a lookup or a total."""
    for i, rule in enumerate(spec.rules):
        if isinstance(rule, LookupRule) and rule.lookup.table:
            yield _LOOKUP.format(i), rule.lookup.table
    for i, total in enumerate(spec.totals):
        if total.table:
            yield _TOTAL.format(i), total.table


def _fill_lookup(lookup: Lookup, spec: ReleaseSpec, file: ListedFile) -> dict[str, Any]:
    names, field = (*lookup.from_, *lookup.to), file.kept.field
    rows = []
    for line, record in enumerate(read_records(file, names, field), start=2):
        where = f"{file.path.name}, line {line}"
        rows.append([parse_value(record[name], name, spec.columns[name], where, field) for name in names])
    unique = {tuple(row): row for row in rows}  # a table with more columns may repeat rows
    return {"from": list(lookup.from_), "to": list(lookup.to), "rows": list(unique.values())}


def _fill_total(total: KnownTotal, spec: ReleaseSpec, file: ListedFile, i: int) -> dict[str, Any]:
    field = file.kept.field
    rows = _read_counts(file.path.name, read_records(file, (*total.columns, total.count), field), total, spec, field)
    if total.sha256 not in ("", file.kept.sha256):
        raise RequestError(
            f"{file.path.name} has another content than its `sha256` says",
            "Name the file that was meant",
            f"totals[{i}].sha256",
        )
    content = total.model_dump(exclude_unset=True, exclude={"table"})
    return {**content, "counts": rows, "sha256": file.kept.sha256}


def _read_counts(
    name: str, records: Sequence[dict[str, Any]], total: KnownTotal, spec: ReleaseSpec, field: str
) -> list[dict[str, Any]]:
    if not 0 < len(records) <= MOST_COUNTS:
        raise RequestError(
            f"{name} has {len(records):,} rows, and a total has from 1 to {MOST_COUNTS:,}",
            "Let it have one row for each value",
            field,
        )
    rows = []
    for line, record in enumerate(records, start=2):
        where = f"{name}, line {line}"
        values = {n: parse_value(record[n], n, spec.columns[n], where, field) for n in total.columns}
        rows.append({**values, total.count: _parse_count(record[total.count], where, field)})
    return rows


def _parse_count(value: Any, where: str, field: str) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise RequestError(f"{where}, has no count", "Write a whole number, 0 or more", field)
    return int(text)


def parse_value(value: Any, name: str, column: Any, where: str, field: str) -> Any:
    """Return a value of a public table as a value of the column; empty text is null unless the column lists it.

    Values that Parquet does not store as text are kept.  An error shows the place but not the value: the file may be
    the private table by mistake.
    """
    if not isinstance(value, str):
        return value
    kind = infer_type(column)
    if value == "" and not (isinstance(column, CategoricalColumn) and "" in column.values):
        return None
    if kind == "text":
        return value
    try:
        if kind == "truth":
            return {"true": True, "false": False, "1": True, "0": False}[value.strip().lower()]
        if kind == "number":
            number = float(value)
            return int(number) if number.is_integer() else number
    except (KeyError, ValueError):
        pass
    raise RequestError(f"{where}: the value of {name!r} is not one of that column", "Correct the table", field)


def _with_prior(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with its prior's absolute path and SHA-256."""
    prior = spec.prior
    if prior is None or not prior.place:
        return spec
    kind = "table" if prior.table else "release"
    field = f"prior.{kind}"
    place = folder.absolute() / expand_path(prior.place, field)
    prior = prior.at(str(place), release=kind == "release")
    path = locate_public_file(prior)
    refuse_private_file(path, spec.private_places, folder, field)
    sha256 = compute_sha256(path)
    if prior.sha256 not in ("", sha256):
        raise RequestError(
            f"{path.name} has another content than its `sha256` says", "Name the file that was meant", "prior.sha256"
        )
    return spec.with_prior(prior.at(prior.place, sha256, release=kind == "release"))
