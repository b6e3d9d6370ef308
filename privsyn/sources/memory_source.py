"""A private table in memory: pyarrow, pandas, polars and any other object that exports an Arrow stream.

The same rules apply as for Parquet files.  A column's type never depends on its values.  In a pandas column of objects,
each cell is read by itself, so a column may hold cells of several types.
Arrow's own choice would let one row change how others are read (a date
beside a moment turns all into dates).
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.unicode import adopt_names
from privsyn.sources.private_table import (
    BY_A_VALUE,
    Note,
    Source,
    SupportsArrowStream,
    check_types,
    check_valid_text,
    ignore_repairs,
    is_text,
    list_columns_to_read,
)
from privsyn.storage.table_files import refuse_repeats
from privsyn.tasks.codecs.parsing import get_type_codes, split_union

if TYPE_CHECKING:
    from privsyn.storage.store import Store

_FIELDS = {
    "null": pa.null(),
    "text": pa.large_string(),
    "truth": pa.bool_(),
    "whole": pa.int64(),
    "large": pa.uint64(),
    "number": pa.float64(),
    "day": pa.date32(),
    "moment": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
    "time": pa.time64("us"),
    "other": pa.binary(),
}
"""The types of cells; other: an object that no column can hold, such as a list, without its content."""

OBJECTS = pa.dense_union([pa.field(name, type_) for name, type_ in _FIELDS.items()])
"""The type of every column of objects, whatever its cells are."""

NULL, TEXT, TRUTH, WHOLE, LARGE, NUMBER, DAY, MOMENT, ZONED, TIME, OTHER = range(len(_FIELDS))

Cell = tuple[int, Any]
"""The index of a cell's type, and its value; days and times as a count of days or microseconds."""

_NULL: Cell = (NULL, None)
_OTHER: Cell = (OTHER, b"")
_EPOCH, _MICROSECOND = dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)
_PER_SECOND = {unit: 1000**power for power, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as"))}
_MOST_SECONDS = {"m": 60, "h": 3_600, "D": 86_400, "W": 604_800, "M": 31 * 86_400, "Y": 366 * 86_400}
"""Most seconds in each of NumPy's larger units."""
_MOST_TICKS = 2**63 - 1
_MOST_DIGITS = 400
"""Most powers of ten that a decimal is written with instead of an exponent; beyond, every float is infinite."""


def read_objects(cells: Iterable[object]) -> pa.Array:
    """Return the objects as an array of the type OBJECTS; no object raises an error or changes another's cell."""
    codes, offsets = list[int](), list[int]()
    values: list[list[Any]] = [[] for _ in _FIELDS]
    for cell in cells:
        code, value = _read_cell(cell)
        codes.append(code)
        offsets.append(len(values[code]))
        values[code].append(value)
    children = [_build_child(part, type_) for part, type_ in zip(values, _FIELDS.values(), strict=True)]
    return pa.UnionArray.from_dense(pa.array(codes, pa.int8()), pa.array(offsets, pa.int32()), children, list(_FIELDS))


def _build_child(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_date(type_):
        return pa.array(values, pa.int32()).view(type_)
    if pa.types.is_temporal(type_):
        return pa.array(values, pa.int64()).view(type_)
    return pa.array(values, type_)


def _read_cell(cell: object) -> Cell:
    """Return an object's type and value; an object whose own code fails is OTHER."""
    read = _READERS.get(type(cell))
    try:
        if read is None:
            read = next((read for class_, read in _BASES if isinstance(cell, class_)), None)
        return _OTHER if read is None else read(cell)
    except Exception:  # another library's code may raise anything
        return _OTHER


def _read_text(cell: Any) -> Cell:
    text = str.__str__(cell)
    if not text.isascii():
        text.encode()  # raises for a lone surrogate
    return TEXT, text


def _read_whole(cell: Any) -> Cell:
    number = int(cell)
    if -(2**63) <= number < 2**63:
        return WHOLE, number
    return (LARGE, number) if 0 < number < 2**64 else (TEXT, format(Decimal(number), "f"))


def _read_float(cell: Any) -> Cell:
    number = float(cell)
    return _NULL if number != number else (NUMBER, number)


def _read_decimal(cell: Decimal) -> Cell:
    """Read a decimal as an equal number of another type if there is one, so that equal values have one text."""
    if cell.is_nan():
        return _NULL
    if not cell.is_finite():
        return NUMBER, float(cell)
    if abs(cell.adjusted()) > _MOST_DIGITS:
        return (WHOLE, 0) if not cell else (TEXT, str(cell))
    if cell == cell.to_integral_value():
        return _read_whole(int(cell))
    number = float(cell)
    return (NUMBER, number) if Decimal(repr(number)) == cell else (TEXT, format(cell, "f").rstrip("0"))


def _read_moment(cell: dt.datetime) -> Cell:
    offset = cell.utcoffset()
    if isinstance(cell, pd.Timestamp):
        return MOMENT if offset is None else ZONED, _count_microseconds(cell.to_datetime64())
    microseconds = (cell.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return (MOMENT, microseconds) if offset is None else (ZONED, microseconds - offset // _MICROSECOND)


def _count_microseconds(cell: np.datetime64) -> int:
    """Return the microseconds since 1970, clipped to 64 bits."""
    unit, step = np.datetime_data(cell.dtype)
    ticks = int(cell.astype(np.int64)) * step
    if unit in _PER_SECOND:
        microseconds = ticks * 10**6 // _PER_SECOND[unit]
    elif abs(ticks) * _MOST_SECONDS[unit] > _MOST_TICKS:  # NumPy's conversion would overflow
        microseconds = ticks * 10**6
    else:
        microseconds = int(cell.astype("datetime64[s]").astype(np.int64)) * 10**6
    return min(max(microseconds, -_MOST_TICKS), _MOST_TICKS)


_BASES: tuple[tuple[type, Callable[[Any], Cell]], ...] = (
    (type(None), lambda cell: _NULL),
    (type(pd.NA), lambda cell: _NULL),
    (type(pd.NaT), lambda cell: _NULL),
    (str, _read_text),
    (bool, lambda cell: (TRUTH, bool(cell))),
    (np.bool_, lambda cell: (TRUTH, bool(cell))),
    (int, _read_whole),
    (np.timedelta64, lambda cell: _NULL if np.isnat(cell) else _OTHER),  # a subclass of NumPy's integers
    (np.integer, _read_whole),
    (float, _read_float),
    (np.float16, lambda cell: _read_float(str(cell))),  # its shortest decimal
    (np.float32, lambda cell: _read_float(str(cell))),
    (np.floating, _read_float),
    (Decimal, _read_decimal),
    (dt.datetime, _read_moment),
    (dt.date, lambda cell: (DAY, cell.toordinal() - _EPOCH.toordinal())),
    (dt.time, lambda cell: (TIME, ((cell.hour * 60 + cell.minute) * 60 + cell.second) * 10**6 + cell.microsecond)),
    (np.datetime64, lambda cell: _NULL if np.isnat(cell) else (MOMENT, _count_microseconds(cell))),
    (uuid.UUID, lambda cell: (TEXT, str(cell))),
)
"""Classes of objects that a column can hold, and their readers; a subclass stands before its base."""

_READERS = dict(_BASES)


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
            wanted = [stored[name] for name in read]
            table, of_objects = pa.table({n: _convert_pandas_column(n, data[n]) for n in wanted}), OBJECTS
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

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """Return the HMAC (hex) of the columns that are read, by the private root's key.

        Equal values of equal types have the same fingerprint in any memory layout; no file has it.  Objects all of one
        type count as a column of this type.
        """
        narrow = replace(self, table=_narrow_objects(self.table))
        batches = narrow._stream(FINGERPRINT_ROWS, ignore_repairs)
        return (store.fingerprint_of_table(iterate_canonical_bytes(narrow.table.schema, batches)),)

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
    """Return the column as one valid array without a dictionary or views, null for text that is not UTF-8."""
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
            in_order = cells.take(pa.array(np.argsort(np.concatenate(rows))))
            table = table.set_column(place, table.schema.names[place], in_order)
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
    return "text" if is_text(type_) else str(type_)


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
    if is_text(array.type):
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
