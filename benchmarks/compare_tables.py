"""The tables of the comparison as every method gets them, and the metrics of what the methods make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import rows_of
from benchmarks.tables import LABELS, table_spec
from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.evaluation.comparison.method import MethodInput, MethodSettings
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import AttributeBins, Binning
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import average_l1, compute_k_marginal_score, draw_cliques, list_all_cliques
from privsyn.tasks.metrics.models import compute_majority_error, compute_svm_error, split
from privsyn.tasks.metrics.range_queries import RangeQuery, compute_range_query_error, draw_privsyn_queries
from privsyn.tasks.privacy.noise import SeededNoise

DELTA = 1e-9
HOLDOUT_SHARE, SPLIT_SEED = 0.2, 0
TRIPLES = 300
DEMOGRAPHIC = ("AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET", "DEYE")
"""SDNist's feature set "demographic-focused" (sdnist/gui/constants.py)."""
AGE = "AGEP"
SUBSET = "national2019-demographic"
"""national2019 with the DEMOGRAPHIC columns only, all rows: the setting of the samples that NIST publishes."""


@dataclass(frozen=True, eq=False)
class SplitTable:
    """A table as every method gets it: training and hold-out rows in codes of the public bins, and the workloads."""

    name: str
    train: CodeTable
    holdout: CodeTable | None
    pairs: list[Clique]
    triples: list[Clique]
    queries: tuple[RangeQuery, ...]
    settings: MethodSettings = field(default_factory=MethodSettings)
    binning: Binning = field(default_factory=dict)

    def trial(self, epsilon: float, seed: int, rows: CodeTable | None = None) -> MethodInput:
        """Return the trial of every method; ``rows`` in place of the training rows, for a warm-up."""
        noise = SeededNoise(seed)
        return MethodInput(
            rows or self.train,
            self.binning,
            epsilon,
            DELTA,
            1,
            noise,
            seed,
            threads=1,
            settings=self.settings,
        )


@cache
def load_split_table(name: str) -> SplitTable:
    """Return the table by the public rule, split by a public seed; SUBSET has no hold-out."""
    source = "national2019" if name == SUBSET else name
    spec, rows = table_spec(source), rows_of(source).bins
    settings, encoding = MethodSettings.of(spec), plan(spec)
    train, holdout = (only(rows, DEMOGRAPHIC), None) if name == SUBSET else split(rows, HOLDOUT_SHARE, SPLIT_SEED)
    triples = draw_cliques(train.domain, 3, TRIPLES, 0)
    queries = draw_privsyn_queries(train.domain)
    return SplitTable(
        name,
        train,
        holdout,
        list_all_cliques(train.domain, 2),
        triples,
        queries,
        settings,
        {
            a: AttributeBins(np.arange(n, dtype=np.int32), encoding.binning[a].in_order, encoding.binning[a].is_open)
            for a, n in zip(train.domain.attributes, train.domain.sizes, strict=True)
        },
    )


def only(table: CodeTable, attributes: Sequence[str]) -> CodeTable:
    """Return the table's columns of these attributes, in the table's order."""
    chosen = table.domain.ordered(attributes)
    return CodeTable(Domain.of({a: table.domain.size(a) for a in chosen}), tuple(table.column(a) for a in chosen))


def figures(table: SplitTable, made: CodeTable) -> dict[str, float]:
    """Return the metrics of a synthetic table.

    L1 errors and range queries against the training rows, the SVM on the hold-out rows; where there are the demographic
    columns of national2019, their k-marginal score.
    """
    train = table.train
    found = {
        "l1_2way": average_l1(train, made, table.pairs),
        "l1_3way": average_l1(train, made, table.triples),
        "range_query": compute_range_query_error(train, made, table.queries),
    }
    if table.holdout is not None:
        found["svm"] = compute_svm_error(made, table.holdout, LABELS[table.name])
    if set(DEMOGRAPHIC) <= set(train.domain.attributes):
        found["k_marginal"] = demographic_score(train, made)
    return found


def real_figures(table: SplitTable) -> dict[str, float]:
    """Return the SVM trained on the real rows, and the error of the most frequent label; {} without a hold-out."""
    if table.holdout is None:
        return {}
    label = LABELS[table.name]
    errors = (
        compute_svm_error(table.train, table.holdout, label),
        compute_majority_error(table.train, table.holdout, label),
    )
    return dict(zip(("svm", "majority"), errors, strict=True))


def demographic_score(real: CodeTable, made: CodeTable) -> float:
    """SDNist's k-marginal score over all pairs of the DEMOGRAPHIC columns, the age in percentile bins; 0..1000."""
    bins = percentile_bins(real.column(AGE), real.domain.size(AGE))
    ours, theirs = (in_groups(only(table, DEMOGRAPHIC), AGE, bins) for table in (real, made))
    return compute_k_marginal_score(ours, theirs, cliques=list_all_cliques(ours.domain, 2))


def percentile_bins(codes: NDArray[np.integer], size: int, bins: int = 20) -> NDArray[np.int32]:
    """SDNist's percentile bins (sdnist/report/dataset/binning.py): code -> bin, shape (size,).

    A code's bin is ``bins`` times its mean percentile rank among ``codes``, rounded down.  A code that no row has goes
    with the next larger one that rows have, or with the last.
    """
    count = np.bincount(codes, minlength=size)
    rank = (np.cumsum(count) - count + (count + 1) / 2) / max(1, codes.size)
    found = np.minimum(bins * rank, bins - 1).astype(np.int32)
    present = np.flatnonzero(count)
    nearest = np.minimum(np.searchsorted(present, np.arange(size)), max(0, present.size - 1))
    return found[present[nearest]] if present.size else found


def in_groups(table: CodeTable, attribute: str, groups: NDArray[np.int32]) -> CodeTable:
    """Return the table with the attribute's codes replaced by their groups."""
    sizes = {a: table.domain.size(a) for a in table.domain.attributes} | {attribute: int(groups.max()) + 1}
    place = table.domain.index(attribute)
    grouped = groups.astype(choose_code_dtype(sizes[attribute]))[table.columns[place]]
    return CodeTable(Domain.of(sizes), (*table.columns[:place], grouped, *table.columns[place + 1 :]))
