"""Parts of a column's values, counted apart, and heaping: the round number that a value was rounded to, such as 1000.

A part is a separate attribute, so that the share of each heap is measured like any one-way marginal; the column's codec
reads it to draw values inside bins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.columns.ordered_columns import name_heap_attribute
from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.tasks.codecs.cells import Floats
from privsyn.tasks.codecs.codec import Codes, Columns, UnreleasedCodec
from privsyn.tasks.codecs.ordered import OrderedCodec

Draw: TypeAlias = Callable[[NDArray[np.int64], np.random.Generator], Floats]

Steps: TypeAlias = tuple[Grid, Floats, Floats]

MAX_DRAWS = 40
"""The most draws in search of a value that is not a multiple of a larger heap."""


class PartCodec(UnreleasedCodec):
    """A part of each number of a column, such as what it was rounded to.

    ``find``: returns the code of each number; ``alone``: the code of null and exact values.
    """

    def __init__(
        self,
        codec: OrderedCodec,
        attribute: str,
        kind: str,
        names: Sequence[str],
        find: Callable[[Floats], NDArray[np.int64]],
        alone: int,
        chances: Floats | None = None,
    ) -> None:
        super().__init__(attribute, codec.sources, names)
        self.kind, self.chances = kind, chances
        self._codec, self._find, self._alone = codec, find, alone

    def derive(self, columns: Columns) -> NDArray[np.int64]:
        """See :class:`UnreleasedCodec`."""
        numbers, stands_alone = self._codec.clamp(columns[self.sources[0]])
        return np.where(stands_alone, self._alone, self._find(numbers))


def count_rounded(codec: OrderedCodec, heaps: Sequence[float], step: float | None = None) -> PartCodec:
    """Return the codec of heaps: 0 for a multiple of no heap, i for the i-th smallest heap and no larger one, last.

    ``step``: the step of the column's values if the spec names no heaps; then the attribute is counted alone, with each
    code's share by chance.
    """
    names = ["none", *(f"{heap:g}" for heap in heaps), "(no number)"]
    chances = None if step is None else np.append(share_by_chance(step, heaps), 0.0)
    find = partial(count_heaps, heaps=heaps)
    return PartCodec(codec, name_heap_attribute(codec.attribute), "heaps", names, find, len(names) - 1, chances)


def share_by_chance(step: float, heaps: Sequence[float]) -> Floats:
    """Return the share of each heap among all multiples of ``step``, first of none, shape (heaps + 1,)."""
    shares_of_multiples = np.array([1.0, *(step / heap for heap in heaps), 0.0])
    return shares_of_multiples[:-1] - shares_of_multiples[1:]


def count_heaps(numbers: Floats, heaps: Sequence[float]) -> NDArray[np.int64]:
    """Return how many heaps divide each number, shape (numbers,); each heap divides the next larger one."""
    return np.sum([Grid.of(heap).divides(numbers) for heap in heaps], axis=0, dtype=np.int64)


class HeapSampler:
    """Samples values that are multiples of the heap that they were counted with.

    ``by_cell``: every value stays in its fine cell, not only in its bin.  Single-value cells are left alone.
    """

    def __init__(self, codec: OrderedCodec, heaps: Sequence[float], *, by_cell: bool = False) -> None:
        self.heaps = heaps
        self._alone = np.isin(np.arange(len(codec.cells.fine)), codec.cells.points)
        wide = {*codec.cells.bin_of.tolist()} if by_cell else {number for number, _ in codec.cells.wide}
        parts = zip(codec.cells.bin_of.tolist(), codec.cells.fine, strict=True)
        bins = [cell if b in wide else codec.cells.bins[b] for b, cell in parts]
        steps = [[range(0) if b.exact else b.steps(Grid.of(heap)) for b in bins] for heap in heaps]
        self._first = np.array([[s.start for s in row] for row in steps], dtype=np.float64)
        self._many = np.array([[len(s) for s in row] for row in steps], dtype=np.float64)

    def move_to_heaps(
        self,
        numbers: Floats,
        cells: NDArray[np.int64],
        wanted: Codes,
        draw: Draw,
        parts: Draw,
        rng: np.random.Generator,
    ) -> Floats:
        """Return ``numbers`` redrawn as multiples of their wanted heap and no larger one, shape (rows,).

        Each is redrawn from its bin (from its cell, if the bin is wide) until it fits.  A bin without a multiple of the
        heap uses the next smaller heap that has one; ``draw``: draws values in cells; ``parts``: draws positions in
        cells, in [0, 1].
        """
        values, heap = numbers.copy(), self._lower_to_possible(cells, self._fill_unknown(wanted, rng))
        open_rows = np.flatnonzero(~self._alone[cells])
        for attempt in range(MAX_DRAWS):
            inside = cells[open_rows]
            for level in range(len(self.heaps) + 1):
                mine = heap[open_rows] == level
                rows = open_rows[mine]
                if level:
                    i = level - 1
                    steps = self._first[i][inside[mine]] + np.floor(
                        parts(inside[mine], rng) * self._many[i][inside[mine]]
                    )
                    values[rows] = Grid.of(self.heaps[i]).value(steps)
                elif attempt and rows.size:
                    values[rows] = draw(inside[mine], rng)
            open_rows = open_rows[count_heaps(values[open_rows], self.heaps) != heap[open_rows]]
            if not open_rows.size:
                break
        return values

    def find_on_heaps(
        self, places: Floats, cells: NDArray[np.int64], wanted: Codes, steps: Steps, rng: np.random.Generator
    ) -> Floats:
        """Return the multiple of the wanted heap, and of no larger one, at a place of each cell, shape (rows,).

        A cell's multiples are equally likely at uniform places, and ascend with them.  A cell without such a multiple
        gives one of the next smaller heap that it has, or of the next larger one.  ``places``: in [0, 1); ``steps``:
        the column's grid, and each cell's first multiple and number of multiples.
        """
        values, heap = np.empty(len(places)), self._lower_to_possible(cells, self._fill_unknown(wanted, rng))
        levels = [steps, *zip(map(Grid.of, self.heaps), self._first, self._many, strict=True)]
        for level, (grid, first, many) in enumerate(levels):
            rows = np.flatnonzero(heap == level)
            start, counts = first[cells[rows]], many[cells[rows]]
            multiples = start + np.floor(places[rows] * counts)
            every = float(levels[level + 1][0].step / grid.step) if level < len(self.heaps) else 1.0
            if every > 1:  # leave out multiples of the next larger heap
                before = start - np.ceil(start / every)  # non-multiples before the cell
                count_only = start + counts - np.ceil((start + counts) / every) - before
                nth = before + np.floor(places[rows] * count_only)
                multiples = np.where(count_only > 0, nth + 1 + np.floor(nth / (every - 1)), multiples)
            values[rows] = grid.value(multiples)
        return values

    def _fill_unknown(self, wanted: Codes, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the wanted heaps; a null or exact heap becomes the heap of another random row."""
        heap = np.asarray(wanted).astype(np.int64)
        unknown = heap > len(self.heaps)
        known_heaps = heap[~unknown]
        if unknown.any():
            heap[unknown] = rng.choice(known_heaps, int(unknown.sum())) if known_heaps.size else 0
        return heap

    def _lower_to_possible(self, cells: NDArray[np.int64], heap: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the largest heap up to the wanted one with a multiple in the row's bin."""
        for level in range(len(self.heaps), 0, -1):
            heap = np.where((heap == level) & (self._many[level - 1][cells] == 0), level - 1, heap)
        return heap
