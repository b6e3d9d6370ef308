"""Gini index and pay gap by place: NIST 2018's third metric.

Paper: DPSyn report, section 5.1.  The report does not define the pay gap or how the two deviations become a score; the
code follows the challenge's published scorer there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.kernels.counting import CodeTable, count


@dataclass(frozen=True)
class PlaceIncome:
    """One place: its code, Gini indices (0..1), pay gaps (in the wage's unit) and ranks (0: the largest gap).

    A synthetic figure is None if the synthetic table has no row of the place.
    """

    place: int
    gini_real: float
    gini_synthetic: float | None
    gap_real: float
    gap_synthetic: float | None
    rank_real: int
    rank_synthetic: int | None


@dataclass(frozen=True)
class Income:
    """The places of the real table in the order of their codes, and the scores, each 0 (worst) to 1,000,000 (same).

    ``score`` is the mean of ``gini_score`` and ``rank_score``.
    """

    places: tuple[PlaceIncome, ...]
    gini_score: float
    rank_score: float
    score: float


def compute_gini(counts: NDArray[np.int64], wages: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Gini index of each group: 0 (everybody earns the same) to 1 - 1/n (one of n people earns everything).

    ``counts`` (..., codes): people of each group with each wage; ``wages`` (codes): values >= 0.  With the n wages in
    ascending order and their running sums W_i, the index is (n + 1)/n - 2 sum_i W_i / (n W_n).  This is the mean
    absolute difference of two people's wages, over twice the mean wage.  A group without people or without any wage has
    index 0.
    """
    order = np.argsort(wages, kind="stable")
    people, worth = counts[..., order].astype(np.float64), wages[order]
    n, total = people.sum(axis=-1), people @ worth
    before = np.cumsum(people, axis=-1) - people
    weighted = (people * worth * (2 * before + people)).sum(axis=-1)  # each wage times its rank from both ends
    with np.errstate(divide="ignore", invalid="ignore"):
        index = weighted / (n * total) - 1
    return np.where((n > 0) & (total > 0), np.clip(index, 0.0, 1.0), 0.0)


def compute_pay_gap(
    first: NDArray[np.int64], second: NDArray[np.int64], wages: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean wage of the first sex minus the mean wage of the second, by group, in the wage's unit.

    ``first`` and ``second`` (..., codes): people with each wage.  A mean over nobody counts as 0 (as in the scorer).
    """

    def mean(people: NDArray[np.int64]) -> NDArray[np.float64]:
        return (people @ wages) / np.maximum(people.sum(axis=-1), 1)

    return mean(first) - mean(second)


def score_income(
    real: CodeTable,
    synthetic: CodeTable,
    place: str,
    sex: str,
    wage: str,
    wages: NDArray[np.float64],
    sexes: tuple[int, int],
) -> Income:
    """Return NIST 2018's third metric; ``wages``: the value (>= 0) of every code of ``wage``, NaN for null, left out.

    Two figures per place, over the people with a wage: their Gini index, and the gap between the mean wages of the two
    ``sexes`` (codes; the first minus the second).  Places are ranked by gap, largest first, ties by code; each table
    ranks its own places.  Averages are over the C places of the real table; a place that the synthetic table lacks
    contributes 0:

    - gini_score = 1e6 sqrt(mean of (1 - |Gini_real - Gini_synthetic|)^2)
    - rank_score = 1e6 sqrt(mean of max(0, 1 - |rank_real - rank_synthetic| / max(C - 1, 1))^2)

    These are the challenge scorer's formulas (its Gini index is 1/n smaller).  A real table without rows has no places:
    both scores are then 1e6 if the synthetic table has no rows either, else 0.  Raises ValueError for ``wages`` of
    another length, below 0 or infinite, or for equal sexes.
    """
    if wages.shape != (real.domain.size(wage),) or np.isinf(wages).any() or (wages < 0).any():
        raise ValueError(f"{wage}: every code needs one value, at least 0 and finite, or NaN for null")
    if sexes[0] == sexes[1]:
        raise ValueError(f"{sex}: a pay gap compares two different values")
    theirs, ours = _group_by_place(real, place, sex, wage), _group_by_place(synthetic, place, sex, wage)
    places = _list_places(theirs, ours, wages, sexes)
    if not places:
        both = 0.0 if synthetic.rows else 1e6
        return Income((), both, both, both)
    span = max(len(places) - 1, 1)
    gini_score = _compute_score([_compute_closeness(p.gini_real, p.gini_synthetic, 1.0) for p in places])
    rank_score = _compute_score([_compute_closeness(p.rank_real, p.rank_synthetic, span) for p in places])
    return Income(places, gini_score, rank_score, (gini_score + rank_score) / 2)


def _group_by_place(table: CodeTable, place: str, sex: str, wage: str) -> NDArray[np.int64]:
    """Return the people by place, sex and wage code, shape (places, sexes, wages)."""
    if len({place, sex, wage}) < 3:
        raise ValueError("place, sex and wage must be three different columns")
    return count(table, (place, sex, wage))


def _list_places(
    real: NDArray[np.int64], synthetic: NDArray[np.int64], wages: NDArray[np.float64], sexes: tuple[int, int]
) -> tuple[PlaceIncome, ...]:
    real_places, synthetic_places = (np.flatnonzero(counts.sum(axis=(1, 2))) for counts in (real, synthetic))
    (gini_real, gap_real), (gini_other, gap_other) = (_compute_figures(c, wages, sexes) for c in (real, synthetic))
    ranks, other_ranks = _compute_ranks(real_places, gap_real), _compute_ranks(synthetic_places, gap_other)
    return tuple(
        PlaceIncome(
            place=c,
            gini_real=float(gini_real[c]),
            gini_synthetic=float(gini_other[c]) if c in other_ranks else None,
            gap_real=float(gap_real[c]),
            gap_synthetic=float(gap_other[c]) if c in other_ranks else None,
            rank_real=ranks[c],
            rank_synthetic=other_ranks.get(c),
        )
        for c in map(int, real_places)
    )


def _compute_figures(
    counts: NDArray[np.int64], wages: NDArray[np.float64], sexes: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Gini index and pay gap of every place."""
    has_wage = ~np.isnan(wages)
    people, worth = counts[:, :, has_wage], wages[has_wage]
    return compute_gini(people.sum(axis=1), worth), compute_pay_gap(people[:, sexes[0]], people[:, sexes[1]], worth)


def _compute_ranks(places: NDArray[np.intp], gaps: NDArray[np.float64]) -> dict[int, int]:
    """Return the rank of each place: 0 for the largest gap, ties by code."""
    order = sorted((int(c) for c in places), key=lambda c: (-gaps[c], c))
    return {c: rank for rank, c in enumerate(order)}


def _compute_closeness(real: float, synthetic: float | None, span: float) -> float:
    return 0.0 if synthetic is None else max(0.0, 1 - abs(real - synthetic) / span)


def _compute_score(closeness: list[float]) -> float:
    return 1e6 * math.sqrt(sum(c * c for c in closeness) / len(closeness))
