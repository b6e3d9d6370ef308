"""Plan a further release of the same data, so that with the earlier ones it equals one release of their sum.

Not in the paper.  Prices add up, and so do precisions: two measurements of a marginal at rho_1 and rho_2, pooled by
inverse variance, have the noise of one at rho_1 + rho_2.  So the shares are decided for the total budget, past and new,
from everything released so far, and each marginal gets what it still lacks.  A function of released counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.step_options import Selection
from privsyn.tasks.estimation.expected_error import NO_TARGETS, TargetWeights
from privsyn.tasks.estimation.noisy import pool_answers
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps.select_pairs import select

LEAST_LACKING = 0.05
"""A marginal that lacks less than this part of its share is not measured again: so noisy a look would add nothing."""


def select_from_all_scores(
    queries: Sequence[Query],
    scores: Sequence[NDArray[np.int64]],
    first: Recode,
    all_one_ways: Recode,
    rho: float,
    records: int,
    settings: Selection,
    *,
    remeasure_one_ways: bool,
    targets: TargetWeights = NO_TARGETS,
    explained: Mapping[Clique, float] | None = None,
) -> pa.Table:
    """Return the contract PAIRS for the budget ``rho`` of all measurements, past and new.

    queries, scores: of every release, each pair's distances from the same table, pooled here by inverse variance;
    first: the recode that the distances were taken against; all_one_ways: the same with the one-ways of all releases
    pooled in; the rest as in :func:`privsyn.tasks.steps.select_pairs.select`.
    """
    pooled_queries, answers = pool_answers(queries, scores)
    return select(
        pooled_queries,
        [float(y[0]) for y in answers],
        first,
        rho,
        records,
        settings,
        remeasure_one_ways=remeasure_one_ways,
        targets=targets,
        all_one_ways=all_one_ways,
        explained=explained,
    )


def list_lacking(weights: Mapping[Clique, float], spent: Mapping[Clique, float], rho: float) -> dict[Clique, float]:
    """Return what each clique lacks of its share of ``rho``, in rho, positive: its new weight, in the same order.

    weights: the weights that divide ``rho``; spent: rho already spent on each clique.  Cliques that lack almost nothing
    (LEAST_LACKING) are left out; if none remains, all are measured again by their weights.
    """
    total = sum(weights.values())
    lacking = {}
    for clique, weight in weights.items():
        share = weight / total * rho
        missing = share - spent.get(clique, 0.0)
        if missing > LEAST_LACKING * share:
            lacking[clique] = missing
    return lacking or dict(weights)


def map_spent(queries: Sequence[Query]) -> dict[Clique, float]:
    """Return the total rho of the measurements of each clique."""
    rho_by_clique: dict[Clique, float] = {}
    for query in queries:
        rho_by_clique[query.attributes] = rho_by_clique.get(query.attributes, 0.0) + float(query.rho)
    return rho_by_clique
