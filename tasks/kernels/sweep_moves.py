"""Kernels of one residual-guided sweep over one block of rows.

A residual is rows wanted less rows there, for every cell of every marginal; W is its weighted form.  With
S(v) the sum of W over a record's cells when its attribute has the value v, and k the sum of the weights of
the marginals that hold the attribute, moving the record from u to v changes the weighted sum of squared
residuals by 2 (S(u) - S(v) + k).  It moves only where that is negative.  Only records in surplus look
for a move, with S(u) < -k/4 once the mean of each marginal's cells along the attribute is taken off, which no move of
it changes: almost all moves are theirs, and trying every record costs twice the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from privsyn.tasks.kernels.shuffling import draw_below, mix
from privsyn.tasks.kernels.splitmix import GAMMA, mix_bits

_CHUNK = 512  # rows whose surplus is computed together
_BITS, _HALF = np.uint64(11), np.uint64(32)
_STEPS, _FAR = 128, 4  # steps of _CHANCES a unit of temperature; how many units below the best a score has no chance
_CHANCES = np.rint(np.exp(-np.arange(_STEPS * _FAR) / (_STEPS / 2)) * 2**20).astype(np.int64)  # whole on every CPU

_PAUSE = 2  # sweeps in which a record that had no better value is not tried again, where rules bind

FORBIDDEN_SUM = -(1 << 44)
"""A sum below all that there are: where no cell is forbidden, no record is in one."""


_inner = njit(nogil=True, inline="always")
"""Of what compiled code alone calls: a function of its own takes a quarter of a second more to compile."""


class Views(NamedTuple):
    """The marginals that hold one attribute; a *view* is one marginal seen from it.

    The workspace holds the views one after another.  Each has a line for each combination of the codes of its other
    attributes, and a line has a place for each of the attribute's codes.  Last come the views of fixed penalties of
    forbidden cells: they are not counts, and moves do not change them.

    A marginal may have merged codes of an attribute; places of codes with one merged code have one cell.

    Attributes:
        size: How many codes the attribute has.
        cells: uint32, shape (places,): the residual of each place.
        weights: int64, shape (lines,): that of the marginal of each line.
        first_places: uint32, shape (views,): where each view begins.
        other_starts: int64, shape (views + 1,): view j's other attributes are those from ``other_starts[j]`` to
            ``other_starts[j + 1]`` - 1 in ``other_rows`` and ``stride``.
        other_rows: int64: the row of the codes that has each other attribute.
        stride: uint32: its step in the workspace.
        move_weights: int64, shape (views,): by how much a move changes a cell of the view; 0 for penalties.
        counted: How many views come before those of penalties.
        counted_lines: How many lines do.
        merged: int64, shape (views,): the row of ``merges`` that the view's marginal has the attribute by; -1: it has
            the codes themselves.
        merges: int64, shape (merges, size): the merged code of each code.
        merged_rows: int64, shape (merges,): the row of the codes, after the attributes', that has these merged codes.
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
    """Return a block's quota of every residual: floor((R + (block + shift) mod blocks) / blocks), which sums to R.

    The shift is random for each cell, so that no block gets all that is left over.  salt: a stream.
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

    codes: unsigned (attributes, and then merged ones; rows), changed in place; order: the attributes as they are
    visited; layout: the views of each attribute;
    residuals: integers (cells), the block's quota, updated with every move.  A record in surplus moves to the value
    with the largest S (``best``, and always where its own S is below ``urgent``, as in forbidden cells; ties at
    random), or to a value that lowers the sum of squares, at random in proportion to by how much.
    start: the stream.  vain: uint8 (attributes, rows), changed in place: for how many sweeps a record in
    surplus that found no better value is left alone, unless its S is below ``urgent``; without rows, none ever is.

    heat: where it is above 0, every record, in surplus or not, draws a value, its own among them, with chances in
    proportion to exp(-change of the weighted squares / (heat k)), as in simulated annealing; ``best`` says nothing.
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
    """Visit attribute ``a`` of every row; returns the number of moves.

    cost: k; unit: the temperature in units of a score, 0 for none; vain: uint8 (rows), or none; work (places), means
    (lines), keys (views, _CHUNK), sums (_CHUNK) and scores (codes of a) are overwritten.
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
    """Fill the workspace: weighted residuals, less the mean of their line; means: (lines), written.

    Moves keep a line's sum.  Fixed penalties have no mean, and cells known as empty, with more than ``rows`` in
    surplus, take no part in it.
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
    """Write the workspace back; every change was a multiple of the weight."""
    for line in range(weights.shape[0]):
        for c in range(line * size, (line + 1) * size):
            residuals[cells[c]] = (work[c] + means[line]) // weights[line]


@_inner
def _sum_chunk(codes, a, first_places, other_starts, other_rows, stride, begin, n, work, keys, sums):  # type: ignore[no-untyped-def]
    """Compute for ``n`` rows from ``begin``: S at their own value (sums), and each view's place at value 0 (keys)."""
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
    """Return the value that row ``i`` of the chunk moves to from ``old`` by today's residuals; ``old`` to stay.

    keys: as :func:`_sum_chunk` left them; scores: (codes of a), overwritten; word: random; urgent: a score of its own
    below it makes any record take the best.
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
    least = now + cost  # a move falls short of lowering the squares at this score
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
    return old  # never: the chances sum to the total


@_inner
def _is_tied(penalties, old):  # type: ignore[no-untyped-def]
    """Return whether rules, by their penalties, allow no value but ``old``."""
    if penalties[old] < 0:
        return False
    free = 0
    for v in range(penalties.shape[0]):
        free += penalties[v] == 0
    return free < 2


@_inner
def _record_move(move_weights, merged, merges, old, new, keys, i, work):  # type: ignore[no-untyped-def]
    """Note a move of row ``i`` of the chunk: one row less at ``old``, one more at ``new``."""
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
