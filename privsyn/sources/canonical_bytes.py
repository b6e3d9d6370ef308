"""The canonical bytes of rows: equal tables have equal bytes, however Arrow holds them in memory.

Names, types, values, nulls and the order of rows and columns enter.  Chunks, slices, what lies under a null, unused
bits, dictionaries and the layout of text do not.  The bytes are not those of an Arrow file, which may differ between
versions of Arrow: noise that was paid for belongs to the fingerprint of its table, which has to last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def iterate_canonical_bytes(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the bytes of a table in blocks: its schema, then each batch, column by column.

    ``batches`` hold no dictionaries, views or nested types, and all but the last have one fixed number of rows: where
    they are cut is part of the bytes.
    """
    header = json.dumps([[field.name, _name_type(field.type)] for field in schema]).encode()
    yield len(header).to_bytes(8, "little") + header
    for batch in batches:
        yield batch.num_rows.to_bytes(8, "little")
        for array in batch.columns:
            yield from _iterate_column(array)


def _name_type(type_: pa.DataType) -> str:
    """Return the type's name; every layout of text has the same, and a dictionary that of its values."""
    if pa.types.is_dictionary(type_):
        return _name_type(type_.value_type)
    return "text" if _is_text(type_) else str(type_)


def _is_text(type_: pa.DataType) -> bool:
    return any(test(type_) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _iterate_column(array: pa.Array) -> Iterator[bytes]:
    """Yield which rows are not null, as bits; then lengths and bytes of texts, or values of fixed width (0: null)."""
    valid = np.asarray(array.is_valid())
    yield np.packbits(valid).tobytes()
    if pa.types.is_null(array.type) or not len(array):
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
    if pa.types.is_floating(array.type):  # every NaN is one NaN, and negative zero is zero, as a release reads them
        numbers = values.view(f"f{width}")
        values = np.where(np.isnan(numbers), np.nan, numbers + 0).astype(numbers.dtype).view(np.uint8)
    return values.reshape(-1, width)
