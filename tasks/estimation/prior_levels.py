"""A public table made to answer the private one's noisy counts, first by large groups, then by the groups in them.

Paper: "Public prior: distribution estimation", Algorithm 2; :mod:`iterative_distribution` has its Algorithm 1, and
:mod:`public_workload` says what to measure.  The rows made are rows of the public table: any combination of values
that it lacks has no row (section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query, sigma_for
from privsyn.tasks.estimation.iterative_distribution import PartialWorkload, estimate
from privsyn.tasks.kernels.counting import CodeTable, Countable, count_all

Floats = NDArray[np.float64]

TURNS = 20
"""Updates by each marginal of a workload (the paper had two, for want of time, and would have more)."""


@dataclass(frozen=True)
class Levels:
    """The groups and what is measured in each.  ``large``: columns of the large groups (paper: state); ``small``: of
    the groups in them, these included (state, PUMA, year); ``of_large``, ``of_small``: sets of other columns to
    measure in every large group (W_S) and in every small one (W_G).

    Raises ValueError for groups that are not within groups, no set to measure, and sets of group columns.
    """

    large: Clique
    small: Clique
    of_large: tuple[Clique, ...]
    of_small: tuple[Clique, ...]

    def __post_init__(self) -> None:
        if not self.large or not set(self.large) < set(self.small):
            raise ValueError("the small groups need the columns of the large ones and one more")
        if not self.of_large or not self.of_small or any(set(c) & set(self.small) for c in self.measured):
            raise ValueError("both workloads need a set of columns, and none of them may be a group's")

    @property
    def measured(self) -> tuple[Clique, ...]:
        """All sets of columns to measure, the large groups' first."""
        return (*self.of_large, *self.of_small)

    def looks(self) -> tuple[tuple[Clique, ...], ...]:
        """The four looks at private rows, each at a quarter of the budget: two numbers of rows, two workloads."""
        large = tuple((*self.large, *clique) for clique in self.of_large)
        small = tuple((*self.small, *clique) for clique in self.of_small)
        return ((self.large,), large, (self.small,), small)


def plan(levels: Levels, domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """The queries of all four looks, each look at ``rho`` / 4, in equal parts.

    Privacy: all answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records,
    to which the rows are cut before (individual stability).  Each query is one marginal over the group columns and a
    set of others, so one mechanism instance for all groups together: a record is in one group only (parallel
    composition over disjoint groups), all k may fall into one cell, so its L2 sensitivity is k, also for a person with
    records in several groups.  The 2 + |W_S| + |W_G| instances add up.
    """
    queries = []
    for look in levels.looks():
        sigma = sigma_for(rho / 4 / len(look), records)
        queries += [Query(domain.ordered(c), domain.cells(c), records, sigma) for c in look]
    return queries


def exact(rows: Countable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """Exact counts of each query, flat, in order.  Private until the shell has added the noise."""
    for counts in count_all(rows, [q.attributes for q in queries], threads=threads):
        yield counts.ravel()


def rows_of(
    public: CodeTable, levels: Levels, answers: Sequence[Floats], seed: int, *, turns: int = TURNS
) -> CodeTable:
    """Synthetic rows: Algorithm 2 from the noisy ``answers`` of :func:`plan`'s queries, each flat, in their order.

    The starting distribution of every large group is that of all public rows.  Groups are those that the public table
    has.  A group whose noisy number of rows is not positive has no row; such a large group leaves the start as it is.
    """
    domain, generator = public.domain, np.random.default_rng([seed, 0x9105])
    looks, flat = levels.looks(), iter(answers)
    by_look = [
        [_by_group(next(flat), c, len(g), domain) for c in look] for look, g in zip(looks, _groups(levels), strict=True)
    ]
    start, support = _support(public, levels)
    weights = [[PartialWorkload.marginal(support, c) for c in w] for w in (levels.of_large, levels.of_small)]
    found: dict[int, Floats] = {}
    columns: list[list[NDArray[np.int64]]] = [[] for _ in domain.attributes]
    for codes in np.unique(np.stack([public.column(a) for a in levels.small], axis=1), axis=0):
        small = _cell(codes, levels.small, domain)
        large = _cell(codes[[levels.small.index(a) for a in levels.large]], levels.large, domain)
        if large not in found:
            found[large] = _updated(start, weights[0], by_look[0], by_look[1], large, turns, seed)
        shares = _updated(found[large], weights[1], by_look[2], by_look[3], small, turns, seed)
        number = max(0, round(float(by_look[2][0][small, 0])))
        drawn = generator.choice(shares.size, number, p=shares)
        for i, a in enumerate(domain.attributes):
            own = np.full(number, codes[levels.small.index(a)]) if a in levels.small else support.column(a)[drawn]
            columns[i].append(own)
    return CodeTable(
        domain, tuple(np.concatenate(c).astype(p.dtype) for c, p in zip(columns, public.columns, strict=True))
    )


def _groups(levels: Levels) -> tuple[Clique, ...]:
    return (levels.large, levels.large, levels.small, levels.small)


def _by_group(answer: Floats, clique: Clique, groups: int, domain: Domain) -> Floats:
    """The flat answer to ``clique`` (``groups`` group columns first) as shape (groups' cells, other cells)."""
    ordered = domain.ordered(clique)
    table = np.asarray(answer, float).reshape(domain.shape(ordered)).transpose([ordered.index(a) for a in clique])
    return table.reshape(domain.cells(clique[:groups]), -1)


def _cell(codes: NDArray[np.integer], group: Clique, domain: Domain) -> int:
    return int(np.ravel_multi_index(tuple(int(c) for c in codes), domain.shape(group)))


def _support(public: CodeTable, levels: Levels) -> tuple[Floats, CodeTable]:
    """The public table's distinct rows without the group columns, and the share of each."""
    names = [a for a in public.domain.attributes if a not in levels.small]
    rows, number = np.unique(np.stack([public.column(a) for a in names], axis=1), axis=0, return_counts=True)
    sizes = Domain.of({a: public.domain.size(a) for a in names})
    return number / number.sum(), CodeTable(sizes, tuple(np.ascontiguousarray(c) for c in rows.T))


def _updated(
    shares: Floats,
    workload: Sequence[PartialWorkload],
    number: Sequence[Floats],
    counts: Sequence[Floats],
    cell: int,
    turns: int,
    seed: int,
) -> Floats:
    """PRIOR_UPDATE: the shares that answer this group's noisy counts, as shares of its noisy number of rows."""
    total = round(float(number[0][cell, 0]))
    if total <= 0:
        return shares
    return estimate(shares, workload, [c[cell] / total for c in counts], turns * len(workload), seed)
