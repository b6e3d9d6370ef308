"""The two tables of a release whose spec has two: persons and their rows, with new keys that join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.data_contracts.linked_tables import get_above, get_below
from privsyn.data_contracts.panels import MOST_PERSONS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import ValueRange
from privsyn.engine.request import Request
from privsyn.publish.formats.described import list_ranges
from privsyn.storage.disk import translate_os_errors
from privsyn.storage.table_files import open_parquet
from privsyn.tasks.steps.decode import build_released_schema

FOLDER = "tables"
"""The folder of both tables in a released one."""


def name_linked_files(spec: ReleaseSpec, ending: str = "parquet") -> tuple[str, ...]:
    """Return the files of both tables, the one above first; none where the spec has one table."""
    if not spec.tables:
        return ()
    return tuple(f"{FOLDER}/{name}.{ending}" for name in (get_above(spec.tables)[0], get_below(spec.tables)[0]))


def list_linked_ranges(request: Request) -> tuple[dict[str, ValueRange], dict[str, ValueRange]]:
    """Return the public domains of the columns of both tables, keys first."""
    ranges, spec = list_ranges(request), request.spec
    (_, persons), (_, rows) = get_above(spec.tables), get_below(spec.tables)
    key = str(persons.key)
    own = {} if rows.key is None else {rows.key: ValueRange(pa.int64(), False, 1, MOST_PERSONS)}
    above = {name: ranges[name] for name in ranges if name == key or name in persons.columns}
    below = {name: ranges[name] for name in ranges if name == key or name not in persons.columns}
    return above, {**own, **below}


def write_linked_files(
    folder: Path, request: Request, synthetic: Iterable[Path], without: Iterable[pa.RecordBatch]
) -> None:
    """Write both tables as Parquet files; every row below has its person above.

    ``synthetic``: the files of all rows, each with its person's columns, person by person; ``without``: the columns of
    persons without rows.
    """
    above, below = list_linked_ranges(request)
    (key, *_), row_key = above, get_below(request.spec.tables)[1].key
    paths = [folder / name for name in name_linked_files(request.spec)]
    paths[0].parent.mkdir(exist_ok=True)
    schemas = [build_released_schema(ranges, list(ranges)) for ranges in (above, below)]
    with translate_os_errors(paths[0]), _open(paths[0], schemas[0]) as persons, _open(paths[1], schemas[1]) as rows:
        last, written = 0, 0
        for batch in _iterate(synthetic):
            person = np.asarray(batch.column(key))
            begins = np.flatnonzero(np.diff(person, prepend=last))
            persons.write_batch(batch.select(list(above)).take(pa.array(begins)).cast(schemas[0]))
            number = pa.array(np.arange(written + 1, written + 1 + batch.num_rows))
            numbered = batch if row_key is None else batch.append_column(row_key, number)
            rows.write_batch(numbered.select(list(below)).cast(schemas[1]))
            last, written = int(person[-1]), written + batch.num_rows
        for batch in without:
            number = pa.array(np.arange(last + 1, last + 1 + batch.num_rows))
            persons.write_batch(batch.append_column(key, number).select(list(above)).cast(schemas[0]))
            last += batch.num_rows


def _iterate(paths: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with open_parquet(path) as file:
            yield from (batch for batch in file.iter_batches() if batch.num_rows)


def _open(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd")
