"""The codec of rounding: which of the numbers that people round to a value is a multiple of.

It writes an attribute of its own beside the one of its column, so that the share of each heap is measured like any
one-way marginal; the column's codec reads it where it draws values inside bins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns.grid import Grid
from privsyn.data_contracts.columns.number_columns import name_heap_attribute
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.cells import Floats
from privsyn.tasks.codecs.codec import Codec, Codes, Columns
from privsyn.tasks.codecs.ordered import OrderedCodec

Draw: TypeAlias = Callable[[NDArray[np.int64], np.random.Generator], Floats]

TRIES = 40
"""Draws in search of a value that is no multiple of a larger heap."""


class HeapCodec(Codec):
    """0: a multiple of no heap; i: of the i-th smallest and of no larger one; the last code: null or an exact value."""

    def __init__(self, codec: OrderedCodec, heaps: Sequence[float]) -> None:
        self.attribute, self.sources = name_heap_attribute(codec.attribute), codec.sources
        self._codec, self._heaps = codec, heaps
        self.groups = np.arange(len(heaps) + 2, dtype=np.int32)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; repairs are counted by the column's own codec."""
        numbers, stands_alone = self._codec.inside(columns[self.sources[0]])
        codes = find_heap(numbers, self._heaps)
        codes[stands_alone] = len(self._heaps) + 1
        return codes.astype(np.uint8), Counter()

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Nothing: no column is released."""
        return {}

    def labels(self) -> list[str]:
        """Return what values are multiples of."""
        return ["none", *(f"{heap:g}" for heap in self._heaps), "(no number)"]

    def ranges(self) -> dict[str, ValueRange]:
        """None."""
        return {}


def find_heap(numbers: Floats, heaps: Sequence[float]) -> NDArray[np.int64]:
    """Return how many heaps, from the smallest on, each number is a multiple of."""
    return np.sum([Grid.of(heap).divides(numbers) for heap in heaps], axis=0, dtype=np.int64)


class Heaps:
    """Draws values that are multiples of the heap that they were counted with."""

    def __init__(self, codec: OrderedCodec, heaps: Sequence[float]) -> None:
        self._heaps = heaps
        wide = {number for number, _ in codec.cells.wide}
        parts = zip(codec.cells.bin_of.tolist(), codec.cells.fine, strict=True)
        bins = [cell if b in wide else codec.cells.bins[b] for b, cell in parts]
        steps = [[range(0) if b.exact else b.steps(Grid.of(heap)) for b in bins] for heap in heaps]
        self._first = np.array([[s.start for s in row] for row in steps], dtype=np.float64)
        self._many = np.array([[len(s) for s in row] for row in steps], dtype=np.float64)

    def moved(
        self,
        numbers: Floats,
        cells: NDArray[np.int64],
        wanted: Codes,
        draw: Draw,
        parts: Draw,
        rng: np.random.Generator,
    ) -> Floats:
        """Return ``numbers`` as multiples of their wanted heap, and of no larger one.

        Each is drawn anew from its bin (from its cell, if the bin is wide) until it is.

        A bin without a multiple of the heap gives one of the next smaller that it has; ``draw``: drawn values of
        cells; ``parts``: where in cells values lie, from 0 to 1.
        """
        found, heap = numbers.copy(), self._possible(cells, self._known(wanted, rng))
        open_rows = np.arange(len(found))
        for attempt in range(TRIES):
            at = cells[open_rows]
            for level in range(len(self._heaps) + 1):
                mine = heap[open_rows] == level
                rows = open_rows[mine]
                if level:
                    i = level - 1
                    steps = self._first[i][at[mine]] + np.floor(parts(at[mine], rng) * self._many[i][at[mine]])
                    found[rows] = Grid.of(self._heaps[i]).value(steps)
                elif attempt and rows.size:
                    found[rows] = draw(at[mine], rng)
            open_rows = open_rows[find_heap(found[open_rows], self._heaps) != heap[open_rows]]
            if not open_rows.size:
                break
        return found

    def _known(self, wanted: Codes, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return codes of rows whose value is a number although their heap says null.

        Those of other rows, by chance.
        """
        heap = np.asarray(wanted).astype(np.int64)
        unknown = heap > len(self._heaps)
        known = heap[~unknown]
        if unknown.any():
            heap[unknown] = rng.choice(known, int(unknown.sum())) if known.size else 0
        return heap

    def _possible(self, cells: NDArray[np.int64], heap: NDArray[np.int64]) -> NDArray[np.int64]:
        for level in range(len(self._heaps), 0, -1):
            heap = np.where((heap == level) & (self._many[level - 1][cells] == 0), level - 1, heap)
        return heap
