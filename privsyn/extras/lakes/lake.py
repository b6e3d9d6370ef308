"""Tables of a lake, by their own readers: Delta and Iceberg, each at one version, whose files do not change.

Without a version in the URL the newest one is read, and the run's record says which one that was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl
from privsyn.base.registry import need_package
from privsyn.sources.private_table import BY_A_VALUE, Note
from privsyn.sources.reader import AGAIN, ErrorPattern, Reader, translate_errors

_BUFFER = 1 << 20
_DAMAGED = ErrorPattern("", f"cannot be read to its end {BY_A_VALUE}", "Look whether its files are all there")
_PROBLEMS = (
    ErrorPattern(
        r"end version|Invalid table version|version to load|VersionNotFound",
        "does not have this version",
        "Correct it, or leave it out: the newest is read then",
    ),
    ErrorPattern(r"NoSuchIcebergTable|NoSuchTable|NoSuchNamespace", "is not in the catalog", "Correct its name"),
    ErrorPattern(
        r"TableNotFound|FileNotFound|No such file|Path does not exist|No files in log|NoSuchBucket|NOT_FOUND",
        "is not there, or its files are not",
        "Check the place, and whether old files were removed",
    ),
    ErrorPattern(
        r"DeltaProtocol|reader feature|not (yet )?(supported|implemented)|NotImplemented",
        "is written in a way that is not read here, such as deletion vectors or column mapping",
        "Write it anew without them, or export it as Parquet",
    ),
    ErrorPattern(
        r"URI missing|initialize catalog|could not (find|load) .*catalog",
        "is in a catalog that is not known here",
        "Set PYICEBERG_CATALOG__NAME__URI, or describe it in ~/.pyiceberg.yaml",
    ),
    ErrorPattern(
        r"ACCESS_DENIED|AccessDenied|Forbidden|Unauthorized|Unauthenticated|InvalidAccessKey|\b40[13]\b|credential",
        "may not be read: the store refuses the user",
        "Set the store's own variables for its keys; none may stand in the URL",
    ),
    ErrorPattern(
        r"NETWORK|connect|timed? ?out|sending request|unreachable|refused|reset",
        "does not answer, or broke off; no budget is lost",
        "Look at the connection and at the store's address" + AGAIN,
    ),
)


def _read_number(url: DataUrl, option: str) -> int | None:
    """Return the version that the URL names, if it does.  Raises RequestError unless it is a whole number."""
    text = url.options.get(option)
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise RequestError(f"has the {option} {text[:40]!r}, which is no whole number", "Correct it", "data")
    return None if text is None else int(text)


def _pin(url: DataUrl, option: str, version: int) -> str:
    return str(replace(url, options={option: str(version)}))


def _refuse_elsewhere(files: Sequence[str], folder: Path, where: str) -> None:
    """Raise RequestError if one of a local table's files is not below its folder, which a policy may have allowed."""
    root = folder.resolve()
    for file in files:
        parts = urlsplit(file)
        is_here = "://" not in file or (parts.scheme == "file" and parts.netloc in ("", "localhost"))
        path = unquote(parts.path) if "://" in file else file
        if not is_here or not Path(path).resolve().is_relative_to(root):
            raise RequestError(f"{where} has files outside its folder", "Write it anew into one folder", "data")


class DeltaReader(Reader):
    """A Delta table in a folder here or in an object store, by deltalake."""

    def __init__(self, url: DataUrl) -> None:
        with need_package("deltalake", "reading Delta tables", "delta"):
            import deltalake
            from pyarrow.dataset import ParquetReadOptions
        version = _read_number(url, "version")
        plain = replace(url, scheme=url.scheme.removeprefix("delta+"), options={})
        is_plain_http = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        self._url = url
        with translate_errors(url, _PROBLEMS, _DAMAGED):
            if url.is_file and not url.file.is_dir():
                raise FileNotFoundError
            options = {"aws_allow_http": "true"} if is_plain_http else None
            table = deltalake.DeltaTable(str(url.file.absolute() if url.is_file else plain), version, options)
            if url.is_file:
                _refuse_elsewhere(table.file_uris(), url.file, url.where)
            microseconds = ParquetReadOptions(coerce_int96_timestamp_unit="us")  # nanoseconds end in 2262
            self._dataset = table.to_pyarrow_dataset(parquet_read_options=microseconds)
        self.schema = self._dataset.schema
        self.place = _pin(url, "version", table.version())

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows, file after file in the order of their names."""
        from pyarrow.dataset import ParquetFragmentScanOptions

        options = ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=_BUFFER, pre_buffer=False)
        with translate_errors(self._url, _PROBLEMS, _DAMAGED):
            for fragment in sorted(self._dataset.get_fragments(), key=lambda fragment: str(fragment.path)):
                yield from fragment.scanner(
                    schema=self.schema,
                    columns=list(columns),
                    batch_size=batch_rows,
                    batch_readahead=1,
                    fragment_readahead=1,
                    fragment_scan_options=options,
                ).to_batches()


class IcebergReader(Reader):
    """An Iceberg table, by pyiceberg: of a catalog that its own configuration names, or of one metadata file here."""

    def __init__(self, url: DataUrl) -> None:
        with need_package("pyiceberg", "reading Iceberg tables", "iceberg"):
            from pyiceberg.catalog import load_catalog
            from pyiceberg.table import StaticTable
        snapshot = _read_number(url, "snapshot")
        self._url = url
        with translate_errors(url, _PROBLEMS, _DAMAGED):
            if url.is_file:
                if not url.file.is_file():
                    raise FileNotFoundError
                self._table: Any = StaticTable.from_metadata(str(url.file.absolute()))
            else:
                self._table = load_catalog(url.host).load_table(url.path)
            newest = self._table.metadata.current_snapshot_id
            self._snapshot = newest if snapshot is None else snapshot
            if snapshot is not None and self._table.snapshot_by_id(snapshot) is None:
                raise RequestError(f"{url.where} has no snapshot {snapshot}", "Correct it, or leave it out", "data")
            self.schema = self._scan(("*",)).projection().as_arrow()
            if url.is_file:
                tasks = list(self._scan(("*",)).plan_files())
                files = [file.file_path for task in tasks for file in (task.file, *task.delete_files)]
                _refuse_elsewhere(files, url.file.parent.parent, url.where)
        self.place = str(url) if self._snapshot is None else _pin(url, "snapshot", self._snapshot)

    def _scan(self, columns: tuple[str, ...]) -> Any:
        return self._table.scan(selected_fields=columns, snapshot_id=self._snapshot)

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows, file after file in the order of their names; one file's are in memory at a time."""
        from pyiceberg.io.pyarrow import ArrowScan

        with translate_errors(self._url, _PROBLEMS, _DAMAGED):
            scan = self._scan(tuple(columns))
            reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
            for task in sorted(scan.plan_files(), key=lambda task: str(task.file.file_path)):
                for batch in reader.to_record_batches([task]):
                    yield batch.select(list(columns))
