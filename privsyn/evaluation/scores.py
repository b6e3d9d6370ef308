"""Scores: the meaning of each metric, for a steward, and its value for a table against the real one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privsyn.base.registry import load_parts, make_missing_error
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.evaluation import EvaluationSpec, Metric
from privsyn.evaluation.anonymeter_attacks import Risk, run_attacks
from privsyn.evaluation.coded_tables import CodedTable, compare_by_mgd
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.by_place import Income, score_income, score_pie_charts
from privsyn.tasks.metrics.marginal_distance import (
    PairFigures,
    average_correlation_difference,
    average_l1,
    compute_group_k_marginal,
    compute_k_marginal_score,
    compute_l1_distances,
    compute_pair_figures,
    draw_cliques,
    estimate_density_error,
    list_all_cliques,
)
from privsyn.tasks.metrics.membership import measure_membership, measure_uniqueness
from privsyn.tasks.metrics.mgd import MgdResult
from privsyn.tasks.metrics.models import compare_classifiers, measure_propensity
from privsyn.tasks.metrics.range_queries import (
    RangeQuery,
    compute_nist_range_score,
    compute_range_query_error,
    draw_nist_queries,
    draw_privsyn_queries,
)
from privsyn.tasks.metrics.samples import SHARES, find_equivalent_share, score_subsamples

Group = Literal["marginals", "queries", "models", "structure", "attacks"]


@dataclass(frozen=True)
class ScoreKind:
    """One metric: ``privsyn.data_contracts.evaluation.Metric`` without its value."""

    title: str
    group: Group
    unit: str
    low: float
    high: float | None
    better: Literal["lower", "higher"]
    source: str
    meaning: str
    headline: bool = False


KINDS: dict[str, ScoreKind] = {
    "l1_1way": ScoreKind(
        "Error of single columns", "marginals", "mean L1 distance", 0, 2, "lower", "PrivSyn, section 6.1",
        "How far the shares of a column's values are off, summed over its values; 0.1 means 5 % of the rows would "
        "have to change.", headline=True,
    ),
    "l1_2way": ScoreKind(
        "Error of pairs of columns", "marginals", "mean L1 distance", 0, 2, "lower", "PrivSyn, section 6.1",
        "The same for every table of two columns.", headline=True,
    ),
    "l1_3way": ScoreKind(
        "Error of triples of columns", "marginals", "mean L1 distance", 0, 2, "lower", "PrivSyn, section 6.1",
        "The same for random tables of three columns.", headline=True,
    ),
    "nist_density": ScoreKind(
        "NIST 2018 density estimation", "marginals", "points", 0, 1e6, "higher", "DPSyn report, section 5.1",
        "The challenge's first score: random tables of three columns.",
    ),
    "k_marginal": ScoreKind(
        "SDNist k-marginal score", "marginals", "points", 0, 1000, "higher", "SDNist",
        "1000 when all tables of k columns agree, 0 when none do.", headline=True,
    ),
    "group_k_marginal": ScoreKind(
        "k-marginal by group", "marginals", "points", 0, 1000, "higher", "NIST 2020, sprint 2",
        "The k-marginal score inside every group; a group whose size is off by more than 250 scores nothing.",
    ),
    "pie_chart": ScoreKind(
        "Pie charts", "marginals", "share of the best score", 0, 1, "higher", "NIST 2020, sprint 1",
        "Whether every place and time has the right slices and the right size.",
    ),
    "mgd": ScoreKind(
        "Marginal difference MGD", "marginals", "mean earth mover cost", 0, None, "lower", "MGD, equation 3",
        "The share of rows that must move, and how far, for the target marginals to agree.",
    ),
    "range_query": ScoreKind(
        "Error of range queries", "queries", "mean error, share of rows", 0, 1, "lower", "PrivSyn, section 6.1",
        "How far the answer to a random count over ranges of three columns is off.", headline=True,
    ),
    "nist_range": ScoreKind(
        "NIST 2018 range queries", "queries", "points", 0, 1e6, "higher", "DPSyn report, section 5.1",
        "The challenge's second score: counts over a third of the columns at once, so most of them are rare.",
    ),
    "gini": ScoreKind(
        "NIST 2018 income inequality", "queries", "points", 0, 1e6, "higher", "DPSyn report, section 5.1",
        "Whether every place has the right Gini index of wages.",
    ),
    "pay_gap": ScoreKind(
        "NIST 2018 pay-gap ranks", "queries", "points", 0, 1e6, "higher", "DPSyn report, section 5.1",
        "Whether the places have the right order by the gap between the sexes' wages.",
    ),
    "svm": ScoreKind(
        "Misclassification", "models", "share of wrong predictions", 0, 1, "lower", "PrivSyn, section 6.1",
        "A model trained on the synthetic rows and tested on real ones; NonPriv is trained on real rows, Majority "
        "always predicts the most frequent value.", headline=True,
    ),
    "pmse": ScoreKind(
        "Propensity pMSE", "models", "mean squared error", 0, 0.25, "lower", "Snoke et al. 2018",
        "How well a model tells synthetic from real rows; 0 when it cannot.",
    ),
    "correlation": ScoreKind(
        "Correlation difference", "structure", "mean absolute difference", 0, 2, "lower", "SDNist",
        "How far the strength of the relation between two columns is off.",
    ),
    "unique_match": ScoreKind(
        "Copies of unique real rows", "attacks", "share of synthetic rows", 0, 1, "lower", "SDNist",
        "Synthetic rows equal to a unique real row; a match by chance is not a leak.",
    ),
    "membership": ScoreKind(
        "Membership attack", "attacks", "area under the curve", 0.5, 1, "lower", "distance to closest record",
        "An attacker guesses that people close to a synthetic row were in the data, or that people far from all were, "
        "whichever is right more often. 0.5 is guessing, 1 is always right.",
    ),
    "singling_out": ScoreKind(
        "Singling out", "attacks", "risk beyond hold-out rows", 0, 1, "lower", "anonymeter",
        "An attacker takes three values that only one synthetic row has, and claims that one person has them.",
    ),
    "linkability": ScoreKind(
        "Linkability", "attacks", "risk beyond hold-out rows", 0, 1, "lower", "anonymeter",
        "An attacker who joins two halves of a person's columns through the synthetic row nearest to both.",
    ),
    "inference": ScoreKind(
        "Inference", "attacks", "risk beyond hold-out rows", 0, 1, "lower", "anonymeter",
        "An attacker who knows all but one column of a person, and guesses it from the nearest synthetic row; the "
        "column with the largest risk.",
    ),
}  # fmt: skip
"""Metric name -> its kind, in the report's order; ``svm`` is repeated for each label."""


def as_markdown() -> str:
    """Return the rows of the table in docs/evaluation.md; a test checks that the page is current."""
    lines = []
    for kind in KINDS.values():
        high = "" if kind.high is None else f"{kind.high:,g}" if kind.high < 1e4 else f"{kind.high:,.0f}"
        title = f"**{kind.title}**" if kind.headline else kind.title
        lines.append(f"| {title} | {kind.unit} | {kind.low:g}..{high}, {kind.better} | {kind.source} |")
    return "\n".join(lines)


_PACKAGES = {"sklearn": "scikit-learn", "vl_convert": "vl-convert-python"}
"""What scores and their report import -> the package that brings it."""


def check_packages() -> None:
    """Raise RequestError, with the extra to install, unless the packages of an evaluation are installed."""
    for module, package in _PACKAGES.items():
        if find_spec(module) is None:
            raise make_missing_error(package, "an evaluation", "evaluation", "")


SUBSAMPLED = ("l1_1way", "l1_2way", "l1_3way", "k_marginal", "range_query")
"""Metrics that are also given as the size of a random sample of the real rows that scores as well."""


@dataclass(frozen=True)
class MetricValue:
    """The result of a metric: its value or None, reference values and a note."""

    value: float | None
    references: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class AddedMetric:
    """A metric that a package adds to the registry's ``metrics``, by its name.

    ``compute``: from the scorer, which has the real table, the hold-out, their encoding and the settings, and from the
    synthetic table, returns the value.  It sees private rows; what it returns stands in private reports and comparisons
    alone.
    """

    kind: ScoreKind
    compute: Callable[[Scorer, CodedTable], MetricValue]


@cache
def list_added_metrics() -> dict[str, AddedMetric]:
    """Return name -> metric, for the metrics that packages add."""
    return load_parts("metrics")


def compute_metric(name: str, value: MetricValue, label: str, subsample: float | None) -> Metric:
    """Return the metric of this name with its value, in the contract's form; ``label``: the column that it is of."""
    kind = KINDS[name] if name in KINDS else list_added_metrics()[name].kind
    return Metric(
        **{**vars(kind), "title": f"{kind.title} of {label}" if label else kind.title},
        name=f"{name}:{label}" if label else name,
        value=value.value,
        references=dict(value.references),
        note=value.note,
        subsample=subsample,
    )


def _add_fine(table: CodedTable, bins: Sequence[str], fine: str) -> CodeTable:
    """Return the columns ``bins`` in public bins and the column ``fine`` in fine codes."""
    sizes = {a: table.bins.domain.size(a) for a in bins} | {fine: table.fine.domain.size(fine)}
    return CodeTable(Domain.of(sizes), (*(table.bins.column(a) for a in bins), table.fine.column(fine)))


BY_ANONYMETER = ("singling_out", "linkability", "inference")
MOST_TRIPLES = 300

NEEDS_COLUMNS = {
    "l1_2way": (2, "needs two columns"),
    "l1_3way": (3, "needs three columns"),
    "correlation": (2, "needs two columns"),
}
"""Metric -> smallest number of columns, and the note if there are fewer."""

LABEL_CODES = (2, 10)
"""Smallest and largest number of public values of a label; `labels: auto` takes the last such column."""


@dataclass
class Scorer:
    """Scores tables against one real table.

    Results depend on ``spec.seed`` but not on ``threads``.  Shared results are computed once.  ``anonymeter``: an
    interpreter with anonymeter, for its attacks.
    """

    real: CodedTable
    holdout: CodedTable | None
    encoding: EncodingPlan
    spec: EvaluationSpec
    threads: int = 0
    anonymeter: Path | None = None
    _risks: dict[CodedTable, Mapping[str, Risk | None] | str] = field(default_factory=dict, repr=False)
    _pairs: dict[CodedTable, PairFigures] = field(default_factory=dict, repr=False)
    _mgd: dict[CodedTable, MgdResult] = field(default_factory=dict, repr=False)

    def score(
        self, table: CodedTable, only: Collection[str] | None = None, *, subsamples: bool = False
    ) -> tuple[Metric, ...]:
        """Return the metrics of one table, in the order of ``KINDS``; ``only``: names of metrics (None: all).

        ``subsamples``: add the equivalent subsample of the metrics in ``SUBSAMPLED``.
        """
        values: list[tuple[str, str, MetricValue]] = []
        for name in self._wanted() if only is None else [n for n in self._wanted() if n in only]:
            if name == "svm":
                values += [(name, label, self._svm(label, table)) for label in self.labels()]
            else:
                values.append((name, "", self._value(name, table)))
        known = {name: found.value for name, _, found in values if name in SUBSAMPLED and found.value is not None}
        shares = self._find_equivalent_shares(known) if subsamples else {}
        return tuple(compute_metric(name, found, label, shares.get(name)) for name, label, found in values)

    def pairs(self, table: CodedTable) -> PairFigures:
        """Return every pair's figures."""
        if table not in self._pairs:
            values = {c.attribute: c.values(fine=False) for c in self.encoding.codecs}
            self._pairs[table] = compute_pair_figures(self.real.bins, table.bins, values, self.threads)
        return self._pairs[table]

    def size_errors(self, table: CodedTable) -> list[tuple[list[int], NDArray[np.float64]]]:
        """Return cells and L1 errors of the 1-, 2- and 3-way marginals."""
        pairs, domain = self.pairs(table), self.real.bins.domain
        errors = [(list(domain.sizes), self._l1(table.bins, self._singles)), (pairs.cells.tolist(), pairs.l1)]
        if self._triples:
            errors.append(([domain.cells(t) for t in self._triples], self._l1(table.bins, self._triples)))
        return errors

    def earth_mover(self, table: CodedTable) -> MgdResult:
        """Return MGD's score and its marginals, worst first.  Raises RequestError for settings that do not fit."""
        if table not in self._mgd:
            self._mgd[table] = compare_by_mgd(self.real.bins, table.bins, self.spec.mgd, self.encoding)
        return self._mgd[table]

    def labels(self) -> tuple[str, ...]:
        """Return the columns that models predict."""
        if self.spec.labels != "auto":
            return self.spec.labels
        domain = self.real.bins.domain
        fewest, most = LABEL_CODES
        fitting = [a for a, size in zip(domain.attributes, domain.sizes, strict=True) if fewest <= size <= most]
        return tuple(fitting[-1:])

    def _wanted(self) -> list[str]:
        options: dict[str, Any] = {"group_k_marginal": self.spec.groups, "pie_chart": self.spec.pie}
        options["gini"] = self.spec.income
        options |= {"pay_gap": self.spec.income, **dict.fromkeys(BY_ANONYMETER, self.anonymeter)}
        return [name for name in (*KINDS, *list_added_metrics()) if options.get(name, True)]

    def _value(self, name: str, table: CodedTable) -> MetricValue:
        """Return a metric's value; None if there is nothing to compare, since its value would read as the best."""
        real, synthetic = self.real.bins, table.bins
        if not real.rows and not synthetic.rows:
            return MetricValue(None, note="neither table has rows")
        if name in NEEDS_COLUMNS and len(real.domain.attributes) < NEEDS_COLUMNS[name][0]:
            return MetricValue(None, note=NEEDS_COLUMNS[name][1])
        value = self._compute(name, table)
        if (real.rows and synthetic.rows) or value.note:
            return value
        empty_table = "the synthetic table" if real.rows else "the real table"
        return replace(value, note=f"{empty_table} has no rows: all its shares count as 0")

    def _compute(self, name: str, table: CodedTable) -> MetricValue:
        spec, real, synthetic = self.spec, self.real.bins, table.bins
        match name:
            case "l1_2way":
                return MetricValue(_compute_mean(self.pairs(table).l1))
            case "l1_1way" | "l1_3way" | "range_query":
                return MetricValue(self._curves[name](synthetic))
            case "k_marginal":
                return self._k_marginal(table)
            case "nist_density":
                return MetricValue(estimate_density_error(real, synthetic, spec.nist_schemas, spec.seed, self.threads))
            case "group_k_marginal":
                return self._group_k_marginal(synthetic)
            case "pie_chart":
                return self._pie_chart(synthetic)
            case "mgd":
                return MetricValue(self.earth_mover(table).score)
            case "nist_range":
                return MetricValue(compute_nist_range_score(real, synthetic, self._nist_queries, self.threads))
            case "gini":
                return MetricValue(self._income(table).gini_score)
            case "pay_gap":
                return MetricValue(self._income(table).rank_score)
            case "pmse":
                return self._pmse(synthetic)
            case "correlation":
                return self._correlation(table)
            case "unique_match":
                return self._unique(synthetic)
            case "membership":
                return self._membership(synthetic)
            case "singling_out" | "linkability" | "inference":
                return self._risk(name, table)
        return list_added_metrics()[name].compute(self, table)

    @cached_property
    def _singles(self) -> list[Clique]:
        return list_all_cliques(self.real.bins.domain, 1)

    @cached_property
    def _triples(self) -> list[Clique]:
        domain = self.real.bins.domain
        return draw_cliques(domain, 3, MOST_TRIPLES, self.spec.seed) if len(domain.attributes) > 2 else []

    @cached_property
    def _queries(self) -> tuple[RangeQuery, ...]:
        return draw_privsyn_queries(self.real.bins.domain, self.spec.range_queries, seed=self.spec.seed)

    @cached_property
    def _nist_queries(self) -> tuple[RangeQuery, ...]:
        ordered = {c.attribute for c in self.encoding.codecs if c.values(fine=False) is not None}
        return draw_nist_queries(self.real.bins, ordered, self.spec.nist_queries, self.spec.seed)

    @cached_property
    def _curves(self) -> dict[str, Callable[[CodeTable], float]]:
        """Metrics that are cheap enough for many subsamples."""
        real, spec, threads = self.real.bins, self.spec, self.threads
        pairs = list_all_cliques(real.domain, 2)
        return {
            "l1_1way": lambda t: average_l1(real, t, self._singles, threads),
            "l1_2way": lambda t: average_l1(real, t, pairs, threads),
            "l1_3way": lambda t: average_l1(real, t, self._triples, threads),
            "k_marginal": lambda t: compute_k_marginal_score(
                real, t, spec.k, number=MOST_TRIPLES, seed=spec.seed, threads=threads
            ),
            "range_query": lambda t: compute_range_query_error(real, t, self._queries, threads),
        }

    @property
    def _pairs_are_all(self) -> bool:
        """Whether the k-marginal is the error of all pairs on another scale."""
        return self.spec.k == 2 and len(self.real.bins.domain.attributes) >= 2

    def _k_marginal(self, table: CodedTable) -> MetricValue:
        """Return the k-marginal score; with fewer than k columns, over the one marginal of all columns."""
        if self._pairs_are_all:
            return MetricValue(1000 - 500 * _compute_mean(self.pairs(table).l1))
        fewer = len(self.real.bins.domain.attributes) < self.spec.k
        note = f"there are fewer than {self.spec.k} columns: the table of all of them" if fewer else ""
        return MetricValue(self._curves["k_marginal"](table.bins), note=note)

    def _correlation(self, table: CodedTable) -> MetricValue:
        figures = self.pairs(table)
        if not np.isfinite(figures.association_real - figures.association_synthetic).any():
            return MetricValue(None, note="no pair has a defined association in both tables")
        return MetricValue(average_correlation_difference(figures))

    def _l1(self, table: CodeTable, cliques: Sequence[Clique]) -> NDArray[np.float64]:
        return compute_l1_distances(self.real.bins, table, cliques, self.threads)

    def _svm(self, label: str, table: CodedTable) -> MetricValue:
        real, spec, holdout = self.real.bins, self.spec, None if self.holdout is None else self.holdout.bins
        comparison = compare_classifiers(real, table.bins, holdout, label, spec.model_rows, spec.seed)
        references = {"Majority": comparison.majority, "NonPriv": comparison.non_private}
        note = "" if comparison.held_out else "tested on real rows that the release has seen"
        if not comparison.test_rows:
            return MetricValue(None, note="no real row to test on")
        return MetricValue(comparison.error, references, note)

    def _pmse(self, table: CodeTable) -> MetricValue:
        propensity = measure_propensity(self.real.bins, table, self.spec.model_rows, self.spec.seed)
        if propensity is None:
            return MetricValue(None, note="a table without rows cannot be told apart")
        references = {"ratio to chance": propensity.ratio, "AUC of trees": propensity.auc}
        return MetricValue(propensity.pmse, {name: v for name, v in references.items() if v is not None})

    def _group_k_marginal(self, table: CodeTable) -> MetricValue:
        real, spec = self.real.bins, self.spec
        if not set(real.domain.attributes) - set(spec.groups):
            return MetricValue(None, note="no column outside the groups")
        groups = compute_group_k_marginal(real, table, spec.groups, spec.k, seed=spec.seed, threads=self.threads)
        return MetricValue(groups.score)

    def _pie_chart(self, table: CodeTable) -> MetricValue:
        if self.spec.pie is None:
            raise ValueError("no columns of the pie chart")
        pies = score_pie_charts(self.real.bins, table, self.spec.pie.place, self.spec.pie.time, self.spec.pie.kind)
        return MetricValue(float(pies.mean()), {"pies": float(pies.size)})

    def _income(self, table: CodedTable) -> Income:
        """Return the income metric, on the wage's fine codes so that wide bins do not blur the index."""
        columns = self.spec.income
        if columns is None:
            raise ValueError("no columns of the income metric")
        codecs = {c.attribute: c for c in self.encoding.codecs}
        wages, labels = codecs[columns.wage].values(fine=True), codecs[columns.sex].bin_labels()
        if wages is None:
            raise ValueError("the wage has no order")
        first, second = columns.sexes or labels[:2]
        pair = labels.index(first), labels.index(second)
        real, synthetic = (_add_fine(t, (columns.place, columns.sex), columns.wage) for t in (self.real, table))
        return score_income(real, synthetic, columns.place, columns.sex, columns.wage, wages, pair)

    def _unique(self, table: CodeTable) -> MetricValue:
        if not self.real.bins.rows or not table.rows:
            return MetricValue(None, note="a table has no rows")
        uniqueness = measure_uniqueness(self.real.bins, table, None if self.holdout is None else self.holdout.bins)
        references = {"unique real rows": uniqueness.unique}
        if uniqueness.holdout_share is not None:
            references["hold-out rows"] = uniqueness.holdout_share
        return MetricValue(uniqueness.share, references)

    def _membership(self, table: CodeTable) -> MetricValue:
        if self.holdout is None:
            return MetricValue(None, note="needs real rows that the release has not seen, in a hold-out table")
        ordered = {c.attribute for c in self.encoding.codecs if c.values(fine=False) is not None}
        options = {"max_targets": self.spec.attack_rows, "seed": self.spec.seed, "threads": self.threads}
        membership = measure_membership(self.real.bins, self.holdout.bins, table, ordered, **options)
        if membership is None:
            return MetricValue(None, note="a table has no rows")
        references = {"guessing": 0.5, "area under the curve": membership.auc, "sd of a guess": membership.auc_sd}
        return MetricValue(0.5 + abs(membership.auc - 0.5), references | {"advantage": membership.advantage})

    def _risk(self, name: str, table: CodedTable) -> MetricValue:
        """Return the risk by one of anonymeter's attacks, with its interval; None if the attacks cannot run."""
        if self.anonymeter is None or self.holdout is None:
            return MetricValue(None, note="needs real rows that the release has not seen, in a hold-out table")
        tables = {"real": self.real, "holdout": self.holdout, "synthetic": table}
        names = self.real.bins.domain.attributes
        if len(names) < 2 or not all(t.bins.rows for t in tables.values()):
            return MetricValue(None, note="needs two columns, and rows in every table")
        if table not in self._risks:
            ordered = [c.values(fine=False) is not None for c in self.encoding.codecs]
            self._risks[table] = run_attacks(self.anonymeter, tables, ordered, self.spec.attack_rows, self.spec.seed)
        found = self._risks[table]
        if isinstance(found, str):
            return MetricValue(None, note=found)
        risk = found[name]
        if risk is None:
            return MetricValue(None, note="anonymeter could not make the attack")
        references = {"95 % from": risk["low"], "to": risk["high"]}
        references |= {"success": risk["attack"], "on hold-out rows": risk["control"]}
        note = f"largest of {len(names)} columns: {names[int(risk['column'])]}" if "column" in risk else ""
        return MetricValue(risk["risk"], references, note)

    def _find_equivalent_shares(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return metric -> the share of real rows whose random sample scores as well, where there is one."""
        shares: dict[str, float] = {}
        for name, measured in self._subsamples.items():
            if name in values:
                share = find_equivalent_share(SHARES, measured, values[name], KINDS[name].better)
                shares |= {} if share is None else {name: share}
        if "l1_2way" in shares and "k_marginal" not in self._subsamples:
            shares["k_marginal"] = shares["l1_2way"]  # all pairs: the same figure on another scale
        return shares

    @cached_property
    def _subsamples(self) -> dict[str, NDArray[np.float64]]:
        """The scores of random samples of the real rows, by metric, shared by all tables."""
        columns = len(self.real.bins.domain.attributes)
        curves = {n: c for n, c in self._curves.items() if columns >= NEEDS_COLUMNS.get(n, (0, ""))[0]}
        if self._pairs_are_all:
            del curves["k_marginal"]
        if not self.real.bins.rows:
            return {}
        return score_subsamples(curves, self.real.bins, SHARES, self.spec.seed)


def _compute_mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else 0.0
