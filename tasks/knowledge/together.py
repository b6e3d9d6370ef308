"""Columns that move together: one shape inside their codes, one place for the row, and no column far from the others.

Post-processing of noisy tables and the public statement of the spec, that values of these columns lie close together in
every row (DPSyn report, section 5.3, takes all times of a row for one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.recode import AttributeRecode, Recode

Cells = Mapping[str, NDArray[np.int32]]
"""Attribute -> the public bin of every fine code but null, -1 of an exact value."""

NEAR_BINS = 1
"""Bins that values of a row may be apart: those beside an edge lie in two."""


def with_common_shapes(recode: Recode, together: Sequence[Sequence[str]], cells: Cells) -> Recode:
    """Return the recode with other weights inside the codes of the attributes of each group, whose cells correspond.

    Else noise in the cells would put the same place of the same code at another value in each column.  An attribute
    whose cells are others than those of the group's first one keeps its weights.
    """
    shaped = dict(recode)
    for group in together:
        alike = _group_alike(group, cells)
        pooled = np.sum([np.maximum(recode[a].estimate[: len(cells[a])], 0.0) for a in alike], axis=0)
        for a in alike:
            shaped[a] = replace(recode[a], weight=_shape_weights(recode[a], pooled))
    return shaped


def _group_alike(group: Sequence[str], cells: Cells) -> list[str]:
    """Return the attributes of a group with the cells of its first one."""
    first = cells.get(group[0])
    return [a for a in group if first is not None and a in cells and np.array_equal(cells[a], first)]


def _shape_weights(recode: AttributeRecode, pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights, shape (fine size,), of the ``pooled`` counts in every code and of its own departure from them.

    Of the departure, the part that noise does not explain (positive-part James-Stein).
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
    """Move values that lie more than NEAR_BINS bins from one of their row, drawn evenly, to it.

    In place: fine ``codes`` and ``places`` in them, shape (rows,) each.

    Only values that are intervals are drawn and moved; null and exact values stay.  Which one is drawn does not depend
    on where it lies, so no bin of the group gains by it on average, also where nothing is known of relations.
    """
    for group in together:
        alike = _group_alike(group, cells)
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
