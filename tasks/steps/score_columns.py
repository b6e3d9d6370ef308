"""Steps that score columns: *InDif scores*, *trend scores*, *triple scores* and *residual scores* (release).

**InDif scores** (rho2) measure how far each pair of attributes is from independence.
Paper: section 4.1, Lemma 4 and Theorem 5.  Not in the paper: the distance to the independent counts that the *noisy*
one-ways imply has sensitivity 1 instead of 4, so the same noise costs a sixteenth of the budget.

**Trend scores** are one signed number per pair of ordered columns, for how they rise together.
Not in the paper.  A distance from independence has no sign, and a table of a few thousand rows is too small for counts
of every pair.  But every record has a score in every ordered column: above or below the middle, or by how much.  The
sum over the records of the product of two scores is a trend.  It is twice as precise as a trend from 2 x 2 or 3 x 3
counts with the same budget.  The sum of one column's scores locates its true middle.  With signs, the two sums are the
2 x 2 counts of all pairs in the basis of their shared parts (Barak and others, "Privacy, Accuracy, and Consistency
Too", PODS 2007).

**Triple scores** (a part of rho3) measure the interaction of three columns beyond their pairs.
Not in the paper, which scores pairs.  Every column is cut into two parts of about equal noisy mass.  Each part gets a
value in [-1, 1] such that the mean over the noisy rows is 0.  The score of a triple is the sum over all rows of the
product of its three values, its third central moment.  The score is about 0 if the triple follows from its pairs and
its parts are even.  It is about the number of records if one column is the parity of the other two.

**Residual scores** (a part of rho3) measure where rows differ most.
Not in the paper.  AIM (McKenna and others 2022) asks the current model for its worst marginals, one at a time, by the
exponential mechanism.  Here all candidates are scored at once, and synthetic rows replace the model, so no candidate is
too large for it.

**Worst marginals** (postprocess) is McKenna, Mullins, Sheldon, Miklau: *AIM*, PVLDB 15(11), 2022, Algorithm 2.  The
score of a marginal r is w_r (|M_r(D) - M_r(D')|_1 - sqrt(2/pi) sigma n_r).  This is the error of the rows minus the
expected noise of a measurement.  The distances have noise already, so the choice is a function of released numbers and
costs no budget. The paper draws one marginal per round by the exponential mechanism.  Not in the paper: the largest of
many noisy distances have the largest noise, so DISTANCE_CAUTION standard deviations are subtracted from each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from heapq import nlargest
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query, compute_sigma, sum_rho
from privsyn.tasks.codecs.cells import Binning
from privsyn.tasks.estimation.expected_error import (
    NO_TARGETS,
    NORMAL_MEAN_ABSOLUTE,
    TargetWeights,
    choose_worth_measuring,
)
from privsyn.tasks.estimation.merged_codes import merge_codes
from privsyn.tasks.estimation.pair_departures import (
    FRACTION_BITS,
    MAX_ROWS,
    ExpectedCounts,
    estimate_clique_departures,
    estimate_one_way_departures,
)
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, map_coarse_one_ways
from privsyn.tasks.estimation.trends import Ranks, rank_codes
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.steps.measure_marginals import PlannedSet, read_coarse_counts
from privsyn.tasks.steps.select_marginals import with_one_ways

EXACT_SENSITIVITY = 4
"""Lemma 4: adding or removing one record moves InDif by at most 4 (not valid for replace-one)."""

REFERENCE_SENSITIVITY = 1
"""One record changes one count by 1, so it moves the L1 distance to a fixed table by at most 1."""

Scores = Mapping[str, NDArray[np.int64]]
"""Attribute -> score of each coarse code and, last, of filtered values: integers, shape (codes + 1,)."""

CLEAR_NOISE = 0.02
"""Up to this noise of a sum, as a share of all rows, scores are ranks; above it, signs, which are twice as precise."""

UNCLEAR_NOISE = 0.05
"""Above this noise of a sum of signs, as a share of all rows, trends are asked again: a correlation to about .08."""

MOST_WIDE_NOISE = 0.1
"""The most noise of a sum of signs in a wide table, as a share of all rows; fewer trends are asked to keep it."""

MOST_AGAIN = Fraction(1, 4)
"""The most of the one-ways' second look that goes to trends instead."""

MOST_TRIPLES = 5_000
"""The most triples that are scored; with more, the noise would hide everything."""

UNIT = 256
"""The values of parts are integers in units of 1 / UNIT."""

LEAST_SCORE = 0.03
"""Triples with a smaller score, as a share of all records, are not measured."""

CAUTION = 3.0
"""Triples with a score below this many standard deviations of its noise are not measured."""

MOST_FOUND = 3
"""The most triples to measure, or pairs if no triple stands out."""

RESIDUAL_SENSITIVITY = 1
"""The current rows are fixed before the look, so one record moves the L1 distance to them by at most 1."""

OVERSAMPLE = 4
"""The current rows are this many times the noisy total, so that their sampling error is small."""

MOST_ROWS = 4_000_000
"""The most current rows: a public limit on time and memory."""

_STRONGEST = 10
"""Triples are searched among this many of the strongest pairs per column (a public limit on time)."""

_SEED = 0x9E3779B9


def plan_indif(
    domain: Domain,
    rho: Fraction,
    records: int,
    sensitivity: int = EXACT_SENSITIVITY,
    *,
    max_cells: int | None = None,
    unscored: Collection[Clique] = (),
    scored_more: Collection[str] = (),
    asked_pairs: Sequence[Clique] | None = None,
) -> list[Query]:
    """Return one single-cell query per pair of attributes, all m of them, each at ``rho / m``.

    Args:
        domain: The coarse domain of d attributes.
        rho: The budget of all scores together, > 0.
        records: k, the largest number of records of one person.
        sensitivity: SENSITIVITY for InDif, REFERENCE_SENSITIVITY for distances to fixed counts of pairs.
        max_cells: Pairs with more cells are never measured and get no score; None for no limit.
        unscored: Other pairs without a score, because their counts are public or there is nothing to find.
        scored_more: Public.  If the n pairs with these attributes are fewer than the others, they share half of
            ``rho``, ``rho / 2 n`` each.
        asked_pairs: The pairs to score in a wide table, chosen by public facts; None for all d (d - 1) / 2.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each score has sensitivity 4 k (Lemma 4, k times; rounding down keeps it, see :func:`compute_indif`), or k against
    noisy one-ways, which are fixed before the look (:func:`compute_l1_distance`).  It costs (4 k)^2 / (2 sigma^2) <=
    its part of rho.  Without ``scored_more`` the part is rho / m, so the noise is N(0, 8 m k^2 / rho) (Theorem 5), with
    k instead of 4 k against one-ways.  The m mechanism instances add up to rho (Theorem 1, adaptive composition with
    the one-ways).
    """
    all_pairs = combinations(domain.attributes, 2) if asked_pairs is None else asked_pairs
    pairs = [p for p in all_pairs if (max_cells is None or domain.cells(p) <= max_cells) and p not in unscored]
    preferred = [p for p in pairs if not {*scored_more}.isdisjoint(p)]
    if not 0 < 2 * len(preferred) < len(pairs):
        return plan_score_queries(pairs, rho, sensitivity * records)
    others = [p for p in pairs if {*scored_more}.isdisjoint(p)]
    halves = (plan_score_queries(group, rho / 2, sensitivity * records) for group in (preferred, others))
    by_pair = {query.attributes: query for queries in halves for query in queries}
    return [by_pair[p] for p in pairs]


def plan_score_queries(cliques: Sequence[Clique], rho: Fraction, sensitivity: int) -> list[Query]:
    """Return one single-cell query for each of the m cliques, at ``rho / m``; an empty list without cliques.

    ``sensitivity``: the sensitivity of each answer to adding or removing one person with all their records.
    """
    if not cliques:
        return []
    sigma = compute_sigma(rho / len(cliques), sensitivity)
    return [Query(tuple(clique), 1, sensitivity, sigma) for clique in cliques]


def compute_indif(counts: NDArray[np.int64]) -> int:
    """Return InDif of one 2-way table of counts, in records, rounded down: floor(|M_ab - M_a x M_b / n|_1).

    In integers: floor(sum_ij |n alpha_ij - a_i b_j| / n), exact, range [0, 2 n), 0 for an empty table.  Rounding down
    keeps the sensitivity: if |x - y| <= 4 k with 4 k whole, then |floor(x) - floor(y)| <= 4 k.  Exact integers also
    close the floating-point side channel.  Raises ValueError above MAX_ROWS rows.
    """
    n = int(counts.sum())
    if n == 0:
        return 0
    if n > MAX_ROWS:
        raise ValueError(f"InDif's exact arithmetic holds up to {MAX_ROWS:,} rows")
    joint = counts.astype(np.uint64) * np.uint64(n)
    independent = np.multiply.outer(counts.sum(axis=1), counts.sum(axis=0)).astype(np.uint64)
    distance = np.maximum(joint, independent) - np.minimum(joint, independent)
    return int(distance.sum(dtype=np.uint64)) // n


def compute_l1_distance(counts: NDArray[np.int64], reference: NDArray[np.int64]) -> int:
    """Return floor(|M_ab - reference|_1), in records, exact; ``reference``: fixed before the look, in 2^-16 records.

    One record changes one count by 1, so k records change the distance by at most k.  Rounding down keeps a whole
    bound: if |x - y| <= k then |floor(x) - floor(y)| <= k.  Raises ValueError above MAX_ROWS rows.
    """
    if int(counts.sum()) > MAX_ROWS:
        raise ValueError(f"the scores' exact arithmetic holds up to {MAX_ROWS:,} rows")
    return int(np.abs((counts << FRACTION_BITS) - reference).sum()) >> FRACTION_BITS


def count_indif(
    rows: Countable, queries: Sequence[Query], threads: int, reference: ExpectedCounts | None = None
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact score of each pair, one cell each, in order; each pair's table is dropped after its score.

    The score is InDif, or the distance to ``reference`` if given.  Filtered values count as one extra value (the padded
    table), so every row is in every table and Lemma 4 applies as proven.  The scores are private until the run adds
    noise.
    """
    tables = rows.counts([q.attributes for q in queries], threads=threads, padded_result=True)
    for query, counts in zip(queries, tables, strict=True):
        a, b = query.attributes
        score = compute_indif(counts) if reference is None else compute_l1_distance(counts, reference.counts(a, b))
        yield np.array([score], dtype=np.int64)


def list_pairs(attributes: Sequence[str], near: Sequence[Clique] | None = None) -> list[Clique]:
    """Return the pairs of attributes whose trends are asked.

    ``near``: the public pairs to ask in a wide table; None for all.
    """
    ordered = {*attributes}
    return list(combinations(attributes, 2)) if near is None else [pair for pair in near if ordered.issuperset(pair)]


def plan_trends(
    attributes: Sequence[str], top: int, rho: Fraction, records: int, pairs: Sequence[Clique] | None = None
) -> list[Query]:
    """Return one single-cell query per attribute and per pair; none without any pair.

    ``top``: the largest score, so a product of two is at most its square; ``pairs``: the public pairs of
    :func:`list_pairs`; None for all.

    Privacy: all m answers together, d (d + 1) / 2 of them for all pairs, are rho-zCDP for adding or removing one person
    with at most ``records`` = k records.  A record adds at most ``top`` to an attribute's sum and at most top^2 to a
    pair's sum, whatever the other records are.  So the sensitivities are k top and k top^2, and each query costs rho /
    m.  Scores follow from noisy one-ways, released before the look, and pairs from names alone.  m mechanism instances
    add up (Theorem 1, adaptive composition with the one-ways).
    """
    pairs = list_pairs(attributes) if pairs is None else pairs
    if not pairs:
        return []
    single = [(a,) for a in attributes]
    each = rho / (len(single) + len(pairs))
    return [
        *plan_score_queries(single, each * len(single), top * records),
        *plan_score_queries(pairs, each * len(pairs), top**2 * records),
    ]


def plan_again(
    first: Sequence[Query], weights: Mapping[Clique, float], total: float, rho: Fraction, records: int
) -> tuple[list[Query], dict[Clique, float]]:
    """Return queries that ask unclear trends of pairs again, none if all are clear, and the remaining weights.

    first: the queries of the first look at trends; weights: clique -> positive number, its weight in the measurement's
    budget ``rho``; ``total``: noisy number of rows.  If a sum's noise is above UNCLEAR_NOISE of the rows, correlations
    are lost.  The one-ways, which have nearly all of ``rho`` then, give up the part that brings the noise down to it,
    at most MOST_AGAIN.  Measured pairs are not asked.

    Privacy: the queries are rho_again-zCDP, as in :func:`plan_trends`: a sum of products of two signs has sensitivity
    k = ``records``.  rho_again <= MOST_AGAIN ``rho`` follows from released answers and public numbers, and the rest of
    ``rho`` is for the marginals.
    """
    pairs = [q for q in first if len(q.attributes) == 2 and q.attributes not in weights]
    if not pairs or get_top(first) > 1:
        return [], dict(weights)
    times = (pairs[0].sigma / (UNCLEAR_NOISE * max(total, 1.0))) ** 2
    whole, single = sum(weights.values()), sum(w for clique, w in weights.items() if len(clique) == 1)
    wanted = (times - 1) * float(sum_rho(pairs) / rho)
    part = Fraction(math.floor(min(wanted, float(MOST_AGAIN) * single / whole) * 1000), 1000)
    if part <= 0:
        return [], dict(weights)
    one_way_factor = 1 - float(part) * whole / single
    remaining = {clique: w * one_way_factor if len(clique) == 1 else w for clique, w in weights.items()}
    return plan_score_queries([q.attributes for q in pairs], rho * part, records), remaining


def choose_top(sums: int, total: float, rho: Fraction, records: int, top: int) -> int:
    """Return the largest score to ask with: ``top`` if the noise of a pair's sum is clear (CLEAR_NOISE), else 1.

    ``sums``: the number of asked columns and pairs.
    """
    noise = records * (sums / (2 * float(rho))) ** 0.5
    return top if noise <= CLEAR_NOISE * total else 1


def count_clear_pairs(attributes: int, total: float, rho: Fraction, records: int) -> int:
    """Return the number of pairs of a wide table whose trends are asked: as many as MOST_WIDE_NOISE allows.

    At least the number of ordered ``attributes``; ``total``: noisy number of rows.  Only released and public numbers
    decide.
    """
    sums = 2 * float(rho) * (MOST_WIDE_NOISE * max(total, 0.0) / records) ** 2
    return max(attributes, math.floor(sums) - attributes)


def get_top(queries: Sequence[Query]) -> int:
    """Return the largest score that these queries ask with."""
    sensitivities = [q.sensitivity for q in queries]
    return max(sensitivities, default=1) // min(sensitivities, default=1)


def rank_asked_codes(recode: Recode, binning: Binning, queries: Sequence[Query]) -> dict[str, Ranks]:
    """Return the ranks of codes that ``queries`` use, from the noisy one-ways that rows were recoded by.

    Exactly the asked attributes are ranked: a simulation has other one-ways than the ones that chose what to ask.
    """
    asked = {a for query in queries for a in query.attributes}
    asked_codes = {a: r for a, r in recode.items() if a in asked}
    return rank_codes(asked_codes, binning, get_top(queries), asked, least_codes=0)


def count_trends(
    rows: Countable, queries: Sequence[Query], threads: int, scores: Scores
) -> Iterator[NDArray[np.int64]]:
    """Yield each query's exact sum of scores, or of products of two scores, one cell each, in order.

    Counts and scores are integers, so sums do not depend on where the rows are.  Private until the run adds noise.
    """
    tables = rows.counts([q.attributes for q in queries], threads=threads, padded_result=True)
    for query, counts in zip(queries, tables, strict=True):
        total = counts
        for a in reversed(query.attributes):
            total = total @ scores[a]
        yield np.array([total], dtype=np.int64)


def halve_attributes(recode: Recode, in_order: AbstractSet[str]) -> PlannedSet:
    """Return all attributes, each split into two parts of about equal noisy mass; one part for a single code."""
    coarse = read_coarse_counts(recode, in_order)
    return PlannedSet(tuple(coarse), tuple(merge_codes(coarse, (a,), 2)[0] for a in coarse), 1.0)


def list_triples(focus: Collection[str], halves: PlannedSet) -> list[Clique]:
    """Return the candidates: an attribute in focus with two others, in domain order; none if there are too many."""
    halved = [a for a, merge in zip(halves.attributes, halves.merges, strict=True) if merge.max() > 0]
    others = comb(max(len(halved) - 1, 0), 2)
    if others * len({*focus}) > MOST_TRIPLES:
        return []
    return [(a, b, c) for a, b, c in combinations(halved, 3) if {a, b, c} & {*focus}]


def plan_triples(triples: Sequence[Clique], rho: Fraction, records: int) -> list[Query]:
    """Return one single-cell query per triple, all m of them at ``rho / m``.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Parts and their values follow from the spec and earlier releases.  The product of three values is between -1 and 1,
    so each score has sensitivity k and costs k^2 / (2 sigma^2) <= rho / m.  m mechanism instances add up (adaptive
    composition, Theorem 1).
    """
    return plan_score_queries(triples, rho, records)


def compute_values(recode: Recode, halves: PlannedSet) -> dict[str, NDArray[np.int64]]:
    """Return the values of each attribute's two parts, in units of 1 / UNIT, in [-1, 1], with noisy mean 0."""
    one_ways = map_coarse_one_ways(recode)
    values = {}
    for attribute, merge in zip(halves.attributes, halves.merges, strict=True):
        mass = np.bincount(merge, weights=np.maximum(one_ways[attribute][0], 0.0), minlength=2) + 1e-9
        values[attribute] = np.rint(UNIT * np.array([mass[1], -mass[0]]) / mass.max()).astype(np.int64)
    return values


def count_triples(
    rows: Countable,
    columns: Mapping[str, str],
    values: Mapping[str, NDArray[np.int64]],
    queries: Sequence[Query],
    threads: int,
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact score of each query, one cell each: the sum of the rows' products, rounded down to whole records.

    rows: in parts, filtered values in neither; columns: attribute -> its column in ``rows``.  A record moves the sum by
    at most 1, and rounding down keeps that.  Private until the run adds noise.
    """
    cliques = [tuple(columns[a] for a in q.attributes) for q in queries]
    for query, counts in zip(queries, rows.counts(cliques, threads=threads), strict=True):
        a, b, c = (values[attribute] for attribute in query.attributes)
        total = int(np.einsum("ijk,i,j,k->", counts.astype(np.int64), a, b, c))
        yield np.array([total // UNIT**3], dtype=np.int64)


def choose_sets(
    queries: Sequence[Query],
    scores: Sequence[float],
    total: float,
    focus: Collection[str],
    pairs: Mapping[Clique, float],
    recode: Recode,
) -> list[Clique]:
    """Return the triples to measure, at most MOST_FOUND, largest score first.

    queries: of the ``scores``; a triple must stand out (LEAST_SCORE, CAUTION); ``total``: the noisy number of records.
    If no triple does, the focus pairs with the largest noisy scores (``pairs``) are measured instead, by merged codes.
    """
    domain = build_coarse_domain(recode)
    strong = [
        (abs(score), q.attributes)
        for q, score in zip(queries, scores, strict=True)
        if abs(score) >= max(LEAST_SCORE * total, CAUTION * q.sigma)
    ]
    if strong:
        return [t for _, t in sorted(strong, key=lambda item: (-item[0], item[1]))[:MOST_FOUND]]
    return _list_strongest_pairs(pairs, {*focus}, domain)


def _list_strongest_pairs(pairs: Mapping[Clique, float], focus: AbstractSet[str], domain: Domain) -> list[Clique]:
    """Return the focus pairs with the largest noisy scores; without any, the two attributes with the most codes."""
    focus_pairs = [(score, domain.ordered(pair)) for pair, score in pairs.items() if focus & {*pair}]
    strongest = [p for _, p in sorted(focus_pairs, key=lambda item: (-item[0], item[1]))[:MOST_FOUND]]
    return strongest or [tuple(sorted(domain.attributes, key=lambda a: -domain.size(a))[:2])]


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


def plan_residuals(cliques: Sequence[Clique], rho: Fraction, records: int) -> list[Query]:
    """Return one single-cell query per candidate, all m of them at ``rho / m``.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    The candidates and the rows they are compared with are functions of earlier releases, so each score has sensitivity
    k (:func:`privsyn.tasks.steps.score_columns.compute_l1_distance`) and costs k^2 / (2 sigma^2) <= rho / m.  m
    mechanism instances add up (Theorem 1, adaptive composition with all earlier looks).
    """
    return plan_score_queries(cliques, rho, RESIDUAL_SENSITIVITY * records)


def count_rows_so_far(total: float) -> int:
    """Return how many synthetic rows to compare with the private ones, given their noisy total."""
    return min(OVERSAMPLE * max(round(total), 0), MOST_ROWS)


def derive_seed(seed: int, number: int) -> int:
    """Return the seed of the rows that round ``number`` scores; they differ from the released rows."""
    return (seed + number * _SEED) % 2**63


def count_residuals(
    rows: Countable, synthetic: CodeTable, total: float, queries: Sequence[Query], threads: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact score of each query, one cell each, in order: floor(|M - M' total / (rows of M')|_1) in records.

    rows: private, coarse codes; synthetic: the current rows, of the same domain; ``total``: the noisy number of private
    rows.  Neither count includes filtered values.  Private until the run adds noise.
    """
    cliques = [q.attributes for q in queries]
    scale = max(total, 0.0) / max(synthetic.rows, 1)
    counted, so_far = (table.counts(cliques, threads=threads) for table in (rows, synthetic))
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
