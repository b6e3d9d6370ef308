"""Targets: which columns and marginals count more than others where budget is shared.  Public, as all of the spec.

A question as one line of text: ``sex, income where age >= 65``, ``mean(age) by income``, ``share(happy) by sex``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel
from privsyn.data_contracts.rule_language import Node, find_names, parse_condition
from privsyn.data_contracts.rules import infer_type
from privsyn.data_contracts.summaries import EXAMPLE, Summary, parse_summary

MOST_MEASURED = 5
"""Columns of a set that is measured as one table, at most."""

MOST_WEIGHT = 100.0
"""A target counts at most so many times as much as anything else."""


def _check_focus(columns: tuple[str, ...]) -> tuple[str, ...]:
    if not columns:
        raise FieldError("names no column", "Name at least one, or leave the field out")
    twice = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
    if twice is not None:
        raise FieldError(f"names the column {twice!r} twice", "Take one out")
    return columns


class Focus(FrozenModel):
    """Columns whose relations with all others count more."""

    LATER: ClassVar[frozenset[str]] = frozenset({"triples", "scores"})

    columns: tuple[str, ...] = Field(
        description="Columns whose relations matter most, such as an analysis's outcome or a model's label."
    )
    weight: float = Field(
        default=3.0,
        ge=1,
        le=MOST_WEIGHT,
        description="Factor on errors in pairs and triples with one of them. The preset `0.4` has 10, except "
        "for rows by GUM.",
    )
    triples: bool = Field(
        default=False,
        description="Spend a tenth of the third stage's budget on triples of one of these with two columns "
        "that together say something about it. `privsyn` and `adaptive` only. On in `0.4`.",
    )
    scores: bool = Field(
        default=False,
        description="Spend half of the scores' budget on pairs with one of these, if they are the fewer. "
        "`privsyn` and `adaptive` only. On in `0.4`, where scores then get 6 % of rho unless `split` is given.",
    )

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _check_focus(columns)


class NamedMarginal(FrozenModel):
    """A set of columns whose joint counts matter, or a question."""

    LATER: ClassVar[frozenset[str]] = frozenset({"measured", "question"})

    columns: tuple[str, ...] = Field(default=(), description="Two or more columns that are looked at together.")
    question: str | None = Field(
        default=None,
        description="In place of `columns`, as `privsyn query` takes it: `sex, region where age < 30`. If "
        "measured, its cells are the values it counts by and whether the condition holds. With linked rows also "
        "about a person's rows: `share(ever(job == 'none')) by sex`, or `always`, `count`, `spells`, `sum`, "
        "`change` (docs/panels.md).",
    )
    weight: float = Field(
        default=10.0,
        ge=1,
        le=MOST_WEIGHT,
        description="Factor on errors in pairs and triples of these.",
    )
    measured: bool = Field(
        default=False,
        description="Measure their joint counts in any case, in as many cells as rows and noise allow; at most "
        "5 columns. On in `0.4`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _name_by_question(cls, content: Any) -> Any:
        """Return the content with the columns that its question names."""
        if not isinstance(content, Mapping) or not isinstance(content.get("question"), str):
            return content
        of_question, named = _list_columns(content["question"]), content.get("columns") or ()
        if named and set(named) != set(of_question):
            raise FieldError("a question names its columns itself", "Take out `columns`, or the question", ("columns",))
        return {**content, "columns": named or of_question}

    @model_validator(mode="after")
    def _check_number(self) -> NamedMarginal:
        if self.measured and len(self.columns) > MOST_MEASURED:
            raise FieldError(
                f"{len(self.columns)} columns are too many to be measured together",
                f"Name {MOST_MEASURED} at most, or write `measured: false`",
                ("measured",),
            )
        if len(self.columns) < 2 and self.summary is None:
            if self.question is not None:
                raise FieldError(
                    "asks about one column only, which is measured anyway" if self.columns else "names no column",
                    "Ask about two or more together",
                    ("question",),
                )
            if not self.columns:
                raise FieldError("names no column", "Name at least two, or write a `question`", ("columns",))
            raise FieldError(
                f"names one column only, {self.columns[0]!r}",
                "Add another, or name the column in `focus`",
                ("columns",),
            )
        return self

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _check_focus(columns) if columns else columns

    @property
    def asked(self) -> ParsedQuestion | None:
        """The question, where it is one."""
        return None if self.question is None else parse_question(self.question)

    @property
    def summary(self) -> Summary | None:
        """The statement about a person whose share or number the question asks for; None where it is about rows."""
        return None if self.asked is None or not self.asked.about_persons else self.asked.summary


def _list_columns(question: str) -> tuple[str, ...]:
    """Return the columns, and figures of persons, that a question names, each once.

    Raises FieldError for what has no cells.
    """
    try:
        parsed = parse_question(question)
        if parsed.about_persons:
            return _list_person_columns(parsed)
        names = (*parsed.counted_by, *(name for text in parsed.conditions for name in find_names(text)))
    except FieldError as error:
        raise FieldError(error.problem, error.cure, ("question",)) from None
    if parsed.what == "transitions":
        problem = "transitions() are measured of every release of linked rows"
        raise FieldError(problem, "Take the question out", ("question",))
    if parsed.what in ("correlation", "regress"):
        raise FieldError(
            f"{parsed.what}() has no cells that could be measured",
            "Ask for a count, a share, a mean or a quantile, or name `columns`",
            ("question",),
        )
    return tuple(dict.fromkeys(names))


def _list_person_columns(parsed: ParsedQuestion) -> tuple[str, ...]:
    """Return what persons are counted by: columns, and the figure that a question is about.  Raises FieldError."""
    if parsed.what == "share" and parsed.where:
        raise FieldError("a question about persons takes no further condition", "Group by a constant column")
    summary = parsed.summary
    if summary is None:
        raise FieldError("says nothing of a person's rows together", f"Write, say, {EXAMPLE}")
    return tuple(dict.fromkeys((*parsed.by, summary.name)))


def parse_conditions(marginal: NamedMarginal, released: Mapping[str, Any]) -> tuple[Node, ...]:
    """Return the conditions of a marginal's question, none without one; ``released``: the released columns.

    Raises FieldError for what is no condition.
    """
    if marginal.asked is None or not marginal.asked.conditions or marginal.summary is not None:
        return ()
    types = {name: infer_type(column) for name, column in released.items()}
    return tuple(parse_condition(text, types) for text in marginal.asked.conditions)


def check_targets(
    focus: Focus | None, workload: Sequence[NamedMarginal], released: Mapping[str, Any], computed: Collection[str]
) -> None:
    """Raise FieldError for a target that is not measured: a column that is not ``released``, or is ``computed``.

    Or for a question whose condition is none.
    """
    named: list[tuple[tuple[str | int, ...], str]] = []
    named += [] if focus is None else [(("focus", "columns"), name) for name in focus.columns]
    fields = ["columns" if m.question is None else "question" for m in workload]
    of_persons = [None if m.summary is None else m.summary.name for m in workload]
    named += [
        (("workload", i, fields[i]), name)
        for i, m in enumerate(workload)
        for name in m.columns
        if name != of_persons[i]
    ]
    for place, name in named:
        if name not in released:
            raise FieldError(f"the spec releases no column {name!r}", "Name one that it releases", place)
        if name in computed:
            raise FieldError(
                f"the column {name!r} is computed from others by a rule, so it is not measured",
                "Name the columns that it is computed from",
                place,
            )
    for i, marginal in enumerate(workload):
        try:
            parse_conditions(marginal, released)
        except FieldError as error:
            raise FieldError(error.problem, error.cure, ("workload", i, "question")) from None


_QUOTED = r"""`[^`]*`|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_WORD = re.compile(rf"({_QUOTED})|\b(where|by)\b", re.IGNORECASE)
_FUNCTION = re.compile(r"(count|share|mean|median|quantile|correlation|regress|transitions)\s*\((.*)\)\s*", re.DOTALL)
_OF_PERSONS = re.compile(r"(ever|any|always|count|spells|sum|change)\s*\(", re.IGNORECASE)
_NEGATED = re.compile(rf"[(\s]*not\b[(\s]*{_OF_PERSONS.pattern}", re.IGNORECASE)
_BY_AT_LAST = re.compile(r"by\s+(`[^`]*`|\w+)(\s*,\s*(`[^`]*`|\w+))*\s*", re.IGNORECASE)
_COMMA = re.compile(rf"({_QUOTED}|[^,`\"']+)+")
_NAME = re.compile(r"`[^`]*`|\w+")
_QUOTED_NAME = re.compile(r"""([`'"])(.*)\1""", re.DOTALL)


class ParsedQuestion(NamedTuple):
    """A question: a figure (``count`` by default), its column, the columns it is by, and a condition."""

    what: str
    of: str
    by: tuple[str, ...]
    where: str | None

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The columns by whose values rows are to be counted, each once: those it is by, and those it is of."""
        return tuple(dict.fromkeys((*self.by, *(() if self._is_of_condition else parse_names(self.of)[: self._most]))))

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that rows are to be told apart by."""
        return tuple(text for text in (self.of if self._is_of_condition else None, self.where) if text)

    @property
    def about_persons(self) -> bool:
        """Whether it is about a person's rows together."""
        return self.what == "persons" or (self.what == "share" and bool(_OF_PERSONS.match(self.of)))

    @property
    def summary(self) -> Summary | None:
        """The statement about a person whose number or share is asked for.  Raises FieldError for half of one."""
        return parse_summary(self.of if self.what == "share" else self.where or "")

    @property
    def _is_of_condition(self) -> bool:
        return self.what == "share" and not _NAME.fullmatch(self.of)

    @property
    def _most(self) -> int | None:
        return 1 if self.what in ("mean", "median", "quantile") else None


def parse_question(text: str) -> ParsedQuestion:
    """Return the question in a line of text.  Raises FieldError, its place ``where`` or ``columns``, if it is none."""
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
            f"{text[:200]!r} is no question",
            "Write columns (`sex, income where age >= 65`), or `mean(age) by sex`, `share(happy)`, `median(age)`, "
            "`quantile(age, 0.9)`, `correlation()`, `regress(income ~ age)`, `count persons where ever(job == 'none')`",
            ("columns",),
        )
    columns = head[by_at[1] :] if by_at else "" if words == ["count"] else head  # a column of that name: `count`
    return ParsedQuestion("count", "", parse_names(columns), where)


def _check_not_negated(text: str) -> None:
    if _NEGATED.match(text):
        raise FieldError(
            "`not` does not go before a statement about a person", "Ask without it, and take the rest", ("where",)
        )


def parse_names(text: str) -> tuple[str, ...]:
    """Return column names between commas; those with other signs stand in backticks or quotation marks."""
    names = [m.group(0).strip() for m in _COMMA.finditer(text)]
    return tuple(strip_quotes(name) for name in names if name)


def strip_quotes(name: str) -> str:
    """Return a name without the backticks or quotation marks around it."""
    quoted = _QUOTED_NAME.fullmatch(name)
    return quoted[2] if quoted else name.strip("`")
