"""Evaluation of rule expressions over intervals of columns: over rows, or over the cells of a grid of codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.rule_language import COUNT, Node
from privsyn.tasks.rules import intervals
from privsyn.tasks.rules.intervals import DAY, Interval, Truth

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
            return intervals.conjoin(*(evaluate_condition(a, resolve, vocabulary) for a in node.args))
        case "or":
            return intervals.disjoin(*(evaluate_condition(a, resolve, vocabulary) for a in node.args))
        case "not":
            return intervals.negate_truth(evaluate_condition(node.args[0], resolve, vocabulary))
        case "is null":
            return intervals.is_null(evaluate_expression(node.args[0], resolve, vocabulary))
        case "in":
            numbers = np.array([_parse_number(value, vocabulary) for value in node.value])
            return intervals.test_among(evaluate_expression(node.args[0], resolve, vocabulary), numbers)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return intervals.compare(node.op, *(evaluate_expression(a, resolve, vocabulary) for a in node.args))
    return intervals.convert_number_to_truth(evaluate_expression(node, resolve, vocabulary))


def evaluate_expression(node: Node, resolve: Resolve, vocabulary: Mapping[str, int]) -> Interval:
    """Return the values of ``node`` over the columns of ``resolve``."""
    if node.op == "column":
        return resolve(node.value)
    if node.op in ("of row", COUNT):
        return resolve(node)
    if node.op == "constant":
        return intervals.make_constant(_parse_number(node.value, vocabulary))
    if node.op == "null":
        return intervals.NULL
    if node.op == "as stored":
        rounded: Interval = node.value(evaluate_expression(node.args[0], resolve, vocabulary))
        return rounded
    if node.op == "if":
        test, *both = node.args
        return intervals.choose_either(
            evaluate_condition(test, resolve, vocabulary), *(evaluate_expression(a, resolve, vocabulary) for a in both)
        )
    if node.type == "truth":
        return intervals.convert_truth_to_number(evaluate_condition(node, resolve, vocabulary))
    return _OPERATIONS[node.op](*(evaluate_expression(a, resolve, vocabulary) for a in node.args))


def _parse_number(value: float | str | bool, vocabulary: Mapping[str, int]) -> float:
    """Return a constant as its number in intervals; -1 for a text that no column has."""
    return float(vocabulary.get(value, -1)) if isinstance(value, str) else float(value)


def _subtract(a: Interval, b: Interval) -> Interval:
    return intervals.add(a, intervals.negate(b))


def _count_days(a: Interval, b: Interval) -> Interval:
    return intervals.apply_monotone(lambda x: x / DAY, _subtract(a, b))


def _add_days(moment: Interval, days: Interval) -> Interval:
    return intervals.add(moment, intervals.apply_monotone(lambda x: x * DAY, days))


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
    part: Callable[..., NDArray[np.float64]], period: str, limit: float
) -> Callable[[Interval], Interval]:
    """Return the operation for a part of a date that runs from 1 to ``limit`` in every ``period``.

    For an interval over two periods, the part may be any value from 1 to ``limit``.
    """

    def bound_part(a: Interval) -> Interval:
        low = part(a.low)
        if a.exact:
            return Interval(low, low, a.null, a.present)
        same = _to_dates(a.low).astype(f"datetime64[{period}]") == _to_dates(a.high).astype(f"datetime64[{period}]")
        return Interval(np.where(same, low, 1.0), np.where(same, part(a.high), limit), a.null, a.present)

    return bound_part


_OPERATIONS: dict[str, Callable[..., Interval]] = {
    "+": intervals.add,
    "-": _subtract,
    "*": intervals.multiply,
    "/": intervals.divide,
    "//": lambda a, b: intervals.apply_monotone(np.floor, intervals.divide(a, b)),
    "%": intervals.take_modulo,
    "neg": intervals.negate,
    "abs": intervals.take_absolute,
    "floor": lambda a: intervals.apply_monotone(np.floor, a),
    "ceil": lambda a: intervals.apply_monotone(np.ceil, a),
    "min": lambda a, b: intervals.take_extreme(np.minimum, a, b),
    "max": lambda a, b: intervals.take_extreme(np.maximum, a, b),
    "days": _count_days,
    "later": _add_days,
    "year": lambda a: intervals.apply_monotone(_get_year, a),
    "month": _bound_cyclic(_get_month, "Y", 12.0),
    "day": _bound_cyclic(_get_day, "M", 31.0),
}
