"""The order in which a release chooses among rows.

Rows are sorted by a keyed hash of their whole content and, if hashes are equal, by the content itself.  So two rows can
only change places if they are equal in every column that is read, and then no look can tell which was chosen.  Storage
order decides nothing, and no look depends on the quality of the hash.

The key is a secret of the private folder.  It prevents a person from foreseeing which of their own rows count.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.tasks.codecs.parsing import decode_dictionary, find_nulls, split_union, to_keys
from privsyn.tasks.kernels.streams import GAMMA, mix_bits

Words = NDArray[np.uint64]

ReadRows = Callable[[NDArray[np.int64]], pa.Table]
"""Returns the whole content of the rows at ascending positions, in order, as :func:`gather_rows` makes it."""

_NULL, _FRACTION, _TEXT = np.uint64(0x6E756C6C), np.uint64(0x66726163), np.uint64(0x74657874)
"""Salts that separate nulls, fractions and texts from integers."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class RowOrder:
    """The order of rows under one key.

    ``key``: the secret bytes; empty if nothing is released, as in simulations.
    """

    key: bytes = field(default=b"", repr=False)

    def hash_rows(self, batch: pa.RecordBatch) -> Words:
        """Return a keyed hash of the content of each row, shape (rows,).

        Equal content has equal hashes.  Number types (1 and 1.0), the sign of 0, dictionaries, chunks and column order
        make no difference; NaN is null.
        """
        hashes = np.full(batch.num_rows, self.derive_key("row"))
        for name in sorted(batch.schema.names):
            hashes = mix_bits(hashes ^ mix_bits(_compute_words(batch.column(name)) ^ self.derive_key(f"column {name}")))
        return hashes

    def derive_key(self, use: str) -> np.uint64:
        """Return 64 bits derived from the key for one use."""
        digest = hmac.new(self.key, use.encode(), hashlib.sha256).digest()
        return np.uint64(int.from_bytes(digest[:8], "little"))

    def sort(self, groups: Sequence[NDArray[Any]], hashes: Words, read: ReadRows) -> SortedRows:
        """Return the rows sorted by group, and inside each group by hash and content.

        ``groups``: integer sort keys of shape (rows,), the first one first; ``hashes``: from :meth:`hash_rows`;
        ``read``: reads content, called only if two rows of a group have equal hashes.
        """
        order = np.lexsort((hashes, *reversed(groups)))
        same = np.ones(max(len(order) - 1, 0), bool)
        for values in (*groups, hashes):
            same &= values[order[1:]] == values[order[:-1]]
        if same.any():
            _sort_by_content(order, same, read)
        return SortedRows(order, _MADE_HERE)


_MADE_HERE = object()


class SortedRows:
    """Rows in the order of :class:`RowOrder`, which alone can create it; code that chooses rows accepts nothing else.

    ``order``: the positions of the rows, shape (rows,).
    """

    def __init__(self, order: NDArray[np.int64], made_here: object) -> None:
        """Keep the order.  Raises TypeError outside this module."""
        if made_here is not _MADE_HERE:
            raise TypeError("rows are put in order by RowOrder.sort alone")
        self.order = order

    def find_first(self, group: NDArray[Any], limit: int = 1) -> NDArray[np.int64]:
        """Return the positions of the first ``limit`` rows of each group; ``group``: integers, shape (rows,).

        Groups must be the groups that the rows were sorted by, or unions of them.
        """
        sorted_group = group[self.order]
        begins = np.flatnonzero(np.append(True, sorted_group[1:] != sorted_group[:-1])[: len(sorted_group)])
        sizes = np.diff(np.append(begins, len(sorted_group)))
        rank = np.arange(len(sorted_group)) - np.repeat(begins, sizes)
        return self.order[rank < limit]


def _sort_by_content(order: NDArray[np.int64], same: NDArray[np.bool_], read: ReadRows) -> None:
    """Sort runs of rows with equal group and hash by content, in place; ``same``: which rows equal the one before."""
    tied = np.append(False, same) | np.append(same, False)
    slots = np.flatnonzero(tied)
    positions = order[slots]
    table = read(np.sort(positions)).take(pa.array(np.argsort(np.argsort(positions))))
    run = np.cumsum(~np.append(False, same)[slots])
    if not _has_unequal_neighbours(table, run):
        return  # equal content: any order will do
    columns = (_drop_nan(table.column(name)) for name in sorted(table.column_names))
    ranks = [np.asarray(pc.rank(column, tiebreaker="dense")) for column in columns]  # null last
    order[slots] = positions[np.lexsort((*reversed(ranks), run))]


def _has_unequal_neighbours(table: pa.Table, run: NDArray[np.int64]) -> bool:
    """Return whether two neighbouring rows of a run differ in content."""
    pairs = np.flatnonzero(run[1:] == run[:-1])
    before, after = pa.array(pairs), pa.array(pairs + 1)
    for name in table.column_names:
        values = _drop_nan(table.column(name))
        first, second = values.take(before), values.take(after)
        equal = pc.if_else(pc.and_(first.is_null(), second.is_null()), True, pc.equal(first, second).fill_null(False))
        if not pc.all(equal).as_py() and len(pairs):
            return True
    return False


def gather_rows(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return rows as a table whose columns can be compared.

    Values are written as text if Arrow cannot compare their type, or if a table's files store the column in several
    types.
    """
    parts = [_convert(batch, decode_dictionary) for batch in batches]
    fields = [{*part.schema} for part in parts]
    mixed = {field.name for of_part in fields for field in of_part ^ fields[0]}
    return pa.Table.from_batches([_convert(part, _write_out, mixed) for part in parts])


def _convert(
    batch: pa.RecordBatch, convert: Callable[[pa.Array], pa.Array], also: Collection[str] | None = None
) -> pa.RecordBatch:
    """Return the batch with converted columns: ``also``, decimals and unions; all columns if None."""
    arrays = [
        convert(array) if also is None or name in also or _has_no_order(array.type) else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _has_no_order(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_) or pa.types.is_union(type_))


def _write_out(array: pa.Array) -> pa.Array:
    """Return values as texts: equal numbers of any type get one text; other values include their type."""
    rows, parts = [np.empty(0, np.int64)], [pa.array([], pa.string())]
    for some, part in split_union(array):
        kind = part.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            texts = to_keys(part, pa.string())
        else:
            values = part.to_pylist() if not pa.types.is_temporal(kind) else to_keys(part, pa.string()).to_pylist()
            texts = pa.array([None if value is None else f"{kind} {value!r}" for value in values], pa.string())
        rows.append(some)
        parts.append(texts)
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))


def _drop_nan(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return one array of plain values, with null for NaN and 0 for -0.0."""
    array = decode_dictionary(column)
    if pa.types.is_boolean(array.type) or pa.types.is_float16(array.type):
        array = array.cast(pa.float32() if pa.types.is_float16(array.type) else pa.int8())
    if pa.types.is_floating(array.type):
        array = pc.add(pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array), pa.scalar(0.0, array.type))
    return array


def _compute_words(array: pa.Array) -> Words:
    """Return one word per value; equal values have equal words."""
    if pa.types.is_dictionary(array.type):
        words = np.append(_compute_words(array.dictionary), _NULL)
        return words[np.asarray(array.indices.fill_null(len(words) - 1)).astype(np.int64)]
    if pa.types.is_union(array.type):
        words = np.full(len(array), _NULL)
        for rows, part in split_union(array):
            words[rows] = _compute_words(part)
        return words
    array = decode_dictionary(array)
    return np.where(find_nulls(array), _NULL, _compute_words_of_plain(array))


def _compute_words_of_plain(array: pa.Array) -> Words:
    """Return the words of an array without dictionary; nulls get arbitrary words."""
    kind = array.type
    if pa.types.is_string(kind):
        from privsyn.tasks.kernels.small_kernels import hash_texts  # here: compiled code loads slowly

        return hash_texts(array) ^ _TEXT
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    if pa.types.is_integer(array.type):
        return _view_integers(array).astype(np.int64).view(np.uint64)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _compute_words_of_reals(_view_integers(array.cast(pa.float64(), safe=False)))
    if pa.types.is_temporal(kind):
        return _compute_words_of_moments(array)
    texts = pa.array([None if value is None else repr(value) for value in array.to_pylist()], pa.string())
    return _compute_words(texts)


def _view_integers(array: pa.Array) -> NDArray[Any]:
    """Return the values as a NumPy array, 0 for null."""
    return np.asarray(array.fill_null(0))


def _compute_words_of_reals(numbers: NDArray[np.float64]) -> Words:
    """Return an integer as its own word, and the salted bits of other numbers."""
    with np.errstate(all="ignore"):
        whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < 2.0**63)
        integers = np.where(whole, numbers, 0.0).astype(np.int64).view(np.uint64)
    words: Words = np.where(whole, integers, numbers.view(np.uint64) ^ _FRACTION)
    return words


def _compute_words_of_moments(array: pa.Array) -> Words:
    """Return the words of days, moments and times, independent of their resolution."""
    kind = array.type
    if pa.types.is_date32(kind):
        ticks, per_second = _view_integers(array.view(pa.int32())).astype(np.int64) * 86_400, 1
    elif pa.types.is_time32(kind):
        ticks, per_second = _view_integers(array.view(pa.int32())).astype(np.int64), _PER_SECOND[kind.unit]
    else:
        unit = "ms" if pa.types.is_date64(kind) else kind.unit
        ticks, per_second = _view_integers(array.view(pa.int64())), _PER_SECOND[unit]
    seconds = (ticks // per_second).astype(np.int64)
    rest = ((ticks % per_second) * (10**9 // per_second)).astype(np.int64)
    words: Words = np.bitwise_xor(mix_bits(seconds.view(np.uint64) ^ GAMMA), rest.view(np.uint64))
    return words
