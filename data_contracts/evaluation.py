"""Evaluations: their settings, and every figure of an evaluation and of a comparison of methods.

The settings are public, and no default looks at data: ``auto`` choices follow from the public spec.  Every figure is
one frozen model that is also its JSON file.  Figures are computed from the real table without noise, so they are
private.  Shares are of a table's rows, 0..1.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import TypeAliasType

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel, PrivateResult, ResultModel

Tree = TypeAliasType("Tree", "dict[str, Tree] | list[str]")
"""A generalization hierarchy below its root: a list of leaf labels, or named groups that contain trees."""


def measure_tree_depth(tree: Tree) -> int:
    """Return the level of the leaves, 1 for a plain list.  Raises FieldError for unequal depths or an empty group."""
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
    """Return the tree with every label as text, like the codec's labels: YAML reads a bare 1 or true otherwise."""
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
            if set(self.weights) != set(self.attributes):
                raise FieldError("`weights` must name every column of the marginal, or none")
            finite = [w for w in self.weights.values() if not isinstance(w, str)]
            if any(not 0 <= w <= 1 for w in finite) or (finite and abs(sum(finite) - 1) > 1e-9):
                raise FieldError("`weights` that are not `infinite` must lie in 0 to 1 and add up to 1")
        return self


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


class Metric(PrivateResult):
    """One figure of one table.

    ``value`` is None if it cannot be computed; ``note`` then says why.  ``high`` is None for a metric without an upper
    bound.  ``references`` are values to compare with (Majority, NonPriv, a random guess ...).  ``subsample``: as good
    as a random sample of this share of the real rows (0..1), None if not computed.
    """

    name: str
    title: str
    group: Literal["marginals", "queries", "models", "structure", "attacks"]
    value: float | None
    unit: str
    low: float
    high: float | None
    better: Literal["lower", "higher"]
    source: str
    meaning: str
    headline: bool = False
    references: dict[str, float] = Field(default={})
    subsample: float | None = None
    note: str = ""


class TableScores(PrivateResult):
    """All metrics of one table; the first of an evaluation is the release itself."""

    table: str
    rows: int
    metrics: tuple[Metric, ...]


class MisreadColumn(PrivateResult):
    """A column with so many repairs that the spec is likely wrong.

    ``column`` is empty for whole records.  ``repairs``: repair -> its share of the rows, 0..1; ``words`` describes
    them; ``cures`` are sentences.  ``counted``: whether repaired values have a separate bin in all comparisons.
    """

    column: str
    repairs: dict[str, float]
    words: str
    cures: tuple[str, ...]
    counted: bool


class OneWay(PrivateResult):
    """One column: shares of every public bin, and the sd of the noise that the budget implies for each share.

    ``noise_sd`` is None where nothing is known of the noise.  ``l1`` is in 0..2.  ``noise_l1`` is the expected L1
    error of the noise alone.  It is at least 0 and has no upper bound: noisy counts are neither kept above 0 nor made
    to add up. ``misread``: the last bin holds the repaired values.
    """

    column: str
    ordered: bool
    labels: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    noise_sd: tuple[float, ...] | None
    l1: float
    noise_l1: float | None
    misread: bool = False


class Statistic(PrivateResult):
    """One figure of one column, real and synthetic, and the band of the noise around the synthetic one.

    ``kind``: a ``value`` of the column, a ``width`` (a difference of values) or a ``share`` of rows (0..1).  The band
    is two noise standard deviations to either side, None if the noise is unknown.
    """

    name: str
    kind: Literal["value", "width", "share"]
    real: float
    synthetic: float
    low: float | None
    high: float | None


class ColumnStatistics(PrivateResult):
    """Mean, standard deviation, quantiles and shares of exact values of one column with an order.

    ``form``: numbers, or seconds since 1970 (``date``, ``moment``) or since midnight (``time``).  Nulls and unreadable
    values are left out.  Empty ``statistics``: one of the tables has no value.
    """

    column: str
    form: Literal["number", "date", "moment", "time"]
    unit: str
    statistics: tuple[Statistic, ...]


class AnalysisFigure(PrivateResult):
    """One figure of an analysis, real and synthetic; None where a table does not have it.

    ``std_error``: of the real figure, with the real rows as a sample.  ``apart``: the difference in such errors.
    ``close``: the synthetic figure is within 15 % of the real one, or within two standard errors.
    """

    name: str
    real: float | None
    std_error: float | None
    synthetic: float | None
    apart: float | None
    close: bool


class AnalysisResult(PrivateResult):
    """One analysis on both tables: the rows that took part, and its figures."""

    title: str
    kind: Literal["regression", "quantile", "share"]
    rows_real: int
    rows_synthetic: int
    figures: tuple[AnalysisFigure, ...]
    note: str = ""


class PanelFigure(PrivateResult):
    """A figure of persons with several rows over time, in the real and the synthetic table.

    ``column``: the figure's column, empty for persons as such.  ``real`` and ``synthetic``: the figure of each table,
    None if unknown or if it is only a distance.  ``distance``: an L1 distance of shares in 0..2, or the largest
    difference.  ``sample`` and ``sample_distance``: the same for a random tenth of the real persons, to compare with.
    """

    name: str
    column: str
    real: float | None = None
    synthetic: float | None = None
    distance: float | None = None
    sample: float | None = None
    sample_distance: float | None = None

    def with_table(self, name: str) -> PanelFigure:
        """Return the figure with the name of its further table in front."""
        return PanelFigure(
            name=f"{name}: {self.name}",
            column=self.column,
            real=self.real,
            synthetic=self.synthetic,
            distance=self.distance,
        )


class Pair(PrivateResult):
    """One pair of columns.

    ``l1``: synthetic against real, 0..2.  ``consistent_l1``: the noisy consistent marginal against real, None if no
    measured marginal contains the pair.  ``cause``: the larger part of the error: noise, synthesis, or not selected;
    misread if one of its columns is.  Associations are in 0..1 (nominal) or -1..1 (both ordered), None if undefined.
    """

    a: str
    b: str
    cells: int
    l1: float
    measured: bool
    consistent_l1: float | None
    cause: Literal["noise", "synthesis", "not selected", "misread"]
    association_real: float | None
    association_synthetic: float | None


class SizeError(PrivateResult):
    """Mean L1 error of the marginals of ``ways`` attributes with ``cells_from`` <= cells <= ``cells_to``."""

    ways: int
    cells_from: int
    cells_to: int
    marginals: int
    mean_l1: float


class StageError(PrivateResult):
    """Mean L1 error to the real marginals after one stage, over ``marginals`` marginals.

    Over the measured marginals: as measured (noise), after consistency, after synthesis.  Over the pairs in no measured
    marginal: after synthesis, and under independence of the real one-ways.  0..2, but "measured" has no upper bound
    (noise).
    """

    stage: Literal["measured", "consistent", "synthetic", "not selected", "not selected, if independent"]
    marginals: int
    mean_l1: float


class BinCost(PrivateResult):
    """One bin of a target marginal: its labels, its part of the AEMC (absolute), and its two counts' shares."""

    labels: tuple[str, ...]
    cost: float
    real: float
    synthetic: float


class EarthMover(PrivateResult):
    """One target marginal of MGD: AEMC, its weight, and the drill-down, worst first (paper, section 4.4)."""

    attributes: tuple[str, ...]
    aemc: float
    weight: float
    tolerance: float
    by_attribute: dict[str, float]
    added_or_removed: float
    worst_bins: tuple[BinCost, ...]


class Evaluation(PrivateResult):
    """One evaluation of a release against the real table.  Private.

    ``prior``: the release had a public prior; ``trends``: it asked how numbers and moments rise together.
    """

    schema_version: Literal[1] = 1
    private: Literal[True] = True
    run: str
    dataset: str
    epsilon: float
    delta: float
    unit_of_protection: str
    rows_real: int
    rows_holdout: int | None
    settings: EvaluationSpec
    scores: tuple[TableScores, ...]
    one_ways: tuple[OneWay, ...]
    pairs: tuple[Pair, ...]
    sizes: tuple[SizeError, ...]
    stages: tuple[StageError, ...]
    earth_mover: tuple[EarthMover, ...]
    notes: tuple[str, ...] = ()
    misread: tuple[MisreadColumn, ...] = ()
    statistics: tuple[ColumnStatistics, ...] = ()
    analyses: tuple[AnalysisResult, ...] = ()
    panel: tuple[PanelFigure, ...] = ()
    prior: bool = False
    trends: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in table order."""
        return tuple(o.column for o in self.one_ways)

    @property
    def release(self) -> TableScores:
        """The scores of the release itself."""
        return self.scores[0]


class QualityFigure(ResultModel):
    """One noisy figure: ``value`` = ``noisy_sum`` / (``compared`` x rows of the synthetic table).

    ``noise_sd``: standard deviation of the noise in ``value``; ``sigma``: of the noise in ``noisy_sum``.  The value is
    not clamped: noise may make it negative.
    """

    name: str
    title: str
    meaning: str
    value: float
    noise_sd: float
    compared: int
    noisy_sum: int
    sigma: float


class QualityReport(ResultModel):
    """The figures of one synthetic table against its private one.  It is released: there is noise in every figure."""

    schema_version: Literal[1] = 1
    run: str
    release: str
    dataset: str
    epsilon: float
    delta: float
    synthetic_rows: int
    synthetic_sha256: str
    figures: tuple[QualityFigure, ...]


NOTICE = (
    "PRIVATE: computed from the real rows without noise, and the methods' own noise has a known seed. For comparing "
    "methods on data that is public or that stays with you; nothing here is a release, and no budget was charged."
)
"""Heads everything that shows a comparison."""

Outcome = Literal["done", "not installed", "did not fit", "did not finish", "failed"]


class ComparedMethod(PrivateResult):
    """One method as the registry describes it; ``private`` is false for a reference that looks without noise."""

    name: str
    title: str
    description: str
    source: str
    private: bool


class MethodRun(PrivateResult):
    """One method at one epsilon with one seed.

    ``seconds``: wall time of the method alone, without metrics, with precompiled kernels.  ``rows``: of its table.
    ``marginals``: the attribute sets measured besides the one-ways.  ``receipts_epsilon``: the epsilon that its noise
    guarantees at the comparison's delta, None without receipts.  All but ``note`` are None or empty unless "done".
    """

    method: str
    epsilon: float
    seed: int
    outcome: Outcome
    note: str = ""
    seconds: float | None = None
    rows: int | None = None
    marginals: tuple[tuple[str, ...], ...] = ()
    receipts_epsilon: float | None = None
    metrics: tuple[Metric, ...] = ()


class Comparison(PrivateResult):
    """Several methods x epsilons x seeds on one table.  Private."""

    notice: str = NOTICE
    schema_version: Literal[1] = 1
    private: Literal[True] = True
    dataset: str
    rows_real: int
    rows_holdout: int | None
    columns: tuple[str, ...]
    delta: float
    unit_of_protection: str
    cells: str = ""
    settings: EvaluationSpec
    machine: str
    methods: tuple[ComparedMethod, ...]
    epsilons: tuple[float, ...]
    seeds: int
    runs: tuple[MethodRun, ...]

    def done(self, method: str, epsilon: float) -> tuple[MethodRun, ...]:
        """Return the finished runs of one method at one epsilon, by seed."""
        return tuple(r for r in self.runs if (r.method, r.epsilon, r.outcome) == (method, epsilon, "done"))
