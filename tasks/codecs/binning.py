"""The binning: the public bins of every attribute's fine codes, and what else is public of these codes.

Built once, by :class:`privsyn.tasks.codecs.EncodingPlan`; the steps from compression to decoding are handed this one
object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs.cells import Points

Sections = tuple[tuple[int, int], ...]
"""First bin of each section of intervals, and the first after it: low intervals are combined inside a section only."""


@dataclass(frozen=True, eq=False)
class Level:
    """One level above the fine codes of an attribute.

    ``attribute``: whose codes are the level's groups; ``of``: the group of every fine code, shape (fine size,), every
    group having one at least; all codes of a group lie in one group of the level above.
    """

    attribute: str
    of: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AttributeBins:
    """The public bins of one attribute.

    ``groups[code]``: the bin of a fine code, shape (fine size,), ascending from 0.  ``in_order``: the sections of bins
    that are intervals.  ``is_open``: whether the spec says neither bins nor edges of an ordered attribute; then
    ``widths`` has the width of every fine code, shape (fine size,), 0 of what is no interval.  ``added``: the bin of
    what the spec does not list, if there is one.  ``levels``: those of an attribute with very many values, the top one
    first.  ``points``: the cells of one value.  ``chances``: of an attribute that is counted alone and
    related to no other, the share of each fine code by chance, shape (fine size,), 0 for null and exact values.
    ``doubtful``: the fine codes on which a first look showed no rows, shape (fine size,); None: there was no such look.
    """

    groups: NDArray[np.int32]
    in_order: Sections = ()
    is_open: bool = False
    widths: NDArray[np.float64] | None = None
    added: int | None = None
    levels: tuple[Level, ...] = ()
    points: Points | None = None
    chances: NDArray[np.float64] | None = None
    doubtful: NDArray[np.bool_] | None = None

    @property
    def size(self) -> int:
        """Number of bins."""
        return int(self.groups.max()) + 1


Binning = Mapping[str, AttributeBins]
"""Attribute -> its public bins, in the domain's order."""


def get_ordered(binning: Binning) -> frozenset[str]:
    """Return the attributes that have bins in order."""
    return frozenset(a for a, bins in binning.items() if bins.in_order)


def list_level_attributes(binning: Binning) -> list[str]:
    """Return the attributes that are levels of others."""
    return [level.attribute for bins in binning.values() for level in bins.levels]


def list_roundings(binning: Binning) -> list[str]:
    """Return the attributes that say which round number a value was rounded to; their codes have shares by chance."""
    return [a for a, bins in binning.items() if bins.chances is not None]


def list_counted_alone(binning: Binning) -> list[str]:
    """Return the attributes that are counted and related to nothing: levels of others, and roundings."""
    return [*list_level_attributes(binning), *list_roundings(binning)]
