"""Where conditions cut ordered columns: bin edges that no bin should lie across."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from privsyn.data_contracts.columns import DateColumn, DatetimeColumn, IntegerColumn, NumberColumn, TimeColumn
from privsyn.data_contracts.rule_nodes import Node

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def iterate_edges(node: Node, columns: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the bin edges that a comparison of an ordered column with a constant, or with a list of them, asks for."""
    if node.op == "in" and node.args[0].op == "column":
        for value in node.value:
            yield from _iterate_rule_edges(node.args[0].value, "==", value, columns)
    if node.op in _MIRRORED:
        left, right = node.args
        for column, constant, sign in ((left, right, node.op), (right, left, _MIRRORED[node.op])):
            if column.op == "column" and constant.op == "neg" and constant.args[0].op == "constant":
                yield from _iterate_rule_edges(column.value, sign, -constant.args[0].value, columns)
            elif column.op == "column" and constant.op == "constant":
                yield from _iterate_rule_edges(column.value, sign, constant.value, columns)


def _convert_times(column: TimeColumn, value: float) -> tuple[float, float]:
    """Return first time of day at or after ``value``, and the first one after it, as the column's codec counts them."""
    if column.format == "hhmm":
        at = value // 100 * 60 + min(value % 100, 60.0)
    else:
        at = value if column.format == "seconds" else value * column.per_day / 86_400
    return float(np.ceil(at)), float(np.floor(at) + 1)


def _iterate_rule_edges(
    name: str, sign: str, value: float, columns: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield where values that the comparison holds for end.

    Between two reals there is no next one: then it is ``value``.
    """
    match columns[name]:
        case IntegerColumn():
            below, above = float(np.ceil(value)), float(np.floor(value) + 1)
        case NumberColumn(decimals=int() as decimals):
            step = 10.0**-decimals
            below, above = value, round(value + step, decimals)
        case NumberColumn() | DatetimeColumn():
            below = above = value
        case DateColumn():
            below, above = float(np.ceil(value / 86_400)), float(np.floor(value / 86_400) + 1)
        case TimeColumn() as column:
            below, above = _convert_times(column, value)
        case _:
            return
    edges = {"<": (below,), ">=": (below,), "<=": (above,), ">": (above,)}.get(sign, (below, above))
    yield name, edges
