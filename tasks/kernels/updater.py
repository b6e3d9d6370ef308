"""One GUM visit over fixed row blocks and several threads.

Blocks depend on the numbers of rows and cells alone, and each has its own random streams.  So the resulting rows do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod

import numpy as np

from privsyn.data_contracts.domain import Merges
from privsyn.tasks.kernels import gum_update as gum
from privsyn.tasks.kernels.counting import fill_keys
from privsyn.tasks.kernels.streams import derive_stream, draw_uniform

_SMALLEST_BLOCK, _MOST_BLOCKS = 1 << 16, 32
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class TargetMarginal:
    """A wanted marginal: positions of its attributes, their sizes, and wanted rows per cell (float64, flat).

    ``sigma``: standard deviation of the noise in one cell of ``wanted``, 0 if unknown.  ``zero``: mask of ``shape`` of
    the cells that no row can be in (None: none known).  ``merges``: as in :class:`Marginal`.
    """

    attributes: tuple[int, ...]
    shape: tuple[int, ...]
    wanted: np.ndarray
    sigma: float = 0.0
    zero: np.ndarray | None = None
    merges: Merges = ()


@dataclass(eq=False)
class _Moves:
    """The plan of one visit: the slots to fill, and each block's losses and share of the slots."""

    slots: np.ndarray
    step: int
    by_block: np.ndarray
    losses: np.ndarray
    ends: np.ndarray
    starts: np.ndarray | None = None
    index: np.ndarray | None = None


class Updater:
    """Columns of codes that are updated in place, visit by visit.

    columns: unsigned arrays of one length below 2**31; threads: the number of threads of a visit.
    Use as a context manager: it owns its threads.
    """

    def __init__(self, columns: Sequence[np.ndarray], seed: int, threads: int) -> None:
        self.columns = columns
        self.rows = columns[0].size
        self._seed = seed
        self._keys = np.empty(self.rows, np.uint32)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> Updater:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def visit(self, target: TargetMarginal, alpha: float, duplicate_share: float, *address: int) -> float:
        """Move the rows towards ``target`` once; return the L1 error, in rows, before the moves.

        ``address`` numbers the visit: its random streams depend on the seed and the address only.
        """
        edges = self._place_edges(prod(target.shape))
        by_block = self._count(target, edges)
        current = by_block.sum(axis=0)
        error = float(np.abs(target.wanted - current).sum())
        moves = self._plan(target, current, by_block, alpha, duplicate_share, *address)
        if moves is not None:
            if duplicate_share > 0:
                self._index(moves, current, edges)
            self._move(target, moves, edges, *address)
        return error

    def _place_edges(self, cells: int) -> np.ndarray:
        blocks = min(_MOST_BLOCKS, max(1, self.rows // max(_SMALLEST_BLOCK, 2 * cells)))
        return np.linspace(0, self.rows, blocks + 1).astype(np.int64)

    def _call_each_span(self, work: Callable[[int, int], None], blocks: int) -> None:
        """Call ``work(first, last)`` on consecutive spans of blocks, one per thread.

        Few long kernel calls handle a span, since each call takes Python's lock twice.
        """
        marks = np.unique(np.linspace(0, blocks, self._threads + 1).astype(int))
        others = [self._pool.submit(work, int(a), int(b)) for a, b in pairwise(marks[1:])]
        work(int(marks[0]), int(marks[1]))
        for other in others:
            other.result()

    def _count(self, target: TargetMarginal, edges: np.ndarray) -> np.ndarray:
        by_block = np.zeros((edges.size - 1, prod(target.shape)), np.int64)

        def work(first: int, last: int) -> None:
            rows = slice(edges[first], edges[last])
            fill_keys(self._keys[rows], [self.columns[a][rows] for a in target.attributes], target.shape)
            gum.count_blocks(self._keys, edges, first, last, by_block)

        self._call_each_span(work, edges.size - 1)
        return by_block

    def _plan(
        self,
        target: TargetMarginal,
        current: np.ndarray,
        by_block: np.ndarray,
        alpha: float,
        share: float,
        *address: int,
    ) -> _Moves | None:
        draws = derive_stream(self._seed, *address)
        offsets = np.array([draw_uniform(draws, 0), draw_uniform(draws, 1)])
        grow, shrink = np.empty_like(current), np.empty_like(current)
        moved = gum.plan_moves(target.wanted, current, alpha, offsets, grow, shrink)
        if not moved:
            return None
        slots = np.empty(moved, np.int32)
        gum.fill_slots(grow, current, share, draw_uniform(draws, 2), slots)
        losses = np.empty_like(by_block)
        gum.split_losses(shrink, current, by_block, derive_stream(self._seed, *address, 0), losses)
        ends = np.concatenate([[0], np.cumsum(losses.sum(axis=1))])
        return _Moves(slots, _choose_coprime_step(moved), by_block, losses, ends)

    def _index(self, moves: _Moves, current: np.ndarray, edges: np.ndarray) -> None:
        moves.starts = np.concatenate([[0], np.cumsum(current)])
        moves.index = index = np.empty(self.rows, np.uint32)
        places = moves.starts[:-1] + np.cumsum(moves.by_block, axis=0) - moves.by_block
        self._call_each_span(lambda a, b: gum.index_rows(self._keys, edges, places, a, b, index), edges.size - 1)

    def _move(self, target: TargetMarginal, moves: _Moves, edges: np.ndarray, *address: int) -> None:
        strides = [prod(target.shape[i + 1 :]) for i in range(len(target.shape))]
        ends, blocks = moves.ends, edges.size - 1
        chosen, targets = np.empty(moves.slots.size, np.uint32), np.empty(moves.slots.size, np.int32)
        streams = [np.array([derive_stream(self._seed, *address, use, b) for b in range(blocks)]) for use in (1, 2, 3)]

        def work(a: int, b: int) -> None:
            gum.choose_rows(self._keys, edges, ends, moves.by_block, moves.losses, streams[0], a, b, chosen)
            gum.share_out(moves.slots, moves.step, ends, streams[1], a, b, targets)
            rows, cells = chosen[ends[a] : ends[b]], targets[ends[a] : ends[b]]
            for attribute, stride, size in zip(target.attributes, strides, target.shape, strict=True):
                gum.write_digit(self.columns[attribute], rows, cells, np.uint32(stride), np.uint32(size))
            if moves.index is not None:
                donors = np.empty_like(chosen)
                gum.pick_donors(targets, ends, moves.starts, moves.index, streams[2], a, b, donors)
                for column in self.columns:
                    gum.copy_codes(column, rows, cells, donors[ends[a] : ends[b]])

        self._call_each_span(work, blocks)


def _choose_coprime_step(total: int) -> int:
    """Return a step near the golden section of ``total`` and coprime to it, so that its multiples spread evenly."""
    step = max(1, int(total * _GOLDEN))
    while gcd(step, total) != 1:
        step += 1
    return step
