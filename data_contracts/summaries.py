"""Person summaries: one figure of all kept rows, such as whether a condition ever holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, nextafter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.panels import Panel
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.rule_language import (
    Node,
    Type,
    names_neighbour,
    parse_condition,
    parse_expression,
    respell_argument,
)
from privsyn.data_contracts.rules import check_texts, infer_type

_FORM = re.compile(
    r"(ever|any|always|count|spells|sum|change)\s*\((.*)\)\s*(?:(<=|>=|==|!=|<|>)\s*(-?[\d.]+(?:e[+-]?\d+)?)\s*)?",
    re.DOTALL | re.IGNORECASE,
)
OF_TRUTH = ("ever", "always")
"""Summaries that are true or false."""

WHOLE = ("count", "spells")
"""Summaries that are numbers of rows that meet a condition, or numbers of runs of such rows."""

OF_NUMBERS = ("sum", "change")
"""Summaries of numbers: their sum without nulls, and the last row's number minus the first row's."""

IN_ORDER = ("spells", "change")
"""Summaries that depend on the order of the rows."""

EXAMPLE = "`ever(job == 'none')`, `count(job == 'none') > 2`, `sum(visits) >= 10`, `change(income) < 0`"

MOST_CLASSES = 32
"""The most classes of a count: each number is a class up to this many; above it, the questions' thresholds cut."""


@dataclass(frozen=True)
class Summary:
    """A statement about a person: ``function`` of the rows, with the condition or number ``of``.

    A number is compared with ``threshold`` by ``sign``.
    """

    function: str
    of: str
    sign: str | None = None
    threshold: float = 0.0

    @property
    def name(self) -> str:
        """The figure without its comparison: an attribute of the person's record."""
        return f"{self.function}({self.of})"

    @property
    def edges(self) -> tuple[float, ...]:
        """Where the statement changes: a figure at or above an edge is on its other side."""
        t = self.threshold
        first, after = (ceil(t), floor(t) + 1) if self.function in WHOLE else (t, nextafter(t, inf))
        return {"<": (first,), ">=": (first,), "<=": (after,), ">": (after,)}.get(str(self.sign), (first, after))

    def read(self, types: Mapping[str, Type]) -> Node:
        """Return the condition or number inside the function.  Raises FieldError."""
        if names_neighbour(self.of):
            raise FieldError(
                f"`{self.of}` names another row, and {self.function}() is of each row alone",
                "Name columns of the row, or ask by `change` or `spells`",
            )
        if self.function not in OF_NUMBERS:
            return parse_condition(self.of, types)
        node = parse_expression(self.of, types)
        if node.type != "number":
            raise FieldError(f"`{self.of}` is a {node.type}, and {self.function}() is of numbers", "Name a number")
        return node

    def find_codes(self, cuts: Sequence[float], limit: int) -> NDArray[np.bool_] | None:
        """Return for which codes of its figure it holds, shape (cuts + 1,); None if the codes do not decide it.

        ``cuts``: a figure's code is the number of cuts at or below it; ``limit``: the most rows of a person.
        """
        codes = np.arange(len(cuts) + 1)
        if self.function in OF_TRUTH:
            return codes > 0
        above = []
        for edge in self.edges:
            if self.function in WHOLE and (edge <= 0 or edge > _find_largest(self.function, limit)):
                above.append(np.full(len(codes), edge <= 0))
            elif edge in cuts:
                above.append(codes > list(cuts).index(edge))
            else:
                return None
        if self.sign in (">=", ">"):
            return above[0]
        if self.sign in ("<", "<="):
            return ~above[0]
        equal = above[0] & ~above[1]
        return equal if self.sign == "==" else ~equal


def parse_summary(text: str) -> Summary | None:
    """Parse a statement about a person, None if the text is none.  Raises FieldError for an incomplete one."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    function = {"any": "ever"}.get(match[1].lower(), match[1].lower())
    number = None if match[4] is None else _parse_number(match[4])
    if (function in OF_TRUTH) == (number is not None):
        problem = "holds or does not" if function in OF_TRUTH else "is a number"
        cure = "Take the comparison out" if number is not None else f"Compare it, as in `{function}(...) > 2`"
        raise FieldError(f"{function}() of a person's rows {problem}", cure)
    argument = respell_argument(match[2])
    if argument is None:
        raise FieldError(
            "makes several statements about a person's rows", "Ask for each alone, or join conditions in one bracket"
        )
    return Summary(function, argument, match[3], number or 0.0)


def _parse_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = inf
    if not isfinite(number):
        raise FieldError(f"{text!r} is not a number", "Compare with a number such as 2 or 0.5")
    return number


@dataclass(frozen=True)
class MeasuredSummary:
    """A figure of a person's record: a statement about it, and the ``cuts`` between its codes, ascending."""

    about: Summary
    cuts: tuple[float, ...]

    @property
    def nullable(self) -> bool:
        """Whether it may be unknown: a change is unknown if the first or last value is null."""
        return self.about.function == "change"


def _find_largest(function: str, limit: int) -> int:
    """Return the largest number of rows, or of runs of rows, of a person with ``limit`` rows."""
    return (limit + 1) // 2 if function == "spells" else limit


def list_measured_summaries(statements: Sequence[Summary], limit: int) -> tuple[MeasuredSummary, ...]:
    """Return the figures of the statements, without duplicates; ``limit``: the most kept rows of a person.

    Each number of rows has its own code.  Figures with too many values are cut where the statements change.
    """
    by_name: dict[str, MeasuredSummary] = {}
    for statement in statements:
        largest = _find_largest(statement.function, limit) if statement.function in WHOLE else MOST_CLASSES
        if statement.function in OF_TRUTH:
            cuts: set[float] = {1.0}
        elif largest < MOST_CLASSES:
            cuts = {float(n) for n in range(1, largest + 1)}
        else:
            earlier = by_name.get(statement.name)
            cuts = {float(e) for e in statement.edges} | (set() if earlier is None else {*earlier.cuts})
        by_name[statement.name] = MeasuredSummary(statement, tuple(sorted(cuts)))
    return tuple(by_name.values())


class WithSummaries(Protocol):
    """The parts of a spec that its person questions depend on."""

    unit: Unit
    workload: Any

    @property
    def panel(self) -> Panel | None:
        """Public facts about the rows of one person."""

    @property
    def released_columns(self) -> dict[str, Any]:
        """The columns that are synthesized."""

    @property
    def measured_columns(self) -> dict[str, Any]:
        """The columns that are measured."""


def check_summaries(spec: WithSummaries) -> None:
    """Raise FieldError, with its place, for a person question that the spec's rows cannot answer."""
    types = {name: infer_type(column) for name, column in spec.released_columns.items()}
    for i, marginal in enumerate(spec.workload):
        if marginal.summary is not None:
            if not marginal.measured:
                raise FieldError(
                    "is about several rows but not measured, so it cannot be answered",
                    "Write `measured: true`, which presets before 0.4 leave out, or take the question out",
                    ("workload", i, "measured"),
                )
            try:
                _check_summary(marginal.summary, marginal.asked.by, types, spec)
            except FieldError as error:
                raise FieldError(error.problem, error.cure, ("workload", i, "question")) from None


def list_summary_columns(
    workload: Sequence[Any], columns: Mapping[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], Sequence[str]]]:
    """Yield, by place, the columns inside the functions of person questions, among these.

    Unreadable ones are left to :func:`check_summaries`.
    """
    types = {name: infer_type(column) for name, column in columns.items()}
    for i, marginal in enumerate(workload):
        if marginal.summary is not None:
            with suppress(FieldError):
                yield ("workload", i, "question"), tuple(marginal.summary.read(types).columns)


def _check_summary(summary: Summary, by: Sequence[str], types: Mapping[str, Type], spec: WithSummaries) -> None:
    panel = spec.panel
    if panel is None:
        raise FieldError(
            "asks about a person's rows together, and the spec does not link rows",
            "Name the person in `unit` and the column that puts its rows in order in `order`, or ask about rows",
        )
    changing = next((name for name in by if name not in panel.constant), None)
    if changing is not None:
        raise FieldError(
            f"{changing!r} may differ between rows of one {spec.unit.one}: it groups none",
            f"Group by columns that are constant ({', '.join(panel.constant) or 'the spec names none'})",
        )
    if panel.household and summary.function in IN_ORDER:
        raise FieldError(
            f"{summary.function}() follows from the order of rows, and members of a role have none",
            "Ask by `ever`, `always`, `count` or `sum`",
        )
    node = summary.read(types)
    check_texts(node, spec.released_columns, ())
    unmeasured = next((name for name in node.columns if name not in spec.measured_columns), None)
    if unmeasured is not None:
        raise FieldError(f"names {unmeasured!r}, which is not measured", "Ask about columns that are measured")
    if summary.name in types:
        raise FieldError(f"the column {summary.name!r} has the name that the figure needs", "Rename it")
