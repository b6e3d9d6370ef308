"""A released folder as tables of a database, with comments: rows, noisy counts, and a table about the release.

Only the released folder is read, and each of its files is checked first.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import RequestError
from privsyn.base.wording import mention
from privsyn.data_contracts.certificate import Manifest
from privsyn.pipelines.registry import plan_release
from privsyn.publish.databases import (
    FIELD,
    NewTable,
    Transaction,
    check_names,
    make_foreign_error,
    open_database,
    parse_database,
)
from privsyn.publish.formats.described import DescribedRelease, add_unmeasured, format_meaning, list_ranges
from privsyn.publish.formats.linked_files import describe_linked_column, list_linked_tables, name_linked_file
from privsyn.storage.released_files import (
    check_released_file,
    list_synthetic_names,
    read_certificate,
    read_manifest,
    read_public_spec,
)

_RELEASE = "publish.release"
_BATCH_ROWS = 50_000


@dataclass(frozen=True)
class PublishedTables:
    """The tables of a release in a database; ``written``: False if they were already there."""

    database: str
    tables: tuple[str, ...]
    written: bool


def publish_tables(
    folder: Path, database: str, *, prefix: str | None = None, schema: str | None = None, replace: bool = False
) -> PublishedTables:
    """Write a released folder into a database in one transaction: all of its tables, or none.

    ``prefix`` begins every name (None: the data set's name).  The same release is written again only if its folder
    changed.  Another release under these names is replaced only with ``replace``; a table that was not published is
    never replaced.  Raises RequestError, with nothing written.
    """
    url = parse_database(database)
    tables = _list_tables(folder, prefix)
    for table in tables:
        check_names(url, table.name, table.schema.names)
    names, release_table = tuple(table.name for table in tables), tables[-1]
    with open_database(url, schema) as opened:
        existing = opened.list_tables()
        earlier = _read_earlier(opened, release_table.name) if release_table.name in existing else None
        (release_row,) = pa.Table.from_batches(release_table.rows).to_pylist()
        if (
            earlier is not None
            and earlier[:2] == (release_row["run"], release_row["manifest_sha256"])
            and existing.issuperset(names)
        ):
            return PublishedTables(str(url), names, written=False)
        if earlier is not None and earlier[0] != release_row["run"] and not replace:
            problem = f"holds the release {earlier[0]} under these names"
            cure = "Publish it with " + mention("publish.replace") + ", or choose another " + mention("publish.prefix")
            raise RequestError(problem, cure, FIELD)
        # Anyone with write access may have listed any table as published: drop only those under the prefix.
        start = release_table.name.removesuffix("release")
        replaceable = [n for n in earlier[2] if n in names or (start and n.startswith(start))] if earlier else []
        taken = next((name for name in names if name in existing and name not in replaceable), None)
        if taken is not None:
            raise make_foreign_error(taken)
        for name in replaceable:
            if name in existing:
                opened.fetch(f"DROP TABLE {opened.name(name)}")
        for table in tables:
            opened.create(table)
    return PublishedTables(str(url), names, written=True)


def _read_earlier(database: Transaction, table: str) -> tuple[str, str, tuple[str, ...]]:
    """Return run, manifest digest and tables of the release published under these names."""
    try:
        ((run, digest, tables),) = database.select(("run", "manifest_sha256", "tables"), database.name(table))
        return str(run), str(digest), tuple(map(str, json.loads(tables)))
    except (ValueError, TypeError):
        raise make_foreign_error(table) from None


def _list_tables(folder: Path, prefix: str | None) -> list[NewTable]:
    """Return the tables of a released folder; the last one describes the release."""
    manifest, certificate = read_manifest(folder), read_certificate(folder)
    spec = read_public_spec(manifest, _RELEASE)
    plan = plan_release(spec, column_order=tuple(manifest.column_order))
    release = DescribedRelease(
        plan, certificate, list_ranges(plan.request), manifest.rows, manifest.files, dict(manifest.versions)
    )
    start = re.sub(r"\W", "_", spec.dataset) + "_" if prefix is None else prefix
    words = {file.name: file.words for step in plan.steps for file in step.published.values()}
    source = f"{release.title} (data set {certificate.dataset}, release {manifest.run})"
    reference = f"Note, certificate and manifest: table {start}release."
    columns = {name: _describe(spec.get_published_column(name)) for name in release.ranges}
    comment = f"{source}. {release.promise} {reference}"
    tables = [_read_table(folder, manifest, list_synthetic_names(manifest), f"{start}synthetic", comment, columns)]
    table_of_file = name_counts(name for name in manifest.files if name.startswith("marginals/"))
    for name in sorted(table_of_file):
        about = f"{name}: {words[name]}" if words.get(name) else name
        of_counts = f"{source}, {about}. Made from the private table with {_state_promise(release)} {reference}"
        tables.append(_read_table(folder, manifest, [name], start + table_of_file[name], of_counts))
    for table in list_linked_tables(spec):
        file, described = name_linked_file(table), spec.tables[table].columns
        columns = {name: _describe(describe_linked_column(spec, table, name)) for name in described}
        tables.append(_read_table(folder, manifest, [file], f"{start}tables_{table}", comment, columns))
    names = [table.name for table in tables] + [f"{start}release"]
    row = {
        "run": manifest.run,
        "dataset": certificate.dataset,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "unit_of_protection": certificate.unit_of_protection,
        "rows": manifest.rows,
        "note": check_released_file(folder, manifest, "README.md", _RELEASE).read_text(encoding="utf-8"),
        "certificate": check_released_file(folder, manifest, "certificate.json", _RELEASE).read_text(encoding="utf-8"),
        "manifest": (folder / "manifest.json").read_text(encoding="utf-8"),
        "manifest_sha256": hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest(),
        "tables": json.dumps(names),
    }
    release_row = pa.Table.from_pylist([row])
    release_row = release_row.cast(pa.schema([f.with_nullable(False) for f in release_row.schema]))
    comment = f"{source}. {release.promise} One row: the promise, and the note."
    return [*tables, NewTable(names[-1], release_row.schema, release_row.to_batches(), comment)]


def name_counts(files: Iterable[str]) -> dict[str, str]:
    """Return file -> table of noisy counts; names for a further table begin with its name.

    A double underscore avoids clashes: ``consistent__sets`` of a further table ``consistent`` is not
    ``consistent_sets``.
    """
    parts = {name: PurePosixPath(name).with_suffix("").relative_to("marginals").parts for name in files}
    joined = Counter("_".join(of_file).lower() for of_file in parts.values())
    return {
        name: ("_" if joined["_".join(of_file).lower()] == 1 else "__").join(of_file) for name, of_file in parts.items()
    }


def _describe(column: Any) -> str:
    return add_unmeasured(format_meaning(column), column)


def _state_promise(release: DescribedRelease) -> str:
    c = release.certificate
    return f"({c.epsilon:g}, {c.delta:g})-differential privacy for adding or removing {c.unit_of_protection}."


def _read_table(
    folder: Path,
    manifest: Manifest,
    files: Sequence[str],
    name: str,
    comment: str,
    columns: Mapping[str, str] = MappingProxyType({}),
) -> NewTable:
    paths = [check_released_file(folder, manifest, file, _RELEASE) for file in files]
    stored = pq.read_schema(paths[0])
    schema = pa.schema([pa.field(f.name, _plain_type(f.type), f.nullable) for f in stored])
    comments = {name: words for name, words in columns.items() if words}
    return NewTable(name, schema, _read_rows(paths, schema), comment, comments)


def _read_rows(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=_BATCH_ROWS):
                yield batch.cast(schema)


def _plain_type(type_: Any) -> Any:
    """Return the type of the values of a dictionary, or the type itself."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_
