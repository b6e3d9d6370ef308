"""The tables of a release with several tables: persons, their rows, and further tables, joined by new keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.data_contracts.columns import IntegerColumn
from privsyn.data_contracts.linked_tables import get_above, get_below, name_one_place
from privsyn.data_contracts.panels import MOST_PERSONS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import ValueRange
from privsyn.engine.request import Request
from privsyn.publish.formats.described import list_ranges
from privsyn.storage.disk import translate_os_errors
from privsyn.storage.table_files import open_parquet
from privsyn.tasks.panels.rows_above import number_persons, number_rows
from privsyn.tasks.steps.decode import build_released_schema

FOLDER = "tables"
"""The folder of the linked tables in a released folder."""


def list_linked_tables(spec: ReleaseSpec) -> tuple[str, ...]:
    """Return the names of all tables, each after the table above it; empty if the spec has one table."""
    if not spec.tables:
        return ()
    return (get_above(spec.tables)[0], get_below(spec.tables)[0], *spec.further_tables)


def name_linked_file(table: str, ending: str = "parquet") -> str:
    """Return the released file of a linked table."""
    return f"{FOLDER}/{table}.{ending}"


def list_linked_ranges(request: Request) -> dict[str, dict[str, ValueRange]]:
    """Return table -> the public domains of its columns, keys first."""
    ranges, spec = list_ranges(request), request.spec
    above, below, *further = list_linked_tables(spec)
    persons, key = spec.tables[above], str(spec.tables[above].key)
    by_table = {
        above: {name: ranges[name] for name in ranges if name == key or name in persons.columns},
        below: {name: ranges[name] for name in ranges if name == key or name not in persons.columns},
    }
    for name in further:
        pair_request = list_ranges(request.table_pairs[name])
        upper_key = str(spec.tables[str(spec.tables[name].of)].key)
        columns = [
            c for c in (upper_key, *spec.tables[name].columns) if c in pair_request and c != name_one_place(name)
        ]
        by_table[name] = {column: pair_request[column] for column in columns}
    for name in (below, *further):
        row_key = spec.tables[name].key
        numbered = {} if row_key is None else {row_key: ValueRange(pa.int64(), False, 1, MOST_PERSONS)}
        by_table[name] = {**numbered, **by_table[name]}
    return by_table


def get_published_spec(spec: ReleaseSpec, table: str) -> ReleaseSpec:
    """Return the spec that describes a table's columns: its table pair's spec, if there are pairs."""
    return spec.table_pairs.get(table, spec)


def describe_linked_column(spec: ReleaseSpec, table: str, name: str) -> Any:
    """Return the description of a linked table's column; keys are new numbers."""
    upper = spec.tables[table].of
    if table in spec.further_tables and name == spec.tables[str(upper)].key:
        words = f"Number of the synthetic row of {upper} above this row."
        return IntegerColumn(kind="integer", min=1, max=MOST_PERSONS, description=words)
    return get_published_spec(spec, table).get_published_column(name)


def write_linked_files(
    folder: Path,
    request: Request,
    synthetic: Iterable[Path],
    without: Iterable[pa.RecordBatch],
    further_tables: Mapping[str, Iterable[pa.RecordBatch]],
) -> None:
    """Write every table as a Parquet file; every row has its row above.

    ``synthetic``: the files of all rows with their persons' columns, person by person.
    ``without``: the persons without rows.
    ``further_tables``: the rows of further tables, each with the number of the row above.
    """
    ranges, files = list_linked_ranges(request), tuple(synthetic)
    above, below, *_ = ranges
    key = str(request.spec.tables[above].key)
    (folder / FOLDER).mkdir(exist_ok=True)
    persons = number_persons(_iterate(files), without, key)
    _write(folder, above, ranges[above], ({**_to_columns(b), key: pa.array(number)} for number, b in persons))
    for name, batches in {below: _iterate(files), **further_tables}.items():
        row_key = request.spec.tables[name].key
        numbered = number_rows(batches)
        rows = ({**_to_columns(b), **({} if row_key is None else {row_key: pa.array(n)})} for n, b in numbered)
        _write(folder, name, ranges[name], rows)


def _to_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(name) for name in batch.schema.names}


def _write(folder: Path, table: str, ranges: Mapping[str, ValueRange], parts: Iterable[Mapping[str, pa.Array]]) -> None:
    path, schema = folder / name_linked_file(table), build_released_schema(ranges, list(ranges))
    with translate_os_errors(path), _open(path, schema) as file:
        for columns in parts:
            file.write_batch(pa.RecordBatch.from_pydict({name: columns[name] for name in ranges}).cast(schema))


def _iterate(paths: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with open_parquet(path) as file:
            yield from (batch for batch in file.iter_batches() if batch.num_rows)


def _open(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd")
