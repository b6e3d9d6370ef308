"""Calibrate how often synthetic persons are taken, so that their rows have the measured shares of codes.

A person's record is a sample of the person's rows, and rows drawn by noisy transitions drift.  So all kept rows are
counted too, and persons are calibrated to these counts like weights in a survey.  A person's weight is the exponential
of a sum over the person's rows, rounded to whole persons.  Post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privsyn.tasks.estimation.shrink_departures import shrink_counts
from privsyn.tasks.panels.transitions import project_to_sum

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[Any]
NoisyCounts: TypeAlias = Mapping[str, tuple[Floats, float]]
"""Column -> the noisy count of rows of each code, and its noise standard deviation."""

SAMPLE = 20_000
"""The most persons used to fit the slopes."""

BLOCK = 1 << 16
"""Persons rounded at once."""

MOST_CELLS = 1_000
"""The most calibrated cells: codes of columns, smallest column first, and groups of persons."""

ROUNDS = 20
"""The most Newton steps."""

SLACK, LEAST = 0.02, 5.0
"""Variance of a wanted count, as a share of the count and of the noise variance, and its minimum."""

UNBOUND = 1e12
"""Variance of an unconstrained count."""

MOST_TIMES = 3.0
"""The most that a person is wanted."""


def choose_persons(
    person: Integers,
    codes: Mapping[str, Codes],
    noisy: NoisyCounts,
    seed: int,
    groups: Sequence[tuple[Codes, Codes]] = (),
) -> Integers:
    """Return how often each person is taken, shape (persons,); the sum is about the number of persons.

    ``person``: each row's person, from 0, ascending; ``codes``: each row's codes, by column.  Row counts matter less
    the noisier they are; without information, every person is taken once.  ``groups``: each person's group by its rows
    and its wanted group, each of shape (persons,).
    """
    starts = np.append(np.flatnonzero(np.diff(person, prepend=-1)), len(person))
    rows = np.diff(starts)
    have, wanted, slack = _find_wanted(codes, noisy, rows)
    for number, (present, should) in enumerate(groups):
        name, size = f"(group {number})", int(max(present.max(initial=0), should.max(initial=0))) + 1
        if size + sum(map(len, have.values())) > MOST_CELLS:
            continue
        of_rows = np.full(len(person), size)  # a person is in its group once, at its first row
        of_rows[starts[:-1]] = present
        codes = {**codes, name: of_rows}
        have[name] = np.bincount(of_rows, minlength=size + 1).astype(np.float64)
        wanted[name] = np.append(np.bincount(should, minlength=size), have[name][size]).astype(np.float64)
        slack[name] = SLACK * wanted[name] + LEAST
        slack[name][size] = UNBOUND
    if not wanted or all((wanted[a] == have[a]).all() for a in wanted):
        return np.ones(len(rows), np.int64)
    cells = _Cells(codes, {a: len(counts) for a, counts in have.items()}, starts, int(rows.max()))
    of_rows = np.bincount(rows - 1).astype(np.float64)
    target, present = (np.concatenate([of_rows, *by_column.values()]) for by_column in (wanted, have))
    give = np.concatenate([SLACK * of_rows + LEAST, *slack.values()])
    rng = np.random.default_rng([seed, 0xCA1B])
    slopes = _find_slopes(cells, target, present, give, rng)
    times, off = np.empty(len(rows)), -target
    for first in range(0, len(rows), BLOCK):
        block = cells.take(np.arange(first, min(first + BLOCK, len(rows))))
        times[first : first + BLOCK] = np.minimum(np.exp(_sum_slopes(*block, slopes)), MOST_TIMES)
        _add(*block, times[first : first + BLOCK], off)
    repetitions = np.empty(len(rows), np.int64)
    order = rng.permutation(len(rows))
    for first in range(0, len(rows), BLOCK):
        chosen = order[first : first + BLOCK]
        repetitions[chosen] = _round(*cells.take(chosen), times[chosen], 1.0 / give, off)
    return repetitions


def _find_wanted(
    codes: Mapping[str, Codes], noisy: NoisyCounts, rows: Integers
) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, Floats]]:
    """Return, by column and code, the present rows, the wanted rows, and the variance of the wanted rows."""
    have: dict[str, Floats] = {}
    wanted: dict[str, Floats] = {}
    slack: dict[str, Floats] = {}
    number, precision = float(rows.sum()), {a: 1.0 / (len(counts) * sigma**2) for a, (counts, sigma) in noisy.items()}
    total = sum(precision[a] * float(counts.sum()) for a, (counts, _) in noisy.items())
    total /= max(sum(precision.values()), 1e-300)
    if total <= 0 or number <= 0:
        return have, wanted, slack
    scale, cells = number / total, int(rows.max())
    for a in sorted(noisy, key=lambda a: len(noisy[a][0])):
        counts, sigma = noisy[a]
        cells += len(counts)
        if cells > MOST_CELLS:
            break
        have[a] = np.bincount(codes[a], minlength=len(counts)).astype(np.float64)
        shrunk = shrink_counts(counts * scale, have[a], sigma * scale)
        wanted[a] = project_to_sum(shrunk, number)
        slack[a] = SLACK * (wanted[a] + (sigma * scale) ** 2) + LEAST
    return have, wanted, slack


class _Cells:
    """The cells of persons: each row's code in every column, and each person's number of rows.

    ``sizes``: the number of codes of each column; ``limit``: the most rows of a person.
    """

    def __init__(self, codes: Mapping[str, Codes], sizes: Mapping[str, int], starts: Integers, limit: int) -> None:
        first = np.cumsum([limit, *sizes.values()])[:-1]
        self._columns = [(codes[a], offset) for a, offset in zip(sizes, first, strict=True)]
        self._starts = starts

    @property
    def persons(self) -> int:
        """The number of persons."""
        return len(self._starts) - 1

    def take(self, persons: Integers) -> tuple[NDArray[np.int32], Integers]:
        """Return the cells of these persons' rows, concatenated, and where each person begins."""
        first, rows = self._starts[persons], self._starts[persons + 1] - self._starts[persons]
        starts = np.append(0, np.cumsum(rows))
        places = np.repeat(first - starts[:-1], rows) + np.arange(starts[-1])
        return np.stack([codes[places].astype(np.int32) + first for codes, first in self._columns], axis=1), starts


def _find_slopes(cells: _Cells, target: Floats, present: Floats, slack: Floats, rng: np.random.Generator) -> Floats:
    """Return, by cell, what a row adds to the log weight of its person.

    Solves the dual of minimum entropy with sums near the wanted ones, by Newton's method, on a sample of the persons.
    """
    sampled = np.sort(rng.permutation(cells.persons)[:SAMPLE])
    counts = np.zeros((len(sampled), len(target)), np.float32)
    _tabulate(*cells.take(sampled), counts)
    share = len(sampled) / cells.persons
    wanted = counts.sum(axis=0, dtype=np.float64) + (target - present) * share
    slack = slack * share
    slopes, times = np.zeros(len(target)), np.ones(len(sampled))
    value = times.sum()
    for _ in range(ROUNDS):
        slope = counts.T @ times - wanted + slack * slopes
        curve = (counts * times[:, None].astype(np.float32)).T @ counts + np.diag(slack)
        step = -np.linalg.solve(curve.astype(np.float64), slope)
        size = 1.0
        while True:
            moved = slopes + size * step
            tried_times = np.exp(np.minimum(counts @ moved, 10.0))
            less = value - (tried_times.sum() - wanted @ moved + 0.5 * slack @ moved**2)
            if less > 0 or size < 1e-3:
                break
            size /= 2
        if less <= 0:
            break
        slopes, times, value = moved, tried_times, value - less
        if less < 1e-6 * len(sampled):
            break
    return slopes


@njit(nogil=True, cache=True)
def _tabulate(table, starts, counts):  # type: ignore[no-untyped-def]
    """Count the cells of each person."""
    for person in range(len(starts) - 1):
        counts[person, starts[person + 1] - starts[person] - 1] = 1
        for row in range(starts[person], starts[person + 1]):
            for cell in table[row]:
                counts[person, cell] += 1


@njit(nogil=True, cache=True)
def _sum_slopes(table, starts, slopes):  # type: ignore[no-untyped-def]
    """Return the sum of the slopes of each person's cells."""
    sums = np.empty(len(starts) - 1)
    for person in range(len(sums)):
        total = slopes[starts[person + 1] - starts[person] - 1]
        for row in range(starts[person], starts[person + 1]):
            for cell in table[row]:
                total += slopes[cell]
        sums[person] = total
    return sums


@njit(nogil=True, cache=True)
def _add(table, starts, times, off):  # type: ignore[no-untyped-def]
    """Add each person's cells, weighted by ``times``."""
    for person in range(len(times)):
        off[starts[person + 1] - starts[person] - 1] += times[person]
        for row in range(starts[person], starts[person + 1]):
            for cell in table[row]:
                off[cell] += times[person]


@njit(nogil=True, cache=True)
def _round(table, starts, times, scale, off):  # type: ignore[no-untyped-def]
    """Round each person's weight up or down, whichever brings ``off`` nearer to 0; ``off`` is updated."""
    whole_times = np.empty(len(times), np.int64)
    person_counts = np.zeros(len(off))
    for person in range(len(times)):
        rounded = np.floor(times[person])
        part = times[person] - rounded
        rows = starts[person + 1] - starts[person] - 1
        person_counts[rows] = 1.0
        slope, curve = off[rows] * scale[rows], scale[rows]
        for row in range(starts[person], starts[person + 1]):
            for cell in table[row]:
                curve += scale[cell] * (2.0 * person_counts[cell] + 1.0)  # from the squared count of the person's rows
                person_counts[cell] += 1.0
                slope += off[cell] * scale[cell]
        up = 2.0 * slope * (1.0 - part) + curve * (1.0 - part) ** 2
        down = curve * part**2 - 2.0 * slope * part
        move = 1.0 - part if up < down and part > 0.0 else -part
        whole_times[person] = np.int64(round(times[person] + move))
        person_counts[rows] = 0.0
        off[rows] += move
        for row in range(starts[person], starts[person + 1]):
            for cell in table[row]:
                person_counts[cell] = 0.0
                off[cell] += move
    return whole_times
