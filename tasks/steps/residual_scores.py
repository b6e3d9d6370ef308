"""Steps *residual scores* (release, a part of rho3) and *worst marginals* (postprocess): where rows differ most.

Not in the paper.  AIM (McKenna and others 2022) asks the current model for its worst marginals, one at a time, by the
exponential mechanism.  Here all candidates are scored at once, and synthetic rows replace the model, so no candidate is
too large for it.

Worst marginals is McKenna, Mullins, Sheldon, Miklau: *AIM*, PVLDB 15(11), 2022, Algorithm 2.  The score of a marginal r
is w_r (|M_r(D) - M_r(D')|_1 - sqrt(2/pi) sigma n_r).  This is the error of the rows minus the expected noise of a
measurement.  The distances have noise already, so the choice is a function of released numbers and costs no budget.
The paper draws one marginal per round by the exponential mechanism.  Not in the paper: the largest of many noisy
distances have the largest noise, so DISTANCE_CAUTION standard deviations are subtracted from each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import nlargest
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.expected_error import NO_TARGETS, TargetWeights, choose_worth_measuring
from privsyn.tasks.estimation.pair_departures import (
    FRACTION_BITS,
    estimate_clique_departures,
    estimate_one_way_departures,
)
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.steps.indif_scores import compute_l1_distance, plan_score_queries
from privsyn.tasks.steps.select_marginals import with_one_ways

SENSITIVITY = 1
"""The current rows are fixed before the look, so one record moves the L1 distance to them by at most 1."""

OVERSAMPLE = 4
"""The current rows are this many times the noisy total, so that their sampling error is small."""

MOST_ROWS = 4_000_000
"""The most current rows: a public limit on time and memory."""

_STRONGEST = 10
"""Triples are searched among this many of the strongest pairs per column (a public limit on time)."""

_SEED = 0x9E3779B9


def list_candidates(
    scores: Mapping[tuple[str, str], float],
    domain: Domain,
    gamma: int,
    *,
    triples: bool,
    targets: TargetWeights = NO_TARGETS,
) -> list[Clique]:
    """Return all pairs that have a score, then at most as many triples of at most ``gamma`` cells.

    scores: the noisy InDif scores, released before; pairs without a score are no candidates.  Triples are ranked by the
    sum of their three pairs' scores (ties: domain order), times their weight among the ``targets``.  Their pairs must
    be among the strongest, with scores above 0.  Every triple of scored attributes inside a named set of ``targets``
    comes first.
    """
    import networkx as nx  # here: a release that is found again makes no graph

    pairs = [p for p in combinations(domain.attributes, 2) if p in scores]
    if not triples:
        return list(pairs)
    score_of = {domain.ordered(pair): score for pair, score in scores.items() if score > 0}
    strongest = nlargest(_STRONGEST * len(domain.attributes), score_of, key=lambda p: score_of[p])
    graph = nx.Graph(strongest)
    triangles = {
        domain.ordered((a, b, c))
        for a, b in graph.edges
        for c in nx.common_neighbors(graph, a, b)
        if domain.cells((a, b, c)) <= gamma
    }
    order = {a: i for i, a in enumerate(domain.attributes)}
    scored = {a for pair in pairs for a in pair}
    named = {t for columns, _ in targets.named for t in combinations(domain.ordered(tuple(columns & scored)), 3)}
    named = {t for t in named if domain.cells(t) <= gamma}
    triples_in_order = sorted(triangles | named, key=lambda t: [order[a] for a in t])
    sums = [sum(max(score_of.get(p, 0.0), 0.0) for p in combinations(t, 2)) for t in triples_in_order]
    worth = dict(zip(triples_in_order, sums * targets.weights(triples_in_order), strict=True))
    ranked = sorted(triples_in_order, key=lambda t: (t not in named, -worth[t]))
    return [*pairs, *ranked[: len(pairs)]]


def plan_queries(cliques: Sequence[Clique], rho: Fraction, records: int) -> list[Query]:
    """Return one single-cell query per candidate, all m of them at ``rho / m``.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    The candidates and the rows they are compared with are functions of earlier releases, so each score has sensitivity
    k (:func:`privsyn.tasks.steps.indif_scores.compute_l1_distance`) and costs k^2 / (2 sigma^2) <= rho / m.  m
    mechanism instances add up (Theorem 1, adaptive composition with all earlier looks).
    """
    return plan_score_queries(cliques, rho, SENSITIVITY * records)


def count_rows_so_far(total: float) -> int:
    """Return how many synthetic rows to compare with the private ones, given their noisy total."""
    return min(OVERSAMPLE * max(round(total), 0), MOST_ROWS)


def derive_seed(seed: int, number: int) -> int:
    """Return the seed of the rows that round ``number`` scores; they differ from the released rows."""
    return (seed + number * _SEED) % 2**63


def count_exactly(
    rows: Countable, synthetic: CodeTable, total: float, queries: Sequence[Query], threads: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact score of each query, one cell each, in order: floor(|M - M' total / (rows of M')|_1) in records.

    rows: private, coarse codes; synthetic: the current rows, of the same domain; ``total``: the noisy number of private
    rows.  Neither count includes filtered values.  Private until the run adds noise.
    """
    cliques = [q.attributes for q in queries]
    scale = max(total, 0.0) / max(synthetic.rows, 1)
    counted, so_far = (
        rows.counts(cliques, threads=threads),
        synthetic.counts(cliques, threads=threads),
    )
    for counts, reference in zip(counted, so_far, strict=True):
        wanted = np.rint(np.ldexp(reference * scale, FRACTION_BITS)).astype(np.int64)
        yield np.array([compute_l1_distance(counts, wanted)], dtype=np.int64)


def reselect_cliques(
    queries: Sequence[Query],
    scores: Sequence[float],
    recode: Recode,
    fine: Domain,
    rho: float,
    records: int,
    *,
    remeasure_one_ways: bool,
    targets: TargetWeights = NO_TARGETS,
) -> dict[Clique, float]:
    """Return the cliques to measure with their weights, by descending decrease of the expected error.

    ``queries``: one score query per candidate, all of one sigma, pairs before triples.  ``scores``: the noisy answers
    to the queries.  ``recode``: with all measured one-ways pooled in.  ``rho``: the budget of the round's measurement.
    ``remeasure_one_ways``: whether one-ways compete for this budget too.  ``targets``: cliques whose errors count more.
    If no candidate is worth its cost, all one-ways are measured again.
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
