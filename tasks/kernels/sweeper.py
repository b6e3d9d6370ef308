"""Residual-guided sweeps over fixed row blocks and several threads.

Each block works on its quota of every residual with its own random streams, and the remaining quotas add up to the new
residuals.  So the resulting rows do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from threading import Lock

import numpy as np

from privsyn.data_contracts.domain import Merge, Merges
from privsyn.tasks.kernels.streams import derive_stream
from privsyn.tasks.kernels.sweep_moves import FORBIDDEN_SUM, Views, share_residuals, sweep_block

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
