"""The part of Prometheus' language that the suggested rules use, evaluated as Prometheus documents it.

``promtool test rules`` does the same where it is installed; ``tests/unit/deployments/test_prometheus_rules.py`` holds
both to one answer.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Points = Sequence[tuple[float, float]]
Series = Mapping[tuple[str, Labels], Points]

LOOKBACK = 300.0
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "==": operator.eq,
}
TOKEN = re.compile(r'\s*(\d+[smhd]\b|\d+(?:\.\d+)?|\w+|"[^"]*"|>=|==|!=|[-*<>(){}\[\],=])')


def evaluate(expression: str, series: Series, now: float) -> Vector:
    """The vector of an expression at a moment."""
    parser = _Parser(TOKEN.findall(expression), series, now)
    result = parser.set_operations()
    assert not parser.tokens and isinstance(result, dict)
    return result


def increase(points: Points, start: float, end: float) -> float | None:
    """Prometheus' ``increase``: of the samples in the window, extrapolated to its ends; None for fewer than two."""
    inside = [(t, v) for t, v in points if start <= t <= end]
    if len(inside) < 2:
        return None
    (first, low), (last, high) = inside[0], inside[-1]
    grown = high - low + sum(a for (_, a), (_, b) in pairwise(inside) if b < a)
    sampled, mean = last - first, (last - first) / (len(inside) - 1)
    before, after = first - start, end - last
    if grown > 0 and low >= 0:
        before = min(before, sampled * low / grown)
    reach = sampled + sum(gap if gap < 1.1 * mean else mean / 2 for gap in (before, after))
    return grown * reach / sampled


@dataclass
class _Parser:
    """Evaluates what it parses, the loosest operators first."""

    tokens: list[str]
    series: Series
    now: float

    def take(self, *expected: str) -> str:
        token = self.tokens.pop(0)
        assert not expected or token in expected, (token, expected)
        return token

    def next_is(self, *tokens: str) -> bool:
        return bool(self.tokens) and self.tokens[0] in tokens

    def set_operations(self) -> Vector | float:
        """A or B."""
        left = self.intersections()
        while self.next_is("or"):
            self.take()
            right = self.intersections()
            assert isinstance(left, dict) and isinstance(right, dict)
            left = right | left
        return left

    def intersections(self) -> Vector | float:
        """A and on (LABELS) B, A unless B."""
        left = self.comparison()
        while self.next_is("and", "unless"):
            keep, on = self.take() == "and", None
            if self.next_is("on"):
                self.take()
                on = self.names()
            right = self.comparison()
            assert isinstance(left, dict) and isinstance(right, dict)
            keys = {_project(labels, on) for labels in right}
            left = {labels: v for labels, v in left.items() if (_project(labels, on) in keys) == keep}
        return left

    def comparison(self) -> Vector | float:
        left = self.difference()
        while self.next_is(*COMPARISONS):
            holds, right = COMPARISONS[self.take()], self.difference()
            assert isinstance(left, dict) and isinstance(right, float)
            left = {labels: v for labels, v in left.items() if holds(v, right)}
        return left

    def difference(self) -> Vector | float:
        left = self.product()
        while self.next_is("-"):
            self.take()
            right = self.product()
            assert isinstance(left, float) and isinstance(right, dict)
            left = {labels: left - v for labels, v in right.items()}
        return left

    def product(self) -> Vector | float:
        left = self.operand()
        while self.next_is("*"):
            self.take()
            right = self.operand()
            assert isinstance(left, float) and isinstance(right, float)
            left *= right
        return left

    def operand(self) -> Vector | float:
        word = self.take()
        if word == "(":
            return self.closed()
        if word[0].isdigit():
            return float(word)
        if word == "time":
            self.take("(")
            self.take(")")
            return self.now
        if word == "increase":
            return self.increases()
        if word in ("sum", "max", "absent"):
            by = self.names() if self.next_is("by") and self.take() else ()
            self.take("(")
            of = self.closed()
            assert isinstance(of, dict)
            if word == "absent":
                return {} if of else {frozenset(): 1.0}
            groups: dict[Labels, list[float]] = {}
            for labels, v in of.items():
                groups.setdefault(_project(labels, by), []).append(v)
            return {labels: sum(vs) if word == "sum" else max(vs) for labels, vs in groups.items()}
        return self.instant(self.select(word))

    def closed(self) -> Vector | float:
        result = self.set_operations()
        self.take(")")
        return result

    def names(self) -> tuple[str, ...]:
        self.take("(")
        names = [self.take()]
        while self.take(",", ")") == ",":
            names.append(self.take())
        return tuple(names)

    def select(self, name: str) -> dict[Labels, Points]:
        wanted = []
        while self.next_is("{", ","):
            self.take()
            wanted.append((self.take(), self.take("=", "!=") == "=", self.take().strip('"')))
        if wanted:
            self.take("}")
        return {
            labels: points
            for (metric, labels), points in self.series.items()
            if metric == name and all((dict(labels).get(key, "") == value) == equal for key, equal, value in wanted)
        }

    def instant(self, found: Mapping[Labels, Points]) -> Vector:
        moment = self.now
        if self.next_is("offset"):
            self.take()
            moment -= read_duration(self.take())
        latest = {labels: points[bisect_right(points, (moment, math.inf)) - 1] for labels, points in found.items()}
        return {labels: v for labels, (t, v) in latest.items() if moment - LOOKBACK <= t <= moment}

    def increases(self) -> Vector:
        self.take("(")
        found = self.select(self.take())
        self.take("[")
        start = self.now - read_duration(self.take())
        self.take("]")
        self.take(")")
        grown = {labels: increase(points, start, self.now) for labels, points in found.items()}
        return {labels: v for labels, v in grown.items() if v is not None}


def _project(labels: Labels, on: Sequence[str] | None) -> Labels:
    return labels if on is None else frozenset(pair for pair in labels if pair[0] in on)


def read_duration(token: str) -> float:
    return float(int(token[:-1]) * UNITS[token[-1]])
