"""Step *quality figures* (release, a separate budget): measure how far a synthetic table is from the private one.

The synthetic table, the marginals and the queries are public; only the private table's counts are not.  Every figure is
a sum of integers |private count - synthetic count|, so discrete noise applies.  One more record changes one count by
one in each marginal and in each query, so it changes the sum over M of them by at most M.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import iterate_both_counts
from privsyn.tasks.metrics.range_queries import RangeQuery, answer_queries, draw_privsyn_queries

MOST_PAIRS, MOST_TRIPLES, RANGE_QUERIES = 1_000, 100, 1_000
"""Limits on compared pairs and triples of columns, and the number of range queries: public constants."""

MAX_CELLS = 2_000_000
"""Marginals with more cells are not compared: a public limit on memory."""

SEED = 0
"""Seed of the random pairs, triples and queries; the choice is public and never looks at data."""

_TRIES = 20  # draws per wanted marginal; ends the loop if all marginals are huge


@dataclass(frozen=True)
class Figure:
    """One figure: its name and the marginals or range queries that it compares, all public."""

    name: str
    cliques: tuple[Clique, ...] = ()
    queries: tuple[RangeQuery, ...] = ()

    @property
    def compared(self) -> int:
        """Number of marginals or queries; bounds one record's L2 (and L1) effect on the sum."""
        return len(self.cliques) + len(self.queries)


def build_figures(domain: Domain) -> tuple[Figure, ...]:
    """Return the non-empty figures of a domain: public, and the same for every table of that domain.

    All one-ways; all pairs, or MOST_PAIRS random ones; MOST_TRIPLES random triples; RANGE_QUERIES queries over three
    columns (PrivSyn, section 6.1).  Figures that need more columns than the domain has are left out.
    """
    rng = np.random.default_rng(SEED)
    every = (
        Figure("one_way", cliques=_list_cliques(domain, 1, len(domain.attributes), rng)),
        Figure("pairs", cliques=_list_cliques(domain, 2, MOST_PAIRS, rng)),
        Figure("triples", cliques=_list_cliques(domain, 3, MOST_TRIPLES, rng)),
        Figure("range_queries", queries=draw_privsyn_queries(domain, RANGE_QUERIES, 3, SEED)),
    )
    return tuple(f for f in every if f.compared)


def _list_cliques(domain: Domain, ways: int, limit: int, rng: np.random.Generator) -> tuple[Clique, ...]:
    """Return all cliques of ``ways`` attributes if there are at most ``limit``, else ``limit`` random ones.

    Cliques with more than MAX_CELLS cells are left out.
    """
    width = len(domain.attributes)
    if comb(width, ways) <= limit:
        chosen = list(combinations(domain.attributes, ways))
    else:
        draws = (np.sort(rng.choice(width, ways, replace=False)) for _ in range(_TRIES * limit))
        chosen = list(dict.fromkeys(tuple(domain.attributes[i] for i in draw) for draw in draws))
    return tuple(c for c in chosen if domain.cells(c) <= MAX_CELLS)[:limit]


def plan_queries(figures: Sequence[Figure], rho: Fraction, records: int) -> list[Query]:
    """Return one single-cell query per figure, each at ``rho / len(figures)``; its name replaces the attributes.

    Privacy: with the synthetic table fixed, all sums together are rho-zCDP for adding or removing one person with at
    most ``records`` = k records.  Each of k records changes each of the M compared marginals (or queries) by at most 1
    in L1, and | |x + d - s| - |x - s| | <= |d|, so the sum has sensitivity k M and costs (k M)^2 / (2 sigma^2) <= rho /
    len(figures).  len(figures) mechanism instances add up (Theorem 1).
    """
    share = rho / max(len(figures), 1)
    bounds = [records * f.compared for f in figures]
    return [Query((f.name,), 1, b, compute_sigma(share, b)) for f, b in zip(figures, bounds, strict=True)]


def count_exactly(
    rows: CodeTable, synthetic: CodeTable, figures: Sequence[Figure], threads: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact sum of each figure, shape (1,), in order.  Private until the run adds noise.

    ``rows`` and ``synthetic`` are tables of one domain (public bins); either may be empty.  Raises ValueError if their
    domains differ.
    """
    if rows.domain != synthetic.domain:
        raise ValueError("the two tables have different domains")
    for figure in figures:
        total = sum(int(np.abs(a - b).sum()) for a, b in iterate_both_counts(rows, synthetic, figure.cliques, threads))
        if figure.queries:
            differences = answer_queries(rows, figure.queries, threads) - answer_queries(
                synthetic, figure.queries, threads
            )
            total += int(np.abs(differences).sum())
        yield np.array([total], dtype=np.int64)


def divide_by_rows(total: float, figure: Figure, synthetic_rows: int) -> float:
    """Return a sum (or its noise's standard deviation) as a mean over the marginals or queries, per synthetic row.

    The divisor is the number of *synthetic* rows, because the number of private rows is private.  So this is not the L1
    distance of shares: if the two tables differ in size, the difference counts as error too.  Raises ValueError for a
    table of no rows.
    """
    if synthetic_rows < 1:
        raise ValueError("a synthetic table of no rows cannot be compared")
    return total / (figure.compared * synthetic_rows)
