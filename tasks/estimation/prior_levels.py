"""A public table made to answer the private one's noisy counts, first by large groups, then by the groups in them.

Paper: "Public prior: distribution estimation", Algorithms 1 and 2; :mod:`public_workload` says what
to measure.  The rows made are rows of the public table: any combination of values
that it lacks has no row (section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.tasks.estimation.projection import apply_norm_sub
from privsyn.tasks.kernels.counting import CodeTable, Countable, count_all

Floats = NDArray[np.float64]

UPPER_LEVEL_ROWS = 100.0
"""Rows of the distribution one level above that are added to a group's own public rows; of 0, 10 and 100 the best on
support2, as good as 20 on stroke_ist."""

UPDATES_PER_MARGINAL = 20
"""Updates by each marginal of a workload (the paper had two, for want of time, and would have more)."""


@dataclass(frozen=True)
class GroupWorkload:
    """The groups and what is measured in each.

    ``large``: columns of the large groups (paper: state); ``small``: of
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
        """Return the four looks at private rows, each at a quarter of the budget.

        Two numbers of rows, two workloads.
        """
        large = tuple((*self.large, *clique) for clique in self.of_large)
        small = tuple((*self.small, *clique) for clique in self.of_small)
        return ((self.large,), large, (self.small,), small)


def plan(levels: GroupWorkload, domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """Return the queries of all four looks, each look at ``rho`` / 4, in equal parts.

    Privacy: all answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records,
    to which the rows are cut before (individual stability).  Each query is one marginal over the group columns and a
    set of others, so one mechanism instance for all groups together: a record is in one group only (parallel
    composition over disjoint groups), all k may fall into one cell, so its L2 sensitivity is k, also for a person with
    records in several groups.  The 2 + |W_S| + |W_G| instances add up.
    """
    queries = []
    for look in levels.looks():
        sigma = compute_sigma(rho / 4 / len(look), records)
        queries += [Query(domain.ordered(c), domain.cells(c), records, sigma) for c in look]
    return queries


def count_exactly(rows: Countable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """Yield exact counts of each query, flat, in order.  Private until the run has added the noise."""
    for counts in count_all(rows, [q.attributes for q in queries], threads=threads):
        yield counts.ravel()


@dataclass(frozen=True, eq=False)
class NoisyLevel:
    """Estimates of the groups of one level.

    ``group``: their columns, empty where the whole table is one; ``number``: rows by group, shape (groups,); ``of``:
    the sets of other columns that were measured in every group; ``counts``: of each, shape (groups, cells); ``noise``:
    the standard deviation of each one's counts, by which they are shrunk towards what is known before; None: they are
    believed entirely, as in the paper.
    """

    group: Clique
    number: Floats
    of: tuple[Clique, ...]
    counts: tuple[Floats, ...]
    noise: tuple[float, ...] | None = None


def select_rows(
    public: CodeTable, levels: GroupWorkload, answers: Sequence[Floats], seed: int, *, turns: int = UPDATES_PER_MARGINAL
) -> CodeTable:
    """Synthetic rows: Algorithm 2 from the noisy ``answers`` of :func:`plan`'s queries, each flat, in their order.

    The starting distribution of every large group is that of all public rows.  Groups are those that the public table
    has.  A group whose noisy number of rows is not positive has no row; such a large group leaves the start as it is.
    """
    domain, generator = public.domain, np.random.default_rng([seed, 0x9105])
    looks, flat = levels.looks(), iter(answers)
    sorted_answers = [
        [sort_by_group(next(flat), c, len(g), domain) for c in look]
        for look, g in zip(looks, _list_groups(levels), strict=True)
    ]
    large = NoisyLevel(levels.large, sorted_answers[0][0][:, 0], levels.of_large, tuple(sorted_answers[1]))
    small = NoisyLevel(levels.small, sorted_answers[2][0][:, 0], levels.of_small, tuple(sorted_answers[3]))
    support = PublicSupport.of(public, levels.small)
    codes = np.unique(np.stack([public.column(a) for a in levels.small], axis=1), axis=0)
    shares_by_group = iterate_group_shares(support, (large, small), codes, turns, seed, own_rows=False)
    drawn, number = [], []
    for group, shares in zip(codes, shares_by_group, strict=True):
        number.append(max(0, round(float(small.number[_compute_cell(group, levels.small, domain)]))))
        drawn.append(generator.choice(shares.size, number[-1], p=shares))
    return support.rows(np.repeat(codes, number, axis=0), np.concatenate(drawn))


@dataclass(frozen=True, eq=False)
class PublicSupport:
    """The public table's distinct rows without the group columns, and the share of each; ``domain``: the table's.

    ``rows_by_cell``: the public rows of every small group's cell, as numbers of distinct ones.
    """

    distinct: CodeTable
    shares: Floats
    group: Clique
    domain: Domain
    rows_by_cell: Mapping[int, NDArray[np.int64]]

    @classmethod
    def of(cls, public: CodeTable, group: Clique) -> PublicSupport:
        """Build the levels of the public rows.

        ``group``: the columns of the small groups; another column is needed.
        """
        names = [a for a in public.domain.attributes if a not in group]
        every = np.stack([public.column(a) for a in names], axis=1)
        rows, which, number = np.unique(every, axis=0, return_inverse=True, return_counts=True)
        cells = np.ravel_multi_index([public.column(a).astype(np.int64) for a in group], public.domain.shape(group))
        order = np.argsort(cells, kind="stable")
        group_cells, first = np.unique(cells[order], return_index=True)
        rows_by_cell = dict(zip(group_cells.tolist(), np.split(which.ravel()[order], first[1:]), strict=True))
        sizes = Domain.of({a: public.domain.size(a) for a in names})
        distinct = CodeTable(sizes, tuple(np.ascontiguousarray(c) for c in rows.T))
        return cls(distinct, number / number.sum(), group, public.domain, rows_by_cell)

    def start(self, large: Floats, cell: int) -> Floats:
        """Return distribution that a small group begins with: its own public rows, changed as those of ``large`` were.

        UPPER_LEVEL_ROWS rows of ``large`` are added: few public rows say little of a group, and none nothing.
        """
        group_counts = np.bincount(
            self.rows_by_cell.get(cell, np.zeros(0, np.int64)), minlength=self.shares.size
        ).astype(np.float64)
        rows, changed = group_counts.sum(), group_counts * large / self.shares
        if changed.sum() == 0:
            return large
        return np.asarray((rows * changed / changed.sum() + UPPER_LEVEL_ROWS * large) / (rows + UPPER_LEVEL_ROWS))

    def rows(self, groups: NDArray[np.integer], drawn: NDArray[np.integer]) -> CodeTable:
        """Return the distinct rows ``drawn``, shape (rows,), in ``groups``, codes of shape (rows, columns)."""
        columns = (
            groups[:, self.group.index(a)] if a in self.group else self.distinct.column(a)[drawn]
            for a in self.domain.attributes
        )
        sizes = self.domain.sizes
        return CodeTable(
            self.domain, tuple(c.astype(choose_code_dtype(n)) for c, n in zip(columns, sizes, strict=True))
        )


def iterate_group_shares(
    support: PublicSupport,
    levels: Sequence[NoisyLevel],
    codes: NDArray[np.integer],
    turns: int,
    seed: int,
    *,
    own_rows: bool,
) -> Iterator[Floats]:
    """Yield the distribution over the distinct public rows in every small group of ``codes``, shape (groups, columns).

    levels: those of the small groups last.  It is the public table's, updated level by level, each from where the one
    before led (the paper, whose public table has other groups); ``own_rows``: a small group begins with its own public
    rows.
    """
    *above, last = levels
    weights = [[PartialWorkload.marginal(support.distinct, c) for c in level.of] for level in levels]
    shares_by_level: list[dict[int, Floats]] = [{} for _ in above]
    for group in codes:
        shares = support.shares
        for level, weight, known in zip(above, weights, shares_by_level, strict=False):
            cell = _compute_cell(group[[last.group.index(a) for a in level.group]], level.group, support.domain)
            if cell not in known:
                known[cell] = _update_shares(shares, weight, level, cell, turns, seed)
            shares = known[cell]
        cell = _compute_cell(group, last.group, support.domain)
        yield _update_shares(support.start(shares, cell) if own_rows else shares, weights[-1], last, cell, turns, seed)


def sort_by_group(answer: Floats, clique: Clique, groups: int, domain: Domain) -> Floats:
    """Return the flat answer to ``clique`` (``groups`` group columns first) as shape (groups' cells, other cells)."""
    ordered = domain.ordered(clique)
    table = np.asarray(answer, float).reshape(domain.shape(ordered)).transpose([ordered.index(a) for a in clique])
    return table.reshape(domain.cells(clique[:groups]), -1)


def _list_groups(levels: GroupWorkload) -> tuple[Clique, ...]:
    return (levels.large, levels.large, levels.small, levels.small)


def _compute_cell(codes: NDArray[np.integer], group: Clique, domain: Domain) -> int:
    return int(np.ravel_multi_index(tuple(int(c) for c in codes), domain.shape(group))) if group else 0


def _update_shares(
    shares: Floats, workload: Sequence[PartialWorkload], level: NoisyLevel, cell: int, turns: int, seed: int
) -> Floats:
    """PRIOR_UPDATE: the shares that answer this group's noisy counts, as shares of its noisy number of rows."""
    total = round(float(level.number[cell]))
    if total <= 0 or not workload:
        return shares
    counts = [c[cell] for c in level.counts]
    if level.noise is not None:
        expected = [total * w.answers(shares) for w in workload]
        counts = [_shrink_counts(c, t, s) for c, t, s in zip(counts, expected, level.noise, strict=True)]
    return estimate(shares, workload, [c / total for c in counts], turns * len(workload), seed)


def _shrink_counts(noisy: Floats, expected: Floats, sigma: float) -> Floats:
    """Return noisy counts shrunk towards ``expected`` (positive-part James-Stein).

    They move by the share of their squared distance that noise of deviation ``sigma`` a cell explains.
    """
    distance = float(((noisy - expected) ** 2).sum())
    signal_share = max(0.0, 1 - noisy.size * sigma**2 / distance) if distance > 0 else 1.0
    return expected + signal_share * (noisy - expected)


UNCOUNTED_CELL = -1
"""The cell of a value that a partial workload does not count."""


@dataclass(frozen=True, eq=False)
class PartialWorkload:
    """Counting queries of which no value is in two: ``cell[i]`` is the query that counts value i, or UNCOUNTED_CELL.

    ``cells``: how many queries there are.
    """

    cell: NDArray[np.int64]
    cells: int

    @classmethod
    def marginal(cls, table: CodeTable, clique: Clique) -> PartialWorkload:
        """Return the marginal on ``clique`` of the values that are the table's rows; cells in row-major order."""
        shape = table.domain.shape(clique)
        codes = [table.column(a).astype(np.int64) for a in clique]
        return cls(np.ravel_multi_index(codes, shape), int(np.prod(shape)))

    @property
    def covers_all(self) -> bool:
        """Whether every value is counted."""
        return bool((self.cell != UNCOUNTED_CELL).all())

    def answers(self, shares: Floats) -> Floats:
        """Return what the queries say of a distribution, shape (cells,)."""
        inside = self.cell != UNCOUNTED_CELL
        return np.bincount(self.cell[inside], weights=shares[inside], minlength=self.cells).astype(np.float64)


def find_nearest_answers(noisy: Floats, *, covers_all: bool) -> Floats:
    """Answers >= 0 at the least L1 distance from ``noisy``, of sum 1 where all values are counted, else at most 1.

    The projection in squares is one of those of least L1 distance: it lowers, or raises, all that it changes.
    """
    positive = np.maximum(noisy, 0.0)
    return positive if not covers_all and positive.sum() <= 1 else apply_norm_sub(noisy, 1.0)


def update_distribution(shares: Floats, workload: PartialWorkload, answers: Floats) -> Floats:
    """Return the distribution of these ``answers`` that is nearest to ``shares`` in relative entropy (Definition 3.1).

    shares: shape (values,), sums to 1; answers: from :func:`find_nearest_answers`, shape (cells,).  A query whose
    values had no share gives each of them an equal part; so does what is left to the values that no query counts.  A
    query that counts no value of the support loses its answer, and the shares are scaled to sum to 1.
    """
    inside = workload.cell != UNCOUNTED_CELL
    updated = np.empty_like(shares)
    cell = workload.cell[inside]
    before = workload.answers(shares)
    members = np.bincount(cell, minlength=workload.cells)
    scaled = shares[inside] * np.divide(answers, before, out=np.zeros_like(before), where=before > 0)[cell]
    updated[inside] = np.where(before[cell] > 0, scaled, (answers / np.maximum(members, 1))[cell])
    rest, remaining = shares[~inside], max(0.0, 1.0 - float(answers.sum()))
    if rest.size:
        updated[~inside] = rest * (remaining / rest.sum()) if rest.sum() > 0 else remaining / rest.size
    total = updated.sum()
    return updated / total if total > 0 else shares


def estimate(
    shares: Floats, workloads: Sequence[PartialWorkload], noisy: Sequence[Floats], rounds: int, seed: int
) -> Floats:
    """Algorithm 1: ``rounds`` updates of ``shares``, each by a workload drawn at random; ``noisy``: answers as shares.

    Every workload has its turn before any comes again.  Raises ValueError without a workload.
    """
    if not workloads:
        raise ValueError("there is no workload to estimate from")
    generator, order = np.random.default_rng([seed, 0x1DE]), np.zeros(0, np.int64)
    nearest = [find_nearest_answers(y, covers_all=w.covers_all) for w, y in zip(workloads, noisy, strict=True)]
    for turn in range(rounds):
        if turn % len(workloads) == 0:
            order = generator.permutation(len(workloads))
        chosen = order[turn % len(workloads)]
        shares = update_distribution(shares, workloads[chosen], nearest[chosen])
    return shares
