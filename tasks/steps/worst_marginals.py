"""Step *worst marginals* (postprocess): choose what a round of `aim` measures, by the rows' distance from the data.

McKenna, Mullins, Sheldon, Miklau: *AIM*, PVLDB 15(11), 2022, Algorithm 2.  The score of a marginal r is w_r (|M_r(D) -
M_r(D')|_1 - sqrt(2/pi) sigma n_r).  This is the error of the rows minus the expected noise of a measurement.  Here the
distances have discrete Gaussian noise already, so the choice is a function of released numbers and costs no budget.
The paper draws one marginal per round by the exponential mechanism.  Not in the paper: the largest of many noisy
distances have the largest noise, so DISTANCE_CAUTION standard deviations are subtracted from each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.estimation.expected_error import NO_TARGETS, TargetWeights

NORMAL_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)

DISTANCE_CAUTION = 2.0
"""Standard deviations of its noise that are subtracted from each distance."""


def choose_worst_marginals(
    cliques: Sequence[Clique],
    distances: Sequence[float],
    noise: float,
    domain: Domain,
    at_once: int,
    rho: float,
    records: int,
    targets: TargetWeights = NO_TARGETS,
) -> list[Clique]:
    """Return the ``at_once`` cliques of largest score, only scores above 0, in the order of ``cliques``.

    ``distances``: noisy L1 distances between the private counts and the current rows' counts, in records, one per
    clique.  ``noise``: the standard deviation of the distances.  ``rho``: the round's measurement budget, which the
    chosen cliques share equally.  ``records``: the most records of one person.

    The weight w_r of a clique of k attributes is k times the clique's weight among the ``targets``.  The factor k is as
    for the workload of all pairs or triples (in the ratio of the sizes).
    """
    sigma = records * math.sqrt(at_once / (2 * rho))
    weights = targets.weights(cliques)
    score = {
        i: len(c)
        * float(weights[i])
        * (distances[i] - DISTANCE_CAUTION * noise - NORMAL_MEAN_ABSOLUTE * sigma * domain.cells(c))
        for i, c in enumerate(cliques)
    }
    best = sorted((i for i in score if score[i] > 0), key=lambda i: (-score[i], i))[:at_once]
    return [cliques[i] for i in sorted(best)]
