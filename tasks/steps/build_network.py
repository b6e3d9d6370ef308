"""Steps *build network* and *ancestral rows* (postprocess): a Bayesian network of noisy pair scores, and its rows.

Zhang, Cormode, Procopiuc, Srivastava, Xiao: *PrivBayes*, SIGMOD 2014 (and ACM TODS 42(4), 2017), Algorithms 2 and 4 and
theta-usefulness.  PrivBayes scores a column with all its parents by the exponential mechanism.  Here the score of a
parent set is the sum of its pairs' noisy scores, which are already released, so the network costs no budget.

Rows are PrivBayes' (2014, section 3): negative counts become 0, and each column is drawn given its parents.  Not in the
paper: rows that share the parents' codes get exactly the conditional shares, up to rounding, in random order, instead
of independent draws.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import compute_sigma
from privsyn.tasks.estimation.expected_error import NORMAL_MEAN_ABSOLUTE
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.streams import derive_stream


class _Parents(NamedTuple):
    score: float
    members: tuple[str, ...]


def count_useful_cells(total: float, families: int, rho: Fraction, records: int, usefulness: float) -> int:
    """Return the most cells of a theta-useful family: mean count at least ``usefulness`` times the mean absolute noise.

    total: noisy number of rows; families: the number of families that share ``rho`` evenly, each with sensitivity
    ``records``.  Returns 0 if no family is useful.
    """
    noise = NORMAL_MEAN_ABSOLUTE * compute_sigma(rho / max(families, 1), records)
    return math.floor(max(total, 0.0) / (usefulness * noise))


def build_bayesian_network(
    scores: Mapping[tuple[str, str], float], domain: Domain, degree: int, most_cells: int
) -> list[Clique]:
    """Return the families (an attribute with its parents) in the order of drawing, each in domain order.

    The next attribute is the one whose parents among the earlier attributes have the largest summed score.  Parents
    are chosen strongest first, all with positive score: at most ``degree`` parents, with at most ``most_cells`` cells
    together with the attribute.  If no attribute has such parents, the one with the strongest relation becomes a
    new root.  Attributes without a relation are in no family.
    """
    score_of = {frozenset(pair): s for pair, s in scores.items() if s > 0 and domain.cells(pair) <= most_cells}
    strongest: dict[str, float] = {}
    for related, score in score_of.items():
        for a in related:
            strongest[a] = max(strongest.get(a, 0.0), score)
    undrawn = dict.fromkeys(a for a in domain.attributes if a in strongest)
    ranked: dict[str, list[tuple[float, int]]] = {a: [] for a in undrawn}
    families: list[Clique] = []
    while undrawn:
        best = {a: _choose_parents(a, ranked[a], domain, degree, most_cells) for a in undrawn if ranked[a]}
        if best:
            child = max(best, key=lambda a: (best[a].score, -domain.index(a)))
            families.append(domain.ordered((child, *best[child].members)))
        else:
            child = max(undrawn, key=lambda a: (strongest[a], -domain.index(a)))
        del undrawn[child]
        for a in undrawn:
            pair = frozenset((a, child))
            if pair in score_of:
                insort(ranked[a], (-score_of[pair], domain.index(child)))
    return families


def _choose_parents(
    child: str, ranked: list[tuple[float, int]], domain: Domain, degree: int, most_cells: int
) -> _Parents:
    """Return the strongest parents from ``ranked`` (-score, position), as many as fit."""
    cells, score, members = domain.size(child), 0.0, list[str]()
    for negative, position in ranked:
        if len(members) == degree:
            break
        if cells * domain.sizes[position] <= most_cells:
            cells *= domain.sizes[position]
            score -= negative
            members.append(domain.attributes[position])
    return _Parents(score, tuple(members))


_ANCESTRAL = 101  # purpose of the random streams; no other step's


def draw_ancestral_rows(
    families: Sequence[Marginal], one_ways: Mapping[str, NDArray[np.float64]], domain: Domain, rows: int, seed: int
) -> CodeTable:
    """Draw ``rows`` rows of codes over ``domain``.

    families: measured counts in the order of drawing, possibly negative; an attribute is drawn from the first family
    that contains it, given the family's attributes drawn before.  one_ways: attribute -> counts, used for root
    attributes, attributes in no family, and rows whose family has no positive count.
    """
    from privsyn.tasks.synthesis.conditional import draw_attribute  # here: compiled code loads slowly

    shares = {a: np.maximum(one_ways[a], 0.0) for a in domain.attributes}
    columns: dict[str, NDArray[np.unsignedinteger]] = {}

    def draw(attribute: str, conditional: Marginal | None) -> None:
        address = derive_stream(seed, _ANCESTRAL, domain.index(attribute))
        columns[attribute] = draw_attribute(attribute, conditional, columns, rows, shares[attribute], address)

    for family in families:
        counts = Marginal(family.attributes, np.maximum(family.counts, 0.0))
        for attribute in family.attributes:
            if attribute not in columns:
                earlier = [a for a in family.attributes if a in columns]
                draw(attribute, counts.project((attribute, *earlier)) if earlier else None)
    for attribute in domain.attributes:
        if attribute not in columns:
            draw(attribute, None)
    return CodeTable(domain, tuple(columns[a] for a in domain.attributes))
