"""Merged codes of a set of attributes that is counted jointly: few cells, of about equal noisy mass.

Not in the paper.  A joint table of three or more attributes has too many cells for the noise.  So codes are merged:
each attribute begins with one merged code, and the heaviest is split in two of about equal mass while the cells have
enough rows.  Finer merges of an attribute in one set refine its coarser merges in another.  A function of released
counts and public noise, so it costs no budget.
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
"""Mean rows of a cell, in standard deviations of its noise."""

LEAST_CODES = 2
"""Least merged codes of an attribute, whatever the noise: with one, the attribute would not be in the set."""


@dataclass(frozen=True, eq=False)
class CoarseCounts:
    """Noisy counts of an attribute's codes; ``in_order``: whether merging keeps the codes' order.

    ``variance``: noise variance of each count; None means no noise.  ``begin``: the initial merged code of each code;
    None means one for all.  ``grows``: whether merged codes may be split as cells allow.  ``beside``: codes without an
    order, such as null, that stay apart from the ordered ones; they count neither in the shares that decide splits nor
    towards LEAST_CODES.
    """

    counts: Floats
    in_order: bool
    variance: Floats | None = None
    begin: Merge | None = None
    grows: bool = True
    beside: NDArray[np.bool_] | None = None


def count_affordable_cells(total: float, sigma: float) -> int:
    """Return the number of cells, at least 1, with a mean of ROWS_A_CELL standard deviations ``sigma`` of rows each."""
    return max(1, int(max(total, 0.0) / (ROWS_A_CELL * sigma)))


def merge_codes(coarse: Mapping[str, CoarseCounts], clique: Clique, cells: int) -> list[Merge]:
    """Return the merged code of every code of each attribute of ``clique``, with at most ``cells`` cells in all.

    Every attribute that grows gets LEAST_CODES merged codes, not counting codes ``beside``, or one per code if it has
    fewer; these may exceed ``cells``.  Merged codes are numbered by the first code in each.
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

    ``merges``: one per axis, None for an axis that keeps its codes; empty if all axes do.
    """
    for axis, merge in enumerate(merges):
        if merge is not None:
            parts = np.zeros((int(merge.max()) + 1, merge.size))
            parts[merge, np.arange(merge.size)] = 1.0
            counts = np.moveaxis(np.tensordot(parts, counts, axes=(1, axis)), 0, axis)
    return counts


class _SplitCodes:
    """A partition of an attribute's codes: ``members`` of each part, and the share of the ``heaviest`` one."""

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
        """The share of the heaviest part with several codes; None if every part is one code."""
        position = self._find_heaviest()
        return None if position is None else float(self._mass[self.members[position]].sum()) / self._whole

    def _find_heaviest(self) -> int | None:
        several = [i for i, codes in enumerate(self.members) if len(codes) > 1]
        return max(several, key=lambda i: float(self._mass[self.members[i]].sum()), default=None)

    def split(self) -> None:
        """Split the heaviest part with several codes in two of about equal mass."""
        position = self._find_heaviest()
        if position is None:
            raise ValueError("every part is one code")
        codes = self.members.pop(position)
        first = self._choose_first_half(codes)
        self.members += [codes[first], codes[~first]]

    def _choose_first_half(self, codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which of several codes go into the first of two parts; neither part is empty.

        Ordered codes are cut nearest to the middle code, among the cuts that noise cannot tell apart.
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
        """Return the part number of each code."""
        part_numbers = np.empty(len(self._mass), dtype=np.int64)
        for number, codes in enumerate(sorted(self.members, key=lambda codes: int(codes[0]))):
            part_numbers[codes] = number
        return part_numbers
