"""The evaluation and the comparison of methods: every figure, each as one frozen model that is also its JSON file.

Everything in them is computed from the real table without noise, so both are private.  Shares
are of a table's rows, 0..1.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from privsyn.data_contracts.evaluation_spec import EvaluationSpec
from privsyn.data_contracts.frozen_model import PrivateResult, ResultModel


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
