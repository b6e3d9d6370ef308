"""The k-marginal score: SDNist's over the whole table, and NIST 2020's by group with its bias penalty.

Sources: SDNist (github.com/usnistgov/SDNist), sdnist/metrics/kmarginal.py; NIST Differential Privacy Temporal Map
Challenge, sprint 2 (github.com/drivendataorg/deid2-runtime, runtime/scripts/metric.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import (
    DENSE_CELLS,
    average_l1,
    check_tables,
    count_occupied_cells,
    count_sparsely,
    draw_cliques,
    iterate_both_counts,
    stack_columns,
)

BIAS_COUNT = 250
"""A group gets the worst score if its number of rows is off by more than this."""

MAX_DENSITY_DIFFERENCE = 2.0
"""Largest difference of two densities: no common value."""


@dataclass(frozen=True, eq=False)
class GroupScores:
    """The k-marginal by group.  G groups, worst first; ties in the order of their codes.

    ``score``: mean over the groups, 0..1000, 1000 for no groups.  ``groups``: the group attributes; ``codes``: their
    codes, int64, shape (G, len(groups)).  ``scores``: 0..1000, shape (G,).  ``real``, ``synthetic``: rows, shape (G,).
    ``biased``: bool, shape (G,), the groups penalised for a wrong number of rows.
    """

    score: float
    groups: Clique
    codes: NDArray[np.int64]
    scores: NDArray[np.float64]
    real: NDArray[np.int64]
    synthetic: NDArray[np.int64]
    biased: NDArray[np.bool_]


def convert_to_score(distance: NDArray[np.float64] | float) -> NDArray[np.float64] | float:
    """Return a mean density difference, 0..2, as a score: (2 - distance) 500, 0..1000, 1000 for equal tables."""
    return (MAX_DENSITY_DIFFERENCE - distance) * 500


def compute_k_marginal_score(
    real: CodeTable,
    synthetic: CodeTable,
    k: int = 3,
    *,
    cliques: Sequence[Clique] | None = None,
    number: int = 100,
    seed: int = 0,
    threads: int = 0,
) -> float:
    """Return SDNist's k-marginal score, 0..1000, higher is better: 1000 for equal tables, 0 for disjoint ones.

    The score is (2 - s) 500.  Here s is the mean over marginals of k attributes of sum_cell |real share - synthetic
    share|, in 0..2.  The marginals are ``cliques`` if given (newer versions of SDNist take all pairs).  Otherwise they
    are ``number`` different random sets of k attributes, or fewer if there are not as many.  With fewer than k
    attributes, the set has all attributes.  A table without rows has densities of 0: it scores 500 against any other
    table and 1000 against another empty one.  Raises ValueError for tables that cannot be compared.
    """
    if cliques is None:
        cliques = draw_cliques(real.domain, min(k, len(real.domain.attributes)), number, seed)
    return float(convert_to_score(average_l1(real, synthetic, cliques, threads)))


def compute_group_k_marginal(
    real: CodeTable,
    synthetic: CodeTable,
    groups: Sequence[str],
    k: int = 2,
    *,
    cliques: Sequence[Clique] | None = None,
    number: int = 50,
    seed: int = 0,
    threads: int = 0,
) -> GroupScores:
    """Return the k-marginal score within each group and its mean (NIST 2020, sprint 2); 0..1000, higher is better.

    A group is a combination of the group attributes' codes (in the challenge: PUMA and year) that has rows in either
    table.  Its distance, 0..2, is the mean over marginals of k other attributes of sum_cell |real share - synthetic
    share|, in shares of the group's own rows.  A group gets the worst distance, 2, if one table has no rows of it (as
    in the challenge).  The bias penalty is the same, if its two numbers of rows differ by more than BIAS_COUNT (the
    challenge's first scorer: by 250 or more; SDNist: by more).  Score: (2 - distance) 500.

    Marginals: ``cliques``, of attributes outside the groups, or ``number`` random sets of k such attributes (the
    challenge: 50 sets of 2).  Raises ValueError for no group attributes, cliques that touch them, and tables that
    cannot be compared.
    """
    check_tables(real, synthetic)
    by = real.domain.ordered(groups)
    if not by:
        raise ValueError("the k-marginal by group needs one group attribute or more")
    others = Domain.of({a: real.domain.size(a) for a in real.domain.attributes if a not in by})
    if cliques is None:
        cliques = draw_cliques(others, min(k, len(others.attributes)), number, seed)
    if any(set(clique) & set(by) for clique in cliques):
        raise ValueError(f"marginals by group must be of attributes other than {', '.join(by)}")
    row, number_of = count_occupied_cells(real, synthetic, by)
    ours, theirs = (_count_group_rows(group, row.size) for group in (number_of[: real.rows], number_of[real.rows :]))
    distance = _compute_distances(real, synthetic, number_of, cliques, (ours, theirs), threads)
    biased = np.abs(ours - theirs) > BIAS_COUNT
    distance[biased | (ours == 0) | (theirs == 0)] = MAX_DENSITY_DIFFERENCE
    codes = np.stack([stack_columns(real, synthetic, a)[row] for a in by], axis=1)
    worst = np.argsort(-distance, kind="stable")
    scores = np.asarray(convert_to_score(distance))
    mean = float(scores.mean()) if scores.size else 1000.0
    return GroupScores(mean, by, codes[worst], scores[worst], ours[worst], theirs[worst], biased[worst])


def _count_group_rows(group: NDArray[np.intp], groups: int) -> NDArray[np.int64]:
    return np.bincount(group, minlength=groups).astype(np.int64, copy=False)


def _compute_distances(
    real: CodeTable,
    synthetic: CodeTable,
    group: NDArray[np.intp],
    cliques: Sequence[Clique],
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
    threads: int,
) -> NDArray[np.float64]:
    """Return each group's mean density difference over the cliques, 0..2, shape (groups,); 0 for no cliques.

    ``group``: the group number of every row of both tables; ``rows``: each group's number of rows in each table.
    """
    groups = rows[0].size
    total = np.zeros(groups)
    if not groups or not cliques:
        return total
    name = "".join(real.domain.attributes) + "'"  # longer than every attribute's name, so unused
    ours = _add_groups(real, name, group[: real.rows], groups)
    theirs = _add_groups(synthetic, name, group[real.rows :], groups)
    dense = [(name, *c) for c in cliques if ours.domain.cells((name, *c)) <= DENSE_CELLS]
    for a, b in iterate_both_counts(ours, theirs, dense, threads):
        shares = [
            _compute_shares(counts.reshape(groups, -1), n[:, None]) for counts, n in zip((a, b), rows, strict=True)
        ]
        total += np.abs(shares[0] - shares[1]).sum(axis=1)
    for clique in [(name, *c) for c in cliques if ours.domain.cells((name, *c)) > DENSE_CELLS]:
        row, a, b = count_sparsely(ours, theirs, clique)
        difference = np.abs(_compute_shares(a, rows[0][group[row]]) - _compute_shares(b, rows[1][group[row]]))
        total += np.bincount(group[row], weights=difference, minlength=groups)
    return total / len(cliques)


def _add_groups(table: CodeTable, name: str, group: NDArray[np.intp], groups: int) -> CodeTable:
    """Return the table with each row's group number as an additional, last attribute."""
    domain = Domain((*table.domain.attributes, name), (*table.domain.sizes, groups))
    return CodeTable(domain, (*table.columns, group.astype(choose_code_dtype(groups))))


def _compute_shares(counts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return counts / rows, 0 without rows."""
    return counts / np.maximum(rows, 1)
