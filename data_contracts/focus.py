"""Targets: which columns and marginals count more than others where budget is shared.  Public, as all of the spec."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel

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
    """The columns whose relations with all others count more."""

    LATER: ClassVar[frozenset[str]] = frozenset({"triples"})

    columns: tuple[str, ...] = Field(
        description="The columns whose relations matter most: the outcome of an analysis, the label of a model."
    )
    weight: float = Field(
        default=3.0,
        ge=1,
        le=MOST_WEIGHT,
        description="How many times as much an error in a pair (or triple) with one of them counts as in any other.",
    )
    triples: bool = Field(
        default=False,
        description="Whether a tenth of the third stage's budget looks for two columns that together say something of "
        "one of these, and measures the three; `privsyn` and `adaptive` only. The preset `0.4` looks.",
    )

    @field_validator("columns")
    @classmethod
    def _columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _check_focus(columns)


class NamedMarginal(FrozenModel):
    """A set of columns whose joint counts matter."""

    LATER: ClassVar[frozenset[str]] = frozenset({"measured"})

    columns: tuple[str, ...] = Field(description="Two columns or more that are looked at together.")
    weight: float = Field(
        default=10.0,
        ge=1,
        le=MOST_WEIGHT,
        description="How many times as much an error in a pair (or triple) of these counts as in any other.",
    )
    measured: bool = Field(
        default=False,
        description="Whether their joint counts are measured, in as many cells as rows and noise allow, whatever pairs "
        f"are chosen; {MOST_MEASURED} columns at most. The preset `0.4` measures them.",
    )

    @model_validator(mode="after")
    def _few_enough(self) -> NamedMarginal:
        if self.measured and len(self.columns) > MOST_MEASURED:
            raise FieldError(
                f"{len(self.columns)} columns are too many to be measured together",
                f"Name {MOST_MEASURED} at most, or write `measured: false`",
                ("measured",),
            )
        return self

    @field_validator("columns")
    @classmethod
    def _columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if len(_check_focus(columns)) < 2:
            raise FieldError(f"names one column only, {columns[0]!r}", "Add another, or name the column in `focus`")
        return columns


def check_targets(
    focus: Focus | None, workload: Sequence[NamedMarginal], released: Collection[str], computed: Collection[str]
) -> None:
    """Raise FieldError for a target that is not measured: a column that is not ``released``, or is ``computed``."""
    named: list[tuple[tuple[str | int, ...], str]] = []
    named += [] if focus is None else [(("focus", "columns"), name) for name in focus.columns]
    named += [(("workload", i, "columns"), name) for i, m in enumerate(workload) for name in m.columns]
    for place, name in named:
        if name not in released:
            raise FieldError(f"the spec releases no column {name!r}", "Name one that it releases", place)
        if name in computed:
            raise FieldError(
                f"the column {name!r} is computed from others by a rule, so it is not measured",
                "Name the columns that it is computed from",
                place,
            )
