"""GUM in plain numpy, as one would first write it: the yardstick for tasks/synthesize.py.

Belongs here: one visit of one marginal, replace only, vectorised.  Does not belong here: anything that
a release uses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def visit(
    columns: Sequence[np.ndarray], shape: Sequence[int], wanted: np.ndarray, alpha: float, rng: np.random.Generator
) -> None:
    """Move the rows towards ``wanted`` once (section 5.2), writing into the marginal's ``columns``.

    shape: sizes of the attributes; wanted: float64 (cells), rows wanted.
    """
    keys = np.ravel_multi_index([column.astype(np.int64) for column in columns], tuple(shape))
    current = np.bincount(keys, minlength=wanted.size)
    gap = wanted - current
    under, over = gap >= 1, gap <= -1
    growth = np.where(under, np.minimum(gap, alpha * np.where(current > 0, current, wanted)), 0)
    growth = np.floor(growth + rng.random(growth.size)).astype(np.int64)
    room = np.where(over, np.floor(-gap), 0).astype(np.int64)
    losses = np.minimum(np.floor(room * min(1.0, growth.sum() / max(1, room.sum()))).astype(np.int64), current)
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate([[0], np.cumsum(current)])
    rows = [rng.choice(order[starts[c] : starts[c + 1]], losses[c], replace=False) for c in np.flatnonzero(losses)]
    targets = rng.permutation(np.repeat(np.arange(wanted.size), growth))
    if not rows:
        return
    chosen = np.concatenate(rows)
    moved = min(chosen.size, targets.size)
    chosen = rng.permutation(chosen)[:moved]
    for column, codes in zip(columns, np.unravel_index(targets[:moved], tuple(shape)), strict=True):
        column[chosen] = codes
