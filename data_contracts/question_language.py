"""The language of questions and formulas; their conditions use the language of rules.

A question is one line of text: ``sex, income where age >= 65``, ``mean(age) by income``, ``share(happy) by sex``.  A
formula has a target and its terms: ``income ~ age + sex``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import QUOTED
from privsyn.data_contracts.summaries import Summary, parse_summary

_WORD = re.compile(rf"({QUOTED})|\b(where|by)\b", re.IGNORECASE)
_FUNCTION = re.compile(r"(count|share|mean|median|quantile|correlation|regress|transitions)\s*\((.*)\)\s*", re.DOTALL)
_OF_PERSONS = re.compile(r"(ever|any|always|count|spells|sum|change)\s*\(", re.IGNORECASE)
_NEGATED = re.compile(rf"[(\s]*not\b[(\s]*{_OF_PERSONS.pattern}", re.IGNORECASE)
_BY_AT_LAST = re.compile(r"by\s+(`[^`]*`|\w+)(\s*,\s*(`[^`]*`|\w+))*\s*", re.IGNORECASE)
_COMMA = re.compile(rf"({QUOTED}|[^,`\"']+)+")
_NAME = re.compile(r"`[^`]*`|\w+")
_QUOTED_NAME = re.compile(r"""([`'"])(.*)\1""", re.DOTALL)


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
