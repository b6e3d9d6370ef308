"""Low intervals combined with their neighbours: the bins with which a code begins, from noisy counts alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mark_first_of_intervals(
    total: Floats, low: NDArray[np.bool_], theta: float, noise: Floats, worth_a_code: float
) -> NDArray[np.bool_]:
    """Return which bins of a section of intervals begin a code; ``noise``: standard deviation of each noisy count."""
    first = _mark_first_of_neighbours(total, low, theta)
    code = np.cumsum(first) - 1
    sums, sd = np.bincount(code, weights=total), np.sqrt(np.bincount(code, weights=noise**2))
    own = ~low | (sums >= np.maximum(sd, worth_a_code))[code]
    kept = np.flatnonzero(own)
    if not kept.size:
        return np.arange(len(total)) == 0
    places = np.arange(len(total))
    right = np.searchsorted(kept, places).clip(max=len(kept) - 1)
    left = (right - (kept[right] > places)).clip(min=0)
    nearest = np.where(np.abs(kept[left] - places) <= np.abs(kept[right] - places), kept[left], kept[right])
    joined = code[nearest]
    return np.diff(joined, prepend=-1) != 0


def _mark_first_of_neighbours(total: Floats, low: NDArray[np.bool_], theta: float) -> NDArray[np.bool_]:
    """Return which bins of a row of intervals begin a code.

    Each that is not low, and of the low ones between two such as many as reach ``theta`` with the ones that follow;
    what is left at the end of a run of low ones goes with those before.
    """
    first = np.ones(len(total), dtype=bool)
    begun: list[int] = []  # where the codes of this run of low bins begin
    count = 0.0  # of the last one of them
    for i in range(len(total) + 1):
        if i < len(total) and low[i]:
            if not begun or count >= theta:
                begun.append(i)
                count = 0.0
            else:
                first[i] = False
            count += total[i]
        else:
            if len(begun) > 1 and count < theta:
                first[begun[-1]] = False
            begun = []
    return first
