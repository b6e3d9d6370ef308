"""What a score is besides its number: its form, its reading as a random sample, and the income metric's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.evaluation_results import Metric
from privsyn.data_contracts.evaluation_spec import IncomeColumns
from privsyn.evaluation.coded_tables import Coded
from privsyn.evaluation.score_kinds import KINDS
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.income import Income, score_income
from privsyn.tasks.metrics.subsample import SHARES, find_equivalent_share

SUBSAMPLED = ("l1_1way", "l1_2way", "l1_3way", "k_marginal", "range_query")
"""Metrics that are also read as a random sample of the real rows."""


@dataclass(frozen=True)
class Value:
    """The result of a metric: its value or None, reference values and a note."""

    value: float | None
    references: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def compute_metric(name: str, value: Value) -> Metric:
    """Return the metric of this name with its value, in the contract's form."""
    kind = KINDS[name]
    return Metric(
        name=name,
        title=kind.title,
        group=kind.group,
        value=value.value,
        unit=kind.unit,
        low=kind.low,
        high=kind.high,
        better=kind.better,
        source=kind.source,
        meaning=kind.meaning,
        headline=kind.headline,
        references=dict(value.references),
        note=value.note,
    )


@dataclass(frozen=True)
class Subsamples:
    """What random samples of the real rows score, by metric; read for any number of tables."""

    measured: Mapping[str, NDArray[np.float64]]

    def shares(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the share of the real rows that each value is as good as, where there is one."""
        found = {}
        for name, measured in self.measured.items():
            share = (
                find_equivalent_share(SHARES, measured, values[name], KINDS[name].better) if name in values else None
            )
            if share is not None:
                found[name] = share
        if "l1_2way" in found and "k_marginal" not in self.measured:
            found["k_marginal"] = found["l1_2way"]  # all pairs: the same figure on another scale
        return found


def compute_income(real: Coded, table: Coded, encoding: EncodingPlan, columns: IncomeColumns | None) -> Income:
    """Return the income metric on the fine codes of the wage, so that a bin's width does not blur the index."""
    if columns is None:
        raise ValueError("no columns of the income metric")
    codecs = {c.attribute: c for c in encoding.codecs}
    wages, labels = codecs[columns.wage].values(fine=True), codecs[columns.sex].bin_labels()
    if wages is None:
        raise ValueError("the wage has no order")
    first, second = columns.sexes or labels[:2]
    pair = labels.index(first), labels.index(second)
    in_real, in_table = (_add_fine(t, (columns.place, columns.sex), columns.wage) for t in (real, table))
    return score_income(in_real, in_table, columns.place, columns.sex, columns.wage, wages, pair)


def _add_fine(table: Coded, bins: Sequence[str], fine: str) -> CodeTable:
    """Return some columns in public bins, one in fine codes."""
    sizes = {a: table.bins.domain.size(a) for a in bins} | {fine: table.fine.domain.size(fine)}
    return CodeTable(Domain.of(sizes), (*(table.bins.column(a) for a in bins), table.fine.column(fine)))
