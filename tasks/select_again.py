"""Step *select again* (postprocess): what a further round measures, by how far the rows so far are from the private.

Belongs here: the choice among pairs and triples, and their shares of the round's budget.  Does not belong here: the
scores (residual_scores.py), what they say of a marginal (pair_departures.py), the first choice (select_pairs.py).
Not in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_contracts.domain import Clique, Domain
from data_contracts.receipts import Query
from tasks.combine_cliques import with_one_ways
from tasks.compress_domain import Recode
from tasks.expected_error import worth_measuring
from tasks.pair_departures import clique_departures, one_way_departures


def select_again(
    queries: Sequence[Query],
    scores: Sequence[float],
    recode: Recode,
    fine: Domain,
    rho: float,
    records: int,
    *,
    again: bool,
) -> dict[Clique, float]:
    """The cliques to measure with their weights, those that gain most first: what makes the expected error least.

    queries: the scores' (one a candidate, all of one sigma; pairs before triples); recode: with all one-ways pooled in
    that were measured; ``rho``: of the round's measurement; ``again``: whether one-ways compete for it, too.  Where no
    candidate is worth its cost, all one-ways are measured once more.
    """
    cliques = [q.attributes for q in queries]
    sigma = queries[0].sigma if queries else 0.0
    pairs = sum(len(c) == 2 for c in cliques)
    departures = clique_departures(cliques[:pairs], scores[:pairs], sigma, recode)
    if pairs < len(cliques):
        departures = departures.and_also(clique_departures(cliques[pairs:], scores[pairs:], sigma, recode))
    candidates = np.flatnonzero(departures.error(np.zeros(len(cliques))) > 0)
    rivals = one_way_departures(recode) if again else None
    taken, shares, _ = worth_measuring(departures, candidates, rho, records, rivals)
    weights = {cliques[i]: float(share) / rho for i, share in zip(taken, shares, strict=True)}
    return with_one_ways(weights, 1 - sum(weights.values()), fine)
