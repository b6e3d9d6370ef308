"""Evaluate rule expressions over spans of columns: over rows, or over the cells of a grid of codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.rule_nodes import Node
from privsyn.tasks.rules import values as v
from privsyn.tasks.rules.values import Span, Truth

DAY = 86_400.0

Vocabulary = dict[str, int]
"""Text -> its number in spans."""

Env = Callable[[str], Span]
"""The span of a column."""


def evaluate_condition(node: Node, env: Env, vocabulary: Mapping[str, int]) -> Truth:
    """Return the condition ``node`` over the columns of ``env``; texts that ``vocabulary`` lacks equal no other."""
    match node.op:
        case "and":
            return v.conjoin(*(evaluate_condition(a, env, vocabulary) for a in node.args))
        case "or":
            return v.disjoin(*(evaluate_condition(a, env, vocabulary) for a in node.args))
        case "not":
            return v.negate_truth(evaluate_condition(node.args[0], env, vocabulary))
        case "is null":
            return v.is_null(evaluate_expression(node.args[0], env, vocabulary))
        case "in":
            numbers = np.array([_parse_number(value, vocabulary) for value in node.value])
            return v.test_among(evaluate_expression(node.args[0], env, vocabulary), numbers)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return v.compare(node.op, *(evaluate_expression(a, env, vocabulary) for a in node.args))
    return v.as_truth(evaluate_expression(node, env, vocabulary))


def evaluate_expression(node: Node, env: Env, vocabulary: Mapping[str, int]) -> Span:
    """Return the values of ``node`` over the columns of ``env``."""
    if node.op == "column":
        return env(node.value)
    if node.op == "constant":
        return v.make_constant(_parse_number(node.value, vocabulary))
    if node.op == "null":
        return v.NULL
    if node.op == "if":
        test, *both = node.args
        return v.choose_either(
            evaluate_condition(test, env, vocabulary), *(evaluate_expression(a, env, vocabulary) for a in both)
        )
    if node.type == "truth":
        return v.as_span(evaluate_condition(node, env, vocabulary))
    return _OPERATIONS[node.op](*(evaluate_expression(a, env, vocabulary) for a in node.args))


def _parse_number(value: float | str | bool, vocabulary: Mapping[str, int]) -> float:
    """Return a constant as spans hold it; -1 for a text that no column has."""
    return float(vocabulary.get(value, -1)) if isinstance(value, str) else float(value)


def _subtract(a: Span, b: Span) -> Span:
    return v.add(a, v.negate(b))


def _count_days(a: Span, b: Span) -> Span:
    return v.apply_monotone(lambda x: x / DAY, _subtract(a, b))


def _add_months(moment: Span, days: Span) -> Span:
    return v.add(moment, v.apply_monotone(lambda x: x * DAY, days))


def _to_dates(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    return np.clip(np.floor(seconds / DAY), -1e6, 3e6).astype("datetime64[D]")


def _get_year(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return _to_dates(seconds).astype("datetime64[Y]").astype(np.float64) + 1970


def _get_month(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return (_to_dates(seconds).astype("datetime64[M]").astype(np.int64) % 12 + 1).astype(np.float64)


def _get_day(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    days = _to_dates(seconds)
    return (days - days.astype("datetime64[M]").astype("datetime64[D]")).astype(np.float64) + 1


def _span_cyclic(part: Callable[..., NDArray[np.float64]], period: str, most: float) -> Callable[[Span], Span]:
    """Return a part of a date that begins anew with every ``period``.

    Between dates of two periods it may be anything.
    """

    def of(a: Span) -> Span:
        low = part(a.low)
        if a.exact:
            return Span(low, low, a.null, a.some)
        same = _to_dates(a.low).astype(f"datetime64[{period}]") == _to_dates(a.high).astype(f"datetime64[{period}]")
        return Span(np.where(same, low, 1.0), np.where(same, part(a.high), most), a.null, a.some)

    return of


_OPERATIONS: dict[str, Callable[..., Span]] = {
    "+": v.add,
    "-": _subtract,
    "*": v.multiply,
    "/": v.divide,
    "//": lambda a, b: v.apply_monotone(np.floor, v.divide(a, b)),
    "%": v.take_modulo,
    "neg": v.negate,
    "abs": v.take_absolute,
    "floor": lambda a: v.apply_monotone(np.floor, a),
    "ceil": lambda a: v.apply_monotone(np.ceil, a),
    "min": lambda a, b: v.take_extreme(np.minimum, a, b),
    "max": lambda a, b: v.take_extreme(np.maximum, a, b),
    "days": _count_days,
    "later": _add_months,
    "year": lambda a: v.apply_monotone(_get_year, a),
    "month": _span_cyclic(_get_month, "Y", 12.0),
    "day": _span_cyclic(_get_day, "M", 31.0),
}
