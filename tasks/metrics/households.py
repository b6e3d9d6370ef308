"""What analysts of households look at: who lives together, what couples and generations are like, and inequality."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.metrics.panels import Integers, PanelTable, compute_l1

Floats = NDArray[np.float64]


def compare_compositions(one: PanelTable, other: PanelTable, roles: int) -> float:
    """Return the L1 distance of the shares of households by how many members of each role they have."""
    counts = [_count_roles(table, roles) for table in (one, other)]
    kinds, of = np.unique(np.concatenate(counts), axis=0, return_inverse=True)
    of = of.ravel()
    first = len(counts[0])
    return compute_l1(*(np.bincount(part, minlength=len(kinds)) for part in (of[:first], of[first:])))


def _count_roles(table: PanelTable, roles: int) -> Integers:
    """Return how many members of each role every household has, shape (households, roles)."""
    household = np.cumsum(np.diff(table.person, prepend=-1) != 0) - 1
    counts = np.bincount(household * roles + table.step, minlength=len(table.starts) * roles)
    return counts.reshape(-1, roles)


def pair_with_first(table: PanelTable, role: int) -> tuple[Integers, Integers]:
    """Return the rows of first members in the first role, and in each of their households the first one in ``role``."""
    begins = table.starts
    household = np.cumsum(np.diff(table.person, prepend=-1) != 0) - 1
    places = np.flatnonzero(table.step == role)
    places = places[np.diff(household[places], prepend=-1) != 0]
    first = begins[household[places]]
    known = table.step[first] == 0
    return first[known], places[known]


def correlate_pairs(values: Floats, first: Integers, second: Integers) -> tuple[float, float]:
    """Return the correlation of values between members of pairs, and the mean of the first less the second.

    NaN where there is none.
    """
    one, other = values[first], values[second]
    known = ~(np.isnan(one) | np.isnan(other))
    one, other = one[known], other[known]
    if len(one) < 3:
        return float("nan"), float("nan")
    constant = one.std() == 0 or other.std() == 0
    return float("nan") if constant else float(np.corrcoef(one, other)[0, 1]), float((one - other).mean())


def count_pairs(table: PanelTable, column: str, pairs: tuple[Integers, Integers]) -> Integers:
    """Return the number of pairs of members by both codes, shape (size, size)."""
    size, codes = table.sizes[column], table.codes[column]
    joint = codes[pairs[0]] * size + codes[pairs[1]]
    return np.bincount(joint, minlength=size * size).reshape(size, size)


def sum_by_household(table: PanelTable, column: str, *, constant: bool) -> Floats:
    """Return the sum of a column over the members of each household, null as 0; of a constant one its value."""
    values = np.nan_to_num(table.values[column])
    begins = table.starts
    return values[begins] if constant else np.add.reduceat(values, begins) if len(begins) else np.zeros(0)


def compute_gini(values: Floats) -> float:
    """Return the Gini coefficient of amounts that are not negative, NaN where all are 0."""
    ordered = np.sort(np.maximum(values, 0.0))
    total, n = float(ordered.sum()), len(ordered)
    if total <= 0:
        return float("nan")
    return float(2 * (np.arange(1, n + 1) @ ordered) / (n * total) - (n + 1) / n)


def iterate_roles(
    tables: tuple[PanelTable, PanelTable], labels: list[str]
) -> Iterator[tuple[str, list[tuple[Integers, Integers]]]]:
    """Yield each role but the first with its pairs in both tables, where both have some."""
    for role, label in enumerate(labels[1:], start=1):
        pairs = [pair_with_first(table, role) for table in tables]
        if all(len(second) for _, second in pairs):
            yield label, pairs
