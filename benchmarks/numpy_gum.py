"""GUM in plain numpy, as one would first write it: the yardstick for tasks/steps/synthesize.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def visit(
    table: Sequence[np.ndarray],
    attributes: Sequence[int],
    shape: Sequence[int],
    wanted: np.ndarray,
    alpha: float,
    duplicate_share: float,
    rng: np.random.Generator,
) -> None:
    """Move the rows of ``table`` (its columns) towards ``wanted`` once (section 5.2).

    attributes: positions of the marginal's columns; shape: their sizes; wanted: float64 (cells), rows wanted;
    duplicate_share: share of the moves that copy a whole row of the target cell.
    """
    keys = np.ravel_multi_index([table[a].astype(np.int64) for a in attributes], tuple(shape))
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
    targets = targets[:moved]
    for a, codes in zip(attributes, np.unravel_index(targets, tuple(shape)), strict=True):
        table[a][chosen] = codes
    copied = (rng.random(moved) < duplicate_share) & (current[targets] > 0)
    if copied.any():
        cells = targets[copied]
        donors = order[starts[cells] + (rng.random(cells.size) * current[cells]).astype(np.int64)]
        for column in table:
            column[chosen[copied]] = column[donors]
