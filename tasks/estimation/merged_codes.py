"""Merged codes of a set of attributes that is counted whole: few cells, of about equal noisy mass.

Not in the paper.  A joint table of three and more attributes has more cells than the noise leaves rows for.  So codes
are merged: beginning with one merged code an attribute, the heaviest of all is split in two of about equal mass, as
long as the cells have rows enough.  The merged codes of an attribute in one set are parts of those in another with
fewer.  A function of released counts and public noise, so it costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Merge, Merges

Floats = NDArray[np.float64]

ROWS_A_CELL = 6.0
"""Rows of a cell in standard deviations of its noise, if every cell had as many."""

LEAST_CODES = 2
"""Merged codes of an attribute at least, whatever the noise: with one it would not be in the set."""


@dataclass(frozen=True, eq=False)
class CoarseCounts:
    """Noisy counts of an attribute's codes, and whether these are in an order that merging is to keep.

    ``variance``: of the noise of each count; None where there is none.  ``begin``: the merged code that each code
    begins in, all in one where it is None; ``grows``: whether more are made of these as cells allow.  ``beside``: codes
    beside those in order, such as null, that stay apart from these: the shares by which others are split are of these
    others alone, and LEAST_CODES are.
    """

    counts: Floats
    in_order: bool
    variance: Floats | None = None
    begin: Merge | None = None
    grows: bool = True
    beside: NDArray[np.bool_] | None = None


def count_affordable_cells(total: float, sigma: float) -> int:
    """Return how many cells of noise ``sigma`` leave ROWS_A_CELL standard deviations of rows in each, 1 or more."""
    return max(1, int(max(total, 0.0) / (ROWS_A_CELL * sigma)))


def merge_codes(coarse: Mapping[str, CoarseCounts], clique: Clique, cells: int) -> list[Merge]:
    """Return the merged code of every code of each attribute of ``clique``: of at most ``cells`` cells together.

    Every attribute that grows has LEAST_CODES, of those in order where others are beside them, or as many as its codes
    are, even where these are more cells.  The merged codes of an attribute are numbered by the first code in each.
    """
    parts = [_SplitCodes(coarse[a]) for a in clique]
    for part in parts:
        while part.grows and len(part.members) < part.least and part.heaviest is not None:
            part.split()
    growing = [i for i, part in enumerate(parts) if part.grows]
    while growing:
        growing = [i for i in growing if parts[i].heaviest is not None and _count_with_one_more(parts, i) <= cells]
        if growing:
            parts[max(growing, key=lambda i: (parts[i].heaviest or 0.0, -i))].split()
    return [part.number() for part in parts]


def _count_with_one_more(parts: list[_SplitCodes], index: int) -> int:
    return prod(len(part.members) + (i == index) for i, part in enumerate(parts))


def merge_counts(counts: Floats, merges: Merges) -> Floats:
    """Return the sums of ``counts`` over merged codes.

    ``merges``: of each axis, None where its codes stay; empty where all do.
    """
    for axis, merge in enumerate(merges):
        if merge is not None:
            parts = np.zeros((int(merge.max()) + 1, merge.size))
            parts[merge, np.arange(merge.size)] = 1.0
            counts = np.moveaxis(np.tensordot(parts, counts, axes=(1, axis)), 0, axis)
    return counts


class _SplitCodes:
    """The codes of an attribute in parts: ``members`` of each, and the share of the ``heaviest`` that can be split."""

    def __init__(self, coarse: CoarseCounts) -> None:
        self._mass = np.maximum(coarse.counts, 0.0) + 1e-9
        self._in_order = coarse.in_order
        self._variance = np.zeros_like(self._mass) if coarse.variance is None else coarse.variance
        self.grows = coarse.grows
        beside = np.zeros(len(self._mass), bool) if coarse.beside is None else coarse.beside
        begin = np.zeros(len(self._mass), np.int64) if coarse.begin is None else coarse.begin
        self.members = [np.flatnonzero(begin == part) for part in np.unique(begin)]
        self.least = LEAST_CODES + int(beside.any())
        self._whole = float(self._mass[~beside].sum())

    @property
    def heaviest(self) -> float | None:
        """The share of the heaviest part of several codes, None where every part is one code."""
        position = self._find_heaviest()
        return None if position is None else float(self._mass[self.members[position]].sum()) / self._whole

    def _find_heaviest(self) -> int | None:
        several = [i for i, codes in enumerate(self.members) if len(codes) > 1]
        return max(several, key=lambda i: float(self._mass[self.members[i]].sum()), default=None)

    def split(self) -> None:
        """Split the heaviest part of several codes in two of about equal mass."""
        position = self._find_heaviest()
        if position is None:
            raise ValueError("every part is one code")
        codes = self.members.pop(position)
        first = self._choose_first_half(codes)
        self.members += [codes[first], codes[~first]]

    def _choose_first_half(self, codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which of several codes go into the first of two parts; neither part is empty.

        In order, of the cuts that noise cannot tell apart (two standard deviations) the one nearest to the middle code.
        """
        mass = self._mass[codes]
        if self._in_order:
            off = np.abs(np.cumsum(mass)[:-1] - mass.sum() / 2)
            cuts = np.flatnonzero(off <= off.min() + np.sqrt(self._variance[codes].sum()))
            from_middle = np.abs(cuts + 1 - len(codes) / 2)
            best = cuts[from_middle == from_middle.min()]
            return np.arange(len(codes)) <= int(best[off[best].argmin()])
        first, first_mass, second_mass = np.zeros(len(codes), bool), 0.0, 0.0
        for i in np.argsort(-mass, kind="stable"):
            first[i] = first_mass <= second_mass
            first_mass, second_mass = (
                (first_mass + mass[i], second_mass) if first[i] else (first_mass, second_mass + mass[i])
            )
        return first

    def number(self) -> Merge:
        """Return the number of each code's part."""
        part_numbers = np.empty(len(self._mass), dtype=np.int64)
        for number, codes in enumerate(sorted(self.members, key=lambda codes: int(codes[0]))):
            part_numbers[codes] = number
        return part_numbers
