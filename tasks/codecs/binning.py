"""The binning: the public bins and other public facts about every attribute's fine codes.

:class:`privsyn.tasks.codecs.EncodingPlan` builds it once; the steps from compression to decoding share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs.cells import Points

Sections = tuple[tuple[int, int], ...]
"""First bin of each section of intervals and the first bin after it; low bins are combined within a section."""


@dataclass(frozen=True, eq=False)
class Level:
    """One level above the fine codes of an attribute.

    Attributes:
        attribute: The attribute whose codes are the groups.
        groups: The group of every fine code, shape (fine size,).  Every group has at least one code.  All codes of a
            group share one group of the level above.
    """

    attribute: str
    groups: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AttributeBins:
    """The public bins of one attribute.

    ``groups[code]``: the bin of a fine code, shape (fine size,), ascending from 0.  ``in_order``: the sections of bins
    that are intervals.  ``is_open``: whether the spec gives neither bins nor edges for an ordered attribute; then
    ``widths`` has the width of every fine code, shape (fine size,), 0 if it is no interval.  ``added``: the bin of
    unlisted values, if there is one.  ``levels``: the levels of an attribute with very many values, top level first.
    ``points``: the single-value cells.  ``chances``: for an attribute counted alone and related to no other, each fine
    code's share by chance, shape (fine size,), 0 for null and exact values.  ``doubtful``: the fine codes where a first
    look showed no rows, shape (fine size,); None without such a look.
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
    """Return the attributes that have ordered bins."""
    return frozenset(a for a, bins in binning.items() if bins.in_order)


def list_level_attributes(binning: Binning) -> list[str]:
    """Return the attributes that are levels of others."""
    return [level.attribute for bins in binning.values() for level in bins.levels]


def list_roundings(binning: Binning) -> list[str]:
    """Return the attributes with shares by chance, such as the round number that a value was rounded to."""
    return [a for a, bins in binning.items() if bins.chances is not None]


def list_counted_alone(binning: Binning) -> list[str]:
    """Return the attributes that are counted but related to no other: levels and roundings."""
    return [*list_level_attributes(binning), *list_roundings(binning)]
