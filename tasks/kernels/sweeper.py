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

from privsyn.data_contracts.domain import Merge, Merges
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
    that found no better value is left alone for two sweeps.  merges: for each marginal, the merged code that it has of
    each of its attributes' codes, None for an attribute whose codes it has as they are (empty: every marginal has all
    as they are).  Use as a context manager: it owns its threads.
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
    ) -> None:
        self.columns = columns
        self._counts = residuals.size
        known = np.zeros(residuals.size, bool) if empty is None else empty
        self._forbids_empty = bool(known.any())
        self._penalty = np.where(known, 2 * columns[0].size, 0)
        self._forbids = bool(forbidden) or self._forbids_empty
        cliques = [*cliques, *(positions for positions, _ in forbidden)]
        all_merges = [*(merges or [()] * len(weights)), *([()] * len(forbidden))]
        self._layout = build_layout(sizes, cliques, [*weights, *([1] * len(forbidden))], len(weights), all_merges)
        self._merged = list_merged(cliques, all_merges)
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
            number = len(self.columns)
            codes = np.empty((number + len(self._merged), edges[block + 1] - edges[block]), self._codes)
            for a, column in enumerate(self.columns):
                codes[a] = column[here]
            for row, (a, merge) in enumerate(self._merged, number):
                codes[row] = merge[codes[a]]
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


def list_merged(cliques: Sequence[Sequence[int]], merges: Sequence[Merges]) -> list[tuple[int, Merge]]:
    """Return attribute and merge of every column of merged codes, each once, attributes in order."""
    found: dict[tuple[int, int], tuple[int, Merge]] = {}
    for clique, own in zip(cliques, merges, strict=True):
        for a, merge in zip(clique, own, strict=False):
            if merge is not None:
                found.setdefault((a, id(merge)), (a, merge))
    return sorted(found.values(), key=lambda item: item[0])


def build_layout(
    sizes: Sequence[int],
    cliques: Sequence[Sequence[int]],
    weights: Sequence[int],
    counted: int | None = None,
    merges: Sequence[Merges] = (),
) -> Layout:
    """Return the views of every attribute; see :class:`privsyn.tasks.kernels.sweep_moves.Layout`.

    ``counted``: how many of the cliques, from the first on, are marginals; the others are fixed (None: all are).
    ``merges``: as of :class:`Sweeper`.
    """
    # a move changes the counts of marginals; a penalty of forbidden cells is no count, and stays as it is
    moved = [w if counted is None or m < counted else 0 for m, w in enumerate(weights)]
    merges = [own or (None,) * len(clique) for own, clique in zip(merges or [()] * len(cliques), cliques, strict=True)]
    kept = list_merged(cliques, merges)
    starts = np.cumsum([0, *(merge.size for _, merge in kept)])
    number = {(a, id(merge)): n for n, (a, merge) in enumerate(kept)}
    shapes = [
        [sizes[a] if merge is None else int(merge.max()) + 1 for a, merge in zip(clique, own, strict=True)]
        for clique, own in zip(cliques, merges, strict=True)
    ]
    cells = [prod(shape) for shape in shapes]
    bases = np.cumsum([0, *cells])
    # a row a view; where the views of each attribute, and the other attributes of each view, begin
    views: list[tuple[int, int, int, int, int, int, int, int]] = []
    first, near, others = [0], [0], []
    holding: list[list[int]] = [[] for _ in sizes]
    for m, clique in enumerate(cliques):
        for a in clique:
            holding[a].append(m)
    for a, size in enumerate(sizes):
        place = 0  # in a's workspace, where a's axis comes last: all values of a row's other codes are one line
        for m in holding[a]:
            clique, shape = cliques[m], shapes[m]
            axis = list(clique).index(a)
            rest = [i for i in range(len(clique)) if i != axis]
            own, right, merge = shape[axis], prod(shape[axis + 1 :]), merges[m][axis]
            left = cells[m] // right // own  # cells of the axes before a's
            where = -1 if merge is None else int(starts[number[a, id(merge)]])
            views.append((bases[m], left, right, place, weights[m], moved[m], own, where))
            for n, i in enumerate(rest):
                there = merges[m][i]
                # merged codes of a row stand in rows of their own, so that a kernel need not look them up
                row = clique[i] if there is None else len(sizes) + number[clique[i], id(there)]
                others.append((row, size * prod(shape[c] for c in rest[n + 1 :])))
            near.append(len(others))
            place += left * right * size  # of a's own codes, however many the marginal has merged them into
        first.append(len(views))
    base, left_cells, right_cells, places, weight, moves, owns, merged = (
        np.array(views, np.int64).reshape(-1, 8).T.copy()
    )
    other, stride = np.array(others, np.int64).reshape(-1, 2).T
    return Layout(
        sizes=np.array(sizes, np.int64),
        first=np.array(first),
        base=base,
        left=left_cells,
        right=right_cells,
        place=places,
        weight=weight,
        moved=moves,
        near=np.array(near),
        other=other.copy(),
        stride=stride.astype(np.uint32),
        own=owns,
        merged=merged,
        merges=np.concatenate([np.zeros(0, np.int64), *(merge.astype(np.int64) for _, merge in kept)]),
        kept=np.searchsorted(np.array([a for a, _ in kept], np.int64), np.arange(len(sizes) + 1)).astype(np.int64),
        kept_row=len(sizes) + np.arange(len(kept), dtype=np.int64),
        kept_merge=starts[:-1].astype(np.int64),
    )
