"""Step *triple scores* (release, a part of rho3): how much two columns together say of a third that neither says alone.

Not in the paper, whose scores are of pairs.  Every column is cut into two parts of about equal noisy mass, and each
part gets a value so that their mean over the noisy rows is 0 and none is beyond 1.  The score of a triple is the sum
over all rows of the product of its three values, its third central moment: about 0 where the triple follows from its
pairs and its parts are even, and as many records as there are where one column is the parity of two.
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
from privsyn.tasks.kernels.counting import Countable, count_all
from privsyn.tasks.steps.indif_scores import plan_score_queries
from privsyn.tasks.steps.named_sets import PlannedSet, read_coarse_counts

MOST_TRIPLES = 5_000
"""Triples that are scored at most: of more columns, their noise would hide everything."""

UNIT = 256
"""The values of parts are whole multiples of one in so many."""

LEAST_SCORE = 0.03
"""Score of a triple that is measured, as a share of all records, at least."""

CAUTION = 3.0
"""The same in standard deviations of a score's noise."""

MOST_FOUND = 3
"""Triples that are measured at most, and pairs in their place where no triple stands out."""


def halve_attributes(recode: Recode, in_order: AbstractSet[str]) -> PlannedSet:
    """Return all attributes, each with its codes in two parts of about equal noisy mass; of one code, in one."""
    coarse = read_coarse_counts(recode, in_order)
    return PlannedSet(tuple(coarse), tuple(merge_codes(coarse, (a,), 2)[0] for a in coarse), 1.0)


def list_triples(focus: Collection[str], halves: PlannedSet) -> list[Clique]:
    """Return the candidates: an attribute in focus with two others, in domain order; none where they are too many."""
    halved = [a for a, merge in zip(halves.attributes, halves.merges, strict=True) if merge.max() > 0]
    others = comb(max(len(halved) - 1, 0), 2)
    if others * len({*focus}) > MOST_TRIPLES:
        return []
    return [(a, b, c) for a, b, c in combinations(halved, 3) if {a, b, c} & {*focus}]


def plan_queries(triples: Sequence[Clique], rho: Fraction, records: int) -> list[Query]:
    """Return one single-cell query per triple, all m of them at ``rho / m``.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records:
    parts and their values follow from the spec and from what was released before, and the product of three values is
    between -1 and 1, so each score has sensitivity k and costs k^2 / (2 sigma^2) <= rho / m; m mechanism instances add
    up (adaptive composition, Theorem 1).
    """
    return plan_score_queries(triples, rho, records)


def compute_values(recode: Recode, halves: PlannedSet) -> dict[str, NDArray[np.int64]]:
    """Return the values of the two parts of each attribute in units of 1 / UNIT: of noisy mean 0, none beyond 1."""
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

    rows: in parts, a filtered value in neither; columns: attribute -> its column there.  A record moves the sum by at
    most 1 and rounding down to whole records keeps that.  Private until the run has added the noise.
    """
    cliques = [tuple(columns[a] for a in q.attributes) for q in queries]
    for query, counts in zip(queries, count_all(rows, cliques, threads=threads), strict=True):
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
    """Return the triples to measure, MOST_FOUND at most, those of largest score first.

    queries: of the ``scores``, by whose sizes triples stand out (LEAST_SCORE, CAUTION); ``total``: the noisy number of
    records.  Where none does, the pairs of the focus with the largest noisy scores (``pairs``) are measured in their
    place, by merged codes.
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
    """Return the pairs of the focus with the largest noisy scores; of none, the first two attributes with codes."""
    focus_pairs = [(score, domain.ordered(pair)) for pair, score in pairs.items() if focus & {*pair}]
    strongest = [p for _, p in sorted(focus_pairs, key=lambda item: (-item[0], item[1]))[:MOST_FOUND]]
    return strongest or [tuple(sorted(domain.attributes, key=lambda a: -domain.size(a))[:2])]
