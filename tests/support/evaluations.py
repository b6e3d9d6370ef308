"""Made-up but plausible evaluations of any number of columns, for the report's tests; settings of quick ones."""

from __future__ import annotations

import json
from itertools import combinations
from math import pi, sqrt
from pathlib import Path

import numpy as np

from privsyn.data_contracts.evaluation import (
    BinCost,
    EarthMover,
    Evaluation,
    EvaluationSpec,
    Metric,
    OneWay,
    Pair,
    SizeError,
    StageError,
    TableScores,
)

NAMES = (
    "age", "education", "religion", "happy", "income_of_the_whole_household", "region", "hours", "marital_status",
    "children", "occupation", "sex", "year_of_interview", "party", "class", "health", "trust", "wage", "race",
    "born_abroad", "siblings", "size_of_place", "satisfied_with_the_financial_situation",
)  # fmt: skip
SIZES = (24, 21, 5, 2, 40, 9, 72, 5, 9, 14, 2, 30, 8, 4, 4, 3, 120, 3, 2, 20, 10, 3)
WORDS = ("very happy", "protestant", "never married", "a great deal", "north", "east south central", "other", "null")

SLIGHT = {"range_queries": 20, "nist_schemas": 5, "nist_queries": 5, "attack_rows": 20}
"""Settings of an evaluation with every metric, of few random queries each."""


def slight_settings(folder: Path) -> Path:
    """A file of these settings in the folder."""
    path = folder / "slight.json"
    path.write_text(json.dumps(SLIGHT), encoding="utf-8")
    return path


def make_evaluation(columns: int = 22, *, against: int = 0, seed: int = 0, rows: int = 17_137) -> Evaluation:
    """``columns`` columns of 2 to 120 bins, all their pairs, every metric group, and ``against`` other tables."""
    rng = np.random.default_rng(seed)
    ones = tuple(_one_way(rng, i, rows) for i in range(columns))
    pairs = tuple(_pair(rng, a, b) for a, b in combinations(ones, 2))
    tables = ("synthetic.parquet", *(f"other-{i}.parquet" for i in range(against)))
    return Evaluation(
        run="people-3f9a2c1b",
        dataset="people",
        epsilon=1.0,
        delta=1e-9,
        unit_of_protection="one person's single record",
        rows_real=rows,
        rows_holdout=None,
        settings=EvaluationSpec(),
        scores=tuple(TableScores(table=t, rows=rows + i, metrics=_metrics(rng, i)) for i, t in enumerate(tables)),
        one_ways=ones,
        pairs=pairs,
        sizes=tuple(
            SizeError(
                ways=w, cells_from=10**k + 1, cells_to=10 ** (k + 1), marginals=9 * w + k, mean_l1=0.02 * w * 2**k
            )
            for w in (1, 2, 3)
            for k in range(w + 1)
        ),
        stages=(
            StageError(stage="measured", marginals=31, mean_l1=0.118),
            StageError(stage="consistent", marginals=31, mean_l1=0.085),
            StageError(stage="synthetic", marginals=31, mean_l1=0.097),
            StageError(stage="not selected", marginals=200, mean_l1=0.122),
            StageError(stage="not selected, if independent", marginals=200, mean_l1=0.11),
        ),
        earth_mover=tuple(_earth_mover(rng, pair) for pair in pairs[:25]),
        notes=("No hold-out was given: the membership-inference figure is not computed.",),
    )


def _one_way(rng: np.random.Generator, i: int, rows: int) -> OneWay:
    size = SIZES[i % len(SIZES)]
    name = NAMES[i] if i < len(NAMES) else f"question_{i:03d}"
    ordered = size > 10
    if ordered:
        real = np.exp(-(((np.arange(size) - size * rng.random()) / (size / 3)) ** 2))
        labels = tuple(f"[{1_000 * k:,}, {1_000 * (k + 1):,})" for k in range(size))
    else:
        real = rng.dirichlet(np.ones(size))
        labels = tuple(f"{WORDS[k % len(WORDS)]}{'' if k < len(WORDS) else k}" for k in range(size))
    real = real / real.sum()
    sd = np.full(size, 40 / rows)
    off = (rng.choice([1, 1, 1, 4]) * sd) * rng.choice([-1.5, -1, -0.5, 0.5, 1, 1.5], size)
    synthetic = np.maximum(real + off, 0)
    synthetic = synthetic / synthetic.sum()
    known = i % 11 != 10
    return OneWay(
        column=name,
        ordered=ordered,
        labels=labels,
        real=tuple(real.tolist()),
        synthetic=tuple(synthetic.tolist()),
        noise_sd=tuple(sd.tolist()) if known else None,
        l1=float(np.abs(real - synthetic).sum()),
        noise_l1=float(sqrt(2 / pi) * sd.sum()) if known else None,
    )


def _pair(rng: np.random.Generator, a: OneWay, b: OneWay) -> Pair:
    measured = bool(rng.random() < 0.3)
    l1 = float(min(2, 0.02 + 0.25 * rng.random() ** 3 + len(a.labels) * len(b.labels) / 12_000))
    ordered = a.ordered and b.ordered
    strength = float(rng.random() ** 3) * (rng.choice([-1, 1]) if ordered else 1)
    return Pair(
        a=a.column,
        b=b.column,
        cells=len(a.labels) * len(b.labels),
        l1=l1,
        measured=measured,
        consistent_l1=0.6 * l1 if measured else None,
        cause=("noise", "synthesis")[int(rng.integers(2))] if measured else "not selected",
        association_real=None if a.column == "happy" else strength,
        association_synthetic=0.7 * strength,
    )


def _metrics(rng: np.random.Generator, table: int) -> tuple[Metric, ...]:
    worse = 1 + 0.4 * table

    def metric(name: str, group: str, value: float | None, **more: object) -> Metric:
        content = {
            "name": name, "title": name.replace("_", " ").capitalize(), "group": group, "value": value, "unit": "share",
            "low": 0.0, "high": 1.0, "better": "lower", "source": "PrivSyn, section 6.1", "meaning": "What it says.",
        }  # fmt: skip
        return Metric.model_validate({**content, **more})

    return (
        metric("l1_1way", "marginals", 0.041 * worse, unit="L1", high=2.0, headline=True, subsample=0.224),
        metric("l1_2way", "marginals", 0.131 * worse, unit="L1", high=2.0, headline=True, subsample=0.124,
               meaning="Mean L1 distance of all tables of two columns."),
        metric("k_marginal", "marginals", 893 / worse, unit="points", high=1_000.0, better="higher",
               headline=True, subsample=0.105, source="SDNist", meaning="1000: every 3-way table agrees."),
        metric("range_queries", "queries", 0.0183 * worse, headline=True, meaning="Mean error of 1,000 queries."),
        metric("svm_misclassification", "models", 0.271 * worse, headline=True,
               references={"Majority": 0.412, "NonPriv": 0.243}, meaning="How often a model trained on it errs."),
        metric("correlation_difference", "structure", 0.043 * worse, headline=True, meaning="Mean over pairs."),
        metric("propensity", "structure", 0.011, high=0.25, references={"a random guess": 0.0}),
        metric("earth_mover", "marginals", 0.00213, high=None, unit="cost", source="MGD, section 4.4"),
        metric("membership_inference", "attacks", None, note="No hold-out was given.", headline=True,
               references={"a random guess": 0.5}, meaning="Area under the curve of an attack."),
        metric("unique_rows", "attacks", float(rng.random() / 1_000), meaning="Rows equal to a unique real row."),
    )  # fmt: skip


def _earth_mover(rng: np.random.Generator, pair: Pair) -> EarthMover:
    part = float(rng.random())
    return EarthMover(
        attributes=(pair.a, pair.b),
        aemc=pair.l1 / 5,
        weight=1.0,
        tolerance=2.0,
        by_attribute={pair.a: part * 0.16 * pair.l1, pair.b: (1 - part) * 0.16 * pair.l1},
        added_or_removed=0.04 * pair.l1,
        worst_bins=tuple(
            BinCost(labels=(f"a {k}", f"b {k}"), cost=pair.l1 / 50 / (k + 1), real=0.02 + 0.01 * k, synthetic=0.03)
            for k in range(5)
        ),
    )
