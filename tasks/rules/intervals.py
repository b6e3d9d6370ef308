"""Interval arithmetic with nulls: bounds of an expression's values, for every cell of a grid or every row.

A row is a cell of one value, so the same arithmetic serves cells ("surely", "possibly") and rows (exactly).  As in SQL,
an expression of a null is null, and a comparison with it is unknown.

Evaluation of rule expressions over intervals of columns: over rows, or over the cells of a grid of codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.rule_language import COUNT, Node

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DAY = 86_400.0
"""Seconds of a day; moments are seconds since 1970."""


@dataclass(frozen=True)
class Interval:
    """Values from ``low`` to ``high``, inclusive; ``null``: whether null is possible; ``present``: whether a value is.

    All arrays broadcast against each other.  If every interval is one value, ``high`` is the object ``low``.  Texts are
    numbers of a vocabulary, moments are seconds since 1970.  Bounds are meaningless if ``present`` is false.
    """

    low: Floats
    high: Floats
    null: Bools
    present: Bools

    @property
    def exact(self) -> bool:
        """Whether every interval is one value."""
        return self.high is self.low

    def map(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Interval:
        """Return the interval with ``function``, such as a selection or another shape, applied to each array."""
        low = function(self.low)
        high = low if self.exact else function(self.high)
        return Interval(low, high, function(self.null), function(self.present))


@dataclass(frozen=True)
class Truth:
    """Whether a condition may be true, false or unknown; arrays that broadcast against each other."""

    true: Bools
    false: Bools
    unknown: Bools


NO, YES = np.array(False), np.array(True)


def make_row_intervals(values: Floats, null: Bools) -> Interval:
    """Return one value per row, or null where the mask ``null`` is set."""
    filled = np.where(null, 0.0, values)
    return Interval(filled, filled, null, ~null)


NULL = Interval(np.array(0.0), np.array(0.0), YES, NO)


def _combine_masks(a: Interval, b: Interval) -> tuple[Bools, Bools]:
    return a.null | b.null, a.present & b.present


def apply_monotone(function: Callable[[Any], Any], a: Interval) -> Interval:
    """Return the image under a non-decreasing ``function``."""
    low = function(a.low)
    return Interval(low, low if a.exact else function(a.high), a.null, a.present)


def negate(a: Interval) -> Interval:
    """Return -a."""
    high = -a.low
    return Interval(high if a.exact else -a.high, high, a.null, a.present)


def take_absolute(a: Interval) -> Interval:
    """Return |a|."""
    low, high = np.abs(a.low), np.abs(a.high)
    if a.exact:
        return Interval(low, low, a.null, a.present)
    least = np.where((a.low <= 0) & (a.high >= 0), 0.0, np.minimum(low, high))
    return Interval(least, np.maximum(low, high), a.null, a.present)


def add(a: Interval, b: Interval) -> Interval:
    """Return a + b."""
    low = a.low + b.low
    return Interval(low, low if a.exact and b.exact else a.high + b.high, *_combine_masks(a, b))


def _list_corners(function: Callable[[Floats, Floats], Floats], a: Interval, b: Interval) -> tuple[Floats, Floats]:
    if a.exact and b.exact:
        only = function(a.low, b.low)
        return only, only
    corners = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return (
        np.minimum(np.minimum(corners[0], corners[1]), np.minimum(corners[2], corners[3])),
        np.maximum(np.maximum(corners[0], corners[1]), np.maximum(corners[2], corners[3])),
    )


def multiply(a: Interval, b: Interval) -> Interval:
    """Return a times b."""
    return Interval(*_list_corners(np.multiply, a, b), *_combine_masks(a, b))


def divide(a: Interval, b: Interval) -> Interval:
    """Return a / b; null if b is 0."""
    null, present = _combine_masks(a, b)
    zero = (b.low <= 0) & (b.high >= 0)
    never = (b.low == 0) & (b.high == 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low, high = _list_corners(np.divide, a, b)
    if a.exact and b.exact:
        low = high = np.where(zero, 0.0, low)
    else:
        low, high = np.where(zero, -np.inf, low), np.where(zero, np.inf, high)
    return Interval(low, high, null | (zero & present), present & ~never)


def take_modulo(a: Interval, b: Interval) -> Interval:
    """Return a modulo b with the sign of b (as in Python); null if b is 0."""
    quotient = divide(a, b)
    if a.exact and b.exact:
        with np.errstate(divide="ignore", invalid="ignore"):
            only = np.where(quotient.present, a.low - b.low * np.floor(quotient.low), 0.0)
        return Interval(only, only, quotient.null, quotient.present)
    with np.errstate(invalid="ignore"):
        floor = np.floor(quotient.low)
        is_one_number = b.low == b.high
        same = is_one_number & (floor == np.floor(quotient.high)) & np.isfinite(floor)
        shift = np.where(same, b.low * floor, 0.0)
        low = np.where(same, np.minimum(a.low - shift, a.high - shift), np.minimum(b.low, 0.0))
        high = np.where(same, np.maximum(a.low - shift, a.high - shift), np.maximum(b.high, 0.0))
    return Interval(low, high, quotient.null, quotient.present)


def take_extreme(function: Any, a: Interval, b: Interval) -> Interval:
    """Return ``function`` (np.minimum or np.maximum) of two intervals; null if either is."""
    low = function(a.low, b.low)
    return Interval(low, low if a.exact and b.exact else function(a.high, b.high), *_combine_masks(a, b))


def choose_either(test: Truth, a: Interval, b: Interval) -> Interval:
    """Return ``a`` if the test is true, ``b`` if it is false or unknown."""
    other = test.false | test.unknown
    only_a, only_b = test.true & ~other, other & ~test.true
    null = (test.true & a.null) | (other & b.null)
    present_a, present_b = test.true & a.present, other & b.present
    take_a, take_b = only_a | ~present_b, only_b | ~present_a
    low = np.where(take_a, a.low, np.where(take_b, b.low, np.minimum(a.low, b.low)))
    if a.exact and b.exact and not (test.true & other).any():
        return Interval(low, low, null, present_a | present_b)
    high = np.where(take_a, a.high, np.where(take_b, b.high, np.maximum(a.high, b.high)))
    return Interval(low, high, null, present_a | present_b)


def compare(sign: str, a: Interval, b: Interval) -> Truth:
    """Return the comparison ``sign`` of two intervals."""
    null, present = _combine_masks(a, b)
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
    return Truth(true & present, false & present, null)


def test_among(a: Interval, values: Floats) -> Truth:
    """Return whether ``a`` is one of ``values``, shape (number,)."""
    values = np.sort(values)
    first = np.searchsorted(values, a.low)
    last = first if a.exact else np.searchsorted(values, a.high, side="right")
    inside = np.minimum(first, values.size - 1)
    hit = values[inside] == a.low
    true = (hit & (first < values.size)) if a.exact else last > first
    false = ~(hit & (a.low == a.high))
    return Truth(true & a.present, false & a.present, a.null)


def is_null(a: Interval) -> Truth:
    """Return whether ``a`` is null; never unknown."""
    return Truth(a.null, a.present, NO)


def negate_truth(a: Truth) -> Truth:
    """Return not a."""
    return Truth(a.false, a.true, a.unknown)


def conjoin(a: Truth, b: Truth) -> Truth:
    """Return a and b: false if either is false, else unknown if either is unknown."""
    unknown = (a.unknown & (b.true | b.unknown)) | (b.unknown & (a.true | a.unknown))
    return Truth(a.true & b.true, a.false | b.false, unknown)


def convert_truth_to_number(truth: Truth) -> Interval:
    """Return a truth as the numbers 0 and 1."""
    present = truth.true | truth.false
    low = np.where(truth.false, 0.0, 1.0)
    high = low if not (truth.true & truth.false).any() else np.where(truth.true, 1.0, 0.0)
    return Interval(low, high, truth.unknown, present)


def read_rows(array: pa.Array, vocabulary: Mapping[str, int]) -> Interval:
    """Return the values of an Arrow column, shape (rows,): numbers, truths as 0 and 1, moments in seconds.

    A text becomes its number in ``vocabulary``, or -1 if it has none.
    """
    null = np.asarray(pc.is_null(array))
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        encoded = array if pa.types.is_dictionary(kind) else array.dictionary_encode()
        numbers = np.array([vocabulary.get(t, -1) for t in encoded.dictionary.to_pylist()] or [-1], np.float64)
        return make_row_intervals(numbers[np.asarray(pc.fill_null(encoded.indices, 0))], null)
    if pa.types.is_boolean(kind):
        return make_row_intervals(np.asarray(pc.fill_null(array, False)).astype(np.float64), null)
    if pa.types.is_timestamp(kind):
        return make_row_intervals(
            np.asarray(pc.fill_null(array.cast(pa.timestamp("us")).cast(pa.int64()), 0)) / 1e6, null
        )
    if pa.types.is_date(kind):
        return make_row_intervals(np.asarray(pc.fill_null(array.cast(pa.date32()).cast(pa.int32()), 0)) * DAY, null)
    if pa.types.is_time(kind):
        return make_row_intervals(np.asarray(pc.fill_null(array.cast(pa.time64("us")).cast(pa.int64()), 0)) / 1e6, null)
    if pa.types.is_integer(kind):
        filled = pc.fill_null(array, 0) if array.null_count else array
        return make_row_intervals(np.asarray(filled).astype(np.float64), null)
    numbers = np.asarray(pc.fill_null(array.cast(pa.float64()), 0.0))
    return make_row_intervals(np.nan_to_num(numbers), null | np.isnan(numbers))


def read_cells(cells: Any, vocabulary: Mapping[str, int]) -> Interval:
    """Return a column's interval in each fine code, from single values or from (low, high) with NaN for null."""
    if not isinstance(cells, tuple):
        return read_rows(cells, vocabulary)
    low, high = cells
    null = np.isnan(low)
    return Interval(np.where(null, 0.0, low), np.where(null, 0.0, high), null, ~null)


def place_on_axis(interval: Interval, axis: int, axes: int) -> Interval:
    """Return intervals of shape (cells,) along ``axis`` of a grid with ``axes`` axes."""
    shape = [-1 if i == axis else 1 for i in range(axes)]
    return interval.map(lambda values: values.reshape(shape))


def convert_to_array(interval: Interval, kind: pa.DataType, texts: pa.Array, rows: int) -> pa.Array:
    """Return exact intervals as an Arrow column of ``rows`` rows; values that the type cannot hold become null."""
    null = np.broadcast_to(interval.null | ~interval.present, rows)
    values = np.where(null, 0.0, np.broadcast_to(interval.low, rows))
    if pa.types.is_string(kind):
        null = null | (values < 0)
        return texts.take(pa.array(np.maximum(values, 0).astype(np.int64), mask=null))
    if pa.types.is_timestamp(kind):
        return pa.array(np.round(values * 1e6).astype(np.int64), mask=null).cast(kind)
    if pa.types.is_time(kind):
        return pa.array(np.round(values * 1e6).astype(np.int64), mask=null).cast(pa.time64("us")).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(np.floor(values / DAY).astype(np.int32), mask=null).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array(values != 0, mask=null)
    if pa.types.is_integer(kind):
        width = np.iinfo(kind.to_pandas_dtype())
        outside = (values < width.min) | (values > width.max)
        return pa.array(np.where(outside, 0, values).astype(np.int64), mask=null | outside).cast(kind)
    return pa.array(values, mask=null).cast(kind)


Vocabulary = dict[str, int]
"""Text -> its number in intervals."""

Resolve = Callable[[Any], Interval]
"""Function from a column's name, or the node of another row's column or a count of rows, to its interval."""


def evaluate_condition(node: Node, resolve: Resolve, vocabulary: Mapping[str, int]) -> Truth:
    """Return the truth of the condition ``node`` over the columns of ``resolve``.

    Texts that ``vocabulary`` lacks equal no other text.
    """
    match node.op:
        case "and":
            return conjoin(*(evaluate_condition(a, resolve, vocabulary) for a in node.args))
        case "or":
            neither = conjoin(*(negate_truth(evaluate_condition(a, resolve, vocabulary)) for a in node.args))
            return negate_truth(neither)
        case "not":
            return negate_truth(evaluate_condition(node.args[0], resolve, vocabulary))
        case "is null":
            return is_null(evaluate_expression(node.args[0], resolve, vocabulary))
        case "in":
            numbers = np.array([_parse_number(value, vocabulary) for value in node.value])
            return test_among(evaluate_expression(node.args[0], resolve, vocabulary), numbers)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return compare(node.op, *(evaluate_expression(a, resolve, vocabulary) for a in node.args))
    number = evaluate_expression(node, resolve, vocabulary)  # 0 or 1
    return Truth((number.high >= 1) & number.present, (number.low <= 0) & number.present, number.null)


def evaluate_expression(node: Node, resolve: Resolve, vocabulary: Mapping[str, int]) -> Interval:
    """Return the values of ``node`` over the columns of ``resolve``."""
    if node.op == "column":
        return resolve(node.value)
    if node.op in ("of row", COUNT):
        return resolve(node)
    if node.op == "constant":
        only = np.array(_parse_number(node.value, vocabulary), np.float64)
        return Interval(only, only, NO, YES)
    if node.op == "null":
        return NULL
    if node.op == "as stored":
        rounded: Interval = node.value(evaluate_expression(node.args[0], resolve, vocabulary))
        return rounded
    if node.op == "if":
        test, *both = node.args
        return choose_either(
            evaluate_condition(test, resolve, vocabulary), *(evaluate_expression(a, resolve, vocabulary) for a in both)
        )
    if node.type == "truth":
        return convert_truth_to_number(evaluate_condition(node, resolve, vocabulary))
    return _OPERATIONS[node.op](*(evaluate_expression(a, resolve, vocabulary) for a in node.args))


def _parse_number(value: float | str | bool, vocabulary: Mapping[str, int]) -> float:
    """Return a constant as its number in intervals; -1 for a text that no column has."""
    return float(vocabulary.get(value, -1)) if isinstance(value, str) else float(value)


def _subtract(a: Interval, b: Interval) -> Interval:
    return add(a, negate(b))


def _to_dates(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    return np.clip(np.floor(seconds / DAY), -1e6, 3e6).astype("datetime64[D]")


def _get_year(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return _to_dates(seconds).astype("datetime64[Y]").astype(np.float64) + 1970


def _get_month(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return (_to_dates(seconds).astype("datetime64[M]").astype(np.int64) % 12 + 1).astype(np.float64)


def _get_day(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    days = _to_dates(seconds)
    return (days - days.astype("datetime64[M]").astype("datetime64[D]")).astype(np.float64) + 1


def _bound_cyclic(
    read_part: Callable[..., NDArray[np.float64]], period: str, limit: float
) -> Callable[[Interval], Interval]:
    """Return the operation for a part of a date that runs from 1 to ``limit`` in every ``period``.

    For an interval over two periods, the part may be any value from 1 to ``limit``.
    """

    def bound_part(a: Interval) -> Interval:
        low = read_part(a.low)
        if a.exact:
            return Interval(low, low, a.null, a.present)
        same = _to_dates(a.low).astype(f"datetime64[{period}]") == _to_dates(a.high).astype(f"datetime64[{period}]")
        return Interval(np.where(same, low, 1.0), np.where(same, read_part(a.high), limit), a.null, a.present)

    return bound_part


_OPERATIONS: dict[str, Callable[..., Interval]] = {
    "+": add,
    "-": _subtract,
    "*": multiply,
    "/": divide,
    "//": lambda a, b: apply_monotone(np.floor, divide(a, b)),
    "%": take_modulo,
    "neg": negate,
    "abs": take_absolute,
    "floor": lambda a: apply_monotone(np.floor, a),
    "ceil": lambda a: apply_monotone(np.ceil, a),
    "min": lambda a, b: take_extreme(np.minimum, a, b),
    "max": lambda a, b: take_extreme(np.maximum, a, b),
    "days": lambda a, b: apply_monotone(lambda x: x / DAY, _subtract(a, b)),
    "later": lambda moment, days: add(moment, apply_monotone(lambda x: x * DAY, days)),
    "year": lambda a: apply_monotone(_get_year, a),
    "month": _bound_cyclic(_get_month, "Y", 12.0),
    "day": _bound_cyclic(_get_day, "M", 31.0),
}
