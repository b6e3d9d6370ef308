"""That a computed value is one of its column's domain, as a condition like those of rules."""

from __future__ import annotations

from typing import Any

from privsyn.data_contracts.columns import CategoricalColumn, DateColumn, DatetimeColumn, IntegerColumn, NumberColumn
from privsyn.data_contracts.rule_nodes import Node


def find_outside(name: str, column: Any) -> Node:
    """Return the condition that the value of ``column`` is not in its domain."""
    here = Node("column", "number", value=name)
    match column:
        case IntegerColumn() | NumberColumn():
            low, high = float(column.min), float(column.max)
        case DatetimeColumn():
            low, high = column.edge_values()[0], column.edge_values()[-1]
        case DateColumn():
            low, high = column.edge_values()[0] * 86_400, (column.edge_values()[-1] - 1) * 86_400
        case CategoricalColumn(values=values):
            listed = (*values, "other") if column.goes_to == "other" else values
            among = Node("in", "truth", (here,), tuple(listed))
            return _allow_null(Node("not", "truth", (among,)), here, column.has_null)
        case _:
            return _allow_null(Node("constant", "truth", value=False), here, column.nullable)
    below = Node("<", "truth", (here, Node("constant", "number", value=low)))
    above = Node(">", "truth", (here, Node("constant", "number", value=high)))
    beyond = Node("or", "truth", (below, above))
    if column.exact:
        spikes = Node(
            "in",
            "truth",
            (here,),
            tuple(v * (86_400 if isinstance(column, DateColumn) else 1) for v in column.exact_values()),
        )
        beyond = Node("and", "truth", (beyond, Node("not", "truth", (spikes,))))
    return _allow_null(beyond, here, column.nullable)


def _allow_null(condition: Node, here: Node, nullable: bool) -> Node:
    return condition if nullable else Node("or", "truth", (Node("is null", "truth", (here,)), condition))
