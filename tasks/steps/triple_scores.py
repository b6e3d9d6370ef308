"""Step *triple scores* (release, a part of rho3): measure the interaction of three columns beyond their pairs.

Not in the paper, which scores pairs.  Every column is cut into two parts of about equal noisy mass.  Each part gets a
value in [-1, 1] such that the mean over the noisy rows is 0.  The score of a triple is the sum over all rows of the
product of its three values, its third central moment.  The score is about 0 if the triple follows from its pairs and
its parts are even.  It is about the number of records if one column is the parity of the other two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.merged_codes import merge_codes
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, map_coarse_one_ways
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.steps.indif_scores import plan_score_queries
from privsyn.tasks.steps.named_sets import PlannedSet, read_coarse_counts

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


def plan_queries(triples: Sequence[Clique], rho: Fraction, records: int) -> list[Query]:
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


def count_exactly(
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
