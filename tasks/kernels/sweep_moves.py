"""Kernels of one residual-guided sweep over one block of rows.

A residual is rows wanted less rows there, for every cell of every marginal; W is its weighted form.  With
S(v) the sum of W over a record's cells when its attribute has the value v, and k the sum of the weights of
the marginals that hold the attribute, moving the record from u to v changes the weighted sum of squared
residuals by 2 (S(u) - S(v) + k).  It moves only where that is negative.  Only records in surplus look
for a move, with S(u) < -k/4 once the mean of each marginal's cells along the attribute is taken off, which no move of
it changes: almost all moves are theirs, and trying every record costs twice the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from privsyn.tasks.kernels.shuffling import draw_below, mix
from privsyn.tasks.kernels.streams import GAMMA

_CHUNK = 512  # rows whose surplus is computed together
_BITS = np.uint64(11)
_STEPS, _FAR = 128, 4  # steps of _CHANCES a unit of temperature; how many units below the best a score has no chance
_CHANCES = np.rint(np.exp(-np.arange(_STEPS * _FAR) / (_STEPS / 2)) * 2**20).astype(np.int64)  # whole on every CPU

_PAUSE = 2  # sweeps in which a record that had no better value is not tried again, where rules bind

FORBIDDEN_SUM = -(1 << 44)
"""A sum below all that there are: where no cell is forbidden, no record is in one."""


class Layout(NamedTuple):
    """Where the marginals of each attribute lie; a *view* is one marginal seen from one of its attributes.

    Views ``first[a]`` .. ``first[a + 1]`` - 1 belong to attribute a.  View j: ``base[j]`` its marginal's first
    cell among all residuals, ``left[j]`` and ``right[j]`` the cells of the axes before and after a's,
    ``place[j]`` its first cell in a's workspace, where a's axis comes last, ``weight[j]``, and ``moved[j]``: the weight
    by which a move changes its cells, 0 where they are fixed penalties of forbidden cells and no counts.  Its other
    attributes are ``other[i]`` with step ``stride[i]`` in the workspace, i from ``near[j]`` to ``near[j + 1]`` - 1.

    A marginal may have merged codes of an attribute.  ``merged[j]`` is then where in ``merges`` the merged code of each
    of a's codes stands, -1 where the marginal has the codes themselves, and ``own[j]`` how many codes the marginal has
    of a; the workspace has a cell for each of a's codes all the same.  Merged codes of a row are in rows of the codes
    after the attributes': those of a are ``kept_row[i]``, with their merges from ``kept_merge[i]`` on, i from
    ``kept[a]`` to ``kept[a + 1]`` - 1.  All int64 but ``stride`` (uint32).
    """

    sizes: np.ndarray
    first: np.ndarray
    base: np.ndarray
    left: np.ndarray
    right: np.ndarray
    place: np.ndarray
    weight: np.ndarray
    moved: np.ndarray
    near: np.ndarray
    other: np.ndarray
    stride: np.ndarray
    own: np.ndarray
    merged: np.ndarray
    merges: np.ndarray
    kept: np.ndarray
    kept_row: np.ndarray
    kept_merge: np.ndarray


@njit(nogil=True, cache=True)
def share_residuals(residuals, block, blocks, salt, share):  # type: ignore[no-untyped-def]
    """Compute a block's quota of every residual: floor((R + (block + shift) mod blocks) / blocks), which sums to R.

    The shift is random for each cell, so that no block gets all that is left over.  salt: uint64, a stream;
    share: integers (cells), written.
    """
    for c in range(residuals.shape[0]):
        shift = np.int64(draw_below(mix(salt + np.uint64(c) * GAMMA), np.uint64(blocks)))
        share[c] = (residuals[c] + (block + shift) % blocks) // blocks


@njit(nogil=True, cache=True)
def sweep_block(codes, order, layout, residuals, best, start, heat, urgent, vain):  # type: ignore[no-untyped-def]
    """Pass once over every attribute of every row of a block; return the number of moves.

    codes: unsigned (attributes, and then merged ones; rows), changed in place; order: int64, the attributes as they are
    visited;
    residuals: integers (cells), the block's quota, updated with every move.  A record in surplus moves to the value
    with the largest S (``best``, and always where its own S is below ``urgent``, as in forbidden cells; ties at
    random), or to a value that lowers the sum of squares, at random in proportion to by how much.
    start: uint64, the stream.  vain: uint8 (attributes, rows), changed in place: for how many sweeps a record in
    surplus that found no better value is left alone, unless its S is below ``urgent``; without rows, none ever is.

    heat: where it is above 0, every record, in surplus or not, draws a value, its own among them, with chances in
    proportion to exp(-change of the weighted squares / (heat k)), as in simulated annealing; ``best`` says nothing.
    """
    most, room, longest = _find_largest_sizes(layout)
    work = np.empty(room, residuals.dtype)
    keys = np.empty((most, _CHUNK), np.uint32)
    sums = np.empty(_CHUNK, residuals.dtype)
    scores = np.empty(longest, residuals.dtype)
    means = np.empty(room, residuals.dtype)
    moves, rows, pauses = 0, codes.shape[1], vain.shape[0] > 0
    for a in order:
        cost = np.int64(layout.moved[layout.first[a] : layout.first[a + 1]].sum())
        unit = np.int64(max(1.0, np.rint(heat * cost))) if heat > 0 else np.int64(0)
        _load(layout, a, residuals, work)
        _centre(layout, a, rows, work, means)
        for begin in range(0, rows, _CHUNK):
            n = min(_CHUNK, rows - begin)
            _sum_chunk(codes, layout, a, begin, n, work, keys, sums)
            for i in range(n):
                if pauses and unit == 0 and vain[a, begin + i] > 0 and sums[i] >= urgent:
                    vain[a, begin + i] -= 1
                elif unit > 0 or sums[i] < -(cost // 4):
                    word = mix(start + np.uint64(a * rows + begin + i) * GAMMA)
                    old = np.int64(codes[a, begin + i])
                    line = scores[: layout.sizes[a]]
                    new = _choose(layout, a, cost, old, keys, i, work, line, best, urgent, word, unit)
                    if new != old:
                        codes[a, begin + i] = new
                        for m in range(layout.kept[a], layout.kept[a + 1]):
                            codes[layout.kept_row[m], begin + i] = layout.merges[layout.kept_merge[m] + new]
                        _record_move(layout, a, old, new, keys, i, work)
                        moves += 1
                    elif pauses and unit == 0:
                        vain[a, begin + i] = _PAUSE
        _store(layout, a, work, means, residuals)
    return moves


@njit(nogil=True, cache=True)
def _find_largest_sizes(layout):  # type: ignore[no-untyped-def]
    """Return the most views, the most cells and the most codes that any attribute has."""
    most, room, longest = 0, 0, 0
    for a in range(layout.sizes.shape[0]):
        cells = 0
        for j in range(layout.first[a], layout.first[a + 1]):
            cells += layout.left[j] * layout.right[j] * layout.sizes[a]
        most, room = max(most, layout.first[a + 1] - layout.first[a]), max(room, cells)
        longest = max(longest, layout.sizes[a])
    return most, room, longest


@njit(nogil=True, cache=True)
def _record_move(layout, a, old, new, keys, i, work):  # type: ignore[no-untyped-def]
    """Note a move of row ``i`` of the chunk: one row less at ``old``, one more at ``new``."""
    for j in range(layout.first[a], layout.first[a + 1]):
        key, merge = np.int64(keys[j - layout.first[a], i]), layout.merged[j]
        if merge < 0:
            work[key + old] += layout.moved[j]
            work[key + new] -= layout.moved[j]
        elif layout.merges[merge + old] != layout.merges[merge + new]:
            for v in range(layout.sizes[a]):
                if layout.merges[merge + v] == layout.merges[merge + old]:
                    work[key + v] += layout.moved[j]
                elif layout.merges[merge + v] == layout.merges[merge + new]:
                    work[key + v] -= layout.moved[j]


@njit(nogil=True, cache=True)
def _load(layout, a, residuals, work):  # type: ignore[no-untyped-def]
    """Fill the workspace of attribute ``a``: weighted residuals, its own axis last."""
    size = layout.sizes[a]
    for j in range(layout.first[a], layout.first[a + 1]):
        right, weight, merge = layout.right[j], layout.weight[j], layout.merged[j]
        for l in range(layout.left[j]):  # noqa: E741
            for v in range(size):
                code = v if merge < 0 else layout.merges[merge + v]
                source = layout.base[j] + (l * layout.own[j] + code) * right
                target = layout.place[j] + l * right * size + v
                for r in range(right):
                    work[target + r * size] = residuals[source + r] * weight


@njit(nogil=True, cache=True)
def _centre(layout, a, rows, work, means):  # type: ignore[no-untyped-def]
    """Take the mean of every line of the workspace off its cells; means: (lines), written.

    A line has the cells of one view that differ in ``a`` alone.  Moves keep its sum.  Fixed penalties have no mean, and
    cells known as empty, with more than ``rows`` in surplus, take no part in it.
    """
    size = layout.sizes[a]
    for j in range(layout.first[a], layout.first[a + 1]):
        begin = layout.place[j]
        floor = -np.int64(rows) * layout.weight[j]
        for line in range(begin // size, begin // size + layout.left[j] * layout.right[j]):
            total, n = np.int64(0), 0
            for v in range(line * size, (line + 1) * size):
                if work[v] >= floor:
                    total += work[v]
                    n += 1
            mean = total // n if n > 0 and layout.moved[j] > 0 else np.int64(0)
            means[line] = mean
            for v in range(line * size, (line + 1) * size):
                work[v] -= mean


@njit(nogil=True, cache=True)
def _store(layout, a, work, means, residuals):  # type: ignore[no-untyped-def]
    """Write the workspace of attribute ``a`` back; every change was a multiple of the weight."""
    size = layout.sizes[a]
    for j in range(layout.first[a], layout.first[a + 1]):
        right, weight, merge = layout.right[j], layout.weight[j], layout.merged[j]
        for l in range(layout.left[j]):  # noqa: E741
            for v in range(size):
                code = v if merge < 0 else layout.merges[merge + v]
                target = layout.base[j] + (l * layout.own[j] + code) * right
                source = layout.place[j] + l * right * size + v
                for r in range(right):
                    residuals[target + r] = (work[source + r * size] + means[source // size + r]) // weight


@njit(nogil=True, cache=True)
def _sum_chunk(codes, layout, a, begin, n, work, keys, sums):  # type: ignore[no-untyped-def]
    """Compute for ``n`` rows from ``begin``: S at their own value (sums), and each view's cell at value 0 (keys)."""
    own = codes[a, begin : begin + n]
    sums[:n] = 0
    for j in range(layout.first[a], layout.first[a + 1]):
        key = keys[j - layout.first[a]]
        key[:n] = np.uint32(layout.place[j])
        for o in range(layout.near[j], layout.near[j + 1]):
            theirs, stride = codes[layout.other[o], begin : begin + n], layout.stride[o]
            for i in range(np.uint64(n)):
                key[i] += np.uint32(theirs[i]) * stride
        for i in range(np.uint64(n)):
            sums[i] += work[np.uint64(key[i]) + np.uint64(own[i])]


@njit(nogil=True, cache=True)
def _choose(layout, a, cost, old, keys, i, work, scores, best, urgent, word, unit):  # type: ignore[no-untyped-def]
    """Return the value that row ``i`` of the chunk moves to from ``old`` by today's residuals; ``old`` to stay.

    cost: k, int64; keys: as :func:`_sum_chunk` left them; scores: (codes of a), overwritten; word: random;
    urgent: a score of its own below it makes any record take the best; unit: the temperature in units of a score, 0 for
    none.
    """
    now, size = np.int64(0), scores.shape[0]
    for j in range(layout.first[a], layout.first[a + 1]):
        now += work[np.int64(keys[j - layout.first[a], i]) + old]
    if unit == 0 and now >= -(cost // 4):
        return old
    marginals = _fill_fixed_penalties(layout, a, keys, i, work, scores)
    if marginals < layout.first[a + 1] and _is_tied(scores, old):
        return old
    for j in range(layout.first[a], marginals):
        key = np.uint64(keys[j - layout.first[a], i])
        line = work[key : key + np.uint64(size)]
        for v in range(np.uint64(size)):
            scores[v] += line[v]
    least = now + cost  # a move falls short of lowering the squares at this score
    if unit > 0:
        scores[old] = least
        return _draw_value(scores, unit, word)
    if best or now < urgent:  # a record in a forbidden cell leaves it for the best value
        return _find_largest(scores, least, old, word)
    total = np.int64(0)
    for v in range(size):
        total += max(scores[v] - least, 0)
    if total == 0:
        return old
    mark = np.int64(np.float64(word >> _BITS) * 2.0**-53 * total)
    for v in range(size):
        mark -= max(scores[v] - least, 0)
        if mark < 0:
            return v
    return old


@njit(nogil=True, cache=True)
def _fill_fixed_penalties(layout, a, keys, i, work, scores):  # type: ignore[no-untyped-def]
    """Fill scores, (codes of a), with the fixed penalties of row ``i`` of the chunk; returns the first of their views.

    They are an attribute's last views, so what has none costs nothing.
    """
    j, size = layout.first[a + 1], scores.shape[0]
    scores[:] = 0
    while j > layout.first[a] and layout.moved[j - 1] == 0:
        j -= 1
        key = np.uint64(keys[j - layout.first[a], i])
        line = work[key : key + np.uint64(size)]
        for v in range(np.uint64(size)):
            scores[v] += line[v]
    return j


@njit(nogil=True, cache=True)
def _is_tied(penalties, old):  # type: ignore[no-untyped-def]
    """Return whether rules, by their penalties, allow no value but ``old``."""
    if penalties[old] < 0:
        return False
    free = 0
    for v in range(penalties.shape[0]):
        free += penalties[v] == 0
    return free < 2


@njit(nogil=True, cache=True)
def _find_top(scores):  # type: ignore[no-untyped-def]
    """Return the largest score; an array's own ``max()`` takes a second to compile."""
    top = scores[0]
    for v in range(1, scores.shape[0]):
        top = max(top, scores[v])
    return top


@njit(nogil=True, cache=True)
def _find_largest(scores, least, old, word):  # type: ignore[no-untyped-def]
    """Return a value with the largest score, ties at random; ``old`` if none is above ``least``."""
    top = _find_top(scores)
    if top <= least:
        return old
    ties = 0
    for v in range(scores.shape[0]):
        ties += scores[v] == top
    skip = np.int64(draw_below(word, np.uint64(ties)))
    for v in range(scores.shape[0]):
        if scores[v] == top:
            if skip == 0:
                return v
            skip -= 1
    return old


@njit(nogil=True, cache=True)
def _draw_value(scores, unit, word):  # type: ignore[no-untyped-def]
    """Draw a value with chances in proportion to exp(2 score / unit)."""
    top = np.int64(_find_top(scores))
    total = np.int64(0)
    for v in range(scores.shape[0]):
        below_top = top - np.int64(scores[v])
        if below_top < _FAR * unit:
            total += _CHANCES[below_top * _STEPS // unit]
    mark = np.int64(np.float64(word >> _BITS) * 2.0**-53 * total)
    for v in range(scores.shape[0]):
        below_top = top - np.int64(scores[v])
        if below_top < _FAR * unit:
            mark -= _CHANCES[below_top * _STEPS // unit]
            if mark < 0:
                return v
    return 0  # never: the chances sum to the total
