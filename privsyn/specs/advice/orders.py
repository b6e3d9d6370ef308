"""Search for dates and amounts with the same order in every row, and for dates near each other.

PRIVATE: a pure function of private rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.spec_checks import check_compared
from privsyn.specs.advice.columns import AdviceColumn, Floats, name_in_rule, name_in_sentence, pair_columns
from privsyn.specs.advice.finding import COMPARE, Finding, make_rule

LEAST_ROWS = 30
"""Smallest number of rows in which both columns are known."""

LEAST_EXPECTED = 0.05
"""Smallest share of rows that break the order if columns are unrelated; below, ranges already imply it."""

NEAR = 0.05
"""Largest distance of two dates in nearly all rows, as a share of their range, for `compare` to be advised."""

_ENDS = (0.01, 0.99)
"""Quantiles of the distances that a finding reports."""


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
    if (one[:1_000] > other[:1_000]).any() or (one > other).any() or not _have_one_unit(low, high):
        return False
    known = ~(np.isnan(one) | np.isnan(other))
    if known.sum() < LEAST_ROWS or np.array_equal(one[known], other[known]):
        return False
    above = _compute_share_above(one[known], other[known])
    return above >= LEAST_EXPECTED and above * known.sum() >= LEAST_ROWS


def _have_one_unit(low: AdviceColumn, high: AdviceColumn) -> bool:
    units = {getattr(c.described, "unit", "") for c in (low, high)} - {""}
    return len(units) < 2


def _compute_share_above(one: Floats, other: Floats) -> float:
    """Return the share of random pairs of rows in which the first is greater and neither is 0."""
    counted = np.searchsorted(np.sort(other[other != 0]), one[one != 0], side="left")
    return float(counted.sum() / len(one) / len(other))


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
