"""Random words and shuffles from seeded streams, compiled for other kernels."""

from __future__ import annotations

import numpy as np
from numba import njit

from privsyn.tasks.kernels.streams import GAMMA, mix_bits

_HALF = np.uint64(32)
_ONE = np.uint64(1)

mix = njit(nogil=True, cache=True, inline="always")(mix_bits)


@njit(nogil=True, cache=True, inline="always")
def draw_below(word, bound):  # type: ignore[no-untyped-def]
    """Return an integer in [0, bound) from the high half of a random 64-bit word; uint64, bound <= 2**32."""
    return ((word >> _HALF) * bound) >> _HALF


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
