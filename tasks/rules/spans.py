"""Arrow columns as spans of values, and spans as Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.tasks.rules import evaluate
from privsyn.tasks.rules import values as v
from privsyn.tasks.rules.values import Span


def span_rows(array: pa.Array, vocabulary: Mapping[str, int]) -> Span:
    """Return one value a row of an Arrow column.

    Numbers, truths as 0 and 1, moments in seconds, texts as their number.
    """
    null = np.asarray(pc.is_null(array))
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        encoded = array if pa.types.is_dictionary(kind) else array.dictionary_encode()
        numbers = np.array([vocabulary.get(t, -1) for t in encoded.dictionary.to_pylist()] or [-1], np.float64)
        return v.span_rows(numbers[np.asarray(pc.fill_null(encoded.indices, 0))], null)
    if pa.types.is_boolean(kind):
        return v.span_rows(np.asarray(pc.fill_null(array, False)).astype(np.float64), null)
    if pa.types.is_timestamp(kind):
        return v.span_rows(np.asarray(pc.fill_null(array.cast(pa.timestamp("us")).cast(pa.int64()), 0)) / 1e6, null)
    if pa.types.is_date(kind):
        return v.span_rows(np.asarray(pc.fill_null(array.cast(pa.date32()).cast(pa.int32()), 0)) * evaluate.DAY, null)
    if pa.types.is_time(kind):
        return v.span_rows(np.asarray(pc.fill_null(array.cast(pa.time64("us")).cast(pa.int64()), 0)) / 1e6, null)
    if pa.types.is_integer(kind):
        known = pc.fill_null(array, 0) if array.null_count else array
        return v.span_rows(np.asarray(known).astype(np.float64), null)
    numbers = np.asarray(pc.fill_null(array.cast(pa.float64()), 0.0))
    return v.span_rows(np.nan_to_num(numbers), null | np.isnan(numbers))


def span_cells(cells: Any, vocabulary: Mapping[str, int]) -> Span:
    """Return what a column may be in each fine code: one value each, or from low to high with NaN for null."""
    if not isinstance(cells, tuple):
        return span_rows(cells, vocabulary)
    low, high = cells
    null = np.isnan(low)
    return Span(np.where(null, 0.0, low), np.where(null, 0.0, high), null, ~null)


def to_array(span: Span, kind: pa.DataType, texts: pa.Array, rows: int) -> pa.Array:
    """Return values of one each as an Arrow column of ``rows`` rows.

    What the type cannot hold is null, and its row broken.
    """
    null = np.broadcast_to(span.null | ~span.some, rows)
    values = np.where(null, 0.0, np.broadcast_to(span.low, rows))
    if pa.types.is_string(kind):
        null = null | (values < 0)
        return texts.take(pa.array(np.maximum(values, 0).astype(np.int64), mask=null))
    if pa.types.is_timestamp(kind):
        return pa.array(np.round(values * 1e6).astype(np.int64), mask=null).cast(kind)
    if pa.types.is_time(kind):
        return pa.array(np.round(values * 1e6).astype(np.int64), mask=null).cast(pa.time64("us")).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(np.floor(values / evaluate.DAY).astype(np.int32), mask=null).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array(values != 0, mask=null)
    if pa.types.is_integer(kind):
        width = np.iinfo(kind.to_pandas_dtype())
        outside = (values < width.min) | (values > width.max)
        return pa.array(np.where(outside, 0, values).astype(np.int64), mask=null | outside).cast(kind)
    return pa.array(values, mask=null).cast(kind)
