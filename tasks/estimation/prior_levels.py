"""A public table reweighted to answer the private table's noisy counts, first in large groups, then in small ones.

Paper: "Public prior: distribution estimation", Algorithms 1 and 2.
Synthetic rows are rows of the public table: combinations of values that it lacks get no row (section 3.2).

The workload is cliques of related columns, and nearly independent single columns (section 4.2).  It looks at public
rows only, so it costs no budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.tasks.estimation.marginals import apply_norm_sub, compute_factors
from privsyn.tasks.estimation.shrink_departures import shrink_counts
from privsyn.tasks.kernels.counting import CodeTable

Floats = NDArray[np.float64]

UPPER_LEVEL_ROWS = 100.0
"""Rows from the level above that are added to a group's own public rows; the best of 0, 10 and 100 on support2, and as
good as 20 on stroke_ist."""


@dataclass(frozen=True, eq=False)
class NoisyLevel:
    """Estimates of the groups of one level.

    ``group``: the group columns, empty if the whole table is one group.  ``number``: rows by group, shape (groups,).
    ``cliques``: the sets of other columns measured in every group.  ``counts``: one array per set, shape
    (groups, cells).  ``noise``: standard deviation of each set's counts, which sets their shrinkage towards the
    previous estimate; None: no shrinkage, as in the paper.
    """

    group: Clique
    number: Floats
    cliques: tuple[Clique, ...]
    counts: tuple[Floats, ...]
    noise: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class PublicSupport:
    """The public table's distinct rows without the group columns, and their shares; ``domain``: the table's domain.

    ``rows_by_cell``: small group's cell -> its public rows, as positions in ``distinct``.
    """

    distinct: CodeTable
    shares: Floats
    group: Clique
    domain: Domain
    rows_by_cell: Mapping[int, NDArray[np.int64]]

    @classmethod
    def of(cls, public: CodeTable, group: Clique) -> PublicSupport:
        """Build the support from public rows; ``group``: columns of the small groups, which must leave a column."""
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
        """Return a small group's initial distribution: its own public rows, reweighted as in ``large``.

        UPPER_LEVEL_ROWS rows of ``large`` are added, since a group may have few or no public rows.
        """
        group_counts = np.bincount(
            self.rows_by_cell.get(cell, np.zeros(0, np.int64)), minlength=self.shares.size
        ).astype(np.float64)
        rows, changed = group_counts.sum(), group_counts * large / self.shares
        if changed.sum() == 0:
            return large
        return np.asarray((rows * changed / changed.sum() + UPPER_LEVEL_ROWS * large) / (rows + UPPER_LEVEL_ROWS))

    def rows(self, groups: NDArray[np.integer], drawn: NDArray[np.integer]) -> CodeTable:
        """Return the distinct rows at ``drawn``, shape (rows,), with ``groups``, codes of shape (rows, columns)."""
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
    rounds: int,
    seed: int,
    *,
    own_rows: bool,
) -> Iterator[Floats]:
    """Yield the distribution over the distinct public rows in every small group of ``codes``, shape (groups, columns).

    levels: from large groups to small ones.  The public table's distribution is updated level by level, each from the
    result of the one above (as in the paper, whose public table has other groups).  ``own_rows``: a small group begins
    with its own public rows.
    """
    *above, last = levels
    weights = [[Workload.marginal(support.distinct, c) for c in level.cliques] for level in levels]
    shares_by_level: list[dict[int, Floats]] = [{} for _ in above]
    for group in codes:
        shares = support.shares
        for level, weight, shares_by_cell in zip(above, weights, shares_by_level, strict=False):
            cell = _compute_cell(group[[last.group.index(a) for a in level.group]], level.group, support.domain)
            if cell not in shares_by_cell:
                shares_by_cell[cell] = _update_shares(shares, weight, level, cell, rounds, seed)
            shares = shares_by_cell[cell]
        cell = _compute_cell(group, last.group, support.domain)
        yield _update_shares(support.start(shares, cell) if own_rows else shares, weights[-1], last, cell, rounds, seed)


def sort_by_group(answer: Floats, clique: Clique, groups: int, domain: Domain) -> Floats:
    """Return the flat answer to ``clique`` (``groups`` group columns first) in shape (group cells, other cells)."""
    ordered = domain.ordered(clique)
    table = np.asarray(answer, float).reshape(domain.shape(ordered)).transpose([ordered.index(a) for a in clique])
    return table.reshape(domain.cells(clique[:groups]), -1)


def _compute_cell(codes: NDArray[np.integer], group: Clique, domain: Domain) -> int:
    return int(np.ravel_multi_index(tuple(int(c) for c in codes), domain.shape(group))) if group else 0


def _update_shares(
    shares: Floats, workload: Sequence[Workload], level: NoisyLevel, cell: int, rounds: int, seed: int
) -> Floats:
    """Return (PRIOR_UPDATE) the shares updated to a group's noisy counts, divided by its noisy number of rows."""
    total = round(float(level.number[cell]))
    if total <= 0 or not workload:
        return shares
    counts = [c[cell] for c in level.counts]
    if level.noise is not None:
        expected = [total * w.answers(shares) for w in workload]
        counts = [shrink_counts(c, t, s) for c, t, s in zip(counts, expected, level.noise, strict=True)]
    return estimate(shares, workload, [c / total for c in counts], rounds * len(workload), seed)


@dataclass(frozen=True, eq=False)
class Workload:
    """Disjoint counting queries: ``cell[i]`` is the query that counts value i; ``cells``: number of queries."""

    cell: NDArray[np.int64]
    cells: int

    @classmethod
    def marginal(cls, table: CodeTable, clique: Clique) -> Workload:
        """Return the marginal on ``clique`` over values that are the table's rows; cells are in row-major order."""
        shape = table.domain.shape(clique)
        codes = [table.column(a).astype(np.int64) for a in clique]
        return cls(np.ravel_multi_index(codes, shape), int(np.prod(shape)))

    def answers(self, shares: Floats) -> Floats:
        """Return the queries' answers on a distribution, shape (cells,)."""
        return np.bincount(self.cell, weights=shares, minlength=self.cells).astype(np.float64)


def update_distribution(shares: Floats, workload: Workload, answers: Floats) -> Floats:
    """Return the distribution with these ``answers`` nearest to ``shares`` in relative entropy (Definition 3.1).

    shares: shape (values,), sums to 1; answers: shape (cells,), >= 0, sum to 1.  If a query's values have no share,
    they split its answer equally.  The answer of a query without values in the support is dropped, and the shares are
    scaled to sum to 1.
    """
    cell, before = workload.cell, workload.answers(shares)
    members = np.bincount(cell, minlength=workload.cells)
    scaled = shares * compute_factors(answers, before)[cell]
    updated = np.where(before[cell] > 0, scaled, (answers / np.maximum(members, 1))[cell])
    total = updated.sum()
    return updated / total if total > 0 else shares


def estimate(shares: Floats, workloads: Sequence[Workload], noisy: Sequence[Floats], rounds: int, seed: int) -> Floats:
    """Return ``shares`` after ``rounds`` updates by workloads drawn at random (Algorithm 1).

    ``noisy``: each workload's noisy answers, as shares; the nearest possible answers take their place.  (The
    least-squares projection also has the least L1 distance, since it moves all cells in one direction.)  Every workload
    has one turn before any repeats.  Raises ValueError without a workload.
    """
    if not workloads:
        raise ValueError("there is no workload to estimate from")
    generator, order = np.random.default_rng([seed, 0x1DE]), np.zeros(0, np.int64)
    nearest = [apply_norm_sub(y, 1.0) for y in noisy]
    for turn in range(rounds):
        if turn % len(workloads) == 0:
            order = generator.permutation(len(workloads))
        chosen = order[turn % len(workloads)]
        shares = update_distribution(shares, workloads[chosen], nearest[chosen])
    return shares


MIN_RELATED_INFORMATION = 0.1
"""Least mutual information of two columns with an edge, in nats."""

MAX_INDEPENDENT_INFORMATION = 0.05
"""Largest mutual information of two nearly independent columns, in nats."""

Information = Mapping[Clique, float]
"""Mutual information in nats by pair of columns, in domain order."""


def compute_mutual_information(public: CodeTable, attributes: Clique, threads: int = 0) -> dict[Clique, float]:
    """Return the mutual information, in nats, of every pair of ``attributes`` (in domain order) in the public rows."""
    pairs = list(combinations(attributes, 2))
    return {p: sum_information(counts) for p, counts in zip(pairs, public.counts(pairs, threads=threads), strict=True)}


def sum_information(counts: NDArray[np.int64]) -> float:
    """Return the mutual information of a table of counts, shape (n, m), in nats; 0 if it has no rows."""
    shares = counts / max(1, counts.sum())
    product = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    seen = shares > 0
    return max(0.0, float((shares[seen] * np.log(shares[seen] / product[seen])).sum()))


def choose_related_cliques(
    information: Information, domain: Domain, most_cells: int, *, edge: float = MIN_RELATED_INFORMATION
) -> list[Clique]:
    """Return cliques of the graph of pairs with at least ``edge`` nats; a column without an edge is a clique alone.

    A clique begins with the most informative edge outside all cliques.  It grows by the column with the most summed
    information among the columns with edges to all members, up to ``most_cells`` cells.  Larger edges are left out.
    """
    edges = {p: i for p, i in information.items() if i >= edge and domain.cells(p) <= most_cells}
    names = domain.ordered({a for p in information for a in p})
    covered: set[Clique] = set()
    cliques: list[Clique] = []
    for pair in sorted(edges, key=lambda p: (-edges[p], p)):
        if pair not in covered:
            cliques.append(_grow_clique(pair, edges, names, domain, most_cells))
            covered |= set(combinations(cliques[-1], 2))
    return [*cliques, *((a,) for a in names if not any(a in clique for clique in cliques))]


def _grow_clique(pair: Clique, edges: Information, names: Clique, domain: Domain, most_cells: int) -> Clique:
    clique = pair
    while True:
        gains = {}
        for a in set(names) - set(clique):
            pairs = [domain.ordered((a, b)) for b in clique]
            if all(p in edges for p in pairs) and domain.cells((*clique, a)) <= most_cells:
                gains[a] = sum(edges[p] for p in pairs)
        if not gains:
            return clique
        clique = domain.ordered((*clique, max(sorted(gains), key=gains.__getitem__)))


def choose_independent_one_ways(
    information: Information, domain: Domain, *, limit: float = MAX_INDEPENDENT_INFORMATION
) -> list[Clique]:
    """Return single columns with at most ``limit`` nats of mutual information between any two.

    Columns are taken greedily by the sum of their mutual information with all others.
    """
    names = domain.ordered({a for p in information for a in p})
    summed_information = {a: sum(i for p, i in information.items() if a in p) for a in names}
    chosen: list[str] = []
    for a in sorted(names, key=lambda a: (-summed_information[a], domain.index(a))):
        if all(information[domain.ordered((a, b))] <= limit for b in chosen):
            chosen.append(a)
    return [(a,) for a in domain.ordered(chosen)]
