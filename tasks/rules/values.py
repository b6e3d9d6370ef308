"""What an expression may be, for every cell of a grid or every row: intervals of numbers and possible truths.

A row is a cell of one value, so the same arithmetic answers for cells ("surely", "possibly") and for rows (exactly).
Null is as in SQL: it makes what is computed from it null, and a comparison unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Span:
    """Values from ``low`` to ``high``, both possible; ``null``: may be null; ``some``: may be something else.

    Arrays that broadcast against each other.  Of one value each, ``high`` is ``low`` itself.  Texts are numbers of a
    vocabulary, moments seconds since 1970.  Where ``some`` is false the bounds mean nothing.
    """

    low: Floats
    high: Floats
    null: Bools
    some: Bools

    @property
    def exact(self) -> bool:
        """Whether it is of one value each."""
        return self.high is self.low


@dataclass(frozen=True)
class Truth:
    """Whether a condition may be true, false, unknown; arrays that broadcast against each other."""

    true: Bools
    false: Bools
    unknown: Bools


NO, YES = np.array(False), np.array(True)


def make_constant(value: float) -> Span:
    """Return one value everywhere."""
    only = np.array(value, np.float64)
    return Span(only, only, NO, YES)


def span_rows(values: Floats, null: Bools) -> Span:
    """Return one value a row, null where ``null``."""
    known = np.where(null, 0.0, values)
    return Span(known, known, null, ~null)


NULL = Span(np.array(0.0), np.array(0.0), YES, NO)


def _split_both(a: Span, b: Span) -> tuple[Bools, Bools]:
    return a.null | b.null, a.some & b.some


def apply_monotone(function: Callable[[Any], Any], a: Span) -> Span:
    """Return a function that never falls, of every value."""
    low = function(a.low)
    return Span(low, low if a.exact else function(a.high), a.null, a.some)


def negate(a: Span) -> Span:
    """Return -a."""
    high = -a.low
    return Span(high if a.exact else -a.high, high, a.null, a.some)


def take_absolute(a: Span) -> Span:
    """Return |a|."""
    low, high = np.abs(a.low), np.abs(a.high)
    if a.exact:
        return Span(low, low, a.null, a.some)
    least = np.where((a.low <= 0) & (a.high >= 0), 0.0, np.minimum(low, high))
    return Span(least, np.maximum(low, high), a.null, a.some)


def add(a: Span, b: Span) -> Span:
    """Return a + b."""
    low = a.low + b.low
    return Span(low, low if a.exact and b.exact else a.high + b.high, *_split_both(a, b))


def _list_corners(function: Callable[[Floats, Floats], Floats], a: Span, b: Span) -> tuple[Floats, Floats]:
    if a.exact and b.exact:
        only = function(a.low, b.low)
        return only, only
    corners = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return (
        np.minimum(np.minimum(corners[0], corners[1]), np.minimum(corners[2], corners[3])),
        np.maximum(np.maximum(corners[0], corners[1]), np.maximum(corners[2], corners[3])),
    )


def multiply(a: Span, b: Span) -> Span:
    """Return a b."""
    return Span(*_list_corners(np.multiply, a, b), *_split_both(a, b))


def divide(a: Span, b: Span) -> Span:
    """Return a / b; null where b is 0."""
    null, some = _split_both(a, b)
    zero = (b.low <= 0) & (b.high >= 0)
    never = (b.low == 0) & (b.high == 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low, high = _list_corners(np.divide, a, b)
    if a.exact and b.exact:
        low = high = np.where(zero, 0.0, low)
    else:
        low, high = np.where(zero, -np.inf, low), np.where(zero, np.inf, high)
    return Span(low, high, null | (zero & some), some & ~never)


def take_modulo(a: Span, b: Span) -> Span:
    """Return a modulo b, of b's sign (as in Python); null where b is 0."""
    whole = divide(a, b)
    if a.exact and b.exact:
        with np.errstate(divide="ignore", invalid="ignore"):
            only = np.where(whole.some, a.low - b.low * np.floor(whole.low), 0.0)
        return Span(only, only, whole.null, whole.some)
    with np.errstate(invalid="ignore"):
        floor = np.floor(whole.low)
        one = b.low == b.high
        same = one & (floor == np.floor(whole.high)) & np.isfinite(floor)
        shift = np.where(same, b.low * floor, 0.0)
        low = np.where(same, np.minimum(a.low - shift, a.high - shift), np.minimum(b.low, 0.0))
        high = np.where(same, np.maximum(a.low - shift, a.high - shift), np.maximum(b.high, 0.0))
    return Span(low, high, whole.null, whole.some)


def take_extreme(function: Any, a: Span, b: Span) -> Span:
    """Return the smaller or the larger of two (np.minimum, np.maximum); null where one is."""
    low = function(a.low, b.low)
    return Span(low, low if a.exact and b.exact else function(a.high, b.high), *_split_both(a, b))


def choose_either(test: Truth, a: Span, b: Span) -> Span:
    """Return ``a`` where the test is true, ``b`` where it is false or unknown."""
    other = test.false | test.unknown
    only_a, only_b = test.true & ~other, other & ~test.true
    null = (test.true & a.null) | (other & b.null)
    some_a, some_b = test.true & a.some, other & b.some
    take_a, take_b = only_a | ~some_b, only_b | ~some_a
    low = np.where(take_a, a.low, np.where(take_b, b.low, np.minimum(a.low, b.low)))
    if a.exact and b.exact and not (test.true & other).any():
        return Span(low, low, null, some_a | some_b)
    high = np.where(take_a, a.high, np.where(take_b, b.high, np.maximum(a.high, b.high)))
    return Span(low, high, null, some_a | some_b)


def compare(sign: str, a: Span, b: Span) -> Truth:
    """Return the comparison ``sign`` of two spans."""
    null, some = _split_both(a, b)
    if sign in (">", ">="):
        a, b, sign = b, a, {">": "<", ">=": "<="}[sign]
    if sign in ("==", "!="):
        equal = (a.low <= b.high) & (b.low <= a.high)
        unequal = ~((a.low == a.high) & (b.low == b.high) & (a.low == b.low))
        true, false = (equal, unequal) if sign == "==" else (unequal, equal)
    elif sign == "<":
        true, false = a.low < b.high, a.high >= b.low
    else:
        true, false = a.low <= b.high, a.high > b.low
    return Truth(true & some, false & some, null)


def test_among(a: Span, values: Floats) -> Truth:
    """Return whether ``a`` is one of ``values``, shape (number,)."""
    values = np.sort(values)
    first = np.searchsorted(values, a.low)
    last = first if a.exact else np.searchsorted(values, a.high, side="right")
    inside = np.minimum(first, values.size - 1)
    hit = values[inside] == a.low
    true = (hit & (first < values.size)) if a.exact else last > first
    false = ~(hit & (a.low == a.high))
    return Truth(true & a.some, false & a.some, a.null)


def is_null(a: Span) -> Truth:
    """Return whether it is null; never unknown."""
    return Truth(a.null, a.some, NO)


def negate_truth(a: Truth) -> Truth:
    """Not a."""
    return Truth(a.false, a.true, a.unknown)


def conjoin(a: Truth, b: Truth) -> Truth:
    """Return a and b: false where one is false, else unknown where one is unknown."""
    unknown = (a.unknown & (b.true | b.unknown)) | (b.unknown & (a.true | a.unknown))
    return Truth(a.true & b.true, a.false | b.false, unknown)


def disjoin(a: Truth, b: Truth) -> Truth:
    """Return a or b."""
    return negate_truth(conjoin(negate_truth(a), negate_truth(b)))


def as_span(truth: Truth) -> Span:
    """Return a truth as 0 and 1."""
    some = truth.true | truth.false
    low = np.where(truth.false, 0.0, 1.0)
    high = low if not (truth.true & truth.false).any() else np.where(truth.true, 1.0, 0.0)
    return Span(low, high, truth.unknown, some)


def as_truth(span: Span) -> Truth:
    """0 and 1 as a truth."""
    return Truth((span.high >= 1) & span.some, (span.low <= 0) & span.some, span.null)
