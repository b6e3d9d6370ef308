"""The metrics of an evaluation: name, title, range, direction, source and one sentence for a steward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["marginals", "queries", "models", "structure", "attacks"]


@dataclass(frozen=True)
class ScoreKind:
    """One metric: everything of ``privsyn.data_contracts.evaluation_results.Metric`` but its value."""

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
        "Whether the places stand in the right order by the gap between the sexes' wages.",
    ),
    "svm": ScoreKind(
        "Misclassification", "models", "share of wrong predictions", 0, 1, "lower", "PrivSyn, section 6.1",
        "A model trained on the synthetic rows and tested on real ones; NonPriv is trained on real rows, Majority "
        "always says the most frequent value.", headline=True,
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
        "Synthetic rows equal to a real row that only one record has; a chance match is no leak by itself.",
    ),
    "membership": ScoreKind(
        "Membership attack", "attacks", "area under the curve", 0.5, 1, "lower", "distance to closest record",
        "An attacker who guesses that whoever lies close to a synthetic row was in the data, or that whoever lies far "
        "from all was, whichever is right more often; 0.5 is guessing, 1 is always right.",
    ),
}  # fmt: skip
"""Metric name -> what it is, in the report's order; ``svm`` is repeated for each label."""


def as_markdown() -> str:
    """Return the rows of the table in docs/evaluation.md; a test holds the page to it."""
    lines = []
    for kind in KINDS.values():
        high = "" if kind.high is None else f"{kind.high:,g}" if kind.high < 1e4 else f"{kind.high:,.0f}"
        title = f"**{kind.title}**" if kind.headline else kind.title
        lines.append(f"| {title} | {kind.unit} | {kind.low:g}..{high} | {kind.better} | {kind.source} |")
    return "\n".join(lines)
