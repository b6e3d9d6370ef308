"""Open a private table: a path, the URL of a database's table, or a table in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias, cast

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.unicode import adopt_names
from privsyn.sources.file_source import FileSource
from privsyn.sources.private_table import Source, SupportsArrowStream
from privsyn.sources.stream_source import StreamSource, is_streamed, read_schema
from privsyn.storage.table_files import Place, read_layout
from privsyn.tasks.panels.row_order import RowOrder

AnyPlace: TypeAlias = Place | SupportsArrowStream | Mapping[str, Place | SupportsArrowStream]
"""The place of a table, or the table in memory; for several tables, a mapping from their names."""


def open_source(data: AnyPlace, spec: ReleaseSpec, order: RowOrder | None = None) -> Source:
    """Check that the table ``data`` is readable and has exactly the spec's columns; no row is encoded.

    ``data`` is a path, a URL or a table in memory.  A path: of a file or a folder of files (CSV or Parquet), or of an
    Excel, SPSS, Stata, SAS or Feather file.  A URL: of a database's table or query, or of a store's object or folder.
    A table in memory: a pyarrow Table or RecordBatch, a pandas or polars DataFrame, or any object that exports an Arrow
    stream (``__arrow_c_stream__``) repeatedly.  The index of a pandas DataFrame is not part of the table.  If the spec
    has several tables, ``data`` is a mapping from their names.  ``spec.data`` is ignored.  ``order``: chooses one of
    several rows of linked tables; None: with the empty key.  Raises RequestError that names the file, the column or
    ``data``.
    """
    if isinstance(data, Mapping) and spec.tables:
        from privsyn.sources.joined_source import JoinedSource

        return JoinedSource.open(data, spec, open_source, order or RowOrder())
    if is_streamed(data):
        return StreamSource.open(data, spec)
    if isinstance(data, str | os.PathLike | tuple):
        return FileSource.open(data, spec)
    from privsyn.sources.memory_source import MemorySource  # it loads pandas

    return MemorySource.open(cast(SupportsArrowStream, data), spec)


def list_table_columns(data: AnyPlace, spec: ReleaseSpec) -> tuple[str, ...]:
    """Return the names of the table's columns, whether the spec lists them or not.

    The spec says how a CSV's header is written.
    """
    if isinstance(data, Mapping) and spec.tables:
        return tuple(name for table in spec.tables.values() for name in table.columns)
    if is_streamed(data):
        return adopt_names(read_schema(data, spec.columns).names, spec.columns)
    if isinstance(data, str | os.PathLike | tuple):
        return adopt_names(read_layout(data, spec.columns, spec.csv).columns, spec.columns)
    from privsyn.sources.memory_source import list_column_names

    return adopt_names(list_column_names(cast(SupportsArrowStream, data), spec.columns), spec.columns)
