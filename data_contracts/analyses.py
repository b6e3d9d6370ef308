"""Analyses of the kind that papers publish, computed on the private and on the synthetic table by an evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel

MAX_ANALYSES = 100

_NEEDED = {"regression": "formula", "quantile": "column", "share": "of"}
_EXAMPLES = {"formula": "log(wage) ~ age + sex", "column": "wage", "of": "income == '>50K'"}
_ALLOWED = {"regression": (), "quantile": ("q", "by"), "share": ("by",)}


class Analysis(FrozenModel):
    """One analysis.  Conditions and expressions are in the language of the rules, over released columns."""

    kind: Literal["regression", "quantile", "share"] = Field(
        description="`regression`: coefficients; `quantile`: a quantile of a number; `share`: of rows that meet a "
        "condition; the two last by group."
    )
    name: str = Field(default="", max_length=200, description="Title in the report. Empty: what it computes.")
    formula: str = Field(
        default="",
        description="Of a regression: `log(wage) ~ age + age * age + race`. Terms are numbers, conditions, or columns "
        "of values (0 and 1 for each value but the most frequent one). A condition before `~` makes it logistic, a "
        "number least squares.",
    )
    column: str = Field(default="", description="Of a quantile: the column or expression, a number.")
    q: float = Field(default=0.5, gt=0, lt=1, description="Of a quantile: which; 0.5 is the median.")
    of: str = Field(default="", description="Of a share: the condition, `income == '>50K'`.")
    by: tuple[str, ...] = Field(
        default=(), max_length=5, description="Of quantiles and shares: columns or expressions that make the groups."
    )
    where: str = Field(default="", description="Condition on the rows that take part. Empty: all rows.")

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> Analysis:
        needed = _NEEDED[self.kind]
        if not getattr(self, needed).strip():
            raise FieldError(f"a {self.kind} needs `{needed}`", f"Add it, such as `{needed}: {_EXAMPLES[needed]}`")
        for name in {"formula", "column", "q", "of", "by"} - {needed, *_ALLOWED[self.kind]}:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise FieldError(f"a {self.kind} has no `{name}`", "Leave it out")
        return self

    @field_validator("by")
    @classmethod
    def _each_once(cls, by: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(by)) < len(by):
            raise FieldError("names one group twice", "Name each once")
        return by

    @property
    def title(self) -> str:
        """The analysis' name, or what it computes."""
        if self.name:
            return self.name
        words = {
            "regression": self.formula,
            "quantile": f"{'median' if self.q == 0.5 else f'{self.q:g} quantile'} of {self.column}",
            "share": f"share of {self.of}",
        }[self.kind]
        groups = f" by {', '.join(self.by)}" if self.by else ""
        return words + groups + (f", where {self.where}" if self.where else "")
