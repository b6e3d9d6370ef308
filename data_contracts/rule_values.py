"""Texts that rules compare columns with are values of these columns: a slip would forbid other rows than are meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.rule_nodes import Node


def check_values(node: Node, columns: Mapping[str, Any], place: tuple[str, ...]) -> None:
    """Refuse a text that a column in ``node`` is compared with and does not list; `other` may always be.

    Raises FieldError at ``place``.
    """
    for part in node.walk():
        named = [a.value for a in part.args if a.op == "column"]
        if len(named) != 1 or part.op not in {"==", "!=", "in"}:
            continue
        column = columns[named[0]]
        compared = part.value if part.op == "in" else [a.value for a in part.args if a.op == "constant"]
        for text in compared if isinstance(column, CategoricalColumn) else ():
            if isinstance(text, str) and text not in (*column.values, "other"):
                cure = "Spell it as there, or add it to `values`"
                raise FieldError(f"{text!r} is not one of the values of {named[0]!r}", cure, place)
