"""Columns whose values belong together in a row: a common shape inside their codes, values close, or compared.

Post-processing of noisy tables.  The spec states publicly that values of these columns lie close together in every row
(DPSyn report, section 5.3, treats all times of a row as one).

Compared columns get values whose difference lies in the cell of its code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.tasks.codecs.differences import DifferenceCodec, Floats
from privsyn.tasks.codecs.ordered import OrderedCodec
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


REDRAWS = 24
"""How often a row's two values are redrawn inside their codes, with one of them placed by the wanted difference."""

Redraw = Callable[[NDArray[np.int64]], Mapping[str, pa.Array]]
"""Redraws the values of the two columns inside the codes of some rows."""


def keep_difference(
    codec: DifferenceCodec,
    columns: dict[str, pa.Array],
    fine: Mapping[str, NDArray[np.integer[Any]]],
    recode: Recode,
    redraw: Redraw,
    rng: np.random.Generator,
) -> None:
    """Put values into ``columns``, in place, whose differences lie in the cells of the codes ``fine``.

    Values stay in their codes if these allow the difference.  Otherwise one of the two values, chosen at random, leaves
    its code: the difference is known more finely than the codes.  Null and exact values stay.
    """
    wanted = np.asarray(fine[codec.attribute]).astype(np.int64)
    parts = [_ComparedColumn(part, fine[part.attribute], recode) for part in (codec.first, codec.second)]
    numbers = [part.codec.count_numbers(columns[part.codec.attribute]) for part in parts]
    changed = [np.zeros(len(wanted), dtype=bool) for _ in parts]
    moves = (wanted != codec.missing) & ~parts[0].fixed & ~parts[1].fixed
    rows_to_move = np.flatnonzero(moves & (codec.find_codes(*numbers) != wanted))
    for attempt in range(REDRAWS + 1):
        if not rows_to_move.size:
            break
        if attempt:
            drawn = redraw(rows_to_move)
            now = [part.codec.count_numbers(drawn[part.codec.attribute]) for part in parts]
        else:
            now = [column_numbers[rows_to_move] for column_numbers in numbers]
        last = attempt == REDRAWS
        side = rng.random(rows_to_move.size) < 0.5 if last else np.full(rows_to_move.size, bool(attempt % 2))
        gap = codec.draw(wanted[rows_to_move], rng)
        moved = [codec.round(now[1] + gap), codec.round(now[0] - gap)]
        now = [np.where(side, moved[0], now[0]), np.where(side, now[1], moved[1])]
        fits = codec.find_codes(*now) == wanted[rows_to_move]
        for candidate, either, part in zip(now, moved, parts, strict=True):
            # On the last attempt both moves must stay in bounds; otherwise values near a bound would all move one way.
            cells = part.find_cells(candidate)
            fits &= cells >= 0
            fits &= part.find_cells(either) >= 0 if last else part.keeps_code(rows_to_move, cells)
        rows = rows_to_move[fits]
        for column_numbers, new, marks in zip(numbers, now, changed, strict=True):
            column_numbers[rows], marks[rows] = new[fits], True
        rows_to_move = rows_to_move[~fits]
    for part, column_numbers, marks in zip(parts, numbers, changed, strict=True):
        if marks.any():
            name = part.codec.attribute
            values = part.codec.release_numbers(np.where(marks, column_numbers, part.codec.bounds[0]))
            columns[name] = pc.if_else(pa.array(marks), values, columns[name])


class _ComparedColumn:
    """One of two compared columns: its coarse codes by row, and the rows whose values cannot move."""

    def __init__(self, codec: OrderedCodec, fine: NDArray[np.integer[Any]], recode: Recode) -> None:
        self.codec, self._coarse_of = codec, recode[codec.attribute].coarse
        self.fixed = codec.stands_alone[fine]
        self._code = self._coarse_of[fine]

    def find_cells(self, numbers: Floats) -> NDArray[np.int64]:
        """Return the fine code of each number, -1 if it is in no interval of the column."""
        low, high = self.codec.bounds
        fine = self.codec.encode({self.codec.attribute: self.codec.release_numbers(numbers)})[0].astype(np.int64)
        return np.where((numbers >= low) & (numbers <= high) & ~self.codec.stands_alone[fine], fine, -1)

    def keeps_code(self, rows: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether these fine codes lie in the coarse codes of ``rows``."""
        return np.asarray(self._coarse_of[cells] == self._code[rows])
