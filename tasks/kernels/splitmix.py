"""splitmix64 (Steele, Lea and Flood 2014), the base of seeded streams, for one integer and for numpy words."""

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
