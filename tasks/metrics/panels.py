"""Panel statistics: transitions, persistence, spells, survival, regressions, rows per person, gaps.

For households: compositions, similarity of couples and generations, and inequality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

MOST_LEVELS = 12
"""The most levels of a column whose transitions and shares of persons are compared code by code."""


@dataclass(frozen=True, eq=False)
class PanelTable:
    """Rows person by person and in order; every array has shape (rows,).

    ``person``: ascending numbers; ``step``: places in the order; ``codes``: of each column, below its ``sizes``;
    ``values``: numbers of the numeric columns, NaN for null.
    """

    person: Integers
    step: Integers
    codes: Mapping[str, Integers]
    sizes: Mapping[str, int]
    values: Mapping[str, Floats]

    @property
    def follows(self) -> NDArray[np.bool_]:
        """Whether each row but the first follows a row of the same person, shape (rows - 1,)."""
        return self.person[1:] == self.person[:-1]

    @property
    def starts(self) -> Integers:
        """The first row of each person."""
        return np.flatnonzero(np.diff(self.person, prepend=-1) != 0)

    @property
    def number(self) -> Integers:
        """The position of each row's person among the persons, from 0, shape (rows,)."""
        return np.cumsum(np.diff(self.person, prepend=-1) != 0) - 1

    def by_ranks(self, column: str) -> PanelTable:
        """Return the table with a column's values replaced by their ranks, ties at the middle rank."""
        values = self.values[column]
        is_number = ~np.isnan(values)
        order = np.sort(values[is_number])
        middle = (np.searchsorted(order, values, "left") + np.searchsorted(order, values, "right")) / 2.0
        return replace(self, values={column: np.where(is_number, middle, np.nan)})

    @classmethod
    def sort(
        cls,
        person: Integers,
        step: Integers,
        codes: Mapping[str, Integers],
        sizes: Mapping[str, int],
        values: Mapping[str, Floats],
    ) -> PanelTable:
        """Return rows in any order as a table person by person."""
        order = np.lexsort((step, person))
        return cls(
            person[order],
            step[order],
            {n: c[order].astype(np.int64) for n, c in codes.items()},
            sizes,
            {n: v[order] for n, v in values.items()},
        )


def compute_l1(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the L1 distance of two distributions, each scaled to 1; the shorter is padded with 0."""
    size = max(first.size, second.size)
    p, q = (np.pad(v.ravel().astype(np.float64), (0, size - v.size)) for v in (first, second))
    return float(np.abs(p / max(p.sum(), 1.0) - q / max(q.sum(), 1.0)).sum())


def count_rows_per_person(table: PanelTable) -> Integers:
    """Return the number of persons by their number of rows, from 0 rows on."""
    return np.bincount(np.diff(np.append(table.starts, len(table.person))))


def count_gaps(table: PanelTable) -> Integers:
    """Return the number of pairs of neighbouring rows by the steps between them."""
    gaps = np.diff(table.step)[table.follows]
    return np.bincount(np.clip(gaps, 0, 10_000)) if len(gaps) else np.zeros(1, np.int64)


def count_transitions(table: PanelTable, column: str) -> Integers:
    """Return the number of pairs of neighbouring rows by both codes, shape (size, size)."""
    first = np.flatnonzero(table.follows)
    return count_pairs(table, column, (first, first + 1))


def compute_autocorrelation(table: PanelTable, column: str) -> float:
    """Return the correlation between neighbouring rows of a person; NaN if nothing varies."""
    first = np.flatnonzero(table.follows)
    return correlate_pairs(table.values[column], first, first + 1)[0]


def compute_person_share(table: PanelTable, column: str) -> float:
    """Return the share of variance between persons (ICC of one-way analysis of variance); NaN if there is none."""
    values = table.values[column]
    is_number = ~np.isnan(values)
    person, values = np.unique(table.person[is_number], return_inverse=True)[1], values[is_number]
    counts = np.bincount(person).astype(np.float64)
    if len(counts) < 2 or len(values) <= len(counts):
        return float("nan")
    means = np.bincount(person, weights=values) / counts
    within = float(((values - means[person]) ** 2).sum()) / (len(values) - len(counts))
    between = float((counts * (means - values.mean()) ** 2).sum()) / (len(counts) - 1)
    size = (len(values) - float((counts**2).sum()) / len(values)) / (len(counts) - 1)
    total = between + (size - 1) * within
    return (between - within) / total if total > 0 else float("nan")


def compute_spell_length(table: PanelTable, column: str) -> float:
    """Return the mean length of runs of rows in which a person keeps the same code."""
    codes = table.codes[column]
    changes = 1 + int((~table.follows | (codes[1:] != codes[:-1])).sum()) if len(codes) else 0
    return len(codes) / changes if changes else float("nan")


def share_ever(table: PanelTable, column: str) -> Floats:
    """Return the share of persons that ever had each code, shape (size,)."""
    person = table.number
    seen = np.unique(person * table.sizes[column] + table.codes[column]) % table.sizes[column]
    return np.bincount(seen, minlength=table.sizes[column]) / max(len(table.starts), 1)


def survive(table: PanelTable, column: str) -> Floats:
    """Return the share of persons that still have the code of their first row, by the number of rows since, from 0.

    Product-limit estimate (Kaplan and Meier 1958): persons without further rows leave the risk set.
    """
    codes, starts = table.codes[column], table.starts
    if not len(starts):
        return np.ones(1)
    rows = np.diff(np.append(starts, len(codes)))
    since = np.arange(len(codes)) - np.repeat(starts, rows)
    changed = np.where(codes != np.repeat(codes[starts], rows), since, rows.max())
    until = np.minimum.reduceat(changed, starts)
    events = np.bincount(until[until < rows], minlength=rows.max())[1 : rows.max()]
    lost = rows[until >= rows]
    at_risk = np.array([int((until[until < rows] >= k).sum() + (lost > k).sum()) for k in range(1, rows.max())])
    return np.append(1.0, np.cumprod(1 - events / np.maximum(at_risk, 1)))


def survive_from_event(table: PanelTable, column: str, code: int) -> Floats:
    """Return the share of persons that still have ``code``, by the number of rows since they first had it, from 0.

    Like :func:`survive`, for the persons that ever have it and their rows from then on.
    """
    begun = np.flatnonzero(table.codes[column] == code)
    first = np.full(len(table.starts), len(table.person))
    number = table.number
    np.minimum.at(first, number[begun], begun)
    chosen = np.arange(len(table.person)) >= first[number]
    codes = {column: table.codes[column][chosen]}
    return survive(PanelTable(table.person[chosen], table.step[chosen], codes, table.sizes, {}), column)


ALIKE_PERSONS, LEAST_OFF, MOST_OFF = 50, 5 / 200, 50 / 200
"""Number of reference persons, and limits on count differences as shares of a person's most rows (NIST)."""


def compare_kinds_of_persons(
    real: PanelTable, synthetic: PanelTable, columns: Sequence[str], most: int, seed: int = 0
) -> float:
    """Return the mean difference of the shares of persons that resemble a random real person, 0..1.

    This is the higher order conjunction of the NIST Differential Privacy Temporal Map Challenge, sprint 3, whose score
    is 1 minus this value.  One person resembles another if their numbers of rows with each code of ``columns`` differ
    by at most a limit drawn per code.  The challenge's columns were shift and pickup area.  Its limit was between 5 and
    50, and a person had at most 200 rows; here the limit is scaled to ``most``.
    """
    counts = [_count_rows_by_code(table, columns) for table in (real, synthetic)]
    if not (len(counts[0]) and len(counts[1]) and columns):
        return float("nan")
    rng, off = np.random.default_rng(seed), []
    low, high = (ceil(part * most) for part in (LEAST_OFF, MOST_OFF))
    for _ in range(ALIKE_PERSONS):
        one = counts[0][rng.integers(len(counts[0]))]
        limit = rng.integers(low, high, endpoint=True, size=len(one))
        alike = [float((np.abs(each - one) <= limit).all(axis=1).mean()) for each in counts]
        off.append(abs(alike[0] - alike[1]))
    return float(np.mean(off))


def _count_rows_by_code(table: PanelTable, columns: Sequence[str]) -> Integers:
    number, persons = table.number, len(table.starts)
    counts = [
        np.bincount(number * table.sizes[c] + table.codes[c], minlength=persons * table.sizes[c]).reshape(
            persons, table.sizes[c]
        )
        for c in columns
    ]
    return np.concatenate([np.zeros((persons, 0), np.int64), *counts], axis=1)


def regress_within(table: PanelTable, outcome: str, others: Sequence[str]) -> Floats:
    """Return the slopes of the fixed-effects regression, in standard deviations of all rows; NaN if unknown."""
    y, x, person, spread = _read_regression(table, outcome, others)
    slopes = _solve(_demean(x, person, np.ones(len(person))), _demean(y, person, np.ones(len(person))))[0]
    return slopes * spread


def regress_random(table: PanelTable, outcome: str, others: Sequence[str]) -> Floats:
    """Return the slopes of the random-effects regression, in standard deviations of all rows; NaN if unknown.

    Feasible generalized least squares (Swamy and Arora 1972).
    """
    y, x, person, spread = _read_regression(table, outcome, others)
    counts = np.bincount(person).astype(np.float64)
    constant = np.ones(len(person))
    _, residual = _solve(_demean(x, person, constant), _demean(y, person, constant))
    free = len(y) - len(counts) - x.shape[1]
    means = [np.bincount(person, weights=v) / np.maximum(counts, 1) for v in (y, *x.T)]
    _, between = _solve(np.column_stack([np.ones(len(counts)), *means[1:]]), means[0])
    if free < 1 or len(counts) <= x.shape[1] + 1:
        return np.full(x.shape[1], np.nan)
    within = residual / free
    person_variance = max(between / (len(counts) - x.shape[1] - 1) - within * float((1 / counts).mean()), 0.0)
    theta = (1 - np.sqrt(within / np.maximum(within + counts * person_variance, 1e-300)))[person]
    slopes, _ = _solve(np.column_stack([1 - theta, _demean(x, person, theta)]), _demean(y, person, theta))
    return slopes[1:] * spread


def _read_regression(table: PanelTable, outcome: str, others: Sequence[str]) -> tuple[Floats, Floats, Integers, Floats]:
    """Return the outcome, the others, persons from 0, and factors that turn slopes into standard deviations."""
    values = np.column_stack([table.values[name] for name in (outcome, *others)])
    complete = ~np.isnan(values).any(axis=1)
    person = np.unique(table.person[complete], return_inverse=True)[1].astype(np.int64)
    y, x = values[complete, 0], values[complete, 1:]
    spread = x.std(axis=0) / max(float(y.std()), 1e-300) if len(y) else np.ones(len(others))
    return y, x, person, spread


def _demean(values: Floats, person: Integers, share: Floats) -> Floats:
    """Return values minus ``share`` of their person's mean; column by column for two axes."""
    counts = np.maximum(np.bincount(person), 1)
    if values.ndim > 1:
        return np.column_stack([_demean(column, person, share) for column in values.T])
    return np.asarray(values - share * (np.bincount(person, weights=values) / counts)[person])


def _solve(x: Floats, y: Floats) -> tuple[Floats, float]:
    """Return least-squares slopes, NaN if the columns are collinear, and the residual sum of squares."""
    if len(y) < 1 or not (np.isfinite(x).all() and np.isfinite(y).all()) or np.linalg.matrix_rank(x) < x.shape[1]:
        return np.full(x.shape[1], np.nan), float("nan")
    slopes = np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], dtype=np.float64)
    return slopes, float(((y - x @ slopes) ** 2).sum())


def share_always(table: PanelTable, column: str) -> float:
    """Return the share of persons with two or more rows whose code never changes; NaN without such persons."""
    codes, starts = table.codes[column], table.starts
    if not len(starts):
        return float("nan")
    rows = np.diff(np.append(starts, len(codes)))
    same = np.minimum.reduceat(codes, starts) == np.maximum.reduceat(codes, starts)
    several = rows > 1
    return float(same[several].mean()) if several.any() else float("nan")


def compare_compositions(first: PanelTable, second: PanelTable, roles: int) -> float:
    """Return the L1 distance of the shares of household compositions: the number of members of each role."""
    counts = [
        np.bincount(t.number * roles + t.step, minlength=len(t.starts) * roles).reshape(-1, roles)
        for t in (first, second)
    ]
    kinds, kind_of = np.unique(np.concatenate(counts), axis=0, return_inverse=True)
    kind_of = kind_of.ravel()
    size = len(counts[0])
    return compute_l1(*(np.bincount(part, minlength=len(kinds)) for part in (kind_of[:size], kind_of[size:])))


def pair_with_first(table: PanelTable, role: int) -> tuple[Integers, Integers]:
    """Return the rows of first members in the first role, and of their households' first member in ``role``."""
    household, places = table.number, np.flatnonzero(table.step == role)
    places = places[np.diff(household[places], prepend=-1) != 0]
    first = table.starts[household[places]]
    has_first = table.step[first] == 0
    return first[has_first], places[has_first]


def correlate_pairs(values: Floats, first: Integers, second: Integers) -> tuple[float, float]:
    """Return the correlation of values between members of pairs, and the mean difference, first minus second.

    NaN if undefined.
    """
    firsts, seconds = values[first], values[second]
    both_numbers = ~(np.isnan(firsts) | np.isnan(seconds))
    firsts, seconds = firsts[both_numbers], seconds[both_numbers]
    if len(firsts) < 3:
        return float("nan"), float("nan")
    constant = firsts.std() == 0 or seconds.std() == 0
    return float("nan") if constant else float(np.corrcoef(firsts, seconds)[0, 1]), float((firsts - seconds).mean())


def count_pairs(table: PanelTable, column: str, pairs: tuple[Integers, Integers]) -> Integers:
    """Return the number of pairs of members by both codes, shape (size, size)."""
    size, codes = table.sizes[column], table.codes[column]
    joint = codes[pairs[0]] * size + codes[pairs[1]]
    return np.bincount(joint, minlength=size * size).reshape(size, size)


def sum_by_household(table: PanelTable, column: str, *, constant: bool) -> Floats:
    """Return each household's sum of a column over its members, null as 0; a constant column's value."""
    values = np.nan_to_num(table.values[column])
    begins = table.starts
    return values[begins] if constant else np.add.reduceat(values, begins) if len(begins) else np.zeros(0)


def compute_gini(values: Floats) -> float:
    """Return the Gini coefficient of nonnegative amounts, NaN if all are 0."""
    ordered = np.sort(np.maximum(values, 0.0))
    total, n = float(ordered.sum()), len(ordered)
    if total <= 0:
        return float("nan")
    return float(2 * (np.arange(1, n + 1) @ ordered) / (n * total) - (n + 1) / n)
