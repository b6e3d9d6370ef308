"""Conditions on rows, such as ``age >= 65 and region in ["north", "east"]``: a small part of Python's expressions.

Allowed: comparisons of a column with constants (``<``, ``<=``, ``==``, ``!=``, ``>``, ``>=``, ``in``, ``not in``),
chains of them such as ``18 <= age < 65``, ``is None``, the name of a boolean column, ``and``, ``or``, ``not`` and
brackets.  A column whose name is no Python name stands in backticks.  Nothing is ever executed: the text is parsed, and
every node is on a list.
"""

from __future__ import annotations

import ast
import datetime as dt
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.errors import RequestError
from privsyn.tasks.codecs.codec import Codec

FIELD = "query.where"
MOST_CHARACTERS = 10_000

Bools = NDArray[np.bool_]
Values = Mapping[str, pa.Array | pa.ChunkedArray]
"""Column -> its values, in the released types."""

_QUOTED = re.compile(r"`([^`]+)`|(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')")
_COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


class Condition:
    """Something that holds for a row or does not, by the values of its ``columns``."""

    columns: tuple[str, ...]

    def holds(self, values: Values) -> Bools:
        """Whether it holds, row by row."""
        raise NotImplementedError

    def parts(self) -> list[Condition]:
        """Conditions that hold together where this one does, each on columns of its own."""
        return [self]


@dataclass(frozen=True)
class All(Condition):
    """Several conditions at once."""

    conditions: tuple[Condition, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of all, once."""
        return tuple(dict.fromkeys(c for each in self.conditions for c in each.columns))

    def holds(self, values: Values) -> Bools:
        """Whether every one holds."""
        return np.logical_and.reduce([each.holds(values) for each in self.conditions])

    def parts(self) -> list[Condition]:
        """Those that share columns are one part."""
        groups: list[tuple[set[str], list[Condition]]] = []
        for each in (part for c in self.conditions for part in c.parts()):
            own = set(each.columns)
            touching = [g for g in groups if g[0] & own]
            merged = (own.union(*(g[0] for g in touching)), [c for g in touching for c in g[1]] + [each])
            groups = [g for g in groups if g not in touching] + [merged]
        return [found[0] if len(found) == 1 else Together(tuple(found)) for _, found in groups]


class Together(All):
    """Several conditions that cannot be told apart by their columns."""

    def parts(self) -> list[Condition]:
        """One part."""
        return [self]


@dataclass(frozen=True)
class AtLevel(Condition):
    """The values of one level of a column: those whose code is among ``codes``."""

    codec: Codec
    codes: NDArray[np.int64]

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The column."""
        return (self.codec.attribute,)

    def holds(self, values: Values) -> Bools:
        """Whether a value is of the level."""
        column = values[self.codec.attribute]
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return np.isin(self.codec.encode({self.codec.attribute: whole})[0], self.codes)


@dataclass(frozen=True)
class Parsed(Condition):
    """A parsed condition.  ``columns``: the columns that it names, in the order of the text."""

    text: str
    node: ast.expr
    names: Mapping[str, str]

    @cached_property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Every column of the condition, once."""
        return self._columns_of(self.node)

    def holds(self, values: Values) -> Bools:
        """Whether it holds, row by row.  A null fulfils no comparison but ``is None``; RequestError on other types."""
        return self._evaluate(self.node, values)

    def parts(self) -> list[Condition]:
        """What is joined by ``and``, where columns tell it apart."""
        nodes = _conjuncts(self.node)
        return [self] if len(nodes) == 1 else All(tuple(Parsed(self.text, n, self.names) for n in nodes)).parts()

    def _columns_of(self, node: ast.expr) -> tuple[str, ...]:
        found = [self.names.get(n.id, n.id) for n in ast.walk(node) if isinstance(n, ast.Name)]
        return tuple(dict.fromkeys(found))

    def _evaluate(self, node: ast.expr, values: Values) -> Bools:
        match node:
            case ast.BoolOp(op=op, values=nodes):
                parts = [self._evaluate(n, values) for n in nodes]
                return np.logical_and.reduce(parts) if isinstance(op, ast.And) else np.logical_or.reduce(parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self._evaluate(operand, values)
            case ast.Name(id=name):
                return _plain(_boolean(values[self.names.get(name, name)], self.names.get(name, name)))
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                pairs = zip(sides, ops, sides[1:], strict=False)
                return np.logical_and.reduce([self._compare(a, op, b, values) for a, op, b in pairs])
        raise _refused(self.text)

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr, values: Values) -> Bools:
        if isinstance(right, ast.Name) and not isinstance(left, ast.Name) and type(op) in _MIRRORED:
            return self._compare(right, _MIRRORED[type(op)](), left, values)
        if not isinstance(left, ast.Name) or isinstance(right, ast.Name):
            raise _refused(self.text)
        name = self.names.get(left.id, left.id)
        column, constant = values[name], ast.literal_eval(right)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        negated = isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot)
        if constant is None:
            nulls = _plain(pc.is_null(column))
            return ~nulls if negated else nulls
        if isinstance(op, ast.In | ast.NotIn):
            found = np.logical_or.reduce([_equal(column, name, c) for c in constant] or [np.zeros(len(column), bool)])
            return found if not negated else ~found & ~_plain(pc.is_null(column))
        return _plain(_COMPARE[type(op)](column, _scalar(column, name, constant)))


def condition(text: str, columns: Sequence[str]) -> Parsed:
    """Parse a condition on ``columns``.

    Raises RequestError if it is not one of those allowed, or names another column.
    """
    if len(text) > MOST_CHARACTERS:
        raise RequestError(f"has more than {MOST_CHARACTERS:,} characters", "Write a shorter one", FIELD)
    names: dict[str, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        names[f"column_{len(names)}_"] = found[1]
        return f"column_{len(names) - 1}_"

    try:
        node = ast.parse(_QUOTED.sub(stand_in, text.strip()), mode="eval").body
        _check(node, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused(text) from None
    found = Parsed(text, node, names)
    for name in found.columns:
        if name not in columns:
            raise unknown_column(name, FIELD)
    return found


def unknown_column(name: str, field: str) -> RequestError:
    """The error for a column that the release does not have."""
    return RequestError(
        f"the release has no column {name!r}", "Name one of its columns; its README.md lists them", field
    )


def _refused(text: str) -> RequestError:
    return RequestError(
        f"{text[:200]!r} is no condition",
        'Compare columns with constants, such as `age >= 65 and region in ["north", "east"]`; names with other signs '
        "stand in backticks",
        FIELD,
    )


def _check(node: ast.expr, text: str) -> None:
    """RequestError unless the node and all inside are allowed."""
    match node:
        case ast.BoolOp(values=nodes):
            for each in nodes:
                _check(each, text)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check(operand, text)
        case ast.Name():
            pass
        case ast.Compare(left=left, ops=ops, comparators=others):
            for side in (left, *others):
                if not isinstance(side, ast.Name):
                    _constant(side, text)
            sides = [left, *others]
            for a, op, b in zip(sides, ops, sides[1:], strict=False):
                _check_pair(a, op, b, text)
        case _:
            raise _refused(text)


def _check_pair(left: ast.expr, op: ast.cmpop, right: ast.expr, text: str) -> None:
    if isinstance(left, ast.Name) == isinstance(right, ast.Name):
        raise _refused(text)
    other = right if isinstance(left, ast.Name) else left
    value = ast.literal_eval(other)
    many = isinstance(value, list | tuple)
    if many != isinstance(op, ast.In | ast.NotIn) or (many and not isinstance(left, ast.Name)):
        raise _refused(text)
    if isinstance(op, ast.Is | ast.IsNot) and value is not None:
        raise _refused(text)
    if value is None and not isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        raise _refused(text)


def _constant(node: ast.expr, text: str) -> None:
    """RequestError unless the node is a number, a text, a boolean, None, or a list of such."""
    value = ast.literal_eval(node)
    values = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(v, int | float | str | bool | None) for v in values):
        raise _refused(text)


def _conjuncts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [each for value in node.values for each in _conjuncts(value)]
    return [node]


def _plain(array: pa.Array | pa.ChunkedArray) -> Bools:
    """Booleans with null as false."""
    return np.asarray(pc.fill_null(array, False), dtype=bool)


def _boolean(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array | pa.ChunkedArray:
    if not pa.types.is_boolean(column.type):
        raise RequestError(f"the column {name!r} is not true or false by itself", "Compare it with a value", FIELD)
    return column


def _equal(column: pa.Array | pa.ChunkedArray, name: str, constant: Any) -> Bools:
    if constant is None:
        return _plain(pc.is_null(column))
    return _plain(pc.equal(column, _scalar(column, name, constant)))


def _scalar(column: pa.Array | pa.ChunkedArray, name: str, constant: Any) -> pa.Scalar:
    """The constant as one of the column's kind.  RequestError if it is of another."""
    type_ = column.type
    number = isinstance(constant, int | float) and not isinstance(constant, bool)
    try:
        if pa.types.is_boolean(type_) and isinstance(constant, bool):
            return pa.scalar(constant)
        if (pa.types.is_integer(type_) or pa.types.is_floating(type_)) and number:
            return pa.scalar(operator.pos(constant))
        if pa.types.is_string(type_) and isinstance(constant, str):
            return pa.scalar(constant)
        if pa.types.is_temporal(type_) and isinstance(constant, str):
            moment = dt.datetime.fromisoformat(constant)
            return pa.scalar(moment.date(), type_) if pa.types.is_date(type_) else pa.scalar(moment, type_)
    except (ValueError, OverflowError, pa.ArrowException):
        pass
    kind = "a moment such as '2020-01-31'" if pa.types.is_temporal(type_) else str(type_)
    raise RequestError(f"{constant!r} cannot be compared with the column {name!r}, which holds {kind}", "", FIELD)
