"""Kernels of one GUM update (paper, section 5.2): plan the moves, choose the rows, write them.

Rows are cut into fixed blocks.  ``keys`` holds each row's cell; arrays by block have shape (blocks, cells).
Rows that lose their cell are in over-counted cells and donors in under-counted ones, so some blocks may write while
others read their donors.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from privsyn.tasks.kernels.streams import GAMMA, draw_below, mix, shuffle_segments
from privsyn.tasks.kernels.tallies import LANED_CELLS, tally

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
