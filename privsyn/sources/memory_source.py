"""A private table in memory: pyarrow, pandas, polars and any other object that exports an Arrow stream.

The same rules apply as for Parquet files.  A column's type never depends on its values.  In a pandas column of objects,
each cell is read by itself (object_cells.py).  Arrow's own choice would let one row change how others are read (a date
beside a moment turns all into dates).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.unicode import adopt_names
from privsyn.sources.object_cells import OBJECTS, read_objects
from privsyn.sources.private_table import (
    BY_A_VALUE,
    Note,
    Source,
    SupportsArrowStream,
    check_types,
    check_valid_text,
    ignore_repairs,
    list_columns_to_read,
)
from privsyn.storage.table_files import refuse_repeats
from privsyn.tasks.codecs.parsing import get_type_codes, split_union

if TYPE_CHECKING:
    from privsyn.storage.store import Store


WHERE = "the table in memory"
"""The table's name in errors."""

FINGERPRINT_ROWS = 1 << 16
"""Rows of a block of canonical bytes; another number would change every fingerprint."""


@dataclass(frozen=True, eq=False)
class MemorySource(Source):
    """A table in memory whose structure fits the spec; ``table`` holds the columns ``read``."""

    table: pa.Table = field(repr=False)

    @classmethod
    def open(cls, data: SupportsArrowStream, spec: ReleaseSpec) -> MemorySource:
        """Check that ``data`` is a table with exactly the spec's columns; dropped ones are not converted.

        The index of a pandas DataFrame is not part of the table: ``reset_index()`` turns it into a column.  If pyarrow
        can, it shares the caller's memory, so the rows must not change before the run ends.  Raises RequestError that
        names the column or ``data``.
        """
        names = list_column_names(data, spec.columns)
        columns = adopt_names(names, spec.columns)
        read, stored = list_columns_to_read(columns, spec, WHERE), dict(zip(columns, names, strict=True))
        if isinstance(data, pd.DataFrame):
            table, of_objects = _list_pandas_columns(data, [stored[name] for name in read]), OBJECTS
        else:
            table, of_objects = _read_arrow_table(data).select([stored[name] for name in read]), None
        table = table.rename_columns(list(read))
        types = dict(zip(table.schema.names, table.schema.types, strict=True))
        declared = {name: pa.null() if type_ == of_objects else type_ for name, type_ in types.items()}
        check_types(declared, read, spec, WHERE)
        return cls(columns, read, types, table)

    @property
    def names(self) -> tuple[str, ...]:
        """A description for the private run note: a table in memory has no path."""
        return ("a table in memory",)

    def fingerprint(self, store: Store) -> str:
        """Return the HMAC (hex) of the columns that are read, by the private root's key.

        Equal values of equal types have the same fingerprint in any memory layout; no file has it.  Objects all of one
        type count as a column of this type.
        """
        narrow = replace(self, table=_narrow_objects(self.table))
        return store.fingerprint_of_table(
            iterate_canonical_bytes(narrow.table.schema, narrow._stream(FINGERPRINT_ROWS, ignore_repairs))
        )

    def check_rows(self) -> int:
        """Read every row once and keep none; see :class:`Source`."""
        return sum(batch.num_rows for batch in self.batches())

    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield checked batches of ``batch_rows`` rows (the last: the rest), without dictionaries and views."""
        for start in range(0, self.table.num_rows, batch_rows):
            rows = self.table.slice(start, batch_rows)
            arrays = [_to_one_array(name, rows.column(name), note) for name in self.read]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self.read))


def list_column_names(data: SupportsArrowStream, known: Collection[str] | None) -> tuple[str, ...]:
    """Return the column names of a table in memory, in order.  Raises RequestError unless they are distinct texts.

    ``known``: the names that errors may show (None: all); a table without its header line may have a row as names.
    """
    names = list(data.columns) if isinstance(data, pd.DataFrame) else _read_arrow_schema(data).names
    for number, name in enumerate(names, 1):
        if not isinstance(name, str):
            raise RequestError(
                f"{WHERE} has a column whose name is not text (number {number})", "Give every column a name", "data"
            )
    refuse_repeats(names, WHERE, known)
    return tuple(names)


def map_stored_types(data: SupportsArrowStream) -> dict[str, pa.DataType | None]:
    """Return the Arrow type of each column without reading values; None for a pandas column of objects.

    The names must have passed :func:`list_column_names`.
    """
    if isinstance(data, pd.DataFrame):
        return {name: _get_declared_type(data[name]) for name in data.columns}
    schema = _read_arrow_schema(data)
    return dict(zip(schema.names, schema.types, strict=True))


def _read_arrow_schema(data: Any) -> pa.Schema:
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data.schema
    _refuse_other_objects(data)
    return _export_table(data, lambda: pa.RecordBatchReader.from_stream(data).schema)


def _read_arrow_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    _refuse_other_objects(data)
    return _export_table(data, lambda: pa.table(data))


def _refuse_other_objects(data: Any) -> None:
    if isinstance(data, pa.RecordBatchReader):
        raise RequestError(
            "is a stream, which can be read only once; a release reads its table several times",
            "Hand over its table: `reader.read_all()`",
            "data",
        )
    if type(data).__name__ == "LazyFrame":
        problem = "is of the type LazyFrame, not a table: it has no rows yet"
        raise RequestError(problem, "Hand over its table: `frame.collect()`", "data")
    if not hasattr(data, "__arrow_c_stream__"):
        raise RequestError(
            f"is of the type {type(data).__name__}, not a table",
            "Hand over a path, a pyarrow Table, a pandas or polars DataFrame, or another table that exports an Arrow "
            "stream (`__arrow_c_stream__`)",
            "data",
        )


def _export_table(data: Any, export: Any) -> Any:
    """Return ``export`` of ``data``.  Raises RequestError if the object's own code or Arrow refuses."""
    with suppress(Exception):  # another library may raise anything, with words that may hold a value
        return export()
    raise RequestError(
        f"is of the type {type(data).__name__}, and cannot be read as an Arrow table",
        "Hand it over as a pyarrow Table with one type a column",
        "data",
    )


def _list_pandas_columns(frame: pd.DataFrame, read: Sequence[str]) -> pa.Table:
    return pa.table({name: _convert_pandas_column(name, frame[name]) for name in read})


def _convert_pandas_column(name: str, column: pd.Series) -> Any:
    """Return the column in Arrow.  Raises RequestError for a type that Arrow lacks."""
    if isinstance(column.dtype, pd.CategoricalDtype) and _is_stored_as_objects(column):
        categories = read_objects([*column.cat.categories, None])
        return categories.take(pa.array(column.cat.codes.to_numpy() % len(categories)))  # -1: the last one, null
    if _is_stored_as_objects(column):
        return read_objects(column)
    if _get_declared_type(column) is None:
        problem = f"its type in {WHERE} is {str(column.dtype)[:60]}, which cannot be encoded"
    else:
        with suppress(Exception):  # an extension's own code may raise anything
            return pa.Array.from_pandas(column)
        problem = f"its cells in {WHERE} cannot be read {BY_A_VALUE}"
    cure = "Give the column another type, for example with `astype()`, or list it as `{kind: drop}`"
    raise RequestError(problem, cure, f"columns.{name}")


def _is_stored_as_objects(column: pd.Series) -> bool:
    """Return whether the cells are Python objects, including texts stored as objects."""
    return _holds_objects(column) or getattr(_get_dtype_of_values(column), "storage", "") == "python"


def _get_dtype_of_values(column: pd.Series) -> Any:
    return column.cat.categories.dtype if isinstance(column.dtype, pd.CategoricalDtype) else column.dtype


def _holds_objects(column: pd.Series) -> bool:
    return bool(pd.api.types.is_object_dtype(_get_dtype_of_values(column)))


def _get_declared_type(column: pd.Series) -> pa.DataType | None:
    if _holds_objects(column):
        return None
    try:
        return pa.Array.from_pandas(column.iloc[:0]).type
    except Exception:  # an extension's own code may raise anything
        return None


def _to_one_array(name: str, column: pa.ChunkedArray, note: Note) -> pa.Array:
    """Return the column as one valid array without a dictionary or views, null for text that is not UTF-8.

    Raises RequestError if its buffers are not valid.
    """
    with suppress(pa.ArrowException, IndexError, ValueError):
        chunks = []
        for chunk in column.chunks:
            dense = check_valid_text(name, chunk, note)
            chunks.append(dense.dictionary_decode() if pa.types.is_dictionary(dense.type) else dense)
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    raise RequestError(f"its cells in {WHERE} are damaged {BY_A_VALUE}", "Make the table again", f"columns.{name}")


def _narrow_objects(table: pa.Table) -> pa.Table:
    """Return the table with each column of objects that all have one type as a column of that type."""
    for place, column in enumerate(table.columns):
        if column.type != OBJECTS or not table.num_rows:
            continue
        array = column.combine_chunks()
        array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
        types = {part.type for _, part in split_union(array)} - {pa.null()}
        if len(types) <= 1 and pa.binary() not in types:
            type_ = types.pop() if types else pa.null()
            rows, parts = zip(*split_union(array), strict=True)
            cells = pa.concat_arrays([pa.nulls(len(p), type_) if pa.types.is_null(p.type) else p for p in parts])
            table = table.set_column(
                place, table.schema.names[place], cells.take(pa.array(np.argsort(np.concatenate(rows))))
            )
    return table


def iterate_canonical_bytes(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the bytes of a table in blocks: its schema, then each batch, column by column.

    ``batches``: no dictionaries, views or nested types except OBJECTS; all but the last have one fixed number of rows,
    since the cuts are part of the bytes.

    Equal tables have equal bytes, however Arrow holds them.  Names, types, values, nulls and the order of rows and
    columns count.  Chunks, slices, memory under nulls, unused bits, dictionaries and text layouts do not.  The bytes
    are not an Arrow file's, which may differ between versions of Arrow: paid noise belongs to the fingerprint of its
    table, which has to last.
    """
    header = json.dumps([[field.name, _name_type(field.type)] for field in schema]).encode()
    yield len(header).to_bytes(8, "little") + header
    for batch in batches:
        yield batch.num_rows.to_bytes(8, "little")
        for array in batch.columns:
            yield from _iterate_column(array)


def _name_type(type_: pa.DataType) -> str:
    """Return the type's name; all text layouts share one name, and a dictionary has its values' name."""
    if pa.types.is_dictionary(type_):
        return _name_type(type_.value_type)
    if type_ == OBJECTS:
        return "objects"
    return "text" if _is_text(type_) else str(type_)


def _is_text(type_: pa.DataType) -> bool:
    return any(test(type_) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _iterate_column(array: pa.Array) -> Iterator[bytes]:
    """Yield the validity bits, then lengths and bytes of texts, or values of fixed width (0 for null).

    For objects: the cells' types, then the cells of each type in the same way.  All unsupported objects are alike.
    """
    if pa.types.is_union(array.type):
        yield get_type_codes(array).tobytes()
        for _, cells in split_union(array):
            yield from _iterate_column(cells)
        return
    valid = np.asarray(array.is_valid())
    yield np.packbits(valid).tobytes()
    if pa.types.is_null(array.type) or pa.types.is_binary(array.type) or not len(array):
        return
    if _is_text(array.type):
        text = pc.fill_null(array.cast(pa.large_string()), "")
        offsets = np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, text.offset * 8)
        yield np.diff(offsets).astype("<i8").tobytes()
        if offsets[-1] > offsets[0]:
            yield memoryview(text.buffers()[2])[offsets[0] : offsets[-1]].tobytes()
    else:
        yield np.where(valid[:, None], _get_fixed_width(array), np.uint8(0)).tobytes()


def _get_fixed_width(array: pa.Array) -> NDArray[np.uint8]:
    """Return the values' own bytes, shape (rows, bytes of one value)."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    values = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    if pa.types.is_floating(array.type):  # all NaN are equal and -0.0 is 0.0, as a release reads them
        numbers = values.view(f"f{width}")
        values = np.where(np.isnan(numbers), np.nan, numbers + 0).astype(numbers.dtype).view(np.uint8)
    return values.reshape(-1, width)
