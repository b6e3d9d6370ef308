"""Kernels of one residual-guided sweep over one block of rows.

A residual is wanted minus present rows, for every cell of every marginal; W is the weighted residual.  S(v) is the sum
of W over a record's cells if its attribute has the value v; k is the summed weight of the marginals on the attribute.
Moving the record from u to v changes the weighted sum of squared residuals by 2 (S(u) - S(v) + k); the record moves
only if this is negative.  Only records in surplus try a move: those with S(u) < -k/4 after subtracting the mean of each
marginal's cells along the attribute, which its moves do not change.  They make almost all moves, and trying every
record takes twice the time.

Residual-guided sweeps over fixed row blocks and several threads.

Each block works on its quota of every residual with its own random streams, and the remaining quotas add up to the new
residuals.  So the resulting rows do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from threading import Lock
from typing import NamedTuple

import numpy as np
from numba import njit

from privsyn.data_contracts.domain import Merge, Merges
from privsyn.tasks.kernels.small_kernels import draw_below, mix
from privsyn.tasks.kernels.streams import GAMMA, derive_stream, mix_bits

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
    never_paused_below: int,
    pauses: np.ndarray,
) -> int:
    """Pass once over every attribute of every row of a block; return the number of moves.

    codes: unsigned (attributes, then merged codes; rows), changed in place; order: the attributes in visiting order;
    layout: the views of each attribute; residuals: integers (cells), the block's quota, updated with every move.

    With ``best``, a record in surplus moves to the value with the largest S, ties at random.  Otherwise it moves to a
    value that lowers the sum of squares, with probability proportional to the decrease.  A record with S below
    ``never_paused_below``, as in forbidden cells, always takes the best value.

    start: the stream.  vain: uint8 (attributes, rows), changed in place: for how many more sweeps a record in surplus
    without a better value is skipped.  A record with S below ``never_paused_below`` is never skipped.  If ``pauses``
    has no rows, no record is skipped.

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
            pauses[a] if pauses.size else never,
            best,
            start,
            cost,
            max(1, round(heat * cost)) if heat > 0 else 0,
            never_paused_below,
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
    pauses,
    best,
    start,
    cost,
    unit,
    never_paused_below,
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
            if pauses.shape[0] > 0 and unit == 0 and pauses[begin + i] > 0 and sums[i] >= never_paused_below:
                pauses[begin + i] -= 1
            elif unit > 0 or sums[i] < -(cost // 4):
                word = mix(start + np.uint64(a * rows + begin + i) * GAMMA)
                old = np.int64(codes[a, begin + i])
                new = _choose(
                    keys,
                    i,
                    first_places.shape[0],
                    counted,
                    cost,
                    old,
                    work,
                    scores,
                    best,
                    never_paused_below,
                    word,
                    unit,
                )
                if new != old:
                    codes[a, begin + i] = new
                    for m in range(merged_rows.shape[0]):
                        codes[merged_rows[m], begin + i] = merges[m, new]
                    _record_move(move_weights, merged, merges, old, new, keys, i, work)
                    moves += 1
                elif pauses.shape[0] > 0 and unit == 0:
                    pauses[begin + i] = _PAUSE
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


SMALLEST_BLOCK = 1 << 14
"""Least rows of a block; a sweep of few rows has fewer blocks than requested."""

FORBIDDEN_RESIDUAL = 64
"""More rows than the rounding of quotas can add to a residual."""

_SHARE, _MOVE = range(2)  # purposes of random streams


class Sweeper:
    """Columns of codes that are moved in place towards integer targets, sweep by sweep.

    Use as a context manager: it owns its threads.

    Args:
        columns: Unsigned arrays of one length, codes below ``sizes``.
        sizes: The number of codes of each attribute.
        cliques: The positions of each marginal's attributes.
        weights: A positive integer per marginal.
        residuals: Integers, wanted minus present rows, in all marginals' cells, concatenated in row-major order.
        threads: The number of threads that work on blocks of rows.
        forbidden: (positions, cells) of joint codes that no record moves to, and that records leave if one move is
            enough.  With any, a record without a better value is skipped for two sweeps.
        empty: bool, cells of the marginals that records likewise leave and avoid, as if twice the rows were in surplus
            there; None: no such cells.
        merges: For each marginal, the merged code of each code of its attributes, None for an attribute that is not
            merged; empty: no marginal has merged codes.
        visited: The attributes that sweeps visit, at least one of every marginal; None: all.
    """

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        sizes: Sequence[int],
        cliques: Sequence[Sequence[int]],
        weights: Sequence[int],
        residuals: np.ndarray,
        threads: int,
        forbidden: Sequence[tuple[Sequence[int], np.ndarray]] = (),
        empty: np.ndarray | None = None,
        merges: Sequence[Merges] = (),
        visited: frozenset[int] | None = None,
    ) -> None:
        self.columns = columns
        self._counts = residuals.size
        empty_cells = np.zeros(residuals.size, bool) if empty is None else empty
        self._forbids_empty = bool(empty_cells.any())
        self._penalty = np.where(empty_cells, 2 * columns[0].size, 0)
        self._forbids = bool(forbidden) or self._forbids_empty
        cliques = [*cliques, *(positions for positions, _ in forbidden)]
        all_merges = [*(merges or [()] * len(weights)), *([()] * len(forbidden))]
        all_weights = [*weights, *([1] * len(forbidden))]
        self._layout = build_layout(sizes, cliques, all_weights, len(weights), all_merges, visited)
        self._merged = list_merged(cliques, all_merges)
        self._codes = np.result_type(*(column.dtype for column in columns))
        fine, self._type = self._bound_sums(residuals - self._penalty)
        penalties = [np.where(cells.ravel(), -fine, 0) for _, cells in forbidden]
        self._residuals = np.concatenate([residuals - self._penalty, *penalties])
        shape = (len(columns), columns[0].size) if forbidden else (0, 0)
        self._vain = np.zeros(shape, np.uint8)
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> Sweeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    @property
    def residuals(self) -> np.ndarray:
        """Wanted minus present rows in all marginals' cells."""
        residuals = self._residuals[: self._counts]
        return residuals + self._penalty if self._forbids_empty else residuals

    def _bound_sums(self, residuals: np.ndarray) -> tuple[int, np.dtype]:
        """Return the fine of a forbidden cell, above what all marginals together can outweigh, and the type of sums.

        The type is int32 if it holds every sum of weighted residuals, centred or not; moves change a residual by at
        most the number of rows, up or down.
        """
        most = self.columns[0].size + int(np.abs(residuals).max(initial=0))
        largest = max(int(views.move_weights.sum()) for views in self._layout)
        fines = max(views.move_weights.size - views.counted for views in self._layout)
        fine = 2 * (most + FORBIDDEN_RESIDUAL) * largest
        return fine, np.dtype(np.int32 if (2 + fines) * fine < 1 << 31 else np.int64)

    def sweep(self, order: np.ndarray, blocks: int, best: bool, seed: int, *address: int, heat: float = 0.0) -> int:
        """Visit every attribute of every row once; return the number of moves and update ``residuals``.

        order: int64, the attributes in visiting order; blocks: the largest number of blocks; best, heat: as in
        :func:`privsyn.tasks.kernels.sweep_moves.sweep_block`.  The streams depend on seed and address only.
        """
        rows, lock = self.columns[0].size, Lock()
        blocks = max(1, min(blocks, rows // SMALLEST_BLOCK))
        edges = np.linspace(0, rows, blocks + 1).astype(np.int64)
        residuals_after = np.zeros_like(self._residuals)

        def work(block: int) -> int:
            rows_of_block = slice(edges[block], edges[block + 1])
            number = len(self.columns)
            codes = np.empty((number + len(self._merged), edges[block + 1] - edges[block]), self._codes)
            for a, column in enumerate(self.columns):
                codes[a] = column[rows_of_block]
            for row, (a, merge) in enumerate(self._merged, number):
                codes[row] = merge[codes[a]]
            salt = derive_stream(seed, *address, _SHARE)
            share = share_residuals(self._residuals, block, blocks, salt).astype(self._type)
            start = derive_stream(seed, *address, _MOVE, block)
            urgent = -codes.shape[1] if self._forbids else FORBIDDEN_SUM
            vain = np.ascontiguousarray(self._vain[:, rows_of_block])
            moves = sweep_block(codes, order, self._layout, share, best, start, heat, urgent, vain)
            if vain.size:
                self._vain[:, rows_of_block] = vain
            for a, column in enumerate(self.columns):
                column[rows_of_block] = codes[a]
            with lock:
                np.add(residuals_after, share, out=residuals_after)
            return moves

        moves = sum((map if blocks == 1 else self._pool.map)(work, range(blocks)))
        self._residuals = residuals_after
        return moves


def list_merged(cliques: Sequence[Sequence[int]], merges: Sequence[Merges]) -> list[tuple[int, Merge]]:
    """Return (attribute, merge) of every column of merged codes, each once, in attribute order."""
    columns: dict[tuple[int, int], tuple[int, Merge]] = {}
    for clique, clique_merges in zip(cliques, merges, strict=True):
        for a, merge in zip(clique, clique_merges, strict=False):
            if merge is not None:
                columns.setdefault((a, id(merge)), (a, merge))
    return sorted(columns.values(), key=lambda item: item[0])


def build_layout(
    sizes: Sequence[int],
    cliques: Sequence[Sequence[int]],
    weights: Sequence[int],
    counted: int | None = None,
    merges: Sequence[Merges] = (),
    visited: frozenset[int] | None = None,
) -> list[Views]:
    """Return the views of every attribute; see :class:`privsyn.tasks.kernels.sweep_moves.Views`.

    ``counted``: number of leading cliques that are marginals, None for all; the others are fixed penalties.
    ``merges``, ``visited``: as in :class:`Sweeper`; unvisited attributes have views without cells.
    """
    counted = len(cliques) if counted is None else counted
    merges = [
        clique_merges or (None,) * len(clique)
        for clique_merges, clique in zip(merges or [()] * len(cliques), cliques, strict=True)
    ]
    columns = list_merged(cliques, merges)
    number = {(a, id(merge)): n for n, (a, merge) in enumerate(columns)}
    shapes = [
        [sizes[a] if merge is None else int(merge.max()) + 1 for a, merge in zip(clique, clique_merges, strict=True)]
        for clique, clique_merges in zip(cliques, merges, strict=True)
    ]
    bases = np.cumsum([0, *(prod(shape) for shape in shapes)])
    marginals_of: list[list[int]] = [[] for _ in sizes]
    for m, clique in enumerate(cliques):
        for a in clique if visited is None else visited.intersection(clique):
            marginals_of[a].append(m)
    layout = []
    for a, size in enumerate(sizes):
        merged_columns = [n for n, (b, _) in enumerate(columns) if b == a]
        cells, lines, other_starts, others, merged = [], [0], [0], [], []
        for m in marginals_of[a]:
            axis = list(cliques[m]).index(a)
            merge = merges[m][axis]
            cells.append(_arrange_by_line(bases[m], shapes[m], axis, merge))
            merged.append(-1 if merge is None else merged_columns.index(number[a, id(merge)]))
            # merged codes have their own rows of codes, so that kernels need not look them up
            rows = [
                b if c is None else len(sizes) + number[b, id(c)] for b, c in zip(cliques[m], merges[m], strict=True)
            ]
            others += _list_steps(rows, shapes[m], axis, size)
            other_starts.append(len(others))
            lines.append(lines[-1] + cells[-1].size // size)
        other_rows, stride = np.array(others, np.int64).reshape(-1, 2).T
        own_weights = np.array([weights[m] for m in marginals_of[a]], np.int64)
        marginals = sum(m < counted for m in marginals_of[a])
        layout.append(
            Views(
                size=size,
                cells=np.concatenate([np.zeros(0, np.uint32), *cells]),
                weights=np.repeat(own_weights, np.diff(lines)),
                first_places=(size * np.array(lines[:-1])).astype(np.uint32),
                other_starts=np.array(other_starts),
                other_rows=other_rows.copy(),
                stride=stride.astype(np.uint32),
                # moves change the counts of marginals; penalties of forbidden cells are fixed
                move_weights=np.where(np.arange(own_weights.size) < marginals, own_weights, 0),
                counted=marginals,
                counted_lines=lines[marginals],
                merged=np.array(merged, np.int64),
                merges=np.array([columns[n][1] for n in merged_columns], np.int64).reshape(len(merged_columns), size),
                merged_rows=len(sizes) + np.array(merged_columns, np.int64),
            )
        )
    return layout


def _arrange_by_line(base: int, shape: Sequence[int], axis: int, merge: Merge | None) -> np.ndarray:
    """Return the cells of a marginal, numbered from ``base``, line by line: the attribute at ``axis`` runs fastest.

    Flat, uint32; a line has all codes of the attribute, even if the marginal merges them by ``merge``.
    """
    grid = np.moveaxis(np.arange(base, base + prod(shape), dtype=np.uint32).reshape(shape), axis, -1)
    return np.asarray((grid if merge is None else grid[..., merge]).reshape(-1))


def _list_steps(rows: Sequence[int], shape: Sequence[int], axis: int, size: int) -> list[tuple[int, int]]:
    """Return (row of codes, step in the workspace) of each attribute but the one at ``axis``, with ``size`` codes."""
    rest = [i for i in range(len(shape)) if i != axis]
    return [(rows[i], size * prod(shape[c] for c in rest[n + 1 :])) for n, i in enumerate(rest)]
