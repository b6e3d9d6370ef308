"""Search for numbers computed from others, and for dates and amounts with the same order in every row.

Computed are copies, sums, products, ratios, and days between dates.  Dates near each other are found too.

PRIVATE: a pure function of private rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from privsyn.data_contracts.columns import IntegerColumn
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.spec_checks import check_compared
from privsyn.specs.advice.columns import (
    COMPARE,
    AdviceColumn,
    Finding,
    Floats,
    format_value,
    make_rule,
    name_in_rule,
    name_in_sentence,
    pair_columns,
)

ODD_NULLS = 0.01
"""Largest share of rows in which only the computed column, or only a source, is null."""

SCREENED = 256
"""Rows on which most triples are rejected."""

MANY = 30
"""Number of amounts above which fewer rows are screened."""

SCREENED_SHARE = 0.97
"""Smallest share of screened rows that keep a relation, for all rows to be checked."""

LEAST_ROWS = 30
"""Smallest number of rows in which every part of a relation matters."""

WITHIN = 0.01
"""Largest relative distance of a value from the computed one, in a relation that does not hold in every row."""

KEPT = 0.99
"""Smallest share of rows that keep such a relation."""

MOST_BY_CHANCE = 0.2
"""Largest share of rows that keep a relation after its values are shuffled."""

LEAST_SPREAD = 0.05
"""Smallest standard deviation of the logarithm of each factor, with its power."""

MOST_TERMS = 8

_FACTORS = (1, 10, 100, 1_000, 10_000, 0.1, 0.01, 0.001, 0.0001, 2, 0.5, 4, 0.25, 7, 12, 24, 52, 60, 365, 703, 1 / 12)
"""Usual factors; a constant near one is rounded to it."""

YEAR = 365.25
_SCALES = {1: "", 24: " * 24", 1_440: " * 1440"}

LEAST_EXPECTED = 0.05
"""Smallest share of rows that break the order if columns are unrelated; below, ranges already imply it."""

NEAR = 0.05
"""Largest distance of two dates in nearly all rows, as a share of their range, for `compare` to be advised."""

_ENDS = (0.01, 0.99)
"""Quantiles of the distances that a finding reports."""


@dataclass(frozen=True, eq=False)
class ArithmeticRelation:
    """PRIVATE: ``target`` equals ``expression`` of ``sources``, where all are known.

    ``exact``: whether it holds in every row, up to rounding; ``share``: share of rows within WITHIN (1 if exact).
    """

    target: AdviceColumn
    sources: tuple[AdviceColumn, ...]
    expression: str
    rows: int
    exact: bool
    share: float

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all its columns."""
        return frozenset(c.name for c in (self.target, *self.sources))


def describe_relation(relation: ArithmeticRelation, all_rows: int) -> Finding | None:
    """Return the finding of a relation; None for an inexact one whose columns are often not null together.

    If the target and its sources are often not null together, an exact relation becomes a condition instead of a
    computed column.
    """
    missing = np.any([c.null for c in relation.sources], axis=0)
    if (missing ^ relation.target.null).mean() > ODD_NULLS:
        return _describe_as_condition(relation) if relation.exact else None
    where = "" if relation.rows == all_rows else " in which all are known"
    held = "in all" if relation.exact else f"within 1 % in {np.floor(relation.share * 1_000) / 10:g} % of"
    words = f"{name_in_sentence(relation.target)} is `{relation.expression}` {held} {relation.rows:,} rows{where}"
    names = (relation.target.name, *(c.name for c in relation.sources))
    return make_rule("arithmetic", names, f"{words}: `derive`?", derive={relation.target.name: relation.expression})


def _describe_as_condition(relation: ArithmeticRelation) -> Finding:
    target, expression = relation.target, relation.expression
    is_whole = target.unit >= 1 and "/" not in expression
    distance = 0.5 if is_whole else max(2 * target.unit, 1e-6)
    return make_rule(
        "arithmetic",
        (target.name, *(c.name for c in relation.sources)),
        f"{name_in_sentence(target)} is `{expression}` in all {relation.rows:,} rows in which all are known: a rule?",
        never=f"{name_in_rule(target)} != {expression}"
        if target.is_moment
        else f"abs({name_in_rule(target)} - ({expression})) > {format_value(distance)}",
    )


def find_pairs(columns: Sequence[AdviceColumn]) -> Iterator[ArithmeticRelation]:
    """Yield amounts that equal another amount, times a constant or plus a constant."""
    amounts = [c for c in columns if c.is_amount and c.size > 2]
    reported: set[str] = set()
    for source, target in combinations(amounts, 2):
        if target.name in reported or source.name in reported:
            continue
        relation = _fit_line(source, target)
        if relation is not None:
            reported.add(relation.target.name)
            yield relation


def _fit_line(source: AdviceColumn, target: AdviceColumn) -> ArithmeticRelation | None:
    known = ~(np.isnan(source.numbers) | np.isnan(target.numbers))
    x, y = source.numbers[known], target.numbers[known]
    if len(x) < LEAST_ROWS or not _fit_exactly(x[:SCREENED], y[:SCREENED], target) or np.ptp(x) == 0:
        return None
    line = _fit_exactly(x, y, target)
    if line is None or len(np.unique(y)) < 3:
        return None
    slope, offset = line
    first = name_in_rule(source)
    term = (
        first
        if slope == 1
        else f"{format_value(offset)} - {first}"
        if slope == -1
        else f"{first} * {format_value(slope)}"
    )
    if offset and slope != -1:
        term += f" {'+' if offset > 0 else '-'} {format_value(abs(offset))}"
    return ArithmeticRelation(target, (source,), term, int(known.sum()), True, 1.0)


def _fit_exactly(x: Floats, y: Floats, target: AdviceColumn) -> tuple[float, float] | None:
    """Return slope and offset of the line through all points; None if there is none."""
    low, high = int(np.argmin(x)), int(np.argmax(x))
    if x[low] == x[high]:
        return 1.0, 0.0  # all x are equal: nothing contradicts a line
    slope = _round_constant(float((y[high] - y[low]) / (x[high] - x[low])))
    if slope == 0 or len(np.unique(x)) < 3:
        return None
    offset = round(float(y[low] - slope * x[low]), 6)
    near = np.abs(y - slope * x - offset) <= 0.51 * target.unit + 1e-6 * np.abs(y)
    return (slope, offset) if near.all() and np.std(y) > 3 * target.unit * (target.unit < 1) else None


def _round_constant(value: float) -> float:
    """Return a usual factor near the value, or the value with four digits."""
    for factor in _FACTORS:
        for sign in (1, -1):
            if abs(value - sign * factor) <= 0.005 * factor:
                return float(sign * factor)
    return float(f"{value:.4g}")


def find_triples(columns: Sequence[AdviceColumn]) -> Iterator[ArithmeticRelation]:
    """Yield amounts that are a sum or product of two others, or one divided by the square of another."""
    amounts = [c for c in columns if c.is_amount and c.size > 2]
    if len(amounts) < 3:
        return
    sample = np.array([_spread(c, SCREENED * MANY // max(MANY, len(amounts))) for c in amounts])
    with np.errstate(all="ignore"):
        logs = np.where(sample > 0, np.log(np.where(sample > 0, sample, 1)), np.nan)
    spreads = np.array([np.nanstd(row) if np.isfinite(row).sum() > 1 else 0.0 for row in logs])
    relations: list[ArithmeticRelation] = []
    for place, target in enumerate(amounts):
        for i, j in _screen_sums(sample, place, target):
            relations += _check_sum(target, amounts[i], amounts[j])
        if spreads[place] >= LEAST_SPREAD:
            for i, j, power in _screen_products(logs, place, spreads):
                relations += _check_product(target, amounts[i], amounts[j], power)
    yield from _choose_targets([*relations, *find_long_sums(amounts)])


def _spread(column: AdviceColumn, limit: int) -> Floats:
    """Return numbers of at most ``limit`` rows spread evenly over the table."""
    rows = len(column.numbers)
    return column.numbers[np.linspace(0, rows - 1, min(rows, limit)).astype(np.int64)]


def _screen_sums(sample: Floats, place: int, target: AdviceColumn) -> Iterator[tuple[int, int]]:
    """Yield pairs whose sum is the target up to a constant, in nearly all sample rows."""
    rest = sample[place] - sample[:, None, :] - sample[None, :, :]
    known = ~np.isnan(rest)
    many = known.sum(axis=2)
    with np.errstate(all="ignore"):
        start = np.nansum(rest, axis=2) / np.maximum(many, 1)
        constant = np.abs(rest - start[:, :, None]) <= 2 * _get_tolerance(target, 2) + 1e-6 * np.abs(sample[place])
        near = np.abs(rest) <= WITHIN * np.abs(sample[place])
    share = np.maximum((constant & known).sum(axis=2), (near & known).sum(axis=2)) / np.maximum(many, 1)
    for i, j in np.argwhere(np.triu((share >= SCREENED_SHARE) & (many >= 10), 1)):
        if place not in (i, j):
            yield int(i), int(j)


def _screen_products(logs: Floats, place: int, spreads: Floats) -> Iterator[tuple[int, int, int]]:
    """Yield pairs whose product, or one divided by the other's square, is the target up to a factor."""
    for power in (1, -2):
        rest = logs[place] - logs[:, None, :] - power * logs[None, :, :]
        known = np.isfinite(rest)
        many = known.sum(axis=2)
        start = np.where(known, rest, 0).sum(axis=2) / np.maximum(many, 1)
        near = np.abs(rest - start[:, :, None]) <= 2 * WITHIN
        kept = ((near & known).sum(axis=2) / np.maximum(many, 1) >= 0.9) & (many >= 10)
        for i, j in np.argwhere(kept):
            is_varied = min(spreads[i], abs(power) * spreads[j]) >= LEAST_SPREAD
            if is_varied and place not in (i, j) and (i <= j if power == 1 else i != j):
                yield int(i), int(j), power


def _get_tolerance(target: AdviceColumn, terms: int) -> float:
    """Return how far rounding may move a sum: not at all for whole numbers, else half a unit per number."""
    return 0.01 if target.unit >= 1 else 0.5 * (terms + 1.02) * target.unit


def _check_sum(target: AdviceColumn, first: AdviceColumn, second: AdviceColumn) -> Iterator[ArithmeticRelation]:
    c, a, b, rows = _get_known(target, first, second)
    matters = (a != 0) & (b != 0) & (np.minimum(np.abs(a), np.abs(b)) > 5 * WITHIN * np.abs(c))
    if len(c) < LEAST_ROWS or np.count_nonzero(matters) < max(LEAST_ROWS, 0.01 * len(c)):
        return
    rest = c - a - b
    offset = float(np.round(np.median(rest), 6))
    tolerance = _get_tolerance(target, 2) + 1e-6 * np.abs(c)
    constant = np.abs(rest - offset) <= tolerance
    expression = f"{name_in_rule(first)} + {name_in_rule(second)}"
    if constant.all() and _is_unlikely(c, a + b + offset, tolerance):
        if offset:
            expression += f" {'+' if offset > 0 else '-'} {format_value(abs(offset))}"
            difference = f"{name_in_rule(target)} - {name_in_rule(first)} {'-' if offset > 0 else '+'} "
            yield ArithmeticRelation(
                second, (target, first), f"{difference}{format_value(abs(offset))}", rows, True, 1.0
            )
        yield ArithmeticRelation(target, (first, second), expression, rows, True, 1.0)
        return
    near = np.abs(rest) <= np.maximum(WITHIN * np.abs(c), 1e-9)
    if near.mean() >= KEPT and near[matters].mean() >= KEPT and _is_unlikely(c, a + b, WITHIN * np.abs(c)):
        yield ArithmeticRelation(target, (first, second), expression, rows, False, float(near.mean()))


def _check_product(
    target: AdviceColumn, first: AdviceColumn, second: AdviceColumn, power: int
) -> Iterator[ArithmeticRelation]:
    c, a, b, rows = _get_known(target, first, second)
    used = (a > 0) & (b > 0) & (c > 0)
    if np.count_nonzero(used) < LEAST_ROWS:
        return
    if min(np.std(np.log(v[used]) * p) for v, p in ((a, 1), (b, power), (c, 1))) < LEAST_SPREAD:
        return
    with np.errstate(all="ignore"):
        computed = a * b if power == 1 else a / b**2
    factor = _round_constant(float(np.median(c[used] / computed[used])))
    computed = np.where(np.isfinite(computed), factor * computed, np.nan)
    known = ~np.isnan(computed)
    if known.mean() < KEPT:
        return
    off = np.abs(c - computed)[known]
    tolerance = 1.0001 * target.unit + 1e-6 * np.abs(c[known])
    near = off <= np.maximum(WITHIN * np.abs(c[known]), 1e-9)
    signs = " * " if power == 1 else " / "
    by = name_in_rule(second) if power == 1 else f"({name_in_rule(second)} * {name_in_rule(second)})"
    expression = f"{name_in_rule(first)}{signs}{by}" + ("" if factor == 1 else f" * {format_value(factor)}")
    if (off <= tolerance).all() and _is_unlikely(c[known], computed[known], tolerance):
        whole = isinstance(target.described, IntegerColumn) and (off <= 0.5 + 1e-9).all()
        text = f"floor({expression} + 0.5)" if whole and off.max() > 0 else expression
        yield ArithmeticRelation(target, (first, second), text, rows, True, 1.0)
    elif near.mean() >= KEPT and _is_unlikely(c[known], computed[known], WITHIN * np.abs(c[known])):
        yield ArithmeticRelation(target, (first, second), expression, rows, False, float(near.mean()))


def _get_known(*columns: AdviceColumn) -> tuple[Floats, Floats, Floats, int]:
    numbers = np.array([c.numbers for c in columns])
    known = ~np.isnan(numbers).any(axis=0)
    one, two, three = numbers[:, known]
    return one, two, three, int(known.sum())


def _is_unlikely(values: Floats, computed: Floats, tolerance: Floats) -> bool:
    """Return whether few rows keep the relation after values are moved to other rows."""
    shifts = [len(values) // part for part in (2, 3, 5, 7)]
    kept = [(np.abs(np.roll(values, shift) - computed) <= np.roll(tolerance, shift)).mean() for shift in shifts]
    return bool(np.mean(kept) <= MOST_BY_CHANCE)


def _choose_targets(relations: Sequence[ArithmeticRelation]) -> Iterator[ArithmeticRelation]:
    """Yield one relation per set of columns and per target, preferring exact ones, then sums."""
    ranked = sorted(relations, key=lambda r: (not r.exact, -r.share, "floor" in r.expression, " / " in r.expression))
    reported: set[frozenset[str]] = set()
    targets: set[str] = set()
    for relation in ranked:
        if relation.target.name in targets or any(
            relation.names <= names or names <= relation.names for names in reported
        ):
            continue
        reported.add(relation.names)
        targets.add(relation.target.name)
        yield relation


def find_long_sums(columns: Sequence[AdviceColumn]) -> Iterator[ArithmeticRelation]:
    """Yield amounts that equal the sum of three or more others in every row."""
    amounts = [c for c in columns if c.null.mean() < 0.1]
    if len(amounts) < 4:
        return
    numbers = np.array([c.numbers for c in amounts])
    complete = np.flatnonzero(~np.isnan(numbers).any(axis=0))
    if len(complete) < 4 * len(amounts) + LEAST_ROWS:
        return
    numbers = numbers[:, complete]
    products = numbers @ numbers.T / len(complete)
    reported: set[str] = set()
    for place, target in enumerate(amounts):
        others = [i for i in range(len(amounts)) if i != place and amounts[i].name not in reported]
        terms = _fit_terms(products, place, others)
        if not 3 <= len(terms) <= MOST_TERMS or any(amounts[i].name in reported for i in terms):
            continue
        total = sum(sign * numbers[i] for i, sign in terms.items())
        tolerance = _get_tolerance(target, len(terms)) + 1e-6 * np.abs(numbers[place])
        exact = (np.abs(numbers[place] - total) <= tolerance).all()
        used = all(np.count_nonzero(numbers[i]) >= LEAST_ROWS for i in terms)
        if exact and used and min(terms.values()) > 0 and _is_unlikely(numbers[place], total, tolerance):
            reported.add(target.name)
            sources = tuple(amounts[i] for i in terms)
            yield ArithmeticRelation(target, sources, " + ".join(map(name_in_rule, sources)), len(complete), True, 1.0)


def _fit_terms(products: Floats, place: int, others: Sequence[int]) -> dict[int, int]:
    """Return column -> factor 1 or -1 of a sum that fits a column, by mean products; empty if there is none."""
    scale = np.sqrt(np.maximum(np.diag(products), 1e-300))
    inside = products[np.ix_(others, others)] / scale[others] / scale[others][:, None]
    with_target = products[others, place] / scale[others]
    factors = np.linalg.lstsq(inside, with_target, rcond=1e-12)[0] / scale[others]
    whole = np.round(factors)
    share = np.abs(factors - whole) * scale[others] / scale[place]
    if (share > 1e-3).any() or (np.abs(whole) > 1).any():
        return {}
    return {i: int(f) for i, f in zip(others, whole, strict=True) if f}


def find_durations(columns: Sequence[AdviceColumn]) -> Iterator[ArithmeticRelation]:
    """Yield numbers of days, hours, minutes or full years between two dates.

    For whole days, the later date is the computed column, so that the number keeps its measured distribution.
    """
    moments = [c for c in columns if c.is_moment]
    amounts = [c for c in columns if c.is_amount and c.size > 2]
    for start in moments:
        for end in moments:
            if start is not end:
                for amount in amounts:
                    yield from _check_duration(start, end, amount)


def _check_duration(start: AdviceColumn, end: AdviceColumn, amount: AdviceColumn) -> Iterator[ArithmeticRelation]:
    c, a, b, rows = _get_known(amount, start, end)
    days = b - a
    if len(c) < LEAST_ROWS or np.median(days) <= 0:
        return
    first, last, number = map(name_in_rule, (start, end, amount))
    for scale, text in _SCALES.items():
        offset = float(np.round(np.median(c[:SCREENED] - days[:SCREENED] * scale), 3))
        tolerance = np.full(len(c), 0.51 * amount.unit + 1e-6)
        if abs(offset) > 1 or (np.abs(c - days * scale - offset) > tolerance)[:SCREENED].any():
            continue
        if (np.abs(c - days * scale - offset) <= tolerance).all() and _is_unlikely(c, days * scale + offset, tolerance):
            plus = f" {'+' if offset > 0 else '-'} {format_value(abs(offset))}" if offset else ""
            if scale == 1 and not offset and (end.described.kind == "date" or end.described.type == "date"):
                yield ArithmeticRelation(end, (start, amount), f"{first} + {number}", rows, True, 1.0)
            else:
                product = f"({last} - {first}){text}" if text else f"{last} - {first}"
                yield ArithmeticRelation(amount, (start, end), product + plus, rows, True, 1.0)
            return
    years = np.floor(days / YEAR)
    near = c == years
    if near[:SCREENED].mean() >= SCREENED_SHARE and near.mean() >= KEPT and _is_unlikely(c, years, np.zeros(len(c))):
        yield ArithmeticRelation(
            amount, (start, end), f"({last} - {first}) // {YEAR}", rows, bool(near.all()), float(near.mean())
        )


def find_orders(columns: Sequence[AdviceColumn]) -> list[tuple[AdviceColumn, AdviceColumn]]:
    """Return pairs (low, high) with low <= high in every row, without pairs implied by two others."""
    amounts = [c for c in columns if c.is_amount and c.size > 2]
    moments = [c for c in columns if c.is_moment and c.size > 2]
    found = [pair for group in (moments, amounts) for pair in pair_columns(group) if _is_ordered(*pair)]
    names = {(a.name, b.name) for a, b in found}
    middles = {name for pair in names for name in pair}
    return [
        (a, b)
        for a, b in found
        if not any((a.name, m) in names and (m, b.name) in names for m in middles - {a.name, b.name})
    ]


def _is_ordered(low: AdviceColumn, high: AdviceColumn) -> bool:
    one, other = low.numbers, high.numbers
    units = {getattr(c.described, "unit", "") for c in (low, high)} - {""}
    if (one[:1_000] > other[:1_000]).any() or (one > other).any() or len(units) > 1:
        return False
    known = ~(np.isnan(one) | np.isnan(other))
    one, other = one[known], other[known]
    if len(one) < LEAST_ROWS or np.array_equal(one, other):
        return False
    greater = np.searchsorted(np.sort(other[other != 0]), one[one != 0], side="left")  # in random pairs, neither is 0
    above = float(greater.sum() / len(one) / len(other))
    return above >= LEAST_EXPECTED and above * len(one) >= LEAST_ROWS


def describe_order(low: AdviceColumn, high: AdviceColumn) -> Finding:
    """Return the finding that ``low`` is never above ``high``."""
    known = int((~(low.null | high.null)).sum())
    words = "never before" if low.is_moment else "never below"
    where = "" if known == len(low.codes) else " in which both are known"
    return make_rule(
        "order",
        (low.name, high.name),
        f"{name_in_sentence(high)} is {words} {name_in_sentence(low)} in all {known:,} rows{where}: a rule?",
        never=f"{name_in_rule(high)} < {name_in_rule(low)}",
    )


def find_near_dates(columns: Sequence[AdviceColumn], computed: Collection[str]) -> Iterator[Finding]:
    """Yield pairs of dates whose distance is small relative to their range; each date is in at most one pair.

    ``computed``: names of columns to leave out, which rules compute or tie to others.
    """
    moments = [c for c in columns if c.is_moment and c.size > 2 and c.name not in computed]
    near = []
    for place, one in enumerate(moments):
        for other in moments[place + 1 :]:
            width = _measure_distance(one, other)
            if width is not None:
                near.append((width, one, other))
    reported: set[str] = set()
    for (_, low, high), one, other in sorted(near, key=lambda entry: entry[0][0]):
        if not reported & {one.name, other.name}:
            reported |= {one.name, other.name}
            first, second = (one, other) if low + high >= 0 else (other, one)
            low, high = (low, high) if low + high >= 0 else (-high, -low)
            yield Finding(
                "compare",
                (first.name, second.name),
                f"{name_in_sentence(second)} is {low:g} to {high:g} days after {name_in_sentence(first)} in 98 % of "
                f"rows, of a range of {_count_range(one, other):,.0f} days: `compare`?",
                COMPARE,
                [first.name, second.name],
            )


def _count_range(one: AdviceColumn, other: AdviceColumn) -> float:
    return float(max(np.nanmax(c.numbers) - np.nanmin(c.numbers) for c in (one, other)))


def _measure_distance(one: AdviceColumn, other: AdviceColumn) -> tuple[float, float, float] | None:
    """Return the distances' share of the range, and their ends in days; None for dates that are not near."""
    days = other.numbers - one.numbers
    days = days[~np.isnan(days)]
    if len(days) < LEAST_ROWS or np.ptp(days) == 0:
        return None
    try:
        check_compared([(one.name, other.name)], {c.name: c.described for c in (one, other)}, ())
    except FieldError:
        return None
    low, high = (float(np.round(q, 2)) for q in np.quantile(days, _ENDS))
    share = max(abs(low), abs(high)) / max(_count_range(one, other), 1e-9)
    return (share, low, high) if share <= NEAR else None
