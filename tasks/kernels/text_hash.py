"""Hashes of the texts of an Arrow array, used to split persons into groups that fit into memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray


@njit(nogil=True, cache=True)
def _hash_fnv(offsets, data, hashes):  # type: ignore[no-untyped-def]
    """Write the FNV-1a hash of the bytes between consecutive offsets into ``hashes``; uint64."""
    for i in range(hashes.shape[0]):
        value = np.uint64(0xCBF29CE484222325)
        for j in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        hashes[i] = value ^ (value >> np.uint64(32))


def hash_texts(texts: pa.Array) -> NDArray[np.uint64]:
    """Return the FNV-1a hash of each text of a ``string`` array, shape (rows,); a null's hash is undefined."""
    hashes = np.zeros(len(texts), np.uint64)
    _, offsets, data = texts.buffers()
    if data is not None and len(texts):
        places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        _hash_fnv(places, np.frombuffer(data, np.uint8), hashes)
    return hashes
