"""GUM, the Gradually Update Method (paper, sections 5.2 and 5.3): the kernels of an update, a visit, the iterations.

Rows are cut into fixed blocks.  ``keys`` holds each row's cell; arrays by block have shape (blocks, cells).
Rows that lose their cell are in over-counted cells and donors in under-counted ones, so some blocks may write while
others read their donors.

One GUM visit over fixed row blocks and several threads.

Blocks depend on the numbers of rows and cells alone, and each has its own random streams.  So the resulting rows do not
depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Merges
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.kernels.counting import fill_keys
from privsyn.tasks.kernels.small_kernels import LANED_CELLS, draw_below, mix, shuffle, shuffle_segments, tally
from privsyn.tasks.kernels.streams import GAMMA, derive_stream, draw_uniform

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_CHUNK = 512  # rows compared together


@njit(nogil=True, cache=True)
def count_blocks(keys, edges, first, last, by_block):  # type: ignore[no-untyped-def]
    """Add the rows of blocks ``first`` .. ``last`` - 1 to their cells of ``by_block``, int64 (blocks, cells)."""
    lanes = np.zeros((1 if by_block.shape[1] > LANED_CELLS else 4, by_block.shape[1]), np.int64)
    for b in range(first, last):
        lanes[:] = 0
        tally(keys[edges[b] : edges[b + 1]], lanes)
        for lane in range(lanes.shape[0]):
            for c in range(lanes.shape[1]):
                by_block[b, c] += lanes[lane, c]


@njit(nogil=True, cache=True)
def plan_moves(target, current, alpha, offsets, grow, shrink):  # type: ignore[no-untyped-def]
    """Compute how many rows each cell gains and loses; return their common total.

    target: float64 (cells), wanted rows nt; current: int64 (cells), current rows ns; same sums.  Only cells with
    |target - current| >= 1 change.  An under-counted cell grows by min(nt - ns, alpha ns), and an empty one by
    min(nt, alpha nt), since it has no rows to multiply.  An over-counted cell shrinks by min(ns - nt, beta ns), with
    beta solved so that the totals match.  Both are rounded systematically at the two random ``offsets`` in [0, 1),
    which is unbiased and keeps the totals equal.  grow, shrink: int64 (cells), written.
    """
    wished = room = 0.0
    for c in range(target.shape[0]):
        gap = target[c] - current[c]
        grow[c] = shrink[c] = 0
        if gap >= 1:
            wished += min(gap, alpha * (current[c] if current[c] > 0 else target[c]))
        elif gap <= -1:
            room -= gap
    room = np.floor(room)
    if wished <= 0 or room <= 0:
        return 0
    scale = min(1.0, room / wished)
    exact, moved = 0.0, 0
    for c in range(target.shape[0]):
        gap = target[c] - current[c]
        if gap >= 1:
            exact += scale * min(gap, alpha * (current[c] if current[c] > 0 else target[c]))
            mark = int(np.floor(min(exact, room) + offsets[0]))
            grow[c] = mark - moved
            moved = mark
    _plan_losses(target, current, moved, offsets[1], shrink)
    return moved


@njit(nogil=True, cache=True)
def solve_beta(target, current, moved):  # type: ignore[no-untyped-def]
    """Return beta such that the sum of min(ns - nt, beta ns) over cells with ns - nt >= 1 is ``moved``.

    The sum is concave and piecewise linear in beta, so Newton's method from 0 reaches the solution in finitely many
    steps.  ``moved`` must not exceed the sum of ns - nt over these cells.
    """
    beta = 0.0
    while True:
        capped, free = 0.0, 0.0
        for c in range(target.shape[0]):
            gap = current[c] - target[c]
            if gap >= 1:
                if gap <= beta * current[c]:
                    capped += gap
                else:
                    free += current[c]
        better = (moved - capped) / free if free > 0 else beta
        if better <= beta * (1 + 1e-12):
            return beta
        beta = better


@njit(nogil=True, cache=True)
def _plan_losses(target, current, moved, offset, shrink):  # type: ignore[no-untyped-def]
    beta = solve_beta(target, current, moved)
    exact, lost = 0.0, 0
    for c in range(target.shape[0]):
        gap = current[c] - target[c]
        if gap >= 1:
            exact += min(gap, beta * current[c])
            mark = int(np.floor(min(exact, moved) + offset))
            shrink[c] = min(mark - lost, current[c])
            lost += shrink[c]
    for c in range(target.shape[0]):  # at most a row or two, if rounding errors left a mark below an integer
        if lost < moved and current[c] - target[c] >= 1 and shrink[c] < current[c]:
            shrink[c] += 1
            lost += 1


@njit(nogil=True, cache=True)
def split_losses(shrink, current, by_block, start, losses):  # type: ignore[no-untyped-def]
    """Divide every cell's loss over the blocks in proportion to its rows in each, by systematic rounding.

    by_block: int64 (blocks, cells), the cell's rows in each block; start: uint64, a stream;
    losses: int64 (blocks, cells), written; at most the rows in each.
    """
    losses[:] = 0
    for c in range(shrink.shape[0]):
        if shrink[c] == 0:
            continue
        passed = np.int64(draw_below(mix(start + np.uint64(c) * GAMMA), np.uint64(current[c])))
        done = 0
        for b in range(by_block.shape[0]):
            passed += shrink[c] * by_block[b, c]
            losses[b, c] = passed // current[c] - done
            done += losses[b, c]


@njit(nogil=True, cache=True)
def fill_slots(grow, current, share, offset, slots):  # type: ignore[no-untyped-def]
    """Fill one slot for each row gained: the cell, or ~cell if a whole record is to be copied.

    ``share`` of the gains of non-empty cells are copies, rounded systematically at ``offset``.
    slots: int32 (sum of grow), written.
    """
    exact, copied, s = 0.0, 0, 0
    for c in range(grow.shape[0]):
        copies = 0
        if share > 0 and current[c] > 0 and grow[c] > 0:
            exact += share * grow[c]
            copies = min(int(np.floor(exact + offset)) - copied, grow[c])
            copied += copies
        for j in range(grow[c]):
            slots[s] = ~c if j < copies else c
            s += 1


@njit(nogil=True, cache=True)
def _draw_candidates(keys, bounds, word, candidates):  # type: ignore[no-untyped-def]
    """Collect the rows whose random 32-bit number is at most their cell's bound; return their number.

    The random numbers are a keyed hash of the row's position, so that the comparison is vectorized over rows.
    candidates: uint32, written with ascending positions.
    """
    low, high = np.uint32(word & _LOW), np.uint32(word >> _HALF)
    flags = np.zeros(_CHUNK, np.uint8)
    words, limits = flags.view(np.uint64), np.empty(_CHUNK, np.uint32)
    rows, chunk, number = np.uint64(keys.shape[0]), np.uint64(_CHUNK), np.uint64(0)
    for first in range(np.uint64(0), rows, chunk):
        block_keys = keys[first : min(first + chunk, rows)]
        for i in range(np.uint64(block_keys.shape[0])):  # separate, so that the next loop is vectorized
            limits[i] = bounds[block_keys[i]]
        for i in range(np.uint64(block_keys.shape[0])):
            x = np.uint32(np.uint32(np.uint32(first + i) + low) * np.uint32(0x9E3779B9))
            x = np.uint32(np.uint32((x ^ (x >> np.uint32(16))) + high) * np.uint32(0x7FEB352D))
            x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
            flags[i] = np.uint32(x ^ (x >> np.uint32(16))) <= limits[i]
        flags[block_keys.shape[0] :] = 0
        for w in range(np.uint64(words.shape[0])):
            if words[w] != np.uint64(0):
                for i in range(w * np.uint64(8), (w + np.uint64(1)) * np.uint64(8)):
                    candidates[number] = np.uint32(first + i)
                    number += np.uint64(flags[i])
    return number


@njit(nogil=True, cache=True)
def _keep_exactly(keys, candidates, quota, word, first_row, chosen):  # type: ignore[no-untyped-def]
    """Select rows by sequential selection sampling.

    quota: uint64 (cells), rows to keep << 32 | candidates, consumed; chosen: written.
    """
    number, wanted, j = np.uint64(0), np.uint64(chosen.shape[0]), np.uint64(0)
    while number < wanted:
        word += GAMMA
        c = keys[candidates[j]]
        cell_quota = quota[c]
        hit = np.uint64(draw_below(mix(word), cell_quota & _LOW) < (cell_quota >> _HALF))
        quota[c] = cell_quota - np.uint64(1) - (hit << _HALF)
        chosen[number] = np.uint32(first_row + candidates[j])
        number += hit
        j += np.uint64(1)


@njit(nogil=True, cache=True)
def choose_rows(keys, edges, ends, by_block, losses, starts, first, last, chosen):  # type: ignore[no-untyped-def]
    """Choose the rows that lose their cell, uniformly at random within each cell of each block.

    Works through blocks ``first`` .. ``last`` - 1; block b has the rows from edges[b] to edges[b + 1] - 1.  Candidates
    are drawn row by row with slightly more than the wanted share.  If a cell gets too few, all candidates are drawn
    again with every row of that cell.  Selection sampling then keeps the exact number.  Given their number, a cell's
    candidates are a uniform subset, so the choice is uniform.

    ``keys``: uint32 (rows).  ``by_block``: int64 (blocks, cells), the number of rows in each cell.  ``losses``: int64
    (blocks, cells), the number of rows to lose.  ``starts``: uint64 (blocks), the streams.  ``chosen``: uint32, written
    from ends[b] to ends[b + 1] - 1 with ascending rows.
    """
    cells = losses.shape[1]
    bounds, quota = np.empty(cells, np.uint32), np.empty(cells, np.uint64)
    for b in range(first, last):
        if ends[b] == ends[b + 1]:
            continue
        block_keys, word = keys[edges[b] : edges[b + 1]], starts[b]
        candidates = np.empty(block_keys.shape[0] + 1, np.uint32)
        for c in range(cells):
            bounds[c] = 0
            if losses[b, c] > 0:
                share = (losses[b, c] + 4 * np.sqrt(losses[b, c]) + 4) / by_block[b, c]
                bounds[c] = np.uint32(min(share, 1.0) * 4294967295.0)
        short = True
        while short:
            number = _draw_candidates(block_keys, bounds, word, candidates)
            quota[:] = np.uint64(0)
            for j in range(number):
                quota[block_keys[candidates[j]]] += np.uint64(1)
            short = False
            for c in range(cells):
                if np.int64(quota[c]) < losses[b, c]:
                    bounds[c] = _LOW
                    short = True
                quota[c] |= np.uint64(losses[b, c]) << _HALF
            word = mix(word + GAMMA)
        _keep_exactly(block_keys, candidates, quota, word, edges[b], chosen[ends[b] : ends[b + 1]])


@njit(nogil=True, cache=True)
def share_out(slots, step, ends, starts, first, last, targets):  # type: ignore[no-untyped-def]
    """Give each chosen row its slot: every ``step``-th slot, cyclically, then shuffled within the block.

    With ``step`` coprime to the number of slots, the blocks together get all slots, and each gets an even sample of the
    cells' gains.  starts: uint64 (blocks), the streams; targets: int32 (slots), written.
    """
    total = slots.shape[0]
    for b in range(first, last):
        position = ends[b] * step % total
        for p in range(ends[b], ends[b + 1]):
            targets[p] = slots[position]
            position += step
            if position >= total:
                position -= total
        shuffle_segments(targets, ends[b : b + 2], starts[b])


@njit(nogil=True, cache=True)
def write_digit(column, rows, targets, stride, size):  # type: ignore[no-untyped-def]
    """Replace: write one attribute's code of each target cell; skip slots for copies (< 0)."""
    for p in range(rows.shape[0]):
        if targets[p] >= 0:
            column[rows[p]] = np.uint32(targets[p]) // stride % size


@njit(nogil=True, cache=True)
def index_rows(keys, edges, places, first, last, index):  # type: ignore[no-untyped-def]
    """Write each row's number to the next free place of its cell and block; places: int64 (blocks, cells), consumed."""
    for b in range(first, last):
        for i in range(np.uint64(edges[b]), np.uint64(edges[b + 1])):
            index[places[b, keys[i]]] = np.uint32(i)
            places[b, keys[i]] += 1


@njit(nogil=True, cache=True)
def pick_donors(targets, ends, cell_starts, index, starts, first, last, donors):  # type: ignore[no-untyped-def]
    """Choose a random donor row of the cell for each slot for a copy.

    cell_starts: int64 (cells + 1), where each cell's rows begin in ``index``; starts: uint64 (blocks),
    the streams; donors: uint32 (slots), written.
    """
    for b in range(first, last):
        word = starts[b]
        for p in range(ends[b], ends[b + 1]):
            if targets[p] < 0:
                word += GAMMA
                begin, end = cell_starts[~targets[p]], cell_starts[~targets[p] + 1]
                donors[p] = index[begin + np.int64(draw_below(mix(word), np.uint64(end - begin)))]


@njit(nogil=True, cache=True)
def copy_codes(column, rows, targets, donors):  # type: ignore[no-untyped-def]
    """Duplicate: copy one attribute from each donor into the slots for copies."""
    for p in range(rows.shape[0]):
        if targets[p] < 0:
            column[rows[p]] = column[donors[p]]


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
            count_blocks(self._keys, edges, first, last, by_block)

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
        moved = plan_moves(target.wanted, current, alpha, offsets, grow, shrink)
        if not moved:
            return None
        slots = np.empty(moved, np.int32)
        fill_slots(grow, current, share, draw_uniform(draws, 2), slots)
        losses = np.empty_like(by_block)
        split_losses(shrink, current, by_block, derive_stream(self._seed, *address, 0), losses)
        ends = np.concatenate([[0], np.cumsum(losses.sum(axis=1))])
        return _Moves(slots, _choose_coprime_step(moved), by_block, losses, ends)

    def _index(self, moves: _Moves, current: np.ndarray, edges: np.ndarray) -> None:
        moves.starts = np.concatenate([[0], np.cumsum(current)])
        moves.index = index = np.empty(self.rows, np.uint32)
        places = moves.starts[:-1] + np.cumsum(moves.by_block, axis=0) - moves.by_block
        self._call_each_span(lambda a, b: index_rows(self._keys, edges, places, a, b, index), edges.size - 1)

    def _move(self, target: TargetMarginal, moves: _Moves, edges: np.ndarray, *address: int) -> None:
        strides = [prod(target.shape[i + 1 :]) for i in range(len(target.shape))]
        ends, blocks = moves.ends, edges.size - 1
        chosen, targets = np.empty(moves.slots.size, np.uint32), np.empty(moves.slots.size, np.int32)
        streams = [np.array([derive_stream(self._seed, *address, use, b) for b in range(blocks)]) for use in (1, 2, 3)]

        def work(a: int, b: int) -> None:
            choose_rows(self._keys, edges, ends, moves.by_block, moves.losses, streams[0], a, b, chosen)
            share_out(moves.slots, moves.step, ends, streams[1], a, b, targets)
            rows, cells = chosen[ends[a] : ends[b]], targets[ends[a] : ends[b]]
            for attribute, stride, size in zip(target.attributes, strides, target.shape, strict=True):
                write_digit(self.columns[attribute], rows, cells, np.uint32(stride), np.uint32(size))
            if moves.index is not None:
                donors = np.empty_like(chosen)
                pick_donors(targets, ends, moves.starts, moves.index, streams[2], a, b, donors)
                for column in self.columns:
                    copy_codes(column, rows, cells, donors[ends[a] : ends[b]])

        self._call_each_span(work, blocks)


def _choose_coprime_step(total: int) -> int:
    """Return a step near the golden section of ``total`` and coprime to it, so that its multiples spread evenly."""
    step = max(1, int(total * _GOLDEN))
    while gcd(step, total) != 1:
        step += 1
    return step


PATIENCE, LEAST_GAIN = 3, 0.01
"""GUM ends when PATIENCE iterations in a row have not lowered its best error by the share LEAST_GAIN."""

_ORDER, _VISIT = 1, 2  # purposes of random streams


def run_gum(
    columns: Sequence[np.ndarray],
    targets: Sequence[TargetMarginal],
    settings: Synthesis,
    component: int,
    threads: int,
    report: Callable[[int], None],
) -> None:
    """Iterate GUM on one component, in place, until the error no longer falls (PATIENCE).

    An iteration's error is the sum of the L1 errors of its visits.
    """
    best, waited = math.inf, 0
    order: NDArray[np.int64] = np.arange(len(targets))
    with Updater(columns, settings.seed, threads) as updater:
        for t in range(settings.iterations):
            shuffle(order, derive_stream(settings.seed, _ORDER, component, t))
            alpha = compute_alpha(t, settings)
            error = 0.0
            for i in order.tolist():
                error += updater.visit(targets[i], alpha, settings.duplicate_share, _VISIT, component, t, i)
            waited = 0 if error < best * (1 - LEAST_GAIN) else waited + 1
            best = min(best, error)
            if error == 0 or waited == PATIENCE:
                break
            report(t + 1)
    report(settings.iterations)


def compute_alpha(iteration: int, settings: Synthesis) -> float:
    """Return the update rate alpha of an iteration, counted from 0 (section 5.3, "Gradually Decreasing alpha").

    With a0 = alpha, k = decay_rate, s = decay_every: step a0 k^floor(t/s), exponential a0 e^(-kt),
    linear a0 / (1 + kt), square_root a0 / sqrt(1 + kt).
    """
    t, k = iteration, settings.decay_rate
    if settings.decay == "step":
        return settings.alpha * k ** (t // settings.decay_every)
    if settings.decay == "exponential":
        return settings.alpha * math.exp(-k * t)
    if settings.decay == "linear":
        return settings.alpha / (1 + k * t)
    return settings.alpha / math.sqrt(1 + k * t)
