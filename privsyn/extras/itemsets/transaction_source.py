"""A private table of transactions in files: the columns in an itemset spec's layout, streamed as stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec, ListLayout, PairsLayout
from privsyn.sources.file_source import FileSource
from privsyn.sources.open_source import AnyPlace
from privsyn.sources.private_table import check_valid_text, ignore_repairs, is_readable
from privsyn.storage.table_files import join_names, list_parquet_columns, read_layout

_TRUE = ("1", "1.0", "true", "t", "yes", "y")
"""Lower-case texts of a cell whose item is held."""

HeldItems: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], int, int]
"""The row and the code of each held item, the number of transactions, and the number of unlisted items."""


def list_columns_read(itemset_spec: ItemsetSpec) -> tuple[str, ...]:
    """Return the columns of the table that a release of ``itemset_spec`` reads."""
    layout = itemset_spec.layout
    if isinstance(layout, ListLayout):
        return (layout.column,)
    return (layout.transaction, layout.item) if isinstance(layout, PairsLayout) else itemset_spec.items


def open_transactions(place: AnyPlace, spec: ReleaseSpec, itemset_spec: ItemsetSpec) -> FileSource:
    """Return the table at ``place``; no row is read.

    Raises RequestError for a missing column, or one of an unsuitable type.
    """
    if not isinstance(place, str | Path | tuple) or not place:
        raise RequestError("names no table", "Give the path of a CSV or Parquet file or folder", "data")
    read = list_columns_read(itemset_spec)
    layout = read_layout(place, spec.columns, spec.csv)
    if missing := [name for name in read if name not in set(layout.columns)]:
        raise RequestError(
            f"asks for {join_names(missing)}, which {layout.files[0].name} does not have",
            "Correct the names of the layout's columns, or of the items for a wide table",
            "layout",
        )
    for file in layout.files if layout.types is not None else ():
        types = list_parquet_columns(file)[1]
        for name in read:
            is_list = pa.types.is_list(types[name]) or pa.types.is_large_list(types[name])
            inner = types[name].value_type if is_list else types[name]
            if not is_readable(inner) or (is_list and not isinstance(itemset_spec.layout, ListLayout)):
                raise RequestError(
                    f"the type of {name!r} in {file.name} is {str(types[name])[:60]}, which holds no items",
                    "Store items as text or whole numbers, in a list only under `{kind: list}`",
                    "layout",
                )
    return FileSource(layout.columns, read, {name: layout.type_of(name) for name in read}, layout, spec)


def iterate_held_items(batches: Iterable[pa.RecordBatch], itemset_spec: ItemsetSpec) -> Iterator[HeldItems]:
    """Yield the items that a table's transactions hold.

    Each batch by itself, except for pairs: one transaction's rows may be anywhere, so all rows are held in memory.
    """
    universe = pa.array(itemset_spec.items, pa.large_string())
    if isinstance(itemset_spec.layout, PairsLayout):
        yield _read_pairs(list(batches), itemset_spec.layout, universe)
        return
    for batch in batches:
        if isinstance(itemset_spec.layout, ListLayout):
            yield _read_lists(batch.column(itemset_spec.layout.column), itemset_spec.layout.separator, universe)
        else:
            yield _read_wide(batch, itemset_spec.items)


def _encode_items(values: pa.Array, universe: pa.Array) -> tuple[NDArray[np.int64], int]:
    """Return the code of each value, -1 for null or unlisted values, and the number of unlisted ones."""
    text = _to_text(values)
    codes = pc.fill_null(pc.index_in(text, value_set=universe), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = int(pc.sum(pc.equal(text, "")).as_py() or 0)
    return codes, int((codes < 0).sum()) - text.null_count - empty


def _to_text(values: pa.Array) -> pa.Array:
    """Return values as text without surrounding spaces; whole numbers without a decimal point."""
    values = check_valid_text("", values, ignore_repairs)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        values = _make_computable(values)
        whole = pc.fill_null(pc.equal(pc.round(values), values), False)
        as_whole = pc.cast(pc.if_else(whole, values, None), pa.int64(), safe=False)
        return pc.if_else(whole, pc.cast(as_whole, pa.large_string()), pc.cast(values, pa.large_string()))
    return pc.utf8_trim_whitespace(values.cast(pa.large_string()))


def _make_computable(values: pa.Array) -> pa.Array:
    """Return numbers that Arrow can compute with, not of 16 bits."""
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _read_names(transactions: pa.Array) -> pa.Array:
    """Return transactions as text; null for empty cells, so that rows of many persons are not merged into one."""
    text = _to_text(transactions)
    empty = pc.equal(text, "")
    if pa.types.is_floating(transactions.type):
        empty = pc.or_(empty, pc.is_nan(_make_computable(transactions)))
    return pc.if_else(pc.fill_null(empty, True), pa.scalar(None, text.type), text)


def _read_lists(column: pa.Array, separator: str, universe: pa.Array) -> HeldItems:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        column = pc.split_pattern(_to_text(column), separator)
    rows = np.asarray(pc.list_parent_indices(column)).astype(np.int64)
    codes, unlisted = _encode_items(column.flatten(), universe)
    return rows[codes >= 0], codes[codes >= 0], len(column), unlisted


def _read_wide(batch: pa.RecordBatch, items: Sequence[str]) -> HeldItems:
    rows, codes = [], []
    for code, name in enumerate(items):
        held = np.flatnonzero(_is_held(batch.column(name)))
        rows.append(held)
        codes.append(np.full(held.size, code))
    return np.concatenate(rows).astype(np.int64), np.concatenate(codes).astype(np.int64), batch.num_rows, 0


def _is_held(column: pa.Array) -> NDArray[np.bool_]:
    """Return whether each cell holds its item; null does not."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        held = column
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = _make_computable(column)
        held = pc.not_equal(numbers, pa.scalar(0, numbers.type))
    else:
        held = pc.is_in(pc.utf8_lower(_to_text(column)), value_set=pa.array(_TRUE, pa.large_string()))
    return pc.fill_null(held, False).to_numpy(zero_copy_only=False)


def _read_pairs(batches: Sequence[pa.RecordBatch], layout: PairsLayout, universe: pa.Array) -> HeldItems:
    if not batches:
        return np.empty(0, np.int64), np.empty(0, np.int64), 0, 0
    names = pa.chunked_array([_read_names(b.column(layout.transaction)) for b in batches]).combine_chunks()
    items = pa.chunked_array([_to_text(b.column(layout.item)) for b in batches]).combine_chunks()
    encoded = names.dictionary_encode()
    rows = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    codes, unlisted = _encode_items(items, universe)
    held = (rows >= 0) & (codes >= 0)
    return rows[held], codes[held], len(encoded.dictionary), unlisted
