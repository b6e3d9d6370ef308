"""Histograms of codes, in compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit

LANED_CELLS = 1 << 13
"""Largest number of cells of counts with four lanes, which pay off while they fit the cache together."""


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
