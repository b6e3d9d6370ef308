"""Small kernels in compiled code: random words and shuffles, histograms of codes, and hashes of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from privsyn.tasks.kernels.streams import GAMMA, mix_bits

_HALF = np.uint64(32)
_ONE = np.uint64(1)

mix = njit(nogil=True, cache=True, inline="always")(mix_bits)

LANED_CELLS = 1 << 13
"""Largest number of cells of counts with four lanes, which pay off while they fit the cache together."""


@njit(nogil=True, cache=True, inline="always")
def draw_below(word, bound):  # type: ignore[no-untyped-def]
    """Return an integer in [0, bound) from the high half of a random 64-bit word; uint64, bound <= 2**32."""
    return ((word >> _HALF) * bound) >> _HALF


def shuffle(values: NDArray[Any], start: np.uint64) -> None:
    """Shuffle a 1-d array in place by a stream."""
    shuffle_segments(values, np.array([0, values.size], np.int64), start)


@njit(nogil=True, cache=True)
def shuffle_segments(values, starts, start):  # type: ignore[no-untyped-def]
    """Shuffle ``values[starts[s]:starts[s + 1]]`` in place for every s (Fisher-Yates).

    ``values``: 1-d array; ``starts``: int64, ascending, one longer than the number of segments;
    ``start``: uint64, the stream.
    """
    word = start
    for s in range(starts.shape[0] - 1):
        first = np.uint64(starts[s])
        length = np.uint64(starts[s + 1]) - first
        while length > _ONE:
            word += GAMMA
            pick = first + draw_below(mix(word), length)
            length -= _ONE
            last = first + length
            last_value = values[last]
            values[last] = values[pick]
            values[pick] = last_value


def make_lanes(counts: np.ndarray, rows: int) -> np.ndarray:
    """Return the lanes to tally ``rows`` rows in, int64 (lanes, cells): ``counts`` itself, or four of zeros.

    If four histograms fit the cache, rows alternate between them: neighbouring rows with the same key would otherwise
    wait for each other's increment.  Compiled code that makes arrays takes twice as long to compile, so this is Python.
    """
    laned = counts.size <= LANED_CELLS and rows >= counts.size
    return np.zeros((4, counts.size), np.int64) if laned else counts[None]


@njit(nogil=True, cache=True)
def tally(keys, lanes):  # type: ignore[no-untyped-def]
    """Add 1 for every key in one of the lanes; keys: unsigned, below the number of cells."""
    rows, body, one = np.uint64(keys.shape[0]), np.uint64(0), lanes[0]
    if lanes.shape[0] == 4:
        two, three, four = lanes[1], lanes[2], lanes[3]
        body = rows & ~np.uint64(3)
        for i in range(np.uint64(0), body, np.uint64(4)):
            one[keys[i]] += 1
            two[keys[i + np.uint64(1)]] += 1
            three[keys[i + np.uint64(2)]] += 1
            four[keys[i + np.uint64(3)]] += 1
    for i in range(body, rows):
        one[keys[i]] += 1


@njit(nogil=True, cache=True)
def tally_pair(a, b, width, lanes):  # type: ignore[no-untyped-def]
    """Add 1 for every row's ``a * width + b``, as :func:`tally` does; ``width``: uint64, number of codes of b."""
    rows, body, one = np.uint64(a.shape[0]), np.uint64(0), lanes[0]
    if lanes.shape[0] == 4:
        two, three, four = lanes[1], lanes[2], lanes[3]
        body = rows & ~np.uint64(3)
        for i in range(np.uint64(0), body, np.uint64(4)):
            j, k, l = i + np.uint64(1), i + np.uint64(2), i + np.uint64(3)  # noqa: E741
            one[np.uint64(a[i]) * width + np.uint64(b[i])] += 1
            two[np.uint64(a[j]) * width + np.uint64(b[j])] += 1
            three[np.uint64(a[k]) * width + np.uint64(b[k])] += 1
            four[np.uint64(a[l]) * width + np.uint64(b[l])] += 1
    for i in range(body, rows):
        one[np.uint64(a[i]) * width + np.uint64(b[i])] += 1


@njit(nogil=True, cache=True)
def push_digit(keys, codes, width):  # type: ignore[no-untyped-def]
    """Set ``keys`` to ``keys * width + codes``, in place; uint32."""
    for i in range(np.uint64(keys.shape[0])):
        keys[i] = keys[i] * width + codes[i]


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
