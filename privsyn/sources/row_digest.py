"""A digest of a table's rows as they stream by: equal rows have the same, wherever they are stored.

Whole numbers are one whatever their width, and in a float or a decimal; days, moments and texts whatever their layout.
Columns are known by their names.  Two tables of other rows have the same digest with a chance of about 2^-64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.tasks.kernels.streams import GAMMA, mix_bits

Hashes = NDArray[np.uint64]

_NULL = np.uint64(0x6A09E667F3BCC909)
_MOMENT, _TIME = np.uint64(0xBB67AE8584CAA73B), np.uint64(0x3C6EF372FE94F82B)
_INT64 = float(1 << 63)


class RowDigest:
    """The digest of the rows so far: ``content``, which does not depend on their order, and ``order``, which does."""

    def __init__(self) -> None:
        self.rows, self.content, self.order = 0, 0, 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of a batch, whatever the size of batches."""
        rows = np.zeros(batch.num_rows, np.uint64)
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            seed = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))
            rows += mix_bits(_hash_column(array) ^ seed)
        rows = mix_bits(rows)
        places = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.uint64)
        self.content, self.order = _add(self.content, rows), _add(self.order, mix_bits(rows + places * GAMMA))
        self.rows += batch.num_rows

    def iterate_bytes(self, names: tuple[str, ...]) -> Iterator[bytes]:
        """Yield the bytes of a fingerprint of the rows, whose columns are ``names``."""
        yield f"rows {self.rows} {self.content} {sorted(names)}".encode()


def _add(total: int, hashes: Hashes) -> int:
    return (total + int(hashes.sum(dtype=np.uint64))) % (1 << 64)


def _hash_column(array: pa.Array) -> Hashes:
    """Return a hash of each value, shape (rows,)."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind, valid = array.type, np.asarray(array.is_valid())
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL)
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        hashes = _hash_integers(array.cast(pa.int64()))
    elif pa.types.is_integer(kind):
        hashes = _hash_unsigned(array)
    elif pa.types.is_decimal(kind):
        hashes = _hash_decimals(array)
    elif pa.types.is_floating(kind):
        numbers = _to_floats(array)
        valid = valid & ~np.isnan(numbers)
        hashes = _hash_floats(np.where(valid, numbers, 0))
    elif pa.types.is_time(kind):
        hashes = _hash_integers(array.cast(pa.time64("ns"), safe=False).cast(pa.int64())) ^ _TIME
    elif pa.types.is_temporal(kind):
        hashes = _hash_moments(array) ^ _MOMENT
    else:
        hashes = _hash_texts(array)
    return np.where(valid, hashes, _NULL)


def _hash_integers(array: pa.Array) -> Hashes:
    return mix_bits(pc.fill_null(array, 0).to_numpy(zero_copy_only=False).view(np.uint64) + GAMMA)


def _to_floats(array: pa.Array) -> NDArray[np.float64]:
    return pc.fill_null(array.cast(pa.float64(), safe=False), 0).to_numpy(zero_copy_only=False)


def _hash_unsigned(array: pa.Array) -> Hashes:
    """Return hashes of numbers up to 2^64: those of the same floats where floats hold them."""
    values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    floats = values.astype(np.float64)
    exact = floats.astype(np.longdouble) == values.astype(np.longdouble)
    large = np.where(exact, _hash_floats(floats), mix_bits(~values))
    return np.where(values < 1 << 63, mix_bits(values + GAMMA), large)


def _hash_decimals(array: pa.Array) -> Hashes:
    """Return hashes of decimals: of whole ones those of integers, of others those of floats, as which they are read."""
    floats, zero = _to_floats(array), pa.scalar(Decimal(0), array.type)
    values = pc.fill_null(array, zero)
    whole = np.asarray(pc.equal(pc.trunc(values), values)) & (np.abs(floats) < _INT64)
    integers = pc.if_else(pa.array(whole), pc.trunc(values), zero).cast(pa.int64())
    return np.where(whole, _hash_integers(integers), _hash_floats(floats))


def _hash_floats(numbers: NDArray[np.float64]) -> Hashes:
    """Return hashes of numbers; those of whole ones are those of integers."""
    whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < _INT64)
    integers = np.where(whole, numbers, 0).astype(np.int64).view(np.uint64) + GAMMA
    return mix_bits(np.where(whole, integers, np.ascontiguousarray(numbers).view(np.uint64) ^ _NULL))


def _hash_moments(array: pa.Array) -> Hashes:
    """Return hashes of days and moments, by seconds and the rest: nanoseconds reach no farther than 2262."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    if not pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("s" if pa.types.is_date32(array.type) else "ms"))
    ticks = per_second[array.type.unit]
    seconds, rest = np.divmod(pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), ticks)
    rest *= 10**9 // ticks
    return mix_bits(seconds.view(np.uint64) * GAMMA + rest.view(np.uint64))


def _hash_texts(array: pa.Array) -> Hashes:
    from pandas.util import hash_array  # here: it loads slowly

    encoded = array.dictionary_encode()
    if not len(encoded.dictionary):
        return np.full(len(array), _NULL)
    hashes = hash_array(np.array(encoded.dictionary.to_pylist(), dtype=object), categorize=False)
    return hashes[pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)]
