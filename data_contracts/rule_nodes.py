"""Expressions of rules as typed trees: what ``rule_language`` reads and ``tasks/rules`` evaluates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Type = Literal["number", "text", "truth", "moment", "null"]
"""What an expression is: a moment is a date or a date with a time; a truth is true, false, or null (unknown)."""


@dataclass(frozen=True)
class Node:
    """One part of an expression: ``op`` on ``args``, of ``type``.

    ``op`` is "column" (``value``: its name), "constant" (``value``: float, text or bool; a moment in seconds since
    1970, a time of day in seconds since midnight), "null", "in" (``value``: the constants), an operator, a function, or
    "if" (condition, then, else).
    """

    op: str
    type: Type
    args: tuple[Node, ...] = ()
    value: Any = None

    def walk(self) -> Iterator[Node]:
        """Return this node and all below it."""
        yield self
        for arg in self.args:
            yield from arg.walk()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names, each once, in order of first use."""
        return tuple(dict.fromkeys(n.value for n in self.walk() if n.op == "column"))
