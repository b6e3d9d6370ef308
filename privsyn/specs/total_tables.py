"""The public tables that totals name: read where a spec is read, so that a run takes no file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.paths import expand_path
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.totals import MOST_COUNTS, KnownTotal
from privsyn.sources.public_table import compute_sha256
from privsyn.specs import messages
from privsyn.specs.lookup_tables import parse_value, read_csv_records, refuse_private

MOST_DIGITS = 18
"""Digits of a count at most: Python reads no number of thousands."""


def with_totals(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return spec with the counts of every total's ``table`` in it, and the file's SHA-256; paths are from ``folder``.

    Raises RequestError (exit 2) for a file that cannot be read, lacks a column, has a value that does not fit, has
    another content than a stated hash, or is the private table itself.
    """
    if not any(total.table for total in spec.totals):
        return spec
    totals = [
        _fill_total(total, spec, folder, i) if total.table else total.model_dump(exclude_unset=True)
        for i, total in enumerate(spec.totals)
    ]
    try:
        return ReleaseSpec.model_validate({**spec.model_dump(exclude_unset=True, exclude={"totals"}), "totals": totals})
    except ValidationError as error:
        raise messages.request_error(messages.from_validation(error, {})) from None


def _fill_total(total: KnownTotal, spec: ReleaseSpec, folder: Path, i: int) -> dict[str, Any]:
    place = f"totals[{i}].table"
    path = folder / expand_path(total.table, place)
    refuse_private(path, spec, folder, place)
    read = _read_parquet_rows if path.suffix == ".parquet" else _read_csv_rows
    rows = read(path, total, spec, place)
    if not 0 < len(rows) <= MOST_COUNTS:
        raise RequestError(
            f"{path.name} has {len(rows):,} rows, and a total has from 1 to {MOST_COUNTS:,}",
            "Let it have one row for each value",
            place,
        )
    found = compute_sha256(path)
    if total.sha256 not in ("", found):
        raise RequestError(
            f"{path.name} has another content than its `sha256` says",
            "Name the file that was meant",
            f"totals[{i}].sha256",
        )
    return {**total.model_dump(exclude_unset=True, exclude={"table"}), "counts": rows, "sha256": found}


def _read_csv_rows(path: Path, total: KnownTotal, spec: ReleaseSpec, field: str) -> list[dict[str, Any]]:
    rows = []
    for line, record in enumerate(read_csv_records(path, field), start=2):
        where = f"{path.name}, line {line}"
        _check_names(path, [name for name, text in record.items() if text is not None], total, field)
        values = {n: parse_value(str(record[n]), spec.columns[n], where, field) for n in total.columns}
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
