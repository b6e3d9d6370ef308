"""What the public files of a spec say: rows become rules, totals, cells and a prior.  No private row is read here.

Rows of lookups and totals are read with the spec.  Rows of a prior, possibly many, are encoded by the spec's codecs
when the request is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.data_contracts.columns import CategoricalColumn, DropColumn
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.public_counts import MOST_COUNTS, ColumnCells, EarlierCells, KnownTotal
from privsyn.data_contracts.publication import COLUMN_WORDS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Lookup, LookupRule, infer_type
from privsyn.data_contracts.tables import build_code_schema
from privsyn.sources.open_source import list_table_columns, open_source
from privsyn.sources.private_table import Source
from privsyn.specs import messages
from privsyn.storage.named_files import (
    MAX_ROWS,
    EarlierRelease,
    ListedFile,
    check_file,
    identify_prior,
    open_earlier_release,
    read_listed_file,
    read_records,
)
from privsyn.storage.released_files import check_measured, read_manifest_if_readable
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.codecs.numbers import get_short_float
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.rungs import read_cuts
from privsyn.tasks.kernels.counting import CodeTable

_LOOKUP, _TOTAL = "rules[{}].lookup.table", "totals[{}].table"
"""Fields that name a file."""

MOST_DIGITS = 18
"""Largest number of digits of a count: Python refuses numbers with thousands of digits."""


def _list_named_files(spec: ReleaseSpec) -> Iterator[tuple[str, str]]:
    """Yield the field and the path of every file of a lookup or a total."""
    for i, rule in enumerate(spec.rules):
        if isinstance(rule, LookupRule) and rule.lookup.table:
            yield _LOOKUP.format(i), rule.lookup.table
    for i, total in enumerate(spec.totals):
        if total.table:
            yield _TOTAL.format(i), total.table


def with_public_inputs(spec: ReleaseSpec) -> ReleaseSpec:
    """Return the spec with the rows of its lookup and total files, its earlier cells, and the hash of its prior.

    ``public_files`` lists the files read.  Raises RequestError (exit 2) for a file that cannot be read, lacks a column
    or has a value that does not fit.  Raises RequestError also for a file that does not match a stated hash, or is the
    private table itself.
    """
    private, prior, cells = spec.private_places, spec.prior, spec.cells
    known = identify_prior(prior, private) if prior is not None and prior.place else prior
    read = {field: read_listed_file(Path(place), private, field) for field, place in _list_named_files(spec)}
    asked = cells is not None and cells.release
    earlier = open_earlier_release(Path(asked), "cells.release") if asked else None
    filled = _fill_files(spec, read) if read else spec
    if earlier is not None:
        chosen = _choose_cells(earlier, filled, "cells.release")
        filled = filled.with_cells(chosen, earlier.listed)
    return filled if known is prior else filled.with_prior(known)


def _fill_files(spec: ReleaseSpec, read: Mapping[str, ListedFile]) -> ReleaseSpec:
    """Return the spec with the rows of its lookups and totals; ``read``: field -> its file."""
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
        return ReleaseSpec.model_validate({**content, **{name: value for name, value in filled.items() if value}})
    except ValidationError as error:
        raise messages.request_error(messages.from_validation(error, {})) from None


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


def _choose_cells(earlier: EarlierRelease, spec: ReleaseSpec, field: str) -> EarlierCells:
    """Return the cells, by released counts alone, that a first look would cut.  Raises RequestError if they differ."""
    cuts = {} if earlier.spec.cells is None else dict(earlier.spec.cells.columns)
    for table in earlier.cuts:
        cuts = _group_cells(table, field) | cuts
    known: dict[str, Any] = {}
    for table_pair in (earlier.spec, *earlier.spec.table_pairs.values()):
        known |= table_pair.released_columns
    chosen = {}
    for asked in spec.table_pairs.values() or [spec]:
        for column in (codec.attribute for codec in plan(asked).on_ladder):
            if column not in known or column not in cuts:
                problem, cure = f"{earlier.run} has no cells of the column {column!r}", "Name another release"
                raise RequestError(problem, f"{cure}, or take the field out", field)
            ours, theirs = (c.model_dump(exclude={*COLUMN_WORDS}) for c in (asked.columns[column], known[column]))
            if ours != theirs:
                problem = f"{earlier.run} described the column {column!r} in another way, such as by other bounds"
                raise RequestError(problem, "Describe it as that release did, or take the field out", field)
            chosen[column] = cuts[column]
    if not chosen:
        raise RequestError("no column has cells that a first look would choose", "Take the field out", field)
    return EarlierCells(run=earlier.run, columns=chosen)


def _group_cells(table: pa.Table, field: str) -> dict[str, ColumnCells]:
    try:
        cuts = sorted(read_cuts(table))
    except TypeError:
        raise RequestError(
            "its table of cells cannot be read", "Get the folder again from its publisher", field
        ) from None
    cells = {}
    for name, cells_of in groupby(cuts, key=attrgetter("attribute")):
        column = list(cells_of)
        doubtful = tuple(number for number, cut in enumerate(column) if cut.doubtful)
        cells[name] = ColumnCells(low=tuple(cut.low for cut in column), doubtful=doubtful)
    return cells


def read_public_rows(spec: ReleaseSpec, encoding: EncodingPlan) -> CodeTable:
    """Return the rows of the spec's prior as fine codes.  Raises RequestError for a file that does not fit the spec."""
    assert spec.prior is not None  # noqa: S101 - the caller looked
    path = check_file(spec.prior)
    manifest = read_manifest_if_readable(Path(spec.prior.release)) if spec.prior.release else None
    if manifest is not None:
        check_measured(manifest, spec, "prior.release")
    return _read_rows(str(path), spec.prior.sha256, _Plan(spec, encoding))


class _Plan:
    """A cache key for a spec and its encoding, equal if their codes are."""

    def __init__(self, spec: ReleaseSpec, encoding: EncodingPlan) -> None:
        self.spec, self.encoding = spec, encoding
        cells = tuple(codec.cells.fine for codec in encoding.codecs if isinstance(codec, OrderedCodec))
        self._key = (spec.model_dump_json(include={"columns", "csv", "null_values", "rules"}), encoding.domain, cells)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Plan) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def open_shared_columns(path: Path, spec: ReleaseSpec) -> Source | None:
    """Return a public file as a table of the measured columns that it shares by name with the private table.

    None if it shares fewer than two, or is not a table: one column of few values is soon equal to another table's.
    """
    for options in dict.fromkeys((spec.csv, CsvOptions())):
        written = spec.with_columns(spec.measured_columns, csv=options)
        try:
            names_of_file = list_table_columns(str(path), written)
            shared = {name: column for name, column in spec.measured_columns.items() if name in names_of_file}
            if len(shared) > 1:
                public = written.with_columns(shared)
                return open_source(str(path), _read_for_prior(public, str(path)))
        except RequestError:
            continue
    return None


@lru_cache(maxsize=4)
def _read_rows(path: str, sha256: str, plan: _Plan) -> CodeTable:
    spec, encoding = _read_for_prior(plan.spec, path), plan.encoding
    missing = sorted(spec.measured_columns.keys() - set(list_table_columns(path, spec)))
    if missing:
        problem = f"{Path(path).name} has no column {missing[0]!r}"
        raise RequestError(problem, "Name a table with all released columns", "prior")
    try:
        source = open_source(path, spec)
    except RequestError as error:
        raise error.about("prior") from None
    parts, rows = [], 0
    for batch in source.batches():
        parts.append(encode_batch(_widen_floats(batch.slice(0, MAX_ROWS - rows)), encoding, Repairs()))
        rows += parts[-1].num_rows
        if rows >= MAX_ROWS:
            break
    if not rows:
        raise RequestError(f"{Path(path).name} has no rows", "Name a table with rows", "prior")
    table = pa.Table.from_batches(parts, build_code_schema(encoding.domain))
    return CodeTable.from_arrow(table, encoding.domain)


def _widen_floats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return short floats as exact numbers, not as multiples, since a prior's key covers only its bytes."""
    short = {f.name for f in batch.schema if get_short_float(f.type) is not None}
    fields = [f.with_type(pa.float64()) if f.name in short else f for f in batch.schema]
    return batch.cast(pa.schema(fields)) if short else batch


def _read_for_prior(spec: ReleaseSpec, path: str) -> ReleaseSpec:
    """Return the spec without parts that the prior's rows may lack: persons, and unmeasured columns."""
    columns: dict[str, Any] = dict(spec.measured_columns)
    others = set(list_table_columns(path, spec)) - columns.keys()
    columns.update(dict.fromkeys(sorted(others), DropColumn(kind="drop")))
    return spec.with_columns(columns, Unit(records_per_person=1)).with_prior(None)
