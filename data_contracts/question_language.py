"""The language of questions and formulas, and person summaries; their conditions use the language of rules.

A question is one line of text: ``sex, income where age >= 65``, ``mean(age) by income``, ``share(happy) by sex``.  A
formula has a target and its terms: ``income ~ age + sex``.

A person summary is one figure of all kept rows of a person, such as whether a condition ever holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, nextafter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import (
    QUOTED,
    Node,
    Type,
    names_neighbour,
    parse_condition,
    parse_expression,
    respell_argument,
)
from privsyn.data_contracts.rules import check_texts, infer_type

if TYPE_CHECKING:
    from privsyn.data_contracts.release_spec import ReleaseSpec

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

_WORD = re.compile(rf"({QUOTED})|\b(where|by)\b", re.IGNORECASE)
_FUNCTION = re.compile(r"(count|share|mean|median|quantile|correlation|regress|transitions)\s*\((.*)\)\s*", re.DOTALL)
_OF_PERSONS = re.compile(r"(ever|any|always|count|spells|sum|change)\s*\(", re.IGNORECASE)
_NEGATED = re.compile(rf"[(\s]*not\b[(\s]*{_OF_PERSONS.pattern}", re.IGNORECASE)
_BY_AT_LAST = re.compile(r"by\s+(`[^`]*`|\w+)(\s*,\s*(`[^`]*`|\w+))*\s*", re.IGNORECASE)
_COMMA = re.compile(rf"({QUOTED}|[^,`\"']+)+")
_NAME = re.compile(r"`[^`]*`|\w+")
_QUOTED_NAME = re.compile(r"""([`'"])(.*)\1""", re.DOTALL)


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


def check_summaries(spec: ReleaseSpec) -> None:
    """Raise FieldError, with its place, for a person question that the spec's rows cannot answer."""
    types = {name: infer_type(column) for name, column in spec.released_columns.items()}
    for i, marginal in enumerate(spec.workload):
        asked, summary = marginal.asked, marginal.summary
        if asked is not None and summary is not None:
            if not marginal.measured:
                raise FieldError(
                    "is about several rows but not measured, so it cannot be answered",
                    "Write `measured: true`, which presets before 0.4 leave out, or take the question out",
                    ("workload", i, "measured"),
                )
            try:
                _check_summary(summary, asked.by, types, spec)
            except FieldError as error:
                raise FieldError(error.problem, error.cure, ("workload", i, "question")) from None


def list_summary_columns(
    workload: Sequence[Any], columns: Mapping[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], Sequence[str]]]:
    """Yield, by place, the columns inside functions of person questions; skip what :func:`check_summaries` refuses."""
    types = {name: infer_type(column) for name, column in columns.items()}
    for i, marginal in enumerate(workload):
        if marginal.summary is not None:
            with suppress(FieldError):
                yield ("workload", i, "question"), tuple(marginal.summary.read(types).columns)


def _check_summary(summary: Summary, by: Sequence[str], types: Mapping[str, Type], spec: ReleaseSpec) -> None:
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


class ParsedQuestion(NamedTuple):
    """A question: a figure (``count`` by default), its column, the grouping columns, and a condition."""

    what: str
    of: str
    by: tuple[str, ...]
    where: str | None

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The columns by whose values rows are counted, without duplicates: the groups, then the figure's columns."""
        return tuple(dict.fromkeys((*self.by, *(() if self._is_of_condition else parse_names(self.of)[: self._most]))))

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that divide the rows."""
        return tuple(text for text in (self.of if self._is_of_condition else None, self.where) if text)

    @property
    def about_persons(self) -> bool:
        """Whether it asks about a person's rows together."""
        return self.what == "persons" or (self.what == "share" and bool(_OF_PERSONS.match(self.of)))

    @property
    def summary(self) -> Summary | None:
        """The person statement whose number or share is asked for.  Raises FieldError for an incomplete one."""
        return parse_summary(self.of if self.what == "share" else self.where or "")

    @property
    def _is_of_condition(self) -> bool:
        return self.what == "share" and not _NAME.fullmatch(self.of)

    @property
    def _most(self) -> int | None:
        return 1 if self.what in ("mean", "median", "quantile") else None


def parse_question(text: str) -> ParsedQuestion:
    """Parse a question.  Raises FieldError, with place ``where`` or ``columns``, if it is invalid."""
    places = [(m.start(), m.end(), m[2].lower()) for m in _WORD.finditer(text) if m[2]]
    where_at = next((p for p in places if p[2] == "where"), None)
    where = text[where_at[1] :].strip() if where_at else None
    head = text[: where_at[0]] if where_at else text
    by_at = next((p for p in places if p[2] == "by" and p[0] < len(head)), None)
    if where_at and not where:
        raise FieldError("has no condition after `where`", "Write one, such as `age >= 65`", ("where",))
    if where_at and any(_BY_AT_LAST.fullmatch(text, p[0]) for p in places if p[2] == "by" and p[0] > where_at[1]):
        raise FieldError("has `by` after `where`", "Write it before: `count by sex where age >= 65`", ("columns",))
    if by_at and not parse_names(head[by_at[1] :]):
        raise FieldError("has no column after `by`", "Name one, as in `count by sex`", ("columns",))
    function = _FUNCTION.fullmatch((head[: by_at[0]] if by_at else head).strip())
    if function:
        _check_not_negated(function[2])
        return ParsedQuestion(function[1], function[2].strip(), parse_names(head[by_at[1] :]) if by_at else (), where)
    words = (head[: by_at[0]] if by_at else head).lower().split()
    if words in (["count", "persons"], ["count", "households"]):
        _check_not_negated(where or "")
        return ParsedQuestion("persons", "", parse_names(head[by_at[1] :]) if by_at else (), where)
    if by_at and head[: by_at[0]].strip().lower() not in ("", "count"):
        raise FieldError(
            f"{text[:200]!r} is not a question",
            "Write columns (`sex, income where age >= 65`), or `mean(age) by sex`, `share(happy)`, `median(age)`, "
            "`quantile(age, 0.9)`, `correlation()`, `regress(income ~ age)`, `count persons where ever(job == 'none')`",
            ("columns",),
        )
    columns = head[by_at[1] :] if by_at else "" if words == ["count"] else head  # `count` in backticks is a column
    return ParsedQuestion("count", "", parse_names(columns), where)


def _check_not_negated(text: str) -> None:
    if _NEGATED.match(text):
        raise FieldError(
            "`not` cannot stand before a statement about a person", "Ask without it, and subtract", ("where",)
        )


def parse_names(text: str) -> tuple[str, ...]:
    """Return comma-separated column names; other characters need backticks or quotation marks around the name."""
    names = [m.group(0).strip() for m in _COMMA.finditer(text)]
    return tuple(strip_quotes(name) for name in names if name)


def strip_quotes(name: str) -> str:
    """Return a name without surrounding backticks or quotation marks."""
    quoted = _QUOTED_NAME.fullmatch(name)
    return quoted[2] if quoted else name.strip("`")


def split_formula(text: str, *, only_names: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the target and the terms of ``y ~ a + b``, as texts without surrounding blanks.  Raises FieldError.

    ``only_names``: the parts are names of columns, which only backticks keep together; else they are expressions.
    """
    sides = _split(text, "~", only_names=only_names)
    if len(sides) != 2 or not all(side.strip() for side in sides):
        raise FieldError(f"`{text}` is not of the form y ~ a + b", "Write, say, `wage ~ age + sex`")
    terms = tuple(term.strip() for term in _split(sides[1], "+", only_names=only_names))
    if len(set(terms)) < len(terms):
        raise FieldError(f"`{text}` names one term twice", "Name each once")
    return sides[0].strip(), terms


def _split(text: str, mark: str, *, only_names: bool) -> list[str]:
    """Return the text cut at ``mark``, but not inside backticks, nor inside an expression's quotes or brackets."""
    parts, depth = [""], 0
    for piece in re.findall(rf"{'`[^`]*`' if only_names else QUOTED}|.", text, re.DOTALL):
        if not only_names:
            depth += (piece in "([") - (piece in ")]")
        if piece == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
