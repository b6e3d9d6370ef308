"""Step *select again* (postprocess): what a further round measures, by how far the rows so far are from the private.

Not in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.expected_error import choose_worth_measuring
from privsyn.tasks.estimation.pair_departures import estimate_clique_departures, estimate_one_way_departures
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.estimation.target_weights import NO_TARGETS, Targets
from privsyn.tasks.steps.combine_cliques import with_one_ways


def reselect_cliques(
    queries: Sequence[Query],
    scores: Sequence[float],
    recode: Recode,
    fine: Domain,
    rho: float,
    records: int,
    *,
    remeasure_one_ways: bool,
    targets: Targets = NO_TARGETS,
) -> dict[Clique, float]:
    """Return the cliques to measure with their weights, those that lower the expected error most first.

    queries: of the scores, one per candidate, all of one sigma, pairs before triples; scores: their noisy answers;
    recode: with all measured one-ways pooled in; ``rho``: the budget of the round's measurement;
    ``remeasure_one_ways``: whether one-ways compete for it, too; targets: cliques whose errors count more. Where no
    candidate is worth its cost, all one-ways are measured once more.
    """
    cliques = [q.attributes for q in queries]
    sigma = queries[0].sigma if queries else 0.0
    pairs = sum(len(c) == 2 for c in cliques)
    departures = estimate_clique_departures(cliques[:pairs], scores[:pairs], sigma, recode)
    if pairs < len(cliques):
        departures = departures.followed_by(estimate_clique_departures(cliques[pairs:], scores[pairs:], sigma, recode))
    departures = targets.weighted(departures, cliques)
    candidates = np.flatnonzero(departures.error(np.zeros(len(cliques))) > 0)
    rivals = estimate_one_way_departures({a: recode[a] for a in fine.attributes}) if remeasure_one_ways else None
    taken, shares, _ = choose_worth_measuring(departures, candidates, rho, records, rivals)
    weights = {cliques[i]: float(share) / rho for i, share in zip(taken, shares, strict=True)}
    return with_one_ways(weights, 1 - sum(weights.values()), fine)
