"""Seeded random streams for post-processing kernels, and exact systematic rounding.

A stream is addressed, not advanced: draw i of a stream is mix_integer(stream + i * GAMMA).  So work in fixed blocks,
each with its own stream, gives the same result on any number of threads.
"""

from __future__ import annotations

import numpy as np

from privsyn.tasks.kernels.splitmix import GAMMA, MASK, mix_bits, mix_integer


def derive_stream(seed: int, *address: int) -> np.uint64:
    """Return the 64-bit start of the stream at ``address`` (any number of integers >= 0) under ``seed``."""
    state = mix_integer((seed + int(GAMMA)) & MASK)
    for number in address:
        state = mix_integer((state * 31 + number + int(GAMMA)) & MASK)
    return np.uint64(state)


def draw_uniform(start: np.uint64, index: int = 0) -> float:
    """Draw number ``index`` of a stream as a float in [0, 1)."""
    return (mix_integer((int(start) + (index + 1) * int(GAMMA)) & MASK) >> 11) * 2.0**-53


def draw_uniforms(start: np.uint64, number: int) -> np.ndarray:
    """Return the first ``number`` draws of a stream, as :func:`draw_uniform` returns them; float64."""
    words = start + np.arange(1, number + 1, dtype=np.uint64) * GAMMA
    return (mix_bits(words) >> np.uint64(11)) * 2.0**-53


def shuffle(values: np.ndarray, start: np.uint64) -> None:
    """Shuffle a 1-d array in place by a stream."""
    from privsyn.tasks.kernels.shuffling import shuffle_segments  # here: compiled code loads slowly

    shuffle_segments(values, np.array([0, values.size], np.int64), start)


def draw_systematically(weights: np.ndarray, totals: np.ndarray | int, offsets: np.ndarray | float) -> np.ndarray:
    """Round ``weights`` along the last axis to int64 quotas that sum exactly to ``totals``.

    weights: float (..., cells), finite, >= 0; all-zero rows count as uniform.  totals: int (...) >= 0.  offsets:
    (...) in [0, 1), uniformly random for unbiased quotas.  Every quota is total * weight / sum(weights), rounded up or
    down; cells of weight 0 get 0.
    """
    weights = np.asarray(weights, dtype=np.float64)
    empty = weights.sum(axis=-1, keepdims=True) <= 0
    marks = np.cumsum(np.where(empty, 1.0, weights), axis=-1)
    totals = np.asarray(totals)[..., None]
    marks = np.floor(marks / marks[..., -1:] * totals + np.asarray(offsets)[..., None])
    return np.diff(np.minimum(marks, totals).astype(np.int64), axis=-1, prepend=0)
