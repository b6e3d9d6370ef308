"""Kernels of one residual-guided sweep over one block of rows.

A residual is wanted minus present rows, for every cell of every marginal; W is the weighted residual.  S(v) is the sum
of W over a record's cells if its attribute has the value v; k is the summed weight of the marginals on the attribute.
Moving the record from u to v changes the weighted sum of squared residuals by 2 (S(u) - S(v) + k); the record moves
only if this is negative.  Only records in surplus try a move: those with S(u) < -k/4 after subtracting the mean of each
marginal's cells along the attribute, which its moves do not change.  They make almost all moves, and trying every
record takes twice the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from privsyn.tasks.kernels.streams import GAMMA, draw_below, mix, mix_bits

_CHUNK = 512  # rows with a jointly computed surplus
_BITS, _HALF = np.uint64(11), np.uint64(32)
_STEPS, _FAR = 128, 4  # steps of _CHANCES per unit of temperature; scores this many units below the best are excluded
_CHANCES = np.rint(np.exp(-np.arange(_STEPS * _FAR) / (_STEPS / 2)) * 2**20).astype(np.int64)  # equal on every CPU

_PAUSE = 2  # sweeps that skip a record without a better value, if there are rules

FORBIDDEN_SUM = -(1 << 44)
"""Below every possible sum: without forbidden cells, no record is in one."""


_inner = njit(nogil=True, inline="always")
"""Decorator of functions that only compiled code calls; a separate function takes 0.25 s longer to compile."""


class Views(NamedTuple):
    """The marginals on one attribute; a *view* is one marginal arranged for this attribute.

    The workspace holds the views one after another.  Each has a line for each combination of codes of its other
    attributes, and a line has a place for each of the attribute's codes.  The last views are fixed penalties of
    forbidden cells: they are not counts, and moves do not change them.

    A marginal may merge codes of an attribute; the places of merged codes share a cell.

    Attributes:
        size: The number of codes of the attribute.
        cells: uint32, shape (places,): the position of each place's residual.
        weights: int64, shape (lines,): the weight of each line's marginal.
        first_places: uint32, shape (views,): the first place of each view.
        other_starts: int64, shape (views + 1,): view j's other attributes are at ``other_starts[j]`` to
            ``other_starts[j + 1]`` - 1 of ``other_rows`` and ``stride``.
        other_rows: int64: the row of ``codes`` with each other attribute.
        stride: uint32: the step of each other attribute in the workspace.
        move_weights: int64, shape (views,): the change of a view's cell by a move; 0 for penalties.
        counted: The number of views before the penalties.
        counted_lines: The number of lines before the penalties.
        merged: int64, shape (views,): the row of ``merges`` for the view's marginal; -1 if it does not merge the
            attribute.
        merges: int64, shape (merges, size): the merged code of each code.
        merged_rows: int64, shape (merges,): the row of ``codes``, after the attributes, with these merged codes.
    """

    size: int
    cells: np.ndarray
    weights: np.ndarray
    first_places: np.ndarray
    other_starts: np.ndarray
    other_rows: np.ndarray
    stride: np.ndarray
    move_weights: np.ndarray
    counted: int
    counted_lines: int
    merged: np.ndarray
    merges: np.ndarray
    merged_rows: np.ndarray


def share_residuals(residuals: np.ndarray, block: int, blocks: int, salt: np.uint64) -> np.ndarray:
    """Return a block's quota of every residual R: floor((R + (block + shift) mod blocks) / blocks).

    The quotas of all blocks sum to R.  The shift is random for each cell, so that no block gets all remainders.  salt:
    a stream.
    """
    if blocks == 1:
        return residuals.copy()
    words = mix_bits(salt + np.arange(residuals.size, dtype=np.uint64) * GAMMA)
    shifts = (((words >> _HALF) * np.uint64(blocks)) >> _HALF).astype(np.int64)
    return (residuals + (block + shifts) % blocks) // blocks


def sweep_block(
    codes: np.ndarray,
    order: np.ndarray,
    layout: Sequence[Views],
    residuals: np.ndarray,
    best: bool,
    start: np.uint64,
    heat: float,
    urgent: int,
    vain: np.ndarray,
) -> int:
    """Pass once over every attribute of every row of a block; return the number of moves.

    codes: unsigned (attributes, then merged codes; rows), changed in place; order: the attributes in visiting order;
    layout: the views of each attribute; residuals: integers (cells), the block's quota, updated with every move.

    With ``best``, a record in surplus moves to the value with the largest S, ties at random.  Otherwise it moves to a
    value that lowers the sum of squares, with probability proportional to the decrease.  A record with S below
    ``urgent``, as in forbidden cells, always takes the best value.

    start: the stream.  vain: uint8 (attributes, rows), changed in place: for how many more sweeps a record in surplus
    without a better value is skipped.  A record with S below ``urgent`` is never skipped.  If ``vain`` has no rows, no
    record is skipped.

    heat: if above 0, every record, in surplus or not, draws a value, possibly its own, as in simulated annealing.  The
    probability is proportional to exp(-change of the weighted squares / (heat k)); ``best`` is ignored.
    """
    lines = max(views.weights.size for views in layout)
    work = np.empty(max(views.cells.size for views in layout), residuals.dtype)
    means, scores = np.empty_like(work, shape=lines), np.empty_like(work, shape=max(views.size for views in layout))
    keys = np.empty((max(views.first_places.size for views in layout), _CHUNK), np.uint32)
    sums, never = np.empty_like(work, shape=_CHUNK), np.zeros(0, np.uint8)
    moves = 0
    for a in order:
        views = layout[a]
        cost = int(views.move_weights.sum())
        moves += _sweep_attribute(
            codes,
            a,
            views.cells,
            views.weights,
            views.first_places,
            views.other_starts,
            views.other_rows,
            views.stride,
            views.move_weights,
            views.counted,
            views.counted_lines,
            views.merged,
            views.merges,
            views.merged_rows,
            residuals,
            work,
            means,
            keys,
            sums,
            scores[: views.size],
            vain[a] if vain.size else never,
            best,
            start,
            cost,
            max(1, round(heat * cost)) if heat > 0 else 0,
            urgent,
        )
    return moves


@njit(nogil=True, cache=True)
def _sweep_attribute(  # type: ignore[no-untyped-def]
    codes,
    a,
    cells,
    weights,
    first_places,
    other_starts,
    other_rows,
    stride,
    move_weights,
    counted,
    counted_lines,
    merged,
    merges,
    merged_rows,
    residuals,
    work,
    means,
    keys,
    sums,
    scores,
    vain,
    best,
    start,
    cost,
    unit,
    urgent,
):
    """Visit attribute ``a`` of every row; return the number of moves.

    cost: k; unit: the temperature in units of a score, 0 without heat; vain: uint8 (rows), or empty.  Overwrites work
    (places), means (lines), keys (views, _CHUNK), sums (_CHUNK) and scores (codes of a).
    """
    rows = codes.shape[1]
    _load(cells, weights, counted_lines, rows, scores.shape[0], residuals, work, means)
    moves = 0
    for begin in range(0, rows, _CHUNK):
        n = min(_CHUNK, rows - begin)
        _sum_chunk(codes, a, first_places, other_starts, other_rows, stride, begin, n, work, keys, sums)
        for i in range(n):
            if vain.shape[0] > 0 and unit == 0 and vain[begin + i] > 0 and sums[i] >= urgent:
                vain[begin + i] -= 1
            elif unit > 0 or sums[i] < -(cost // 4):
                word = mix(start + np.uint64(a * rows + begin + i) * GAMMA)
                old = np.int64(codes[a, begin + i])
                new = _choose(
                    keys, i, first_places.shape[0], counted, cost, old, work, scores, best, urgent, word, unit
                )
                if new != old:
                    codes[a, begin + i] = new
                    for m in range(merged_rows.shape[0]):
                        codes[merged_rows[m], begin + i] = merges[m, new]
                    _record_move(move_weights, merged, merges, old, new, keys, i, work)
                    moves += 1
                elif vain.shape[0] > 0 and unit == 0:
                    vain[begin + i] = _PAUSE
    _store(cells, weights, scores.shape[0], work, means, residuals)
    return moves


@_inner
def _load(cells, weights, counted_lines, rows, size, residuals, work, means):  # type: ignore[no-untyped-def]
    """Fill the workspace with weighted residuals minus the mean of their line; means: (lines), written.

    Moves keep a line's sum.  Lines of penalties have the mean 0; the mean leaves out cells known to be empty, which
    have a surplus above ``rows``.
    """
    for line in range(weights.shape[0]):
        begin = line * size
        floor = -rows * weights[line]
        total, n = np.int64(0), 0
        for c in range(begin, begin + size):
            work[c] = residuals[cells[c]] * weights[line]
            if work[c] >= floor:
                total += work[c]
                n += 1
        mean = total // n if n > 0 and line < counted_lines else np.int64(0)
        means[line] = mean
        for c in range(begin, begin + size):
            work[c] -= mean


@_inner
def _store(cells, weights, size, work, means, residuals):  # type: ignore[no-untyped-def]
    """Write the workspace back to the residuals; every change was a multiple of the weight."""
    for line in range(weights.shape[0]):
        for c in range(line * size, (line + 1) * size):
            residuals[cells[c]] = (work[c] + means[line]) // weights[line]


@_inner
def _sum_chunk(codes, a, first_places, other_starts, other_rows, stride, begin, n, work, keys, sums):  # type: ignore[no-untyped-def]
    """Compute for ``n`` rows from ``begin`` S at their own value (sums) and each view's place of value 0 (keys)."""
    own_codes = codes[a, begin : begin + n]
    for i in range(n):
        sums[i] = 0
    for j in range(first_places.shape[0]):
        key = keys[j]
        for i in range(n):
            key[i] = first_places[j]
        for o in range(other_starts[j], other_starts[j + 1]):
            theirs, step = codes[other_rows[o], begin : begin + n], stride[o]
            for i in range(np.uint64(n)):
                key[i] += np.uint32(theirs[i]) * step
        for i in range(np.uint64(n)):
            sums[i] += work[np.uint64(key[i]) + np.uint64(own_codes[i])]


@_inner
def _choose(keys, i, views, counted, cost, old, work, scores, best, urgent, word, unit):  # type: ignore[no-untyped-def]
    """Return the value that row ``i`` of the chunk moves to from ``old`` by the current residuals; ``old`` to stay.

    keys: from :func:`_sum_chunk`; scores: (codes of a), overwritten; word: random; urgent: a record with a score below
    it takes the best value.
    """
    now = np.int64(0)
    for j in range(views):
        now += work[np.int64(keys[j, i]) + old]
    if unit == 0 and now >= -(cost // 4):
        return old
    scores[:] = 0
    for j in range(views - 1, -1, -1):  # fixed penalties first
        if j == counted - 1 and counted < views and _is_tied(scores, old):
            return old
        key = np.uint64(keys[j, i])
        for v in range(np.uint64(scores.shape[0])):
            scores[v] += work[key + v]
    least = now + cost  # a move lowers the squares only above this score
    if unit > 0:
        scores[old] = least
    top = scores[0]
    for v in range(1, scores.shape[0]):
        top = max(top, scores[v])
    if unit == 0 and top <= least:
        return old
    any_best = unit == 0 and (best or now < urgent)  # a record in a forbidden cell leaves it for the best value
    total = np.int64(0)
    for v in range(scores.shape[0]):
        if any_best:
            chance = np.int64(scores[v] == top)
        elif unit == 0:
            chance = np.int64(max(scores[v] - least, 0))
        else:
            below_top = np.int64(top) - np.int64(scores[v])
            chance = _CHANCES[below_top * _STEPS // unit] if below_top < _FAR * unit else np.int64(0)
        scores[v] = chance
        total += chance
    if any_best:
        mark = np.int64(draw_below(word, np.uint64(total)))
    else:
        mark = np.int64(np.float64(word >> _BITS) * 2.0**-53 * total)
    for v in range(scores.shape[0]):
        mark -= scores[v]
        if mark < 0:
            return v
    return old  # unreachable: the chances sum to the total


@_inner
def _is_tied(penalties, old):  # type: ignore[no-untyped-def]
    """Return whether the penalties of rules allow no value but ``old``."""
    if penalties[old] < 0:
        return False
    free = 0
    for v in range(penalties.shape[0]):
        free += penalties[v] == 0
    return free < 2


@_inner
def _record_move(move_weights, merged, merges, old, new, keys, i, work):  # type: ignore[no-untyped-def]
    """Record a move of row ``i`` of the chunk in the workspace: one row less at ``old``, one more at ``new``."""
    for j in range(move_weights.shape[0]):
        key, m = np.int64(keys[j, i]), merged[j]
        if m < 0:
            work[key + old] += move_weights[j]
            work[key + new] -= move_weights[j]
        elif merges[m, old] != merges[m, new]:
            for v in range(merges.shape[1]):
                if merges[m, v] == merges[m, old]:
                    work[key + v] += move_weights[j]
                elif merges[m, v] == merges[m, new]:
                    work[key + v] -= move_weights[j]
