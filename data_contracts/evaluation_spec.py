"""The settings of an evaluation: labels, groups, numbers of queries, analyses of published papers, and MGD's.

No default looks at data: ``auto`` choices follow from the public spec.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import TypeAliasType

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel

Tree = TypeAliasType("Tree", "dict[str, Tree] | list[str]")
"""A generalization hierarchy below its root: a list of leaf labels, or named groups that contain trees."""


def measure_tree_depth(tree: Tree) -> int:
    """Return the level of the leaves, 1 for a plain list.

    Raises FieldError if leaves are at different depths or a group is empty.
    """
    if not tree:
        raise FieldError("a hierarchy has an empty group", "Give it labels or leave it out")
    if isinstance(tree, list):
        return 1
    depths = {measure_tree_depth(child) for child in tree.values()}
    if len(depths) > 1:
        raise FieldError("all leaves of a hierarchy must lie at the same depth", "Nest every label equally deep")
    return 1 + depths.pop()


def list_tree_leaves(tree: Tree) -> list[str]:
    """Return the leaf labels, from left to right."""
    if isinstance(tree, list):
        return tree
    return [leaf for child in tree.values() for leaf in list_tree_leaves(child)]


def _check_texts(tree: Any) -> Any:
    """Return the tree with every label as text, like the codec's labels.

    YAML reads a bare 1 or true as another type.
    """
    if isinstance(tree, dict):
        return {_check_text(name): _check_texts(child) for name, child in tree.items()}
    if isinstance(tree, list | tuple):
        return [_check_text(label) for label in tree]
    return tree


def _check_text(label: Any) -> Any:
    if isinstance(label, bool):
        return "true" if label else "false"
    return str(label) if isinstance(label, int | float) else label


class ComparedMarginal(FrozenModel):
    """One marginal that is compared: attributes, their levels and weights, tolerance, and the marginal's own weight."""

    attributes: tuple[str, ...] = Field(min_length=1, description="Columns of the marginal, each once.")
    levels: dict[str, int] = Field(
        default={},
        description="Level of the hierarchy at which a column is counted: 1 is just below the root, 0 the root itself "
        "(the column then plays no part). Columns not named: the leaves.",
    )
    weights: dict[str, float | Literal["infinite"]] = Field(
        default={},
        description="Cost of moving a record the whole way along a column, for every column of the marginal: 0 to 1, "
        "adding up to 1, or `infinite` (no moves between its values). Empty: `infinite` for columns without an "
        "order, equal weights for the others.",
    )
    tolerance: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        description="Difference of a bin, in records, that costs nothing; null: see `MgdSpec`.",
    )
    weight: float = Field(default=1.0, gt=0, le=1e9, description="How much this marginal counts in the MGD score.")

    @model_validator(mode="after")
    def _check(self) -> ComparedMarginal:
        if len(set(self.attributes)) != len(self.attributes):
            raise FieldError("`attributes` names a column twice", "Name each once")
        for field in ("levels", "weights"):
            for name in getattr(self, field):
                if name not in self.attributes:
                    raise FieldError(
                        f"`{field}` names {name!r}, which is not in `attributes`", "Add it there or drop it"
                    )
        if any(level < 0 for level in self.levels.values()):
            raise FieldError("`levels` must be 0 (the root) or more")
        if self.weights:
            self._check_weights()
        return self

    def _check_weights(self) -> None:
        if set(self.weights) != set(self.attributes):
            raise FieldError("`weights` must name every column of the marginal, or none")
        finite = [w for w in self.weights.values() if not isinstance(w, str)]
        if any(not 0 <= w <= 1 for w in finite) or (finite and abs(sum(finite) - 1) > 1e-9):
            raise FieldError("`weights` that are not `infinite` must lie in 0 to 1 and add up to 1")


class MgdSpec(FrozenModel):
    """Hierarchies by column, and the target marginals.

    Without target marginals: every one-way marginal, and the first ``pairs`` pairs with at most ``pair_cells`` bins,
    fewest bins first (equal ones in table order).  All are at the leaves and have weight 1.  The choice follows
    from the public bins alone.
    """

    hierarchies: dict[str, Tree] = Field(
        default={},
        description="Generalization hierarchy by column: a list of the column's labels, or groups by name, nested as "
        "deep as wanted, every label equally deep. Columns not named: all labels directly below the root.",
    )
    bins_of_bins: dict[str, tuple[int, ...]] = Field(
        default={},
        description="Hierarchy of a column with an order, in numbers from the leaves up: how many neighbouring bins "
        "make one bin of the next level. [5, 2]: five bins make one, and two such bins make one again.",
    )
    marginals: tuple[ComparedMarginal, ...] = Field(default=(), description="Target marginals; empty: see the class.")
    tolerance: float = Field(
        default=2.0, ge=0, le=1e9, description="Difference of a bin, in records, that costs nothing (paper: 2 to 10)."
    )
    pair_cells: int = Field(default=2_500, ge=0, le=10**6, description="Most bins of a pair that is chosen by default.")
    pairs: int = Field(default=300, ge=0, le=10**5, description="Most pairs that are chosen by default.")
    worst_bins: int = Field(default=5, ge=0, le=1_000, description="Bins shown in a marginal's drill-down.")

    @field_validator("hierarchies", mode="before")
    @classmethod
    def _check_labels(cls, value: Any) -> Any:
        return {name: _check_texts(tree) for name, tree in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _check(self) -> MgdSpec:
        for name, tree in self.hierarchies.items():
            try:
                measure_tree_depth(tree)
            except FieldError as error:
                raise FieldError(f"`hierarchies` of {name!r}: {error.problem}", error.cure) from None
            leaves = list_tree_leaves(tree)
            if len(set(leaves)) != len(leaves):
                raise FieldError(f"`hierarchies` of {name!r}: a label stands twice", "Name each once")
        for name, sizes in self.bins_of_bins.items():
            if name in self.hierarchies:
                raise FieldError(f"{name!r} stands in `hierarchies` and in `bins_of_bins`", "Give one of them")
            if any(size < 2 for size in sizes):
                raise FieldError(f"`bins_of_bins` of {name!r}: every number must be 2 or more")
        return self


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
