"""PrivBayes with its own score and its own way of choosing: R of a column and all its parents, exponential mechanism.

Zhang, Cormode, Procopiuc, Srivastava, Xiao: *PrivBayes*, ACM TODS 42(4), 2017: Algorithms 2 and 4, theta-usefulness
and the score R, which is InDif of the column and its parents together over 2n.  The mechanism `privbayes` has noisy
scores of pairs in its place, which a release can use again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import PrivBayes
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.evaluation.comparison.method import Choices, DomainTooLargeError, MethodInput, MethodResult
from privsyn.extras.papers.full_domain import TOTAL_SHARE, measure_number_of_rows, split_rho, spread_for
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.draw_rows import count_useful_cells, draw_ancestral_rows

NETWORK_SHARE = Fraction(3, 10)
"""beta: part of the budget for the network; the families get the rest."""

MOST_CANDIDATES = 20_000
"""Most candidates of one choice: each is a count of all rows."""

INDIF_SENSITIVITY = 4
"""Lemma 4, adding or removing one row; replacing one row moves InDif by up to twice as much."""


def privbayes_exponential(trial: MethodInput) -> MethodResult:
    """Return a network of degree 3 and theta 4, each family chosen by the exponential mechanism over R, then measured.

    The first attribute is the table's first.  Scores are in rows (R times 2n), so that one row moves a score by
    INDIF_SENSITIVITY at most.  Every price is in zCDP.  The number of rows costs 1/20 of rho: theta-usefulness needs
    this number, and neighbours do not share it.  The choices cost 0.3 of the rest and the families 0.7, each evenly.
    Raises DomainTooLargeError where a choice has more than MOST_CANDIDATES.
    """
    domain, records, rows = trial.bins, trial.records, trial.to_bins(trial.rows)
    options, rounds = PrivBayes(), len(domain.attributes) - 1
    rho = split_rho(trial)
    counted_rows, total = measure_number_of_rows(trial, rho * TOTAL_SHARE)
    rho_left = rho * (1 - TOTAL_SHARE)
    spread = spread_for(rho_left * NETWORK_SHARE / max(rounds, 1))
    rho_each = rho_left * (1 - NETWORK_SHARE) / (rounds + 1) if rounds else rho_left
    most_cells = count_useful_cells(total, 1, rho_each, records, options.usefulness)
    placed, families = [domain.attributes[0]], [domain.attributes[:1]]
    for _ in range(rounds):
        candidates = _list_candidates(domain, placed, options.degree, most_cells)
        scores = np.array([compute_in_dif(c) for c in _count_candidates(rows, candidates, trial.threads)])
        picked = trial.noise.choose(scores * (float(spread) / (2 * INDIF_SENSITIVITY * records)), 1)[0]
        child, parents = candidates[int(picked)]
        families.append(domain.ordered((child, *parents)))
        placed.append(child)
    sigma = compute_sigma(rho_each, records)
    queries = [Query(c, domain.cells(c), records, sigma) for c in families]
    exact = rows.counts(families, threads=trial.threads)
    noisy = [
        Marginal(c, (counts + trial.noise.draw(sigma, counts.size).reshape(counts.shape)).astype(np.float64))
        for c, counts in zip(families, exact, strict=True)
    ]
    one_ways: dict[str, NDArray[np.float64]] = {}
    for family in noisy:
        for a in family.attributes:
            one_ways.setdefault(a, family.project((a,)).counts)
    return MethodResult(
        draw_ancestral_rows(noisy, one_ways, domain, total, trial.seed),
        zcdp=(counted_rows, *queries),
        marginals=tuple(c for c in families if len(c) > 1),
        choices=(Choices(rounds, spread),) if rounds else (),
    )


def _list_candidates(domain: Domain, drawn: Sequence[str], degree: int, most_cells: int) -> list[tuple[str, Clique]]:
    """Yield (further attribute, its parents): for each attribute the largest sets of known ones that are theta-useful.

    An attribute that has no useful parent may come without any.  A set that another one holds is left out, since R
    only grows with further parents.
    """
    candidates: list[tuple[str, Clique]] = []
    for child in domain.attributes:
        if child in drawn:
            continue
        sets: list[Clique] = []
        for size in range(min(degree, len(drawn)), 0, -1):
            for parents in combinations(drawn, size):
                if domain.cells((child, *parents)) <= most_cells and not any(set(parents) <= set(s) for s in sets):
                    sets.append(parents)
            if len(candidates) + len(sets) > MOST_CANDIDATES:
                raise DomainTooLargeError(
                    f"privbayes-exponential scores every set of parents: at most {MOST_CANDIDATES:,} a choice"
                )
        candidates += [(child, parents) for parents in sets or [()]]
    return candidates


def _count_candidates(
    rows: CodeTable, candidates: Sequence[tuple[str, Clique]], threads: int
) -> Iterator[NDArray[np.int64]]:
    """Yield counts of each candidate, shape (codes of the attribute, joint codes of its parents)."""
    for (child, _), counts in zip(
        candidates, rows.counts([(c, *parents) for c, parents in candidates], threads=threads), strict=True
    ):
        yield counts.reshape(rows.domain.size(child), -1)


def compute_in_dif(counts: NDArray[np.int64]) -> float:
    """Return InDif (section 4.1): L1 distance from the counts of independent columns, in rows; 0 without rows."""
    n = counts.sum()
    if n == 0:
        return 0.0
    return float(np.abs(counts - np.outer(counts.sum(axis=1), counts.sum(axis=0)) / n).sum())
