"""Compared columns: rows get values whose difference lies in the cell of its code.

Post-processing of synthetic codes; it costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.tasks.codecs.differences import DifferenceCodec, Floats
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.recode import Recode

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
