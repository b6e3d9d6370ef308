"""Rows that match known totals exactly: a last repair of codes with the fewest changes.

Not in the paper.  Sweeps bring rows within a few of their targets; this step moves the rest.  Post-processing of
released and public counts costs no budget.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.totals import ExactCounts

Ints = NDArray[np.int64]


class Quotas:
    """The counts that each shard of a table must hold: integers near the shard's share that sum to the totals."""

    def __init__(self, exact: Sequence[ExactCounts]) -> None:
        self._exact = tuple(exact)
        self._left = [h.counts.copy() for h in exact]

    def take(self, rows: int) -> tuple[ExactCounts, ...]:
        """Return the counts that the next shard, of ``rows`` rows, must hold.

        Raises ValueError if the totals have fewer rows left.
        """
        counts_of: dict[str, Ints] = {}
        taken = []
        for counts, remaining in zip(self._exact, self._left, strict=True):
            wanted = np.array([rows]) if counts.parent is None else counts_of[counts.parent]
            part = np.stack([_select_part(line, int(n)) for line, n in zip(remaining, wanted, strict=True)])
            remaining -= part
            counts_of[counts.attribute] = part.sum(axis=0)
            taken.append(ExactCounts(counts.attribute, counts.parent, part))
        return tuple(taken)


def _select_part(remaining: Ints, rows: int) -> Ints:
    """Return ``rows`` rows of the counts ``remaining``: the share of each rounded down or up, at most what is left."""
    total = int(remaining.sum())
    if rows > total:
        raise ValueError(f"{rows:,} rows are more than the {total:,} rows of the totals")
    part, rest = np.divmod(remaining * rows, max(total, 1))
    part[np.argsort(-rest, kind="stable")[: rows - int(part.sum())]] += 1
    return part


def seed_generator(seed: int) -> np.random.Generator:
    """Return this step's random generator for ``synthesis.seed``."""
    return np.random.default_rng([seed, 0x707A15])


def hold(codes: CodeTable, exact: Sequence[ExactCounts], rng: np.random.Generator) -> CodeTable:
    """Return rows with the counts ``exact``, with the fewest changes of each attribute; rows are chosen at random.

    exact: each after its parent, with as many rows as ``codes``.  A table that has these counts is returned unchanged.
    """
    columns = dict(zip(codes.domain.attributes, codes.columns, strict=True))
    for counts in exact:
        parent = None if counts.parent is None else columns[counts.parent]
        columns[counts.attribute] = _move_rows(columns[counts.attribute], parent, counts.counts, rng)
    return CodeTable(codes.domain, tuple(columns[a] for a in codes.domain.attributes))


def _move_rows(
    column: NDArray[np.unsignedinteger],
    parent: NDArray[np.unsignedinteger] | None,
    wanted: Ints,
    rng: np.random.Generator,
) -> NDArray[np.unsignedinteger]:
    size = wanted.shape[1]
    group = np.zeros(len(column), np.int64) if parent is None else parent.astype(np.int64)
    cell = group * size + column
    surplus = np.bincount(cell, minlength=wanted.size) - wanted.ravel()
    if not surplus.any():
        return column
    moved = column.copy()
    order = np.argsort(cell, kind="stable")
    ends = np.cumsum(np.bincount(cell, minlength=wanted.size))
    for g in range(len(wanted)):
        group_surplus = surplus[g * size : (g + 1) * size]
        if group_surplus.sum():
            raise ValueError("the totals have a different number of rows")
        leaving = [
            rng.choice(
                order[ends[g * size + c] - group_surplus[c] - wanted[g, c] : ends[g * size + c]],
                group_surplus[c],
                replace=False,
            )
            for c in np.flatnonzero(group_surplus > 0)
        ]
        if leaving:
            arriving = np.repeat(np.arange(size), np.maximum(-group_surplus, 0))
            moved[np.concatenate(leaving)] = rng.permutation(arriving).astype(column.dtype)
    return moved
