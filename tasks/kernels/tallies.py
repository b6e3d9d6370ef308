"""Histograms of codes, in compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit

_LANED_CELLS = 1 << 13  # four histograms pay off while they fit the cache together


@njit(nogil=True, cache=True)
def tally(keys, counts):  # type: ignore[no-untyped-def]
    """Add 1 to ``counts[key]`` (int64) for every key; keys: unsigned, < len(counts).

    Four interleaved histograms where they fit the cache: neighbouring rows with the same key would
    otherwise wait for each other's increment.
    """
    rows, cells = np.uint64(keys.shape[0]), np.uint64(counts.shape[0])
    if cells > np.uint64(_LANED_CELLS) or rows < cells:
        for i in range(rows):
            counts[keys[i]] += 1
        return
    lanes = np.zeros((4, counts.shape[0]), np.int64)
    one, two, three, four = lanes[0], lanes[1], lanes[2], lanes[3]
    body = rows & ~np.uint64(3)
    for i in range(np.uint64(0), body, np.uint64(4)):
        one[keys[i]] += 1
        two[keys[i + np.uint64(1)]] += 1
        three[keys[i + np.uint64(2)]] += 1
        four[keys[i + np.uint64(3)]] += 1
    for i in range(body, rows):
        one[keys[i]] += 1
    for c in range(cells):
        counts[c] += one[c] + two[c] + three[c] + four[c]


@njit(nogil=True, cache=True)
def tally_pair(a, b, width, counts):  # type: ignore[no-untyped-def]
    """Add 1 to ``counts[a * width + b]`` (int64) for every row; ``width``: uint64, codes of b.

    Histograms as in :func:`tally`.
    """
    rows, cells = np.uint64(a.shape[0]), np.uint64(counts.shape[0])
    if cells > np.uint64(_LANED_CELLS) or rows < cells:
        for i in range(rows):
            counts[np.uint64(a[i]) * width + np.uint64(b[i])] += 1
        return
    lanes = np.zeros((4, counts.shape[0]), np.int64)
    one, two, three, four = lanes[0], lanes[1], lanes[2], lanes[3]
    body = rows & ~np.uint64(3)
    for i in range(np.uint64(0), body, np.uint64(4)):
        j, k, l = i + np.uint64(1), i + np.uint64(2), i + np.uint64(3)  # noqa: E741
        one[np.uint64(a[i]) * width + np.uint64(b[i])] += 1
        two[np.uint64(a[j]) * width + np.uint64(b[j])] += 1
        three[np.uint64(a[k]) * width + np.uint64(b[k])] += 1
        four[np.uint64(a[l]) * width + np.uint64(b[l])] += 1
    for i in range(body, rows):
        one[np.uint64(a[i]) * width + np.uint64(b[i])] += 1
    for c in range(cells):
        counts[c] += one[c] + two[c] + three[c] + four[c]


@njit(nogil=True, cache=True)
def push_digit(keys, codes, width):  # type: ignore[no-untyped-def]
    """``keys = keys * width + codes``, in place; uint32."""
    for i in range(np.uint64(keys.shape[0])):
        keys[i] = keys[i] * width + codes[i]
