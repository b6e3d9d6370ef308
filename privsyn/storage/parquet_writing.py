"""Write tables as Parquet, for the store and for a cluster's workers: equal rows give equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.tasks.kernels.batches import cut_batches

PANDAS = b"pandas"
"""The schema metadata with the types that pandas reads a table as."""


def name_part(number: int) -> str:
    """Return the name of one file of a table in several parts."""
    return f"part-{number:05}.parquet"


def write_parts(
    folder: Path, table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, rows: Sequence[int]
) -> None:
    """Write a table into a folder, as files with ``rows`` rows each."""
    batches = table.to_batches() if isinstance(table, pa.Table) else table
    for number, part in groupby(cut_batches(batches, rows), key=lambda numbered: numbered[0]):
        write_parquet(folder / name_part(number), (batch for _, batch in part), schema)


def write_parquet(path: Path, table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write a table or a stream of batches of ``schema``; the file keeps the metadata of ``schema``.

    Raises ValueError for other columns.
    """
    batches = table.combine_chunks().to_batches() if isinstance(table, pa.Table) else table
    with TableWriter(path, schema) as writer:
        for batch in batches:
            writer.write(batch)


class TableWriter:
    """Writes one Parquet file, batch by batch; a context manager."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Create the file."""
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", store_schema=bool(schema.metadata))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the file."""
        self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch.  Raises ValueError for other columns than the schema's."""
        if not batch.schema.equals(self._schema, check_metadata=False):
            names = f"{batch.schema.names} and {self._schema.names}"
            raise ValueError(f"the table's columns are not the schema's: {names}")
        self._writer.write_batch(batch.replace_schema_metadata(None))


def strip_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with only pandas' types in its metadata, if there are any."""
    pandas_types = (schema.metadata or {}).get(PANDAS)
    return schema.remove_metadata() if pandas_types is None else schema.with_metadata({PANDAS: pandas_types})
