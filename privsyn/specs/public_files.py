"""The tables that a spec calls public: found, hashed and read.  No private row is read here.

Rows of lookups and totals are read with the spec.  Rows of a prior, possibly many, are encoded by the spec's codecs
when the request is made.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.places import expand_path
from privsyn.data_contracts.columns import CategoricalColumn, DropColumn
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.public_counts import MOST_COUNTS, ColumnCells, EarlierCells, KnownTotal, Prior, PublicFile
from privsyn.data_contracts.publication import COLUMN_WORDS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Lookup, LookupRule, infer_type
from privsyn.data_contracts.tables import build_code_schema
from privsyn.sources.open_source import list_table_columns, open_source
from privsyn.sources.private_table import Source
from privsyn.specs import messages
from privsyn.storage.released_files import (
    CUTS_FILE,
    check_measured,
    check_released_file,
    read_manifest_if_readable,
    read_public_spec,
)
from privsyn.storage.table_files import is_parquet, refuse_url
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.codecs.numbers import get_short_float
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.rungs import read_cuts
from privsyn.tasks.kernels.counting import CodeTable

MAX_BYTES = 4 << 30
"""Most bytes of a prior's file."""

MAX_LISTED_BYTES = 64 << 20
"""Most bytes of a file whose rows a spec lists: a lookup, a total, or a universe of items."""

MAX_ROWS = 1_000_000
"""Rows of a prior that are read, from its start: more rows hardly improve a distribution."""

_SUFFIXES = (".parquet", ".csv")

_LOOKUP, _TOTAL = "rules[{}].lookup.table", "totals[{}].table"
"""Fields that name a file."""

MOST_DIGITS = 18
"""Largest number of digits of a count: Python refuses numbers with thousands of digits."""


class ListedFile(NamedTuple):
    """A file whose rows a spec lists: its path, its content, and the spec's record of it."""

    path: Path
    content: bytes
    kept: PublicFile


def with_public_inputs(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the rows of its lookup and total files, its earlier cells, and the hash of its prior.

    Paths are relative to ``folder``; ``public_files`` lists the files read.  Raises RequestError (exit 2) for a file
    that cannot be read, lacks a column or has a value that does not fit.  Raises RequestError also for a file that does
    not match a stated hash, or is the private table itself.
    """
    prior = _read_prior(spec, folder)
    read = {
        field: read_listed_file(place, folder, spec.private_places, field) for field, place in _list_named_files(spec)
    }
    filled = _fill_files(spec, read) if read else spec
    if spec.cells is not None and spec.cells.release:
        place = _locate(spec.cells.release, folder, "cells.release")
        cells, files = read_earlier_cells(place, filled)
        filled = filled.with_cells(cells, files)
    return filled if prior is spec.prior else filled.with_prior(prior)


def _locate(place: str, folder: Path, field: str) -> Path:
    """Return the path of a file or folder that the field names, relative to ``folder``."""
    return folder.absolute() / expand_path(place, field)


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


def _read_prior(spec: ReleaseSpec, folder: Path) -> Prior | None:
    """Return the spec's prior with its absolute path and SHA-256."""
    prior = spec.prior
    if prior is None or not prior.place:
        return prior
    kind = "table" if prior.table else "release"
    field = f"prior.{kind}"
    place = _locate(prior.place, folder, field)
    prior = prior.at(str(place), release=kind == "release")
    path = locate_public_file(prior)
    refuse_private_file(path, spec.private_places, folder, field)
    sha256 = compute_sha256(path)
    if prior.sha256 not in ("", sha256):
        raise RequestError(
            f"{path.name} has another content than its `sha256` says", "Name the file that was meant", "prior.sha256"
        )
    return prior.at(prior.place, sha256, release=kind == "release")


def read_listed_file(place: str, folder: Path, private: Sequence[str], field: str) -> ListedFile:
    """Return the public file that the field names, relative to ``folder``, with its content.

    ``private``: the places of the private tables.  Raises RequestError if the file cannot be read, is too large or is a
    private table.
    """
    path = _locate(place, folder, field)
    refuse_private_file(path, private, folder, field)
    try:
        refuse_url(path, field)
        if not path.is_file():  # a pipe or a device may have no end
            raise RequestError(f"{path.name} does not exist, or is not a file", "Name a file beside the spec", field)
        if path.stat().st_size > MAX_LISTED_BYTES:
            problem = f"{path.name} is larger than {MAX_LISTED_BYTES >> 20} MiB"
            raise RequestError(problem, "Keep the columns that are named", field)
        content = path.read_bytes()
    except (OSError, ValueError):
        raise RequestError(f"{path.name} cannot be read", "Name a file that can be read", field) from None
    return ListedFile(
        path, content, PublicFile(field=field, path=str(path), sha256=hashlib.sha256(content).hexdigest())
    )


def refuse_private_file(path: Path, private: Sequence[str], folder: Path, field: str) -> None:
    """Raise RequestError if a public file is a private table, a file of one, or a hard link to one.

    ``private``: the places of the private tables, relative to ``folder``.  Only paths are compared; nothing is read.
    """
    for place in private:
        try:
            table, public = (folder / place).resolve(), path.resolve()
            files = [table, *(table.iterdir() if table.is_dir() else ())]
            linked = path.exists() and any(file.exists() and path.samefile(file) for file in files)
        except (OSError, ValueError):  # a place that cannot be inspected cannot be read either
            continue
        if linked or public == table or table in public.parents:
            cure = "Name a public table: its content shows in the release"
            raise RequestError("is the private table itself", cure, field)


def read_records(file: ListedFile, names: Iterable[str], field: str) -> list[dict[str, Any]]:
    """Return the rows of a public CSV (all text) or Parquet table, with only the columns ``names``.

    Raises RequestError for a file that is neither, or that lacks a column.
    """
    wanted = tuple(names)
    header, rows = _read_parquet(file, wanted, field) if is_parquet(file.path) else _read_csv(file, field)
    missing = [name for name in wanted if name not in header]
    if missing:
        cure = "Provide a table with a header and the columns " + ", ".join(wanted)
        raise RequestError(f"{file.path.name} has no column {missing[0]!r}", cure, field)
    for line, row in enumerate(rows, start=2):
        if not row.keys() >= set(wanted) or (not is_parquet(file.path) and None in [row[name] for name in wanted]):
            problem = f"{file.path.name}, line {line}, is too short"
            raise RequestError(problem, "Give every line as many fields as the header", field)
    return [{name: row[name] for name in wanted} for row in rows]


def _read_csv(file: ListedFile, field: str) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        reader = csv.DictReader(io.StringIO(file.content.decode("utf-8-sig"), newline=""))
        rows: list[dict[str, Any]] = list(reader)
    except (ValueError, csv.Error):
        raise RequestError(
            f"{file.path.name} cannot be read as a CSV file",
            "Write it as CSV in UTF-8 with a header, or Parquet",
            field,
        ) from None
    return list(reader.fieldnames or ()), rows


def _read_parquet(file: ListedFile, wanted: tuple[str, ...], field: str) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        with pq.ParquetFile(io.BytesIO(file.content)) as table:
            names = table.schema_arrow.names
            if table.metadata.num_rows > MAX_ROWS:
                problem = f"{file.path.name} has {table.metadata.num_rows:,} rows, more than {MAX_ROWS:,}"
                raise RequestError(problem, "Keep one row for each value", field)
            return names, table.read(columns=[name for name in wanted if name in names]).to_pylist()
    except (OSError, ValueError, pa.ArrowException):
        raise RequestError(
            f"{file.path.name} cannot be read as a Parquet file", "Name a Parquet file beside the spec", field
        ) from None


def locate_public_file(prior: Prior) -> Path:
    """Return the file of the public rows.  Raises RequestError if it is missing or too large."""
    field = "prior.table" if prior.table else "prior.release"
    path = Path(prior.place)
    refuse_url(path, field)
    if prior.release:
        if not path.is_dir():
            raise RequestError(
                "is not the folder of a release", "Name the folder of a release, or its table with `table`", field
            )
        tables = [path / f"synthetic{suffix}" for suffix in _SUFFIXES if (path / f"synthetic{suffix}").is_file()]
        if not tables and (path / "synthetic").is_dir():
            raise RequestError(
                f"{path.name} has its rows in parts, but a prior is one file",
                "Join the parts in its folder `synthetic` to one Parquet file, and name it with `table`",
                field,
            )
        if not tables:
            raise RequestError(
                f"{path.name} has no synthetic.parquet or synthetic.csv", "Name the folder of a release", field
            )
        manifest = read_manifest_if_readable(path)
        if manifest is None or not manifest.differentially_private:
            raise RequestError(
                f"{path.name} is not the folder of a release: it has no manifest of one",
                "Name the folder of a release, or its table with `table`",
                field,
            )
        path = check_released_file(path, manifest, tables[0].name, field)
    if not path.is_file() or not path.stat().st_size:  # an endless file of the system has size 0
        raise RequestError("does not exist or has no rows", "Name a CSV or Parquet file beside the spec", field)
    if path.stat().st_size > MAX_BYTES:
        raise RequestError(f"{path.name} is larger than {MAX_BYTES >> 30} GiB", "Take a sample of it", field)
    return path


def read_earlier_cells(folder: Path, spec: ReleaseSpec) -> tuple[EarlierCells, list[PublicFile]]:
    """Return the cells of a release for the spec's columns that a first look would cut, and their released files.

    Only released counts made these cells.  Raises RequestError if the folder is not a release, or described or cut one
    of these columns in another way.
    """
    manifest, field = read_manifest_if_readable(folder), "cells.release"
    if manifest is None:
        raise RequestError(f"{folder.name} is not the folder of a release", "Name a released folder", field)
    earlier = read_public_spec(manifest, field)
    names = (CUTS_FILE, *(CUTS_FILE.replace("/", f"/{table}/") for table in earlier.further_tables))
    paths = [check_released_file(folder, manifest, name, field) for name in names if name in manifest.files]
    listed = [
        PublicFile(field=field, path=str(path), sha256=compute_sha256(path))
        for path in (folder / "manifest.json", *paths)
    ]
    cuts = {} if earlier.cells is None else dict(earlier.cells.columns)
    for path in paths:
        cuts = _read_cut_columns(path, field) | cuts
    known: dict[str, Any] = {}
    for table_pair in (earlier, *earlier.table_pairs.values()):
        known |= table_pair.released_columns
    chosen = {}
    for asked in spec.table_pairs.values() or [spec]:
        for column in (codec.attribute for codec in plan(asked).on_ladder):
            if column not in known or column not in cuts:
                problem, cure = f"{manifest.run} has no cells of the column {column!r}", "Name another release"
                raise RequestError(problem, f"{cure}, or take the field out", field)
            ours, theirs = (c.model_dump(exclude={*COLUMN_WORDS}) for c in (asked.columns[column], known[column]))
            if ours != theirs:
                problem = f"{manifest.run} described the column {column!r} in another way, such as by other bounds"
                raise RequestError(problem, "Describe it as that release did, or take the field out", field)
            chosen[column] = cuts[column]
    if not chosen:
        raise RequestError("no column has cells that a first look would choose", "Take the field out", field)
    return EarlierCells(run=manifest.run, columns=chosen), listed


def _read_cut_columns(path: Path, field: str) -> dict[str, ColumnCells]:
    """Return the cells in a released file, by column."""
    try:
        cuts = sorted(read_cuts(pq.read_table(path)))
    except (OSError, TypeError, pa.ArrowException):
        raise RequestError(f"{path.name} cannot be read", "Get the folder again from its publisher", field) from None
    cells = {}
    for name, cells_of in groupby(cuts, key=attrgetter("attribute")):
        column = list(cells_of)
        doubtful = tuple(number for number, cut in enumerate(column) if cut.doubtful)
        cells[name] = ColumnCells(low=tuple(cut.low for cut in column), doubtful=doubtful)
    return cells


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise RequestError(f"{path.name} cannot be read", "Name a file that can be read", "prior") from None


def check_file(prior: Prior) -> Path:
    """Return the prior's file, after a check of its content against the spec's hash.

    Raises RequestError for a prior without a hash, so that a user who may start runs cannot choose the file.
    """
    if not prior.place:
        raise RequestError("names no file: this is a released spec", "Name the public file again", "prior")
    if not prior.sha256:
        raise RequestError(
            "names a file without its `sha256`, which a run requires",
            "Start the release from the spec's file, or state the file's SHA-256",
            "prior",
        )
    field = "prior.table" if prior.table else "prior.release"
    try:
        path = locate_public_file(prior)
        if compute_sha256(path) == prior.sha256:
            return path
    except RequestError:
        pass  # one message for every failure, since it must not reveal which files exist
    raise RequestError("names no file with its `sha256`", "Name the file that was meant", field)


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
    _check_columns(path, spec)
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


def _check_columns(path: str, spec: ReleaseSpec) -> None:
    missing = sorted(spec.measured_columns.keys() - set(list_table_columns(path, spec)))
    if missing:
        raise RequestError(
            f"{Path(path).name} has no column {missing[0]!r}", "Name a table with all released columns", "prior"
        )
