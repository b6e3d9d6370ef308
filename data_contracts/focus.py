"""Targets: columns and marginals that count more than others when budget is shared.  Public, like all of the spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel
from privsyn.data_contracts.question_language import EXAMPLE, ParsedQuestion, Summary, parse_question
from privsyn.data_contracts.rule_language import Node, find_names, parse_condition
from privsyn.data_contracts.rules import infer_type

MOST_MEASURED = 5
"""The most columns of a set that is measured as one table."""

MOST_WEIGHT = 100.0
"""The most that a target counts, relative to anything else."""


def _check_focus(columns: tuple[str, ...]) -> tuple[str, ...]:
    if not columns:
        raise FieldError("names no column", "Name at least one, or leave the field out")
    twice = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
    if twice is not None:
        raise FieldError(f"names the column {twice!r} twice", "Take one out")
    return columns


class Focus(FrozenModel):
    """Columns whose relations with all others count more."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"triples", "scores"})

    columns: tuple[str, ...] = Field(
        description="Columns whose relations matter most, such as an analysis's outcome or a model's label."
    )
    weight: float = Field(
        default=3.0,
        ge=1,
        le=MOST_WEIGHT,
        description="Factor on errors in pairs and triples with one of them.",
    )
    triples: bool = Field(
        default=False,
        description="Spend a tenth of `measurement` on triples of one of these with two columns that together "
        "predict it. `privsyn` and `adaptive` only.",
    )
    scores: bool = Field(
        default=False,
        description="Spend half of the scores' budget on pairs with one of these, if they are the fewer. `privsyn` "
        "and `adaptive` only. With `0.4`, scores then get 6 % of rho unless `split` is given.",
    )

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _check_focus(columns)


class NamedMarginal(FrozenModel):
    """A set of columns whose joint counts matter, or a question."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"measured", "question"})

    columns: tuple[str, ...] = Field(default=(), description="Two or more columns that are looked at together.")
    question: str | None = Field(
        default=None,
        description="In place of `columns`, as `privsyn query` takes it: `sex, region where age < 30`. With linked "
        "rows also about a person's rows: `share(ever(job == 'none')) by sex` (docs/panels.md).",
    )
    weight: float = Field(
        default=10.0,
        ge=1,
        le=MOST_WEIGHT,
        description="Factor on errors in pairs and triples of these.",
    )
    measured: bool = Field(
        default=False,
        description="Measure their joint counts in any case, in as many cells as rows and noise allow; at most 5 "
        "columns.",
    )

    @model_validator(mode="before")
    @classmethod
    def _name_by_question(cls, content: Any) -> Any:
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
        """The parsed question, if there is one."""
        return None if self.question is None else parse_question(self.question)

    @property
    def summary(self) -> Summary | None:
        """The person statement whose share or number the question asks for; None for a question about rows."""
        return None if self.asked is None or not self.asked.about_persons else self.asked.summary


def _list_columns(question: str) -> tuple[str, ...]:
    """Return the columns and person figures that a question names, once each.  Raises FieldError without cells."""
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
            f"{parsed.what}() has no cells to measure",
            "Ask for a count, a share, a mean or a quantile, or name `columns`",
            ("question",),
        )
    return tuple(dict.fromkeys(names))


def _list_person_columns(parsed: ParsedQuestion) -> tuple[str, ...]:
    """Return the columns by which persons are counted, and the question's figure.  Raises FieldError."""
    if parsed.what == "share" and parsed.where:
        raise FieldError("a question about persons cannot have a further condition", "Group by a constant column")
    summary = parsed.summary
    if summary is None:
        raise FieldError("says nothing of a person's rows together", f"Write, say, {EXAMPLE}")
    return tuple(dict.fromkeys((*parsed.by, summary.name)))


def parse_conditions(marginal: NamedMarginal, released: Mapping[str, Any]) -> tuple[Node, ...]:
    """Return the conditions of a marginal's question, empty without one; ``released``: the released columns.

    Raises FieldError for an invalid condition.
    """
    if marginal.asked is None or not marginal.asked.conditions or marginal.summary is not None:
        return ()
    types = {name: infer_type(column) for name, column in released.items()}
    return tuple(parse_condition(text, types) for text in marginal.asked.conditions)


def check_targets(
    focus: Focus | None, workload: Sequence[NamedMarginal], released: Mapping[str, Any], computed: Collection[str]
) -> None:
    """Raise FieldError for a target that is not measured: a column that is not ``released``, or is ``computed``.

    Also for a question with an invalid condition.
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
