"""The public files that a spec names: found, hashed and read.  A private table is refused by its path.

Belongs here: all that opens such a file.  What its rows mean is in privsyn/specs/public_files.py, and whether its
content is a private table's is compared in privsyn/engine/checks.py.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import RequestError
from privsyn.data_contracts.public_counts import Prior, PublicFile
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.storage.released_files import CUTS_FILE, check_released_file, read_manifest_if_readable, read_public_spec
from privsyn.storage.table_files import is_parquet, refuse_url

MAX_BYTES = 4 << 30
"""Most bytes of a prior's file."""

MAX_LISTED_BYTES = 64 << 20
"""Most bytes of a file whose rows a spec lists: a lookup, a total, or a universe of items."""

MAX_ROWS = 1_000_000
"""Most rows of a public file that are read."""

_SUFFIXES = (".parquet", ".csv")


class ListedFile(NamedTuple):
    """A file whose rows a spec lists: its path, its content, and the spec's record of it."""

    path: Path
    content: bytes
    kept: PublicFile


def read_listed_file(path: Path, private: Sequence[str], field: str) -> ListedFile:
    """Return the public file that the field names, with its content.

    ``private``: the places of the private tables.  Raises RequestError if the file cannot be read, is too large or is a
    private table.
    """
    refuse_private_file(path, private, field)
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
    sha256 = hashlib.sha256(content).hexdigest()
    return ListedFile(path, content, PublicFile(field=field, path=str(path), sha256=sha256))


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


def refuse_private_file(path: Path, private: Sequence[str], field: str) -> None:
    """Raise RequestError if a public file is a private table, a file of one, or a hard link to one.

    ``private``: the places of the private tables.  Only paths are compared; nothing is read.
    """
    for place in private:
        try:
            table, public = Path(place).resolve(), path.resolve()
            files = [table, *(table.iterdir() if table.is_dir() else ())]
            linked = path.exists() and any(file.exists() and path.samefile(file) for file in files)
        except (OSError, ValueError):  # a place that cannot be inspected cannot be read either
            continue
        if linked or public == table or table in public.parents:
            cure = "Name a public table: its content shows in the release"
            raise RequestError("is the private table itself", cure, field)


def identify_prior(prior: Prior, private: Sequence[str]) -> Prior:
    """Return the prior with the SHA-256 of its file.

    Raises RequestError if the file is missing, too large, a private table, or not the one that the spec's hash names.
    """
    path = locate_public_file(prior)
    refuse_private_file(path, private, "prior.table" if prior.table else "prior.release")
    sha256 = compute_sha256(path)
    if prior.sha256 not in ("", sha256):
        raise RequestError(
            f"{path.name} has another content than its `sha256` says", "Name the file that was meant", "prior.sha256"
        )
    return prior.at(prior.place, sha256, release=bool(prior.release))


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


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise RequestError(f"{path.name} cannot be read", "Name a file that can be read", "prior") from None


class EarlierRelease(NamedTuple):
    """A released folder whose cells a spec takes: its run, its public spec, its tables of cells, and the files read."""

    run: str
    spec: ReleaseSpec
    cuts: tuple[pa.Table, ...]
    listed: tuple[PublicFile, ...]


def open_earlier_release(folder: Path, field: str) -> EarlierRelease:
    """Return what a released folder says of its cells.  Raises RequestError if it is not a whole release."""
    manifest = read_manifest_if_readable(folder)
    if manifest is None:
        raise RequestError(f"{folder.name} is not the folder of a release", "Name a released folder", field)
    spec = read_public_spec(manifest, field)
    names = (CUTS_FILE, *(CUTS_FILE.replace("/", f"/{table}/") for table in spec.further_tables))
    paths = [check_released_file(folder, manifest, name, field) for name in names if name in manifest.files]
    files = (folder / "manifest.json", *paths)
    listed = tuple(PublicFile(field=field, path=str(file), sha256=compute_sha256(file)) for file in files)
    return EarlierRelease(manifest.run, spec, tuple(_read_cuts(path, field) for path in paths), listed)


def _read_cuts(path: Path, field: str) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException):
        raise RequestError(f"{path.name} cannot be read", "Get the folder again from its publisher", field) from None
