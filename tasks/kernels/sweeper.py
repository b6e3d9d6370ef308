"""Residual-guided sweeps over fixed row blocks and several threads.

Each block works on its quota of every residual and has its own random streams, and the quotas that are left
over add up to the new residuals, so the rows that come out do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import prod
from threading import Lock

import numpy as np

from privsyn.tasks.kernels.streams import derive_stream
from privsyn.tasks.kernels.sweep_moves import FORBIDDEN_SUM, Layout, share_residuals, sweep_block

SMALLEST_BLOCK = 1 << 14
"""Rows of a block at least: on fewer rows a sweep has fewer blocks than it asks for."""

FORBIDDEN_RESIDUAL = 64
"""Rows that the rounding of quotas can add to a residual, and more."""

_SHARE, _MOVE = range(2)  # purposes of random streams


class Sweeper:
    """Columns of codes that are moved in place towards integer targets, sweep by sweep.

    columns: unsigned arrays of one length, codes below ``sizes``; cliques: positions of each marginal's
    attributes; weights: a positive integer per marginal; residuals: integers, rows wanted less rows there, all
    marginals' cells one after another in row-major order; forbidden: (positions, cells) of joint codes that no record
    moves to, and that records leave where one move is enough; empty: bool, cells of the marginals (None: none) that
    records leave and keep away from likewise, as if twice the rows were in surplus there.  With ``forbidden``, a record
    that found no better value is left alone for two sweeps.  Use as a context manager: it owns its threads.
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
    ) -> None:
        self.columns = columns
        self._counts = residuals.size
        known = np.zeros(residuals.size, bool) if empty is None else empty
        self._forbids_empty = bool(known.any())
        self._penalty = np.where(known, 2 * columns[0].size, 0)
        self._forbids = bool(forbidden) or self._forbids_empty
        cliques = [*cliques, *(positions for positions, _ in forbidden)]
        self._layout = build_layout(sizes, cliques, [*weights, *([1] * len(forbidden))], len(weights))
        self._codes = np.result_type(*(column.dtype for column in columns))
        fine, self._type = self._largest_sums(residuals - self._penalty)
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
        """Rows wanted less rows there, in all marginals' cells."""
        found = self._residuals[: self._counts]
        return found + self._penalty if self._forbids_empty else found

    def _largest_sums(self, residuals: np.ndarray) -> tuple[int, np.dtype]:
        """Return the fine of a forbidden cell, above what all marginals can speak for, and the type of sums.

        That is int32 where no sum of weighted residuals, centred or not, can leave it: moves change each by at most the
        rows, up and down.
        """
        first, most = self._layout.first, self.columns[0].size + int(np.abs(residuals).max(initial=0))
        largest = max(int(self._layout.moved[a:b].sum()) for a, b in pairwise(first))
        fines = max(int((self._layout.moved[a:b] == 0).sum()) for a, b in pairwise(first))
        fine = 2 * (most + FORBIDDEN_RESIDUAL) * largest
        return fine, np.dtype(np.int32 if (2 + fines) * fine < 1 << 31 else np.int64)

    def sweep(self, order: np.ndarray, blocks: int, best: bool, seed: int, *address: int, heat: float = 0.0) -> int:
        """Visit every attribute of every row once; returns the number of moves and updates ``residuals``.

        order: int64, the attributes as they are visited; blocks: at most so many, fewer on few rows; best and
        heat as in :func:`privsyn.tasks.kernels.sweep_moves.sweep_block`.  The streams depend on seed and address only.
        """
        rows, lock = self.columns[0].size, Lock()
        blocks = max(1, min(blocks, rows // SMALLEST_BLOCK))
        edges = np.linspace(0, rows, blocks + 1).astype(np.int64)
        left = np.zeros_like(self._residuals)

        def work(block: int) -> int:
            here = slice(edges[block], edges[block + 1])
            codes = np.empty((len(self.columns), edges[block + 1] - edges[block]), self._codes)
            for a, column in enumerate(self.columns):
                codes[a] = column[here]
            share = np.empty(self._residuals.size, self._type)
            share_residuals(self._residuals, block, blocks, derive_stream(seed, *address, _SHARE), share)
            start = derive_stream(seed, *address, _MOVE, block)
            urgent = -codes.shape[1] if self._forbids else FORBIDDEN_SUM
            vain = np.ascontiguousarray(self._vain[:, here])
            moves = sweep_block(codes, order, self._layout, share, best, start, heat, urgent, vain)
            if vain.size:
                self._vain[:, here] = vain
            for a, column in enumerate(self.columns):
                column[here] = codes[a]
            with lock:
                np.add(left, share, out=left)
            return moves

        moves = sum(self._pool.map(work, range(blocks)))
        self._residuals = left
        return moves


def build_layout(
    sizes: Sequence[int], cliques: Sequence[Sequence[int]], weights: Sequence[int], counted: int | None = None
) -> Layout:
    """Return the views of every attribute; see :class:`privsyn.tasks.kernels.sweep_moves.Layout`.

    ``counted``: how many of the cliques, from the first on, are marginals; the others are fixed (None: all are).
    """
    moved = [w if counted is None or m < counted else 0 for m, w in enumerate(weights)]
    cells = [prod(sizes[a] for a in clique) for clique in cliques]
    bases = np.cumsum([0, *cells])
    views: list[tuple[int, int, int, int, int, int]] = []
    first, near, others = [0], [0], []
    holding: list[list[int]] = [[] for _ in sizes]
    for m, clique in enumerate(cliques):
        for a in clique:
            holding[a].append(m)
    for a, size in enumerate(sizes):
        place = 0
        for m in holding[a]:
            clique = cliques[m]
            axis = list(clique).index(a)
            rest = [b for b in clique if b != a]
            right = prod(sizes[b] for b in clique[axis + 1 :])
            views.append((bases[m], cells[m] // right // size, right, place, weights[m], moved[m]))
            others += [(b, size * prod(sizes[c] for c in rest[i + 1 :])) for i, b in enumerate(rest)]
            near.append(len(others))
            place += cells[m]
        first.append(len(views))
    base, left, right_cells, places, weight, moves = np.array(views, np.int64).reshape(-1, 6).T.copy()
    other, stride = np.array(others, np.int64).reshape(-1, 2).T
    return Layout(
        np.array(sizes, np.int64),
        np.array(first),
        base,
        left,
        right_cells,
        places,
        weight,
        moves,
        np.array(near),
        other.copy(),
        stride.astype(np.uint32),
    )
