"""Columns that move together: a common shape inside their codes, and values of a row close to each other.

Post-processing of noisy tables.  The spec states publicly that values of these columns lie close together in every row
(DPSyn report, section 5.3, treats all times of a row as one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.recode import AttributeRecode, Recode

Cells = Mapping[str, NDArray[np.int32]]
"""Attribute -> the public bin of every fine code but null, -1 for an exact value."""

NEAR_BINS = 1
"""Largest distance of a row's values, in bins: two close values may lie on both sides of an edge."""


def with_common_shapes(recode: Recode, together: Sequence[Sequence[str]], cells: Cells) -> Recode:
    """Return the recode with common weights inside the codes of the attributes of each group.

    Otherwise noise in the cells would map one place in a code to a different value in each column.  An attribute whose
    cells differ from the cells of the group's first attribute keeps its weights.
    """
    shaped = dict(recode)
    for group in together:
        alike = _list_same_cells(group, cells)
        pooled = np.sum([np.maximum(recode[a].estimate[: len(cells[a])], 0.0) for a in alike], axis=0)
        for a in alike:
            shaped[a] = replace(recode[a], weight=_shape_weights(recode[a], pooled))
    return shaped


def _list_same_cells(group: Sequence[str], cells: Cells) -> list[str]:
    """Return the attributes of a group with the same cells as its first attribute."""
    first = cells.get(group[0])
    return [a for a in group if first is not None and a in cells and np.array_equal(cells[a], first)]


def _shape_weights(recode: AttributeRecode, pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights, shape (fine size,), from the ``pooled`` counts plus the attribute's own shrunk departure.

    The departure keeps the share that noise does not explain (positive-part James-Stein).
    """
    weight = recode.weight.copy()
    for code in np.unique(recode.coarse[recode.kept]):
        members = np.flatnonzero(recode.kept & (recode.coarse == code))
        if len(members) < 2 or members[-1] >= len(pooled) or pooled[members].sum() <= 0:
            continue
        share, total = pooled[members] / pooled[members].sum(), recode.estimate[members].sum()
        apart = recode.estimate[members] - share * total
        noise = float(recode.variance[members].sum() * (1 - 1 / len(members)))
        keep = max(0.0, 1.0 - noise / max(float(apart @ apart), 1e-9)) if total > 0 else 0.0
        shaped = np.maximum(share + keep * (weight[members] - share), 0.0)
        weight[members] = shaped / shaped.sum()
    return weight


def gather(
    codes: dict[str, NDArray[np.int64]],
    places: dict[str, NDArray[np.float64]],
    together: Sequence[Sequence[str]],
    cells: Cells,
    rng: np.random.Generator,
) -> None:
    """Move values that lie more than NEAR_BINS bins from a uniformly drawn value of their row to that value.

    Changes the fine ``codes`` and the ``places`` in them, shape (rows,) each, in place.

    Only intervals are drawn and moved; null and exact values stay.  The draw does not depend on the values, so no bin
    gains rows on average, even if the columns' relations are unknown.
    """
    for group in together:
        alike = _list_same_cells(group, cells)
        if len(alike) < 2:
            continue
        of_code = np.append(cells[alike[0]], -1)
        fine, inside = (np.stack([values[a] for a in alike]) for values in (codes, places))
        bins = of_code[np.minimum(fine, len(of_code) - 1)].astype(np.int64)
        number = np.cumsum(bins >= 0, axis=0)
        chosen = 1 + np.floor(rng.random(fine.shape[1]) * number[-1])
        carrier = ((number == chosen) & (bins >= 0)).argmax(axis=0)
        rows = np.arange(fine.shape[1])
        far = (bins >= 0) & (np.abs(bins - bins[carrier, rows]) > NEAR_BINS)
        for i, a in enumerate(alike):
            codes[a][far[i]] = fine[carrier, rows][far[i]]
            places[a][far[i]] = inside[carrier, rows][far[i]]
