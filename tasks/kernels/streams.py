"""Seeded random streams for post-processing kernels, and exact systematic rounding.

A stream is addressed, not advanced: draw i of a stream is mix_integer(stream + i * GAMMA), where mix_integer is
splitmix64 (Steele, Lea and Flood 2014).  So work in fixed blocks, each with its own stream, gives the same result on
any number of threads.
"""

from __future__ import annotations

import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
MASK = (1 << 64) - 1


def mix_integer(z: int) -> int:
    """Return the splitmix64 finaliser of one integer in [0, 2**64)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def mix_bits(z: np.ndarray) -> np.ndarray:
    """Return the splitmix64 finaliser of one uint64 word or an array of them."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


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
