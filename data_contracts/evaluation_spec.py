"""The settings of an evaluation: labels, groups, numbers of queries, analyses of published papers.

No default looks at data: ``auto`` choices follow from the public spec.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel
from privsyn.data_contracts.mgd_spec import MgdSpec

MAX_ANALYSES = 100
_NEEDED = {"regression": "formula", "quantile": "column", "share": "of"}
_EXAMPLES = {"formula": "log(wage) ~ age + sex", "column": "wage", "of": "income == '>50K'"}
_ALLOWED = {"regression": (), "quantile": ("q", "by"), "share": ("by",)}


class Analysis(FrozenModel):
    """One analysis.  Conditions and expressions are in the language of the rules, over released columns."""

    kind: Literal["regression", "quantile", "share"] = Field(
        description="`regression`: coefficients; `quantile`: a quantile of a number; `share`: the share of "
        "rows that meet a condition. Quantiles and shares may be by group."
    )
    name: str = Field(default="", max_length=200, description="Title in the report. Empty: the figure's definition.")
    formula: str = Field(
        default="",
        description="For a regression: `log(wage) ~ age + age * age + race`. Terms are numbers, conditions, or "
        "columns of values (0 and 1 for each value except the most frequent). A condition before `~` makes it "
        "logistic; a number, least squares.",
    )
    column: str = Field(default="", description="For a quantile: the column or expression, a number.")
    q: float = Field(default=0.5, gt=0, lt=1, description="For a quantile: its level; 0.5 is the median.")
    of: str = Field(default="", description="For a share: the condition, such as `income == '>50K'`.")
    by: tuple[str, ...] = Field(
        default=(), max_length=5, description="For quantiles and shares: columns or expressions that form the groups."
    )
    where: str = Field(default="", description="Condition on the rows used. Empty: all rows.")

    @model_validator(mode="after")
    def _check_fields_of_kind(self) -> Analysis:
        needed = _NEEDED[self.kind]
        if not getattr(self, needed).strip():
            raise FieldError(f"a {self.kind} needs `{needed}`", f"Add it, such as `{needed}: {_EXAMPLES[needed]}`")
        for name in {"formula", "column", "q", "of", "by"} - {needed, *_ALLOWED[self.kind]}:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise FieldError(f"a {self.kind} has no `{name}`", "Leave it out")
        return self

    @field_validator("by")
    @classmethod
    def _check_each_once(cls, by: tuple[str, ...]) -> tuple[str, ...]:
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


class IncomeColumns(FrozenModel):
    """The triple of NIST 2018's third metric: Gini index and pay-gap ranks by place."""

    place: str = Field(description="Column of the places that are compared and ranked (the challenge: city).")
    sex: str = Field(description="Column of the sexes.")
    sexes: tuple[str, str] | None = Field(
        default=None,
        description="The two values of `sex` that are compared; without them, its first two public values.",
    )
    wage: str = Field(description="Numeric column of the wage.")


class PieColumns(FrozenModel):
    """The columns of NIST 2020's pie-chart metric (sprint 1): one pie per place and time, its slices the kinds."""

    place: str = Field(description="Column of the places (the challenge: neighborhood).")
    time: str = Field(description="Column of the times (the challenge: month).")
    kind: str = Field(description="Column of the slices (the challenge: incident type).")


class EvaluationSpec(FrozenModel):
    """All settings of an evaluation; each has a default."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"analyses"})

    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the random queries, schemas and subsamples.")
    labels: tuple[str, ...] | Literal["auto"] = Field(
        default=(),
        description="Columns that a model predicts; `auto`: the last one with 2 to 10 public values.",
    )
    range_queries: int = Field(default=1_000, ge=1, le=100_000, description="Random range queries (PrivSyn: 1,000).")
    nist_schemas: int = Field(default=300, ge=1, le=100_000, description="Random 3-way schemas (NIST 2018: 300).")
    nist_queries: int = Field(default=300, ge=1, le=100_000, description="Random NIST range queries (NIST 2018: 300).")
    k: int = Field(default=2, ge=1, le=5, description="Attributes of a k-marginal (SDNist: all pairs).")
    groups: tuple[str, ...] = Field(
        default=(),
        description="Columns whose values form the groups of the per-group k-marginal (NIST 2020, sprint 2).",
    )
    income: IncomeColumns | None = Field(default=None, description="Columns of the Gini index and the pay gap.")
    pie: PieColumns | None = Field(default=None, description="Columns of the pie-chart metric.")
    mgd: MgdSpec = Field(default=MgdSpec(), description="Hierarchies and target marginals of MGD.")
    model_rows: int = Field(
        default=50_000, ge=100, le=10**7, description="Most rows of a table that train or test a model."
    )
    attack_rows: int = Field(
        default=2_000, ge=10, le=10**6, description="Most members and non-members that are attacked."
    )
    analyses: tuple[Analysis, ...] = Field(
        default=(),
        max_length=MAX_ANALYSES,
        description="Regressions, quantiles and shares to compute on both tables.",
    )

    @field_validator("labels", "groups")
    @classmethod
    def _check_each_once(cls, columns: tuple[str, ...] | Literal["auto"]) -> tuple[str, ...] | Literal["auto"]:
        repeated = [c for c, times in Counter(columns if isinstance(columns, tuple) else ()).items() if times > 1]
        if repeated:
            raise FieldError(f"names the column {repeated[0]!r} more than once")
        return columns
