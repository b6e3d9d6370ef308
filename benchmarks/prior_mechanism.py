"""Algorithm 2 of "Public prior: distribution estimation" on real public tables: mean L1 of pairs by group.

    nice python -m benchmarks.prior_mechanism [--seeds 2] [--epsilons 10]

The metric is that of NIST's challenge of 2020, sprint 2: 50 random pairs of other columns in every group, a group whose
number of rows is off by more than 250 has the worst distance, 2.  ``same``: the public table is the private one, as in
the paper's section 4.3 (the algorithm does not know it); ``half``: they are two random halves of one
table.  The noise has a seed, so nothing here is private.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import rows_of
from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.evaluation.comparison.method import compute_laplace_scale
from privsyn.tasks.estimation.prior_levels import (
    NoisyLevel,
    PublicSupport,
    choose_independent_one_ways,
    choose_related_cliques,
    compute_mutual_information,
    iterate_group_shares,
    sort_by_group,
)
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import compute_group_k_marginal
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import SeededNoise
from privsyn.tasks.steps.measure_marginals import count_exactly

Floats = NDArray[np.float64]

DELTA = 1e-9
CELLS, EDGE, TURNS = 500, 0.3, 5
METHODS = ("laplace", "gaussian", "public as is")


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


def plan_queries(levels: GroupWorkload, domain: Domain, rho: Fraction, records: int) -> list[Query]:
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


def select_rows(
    public: CodeTable, levels: GroupWorkload, answers: Sequence[Floats], seed: int, *, turns: int = TURNS
) -> CodeTable:
    """Return synthetic rows: Algorithm 2 from noisy ``answers`` to :func:`plan_queries`, each flat, in their order.

    The starting distribution of every large group is that of all public rows.  Groups are those that the public table
    has.  A group whose noisy number of rows is not positive has no row; such a large group leaves the start as it is.
    """
    domain, generator = public.domain, np.random.default_rng([seed, 0x9105])
    looks, flat = levels.looks(), iter(answers)
    groups = (levels.large, levels.large, levels.small, levels.small)
    sorted_answers = [
        [sort_by_group(next(flat), c, len(g), domain) for c in look] for look, g in zip(looks, groups, strict=True)
    ]
    large = NoisyLevel(levels.large, sorted_answers[0][0][:, 0], levels.of_large, tuple(sorted_answers[1]))
    small = NoisyLevel(levels.small, sorted_answers[2][0][:, 0], levels.of_small, tuple(sorted_answers[3]))
    support = PublicSupport.of(public, levels.small)
    codes = np.unique(np.stack([public.column(a) for a in levels.small], axis=1), axis=0)
    shares_by_group = iterate_group_shares(support, (large, small), codes, turns, seed, own_rows=False)
    drawn, number = [], []
    for group, shares in zip(codes, shares_by_group, strict=True):
        cell = int(np.ravel_multi_index(tuple(map(int, group)), domain.shape(levels.small)))
        number.append(max(0, round(float(small.number[cell]))))
        drawn.append(generator.choice(shares.size, number[-1], p=shares))
    return support.rows(np.repeat(codes, number, axis=0), np.concatenate(drawn))


class Case(NamedTuple):
    """A private and a public table of one domain, and the columns of their large groups and of the small ones."""

    name: str
    private: CodeTable
    public: CodeTable
    large: tuple[str, ...]
    small: tuple[str, ...]


def some(table: CodeTable, rows: NDArray[np.intp]) -> CodeTable:
    """Return these rows."""
    return CodeTable(table.domain, tuple(c[rows] for c in table.columns))


def with_state(table: CodeTable) -> CodeTable:
    """national2019 with STATE in front: the first part of a PUMA's name, from the listed values."""
    first = ["01", "06", "06", "08", "13", "17", "17", "19", "24", "26", "28", "29", "30", "32", "36", "36", "38", "40"]
    names = [*first, "51", "51"]
    state = np.unique(names, return_inverse=True)[1]
    state = np.append(state, np.full(table.domain.size("PUMA") - len(names), state.max() + 1))
    domain = Domain(("STATE", *table.domain.attributes), (int(state.max()) + 1, *table.domain.sizes))
    column = state[table.column("PUMA")].astype(choose_code_dtype(domain.sizes[0]))
    return CodeTable(domain, (column, *table.columns))


def cases() -> Iterator[Case]:
    """Yield public and private tables."""
    whole = with_state(rows_of("national2019").bins)
    order = np.random.default_rng(0).permutation(whole.rows)
    first, second = (some(whole, np.sort(half)) for half in np.array_split(order, 2))
    by = (("STATE",), ("STATE", "PUMA"))
    yield Case("national2019, same", whole, whole, *by)
    yield Case("national2019, half", first, second, *by)


def made(case: Case, method: str, epsilon: float, seed: int) -> CodeTable:
    """Synthetic rows by ``method``, one of METHODS."""
    if method == "public as is":
        return case.public
    domain, noise = case.public.domain, SeededNoise(seed)
    others = tuple(a for a in domain.attributes if a not in case.small)
    known = compute_mutual_information(case.public, others, 1)
    cliques, ones = choose_related_cliques(known, domain, CELLS, edge=EDGE), choose_independent_one_ways(known, domain)
    levels = GroupWorkload(case.large, case.small, tuple(cliques), tuple(ones))
    queries = plan_queries(levels, domain, convert_epsilon_to_rho(epsilon, DELTA, "gaussian"), 1)
    counts = count_exactly(case.private, queries, 1)
    if method == "gaussian":
        answers = [c + noise.draw(q.under("gaussian").sigma, q.cells) for c, q in zip(counts, queries, strict=True)]
    else:  # the paper's: a quarter of epsilon a look, L1 sensitivity of a look of m marginals m
        look = Fraction(epsilon) / 4
        scales = [compute_laplace_scale(look, len(c)) for c in levels.looks() for _ in c]
        answers = [c + noise.draw_laplace(s, q.cells) for c, s, q in zip(counts, scales, queries, strict=True)]
    return select_rows(case.public, levels, [a.astype(float) for a in answers], seed)


def distance(case: Case, found: CodeTable) -> tuple[float, int]:
    """Return mean L1 over the groups, 0..2, and how many groups have the bias penalty."""
    scores = compute_group_k_marginal(case.private, found, case.small, 2, number=50, seed=0, threads=1)
    return 2 - scores.score / 500, int(scores.biased.sum())


def main() -> None:
    """Print a table in markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[10.0])
    asked = parser.parse_args()
    print("| tables | epsilon | noise | mean L1 by group | groups with the penalty |\n|---|---|---|---|---|")
    for case in cases():
        for epsilon in asked.epsilons:
            for method in METHODS:
                seeds = 1 if method == "public as is" else asked.seeds
                found = [distance(case, made(case, method, epsilon, seed)) for seed in range(seeds)]
                means = [d for d, _ in found]
                worst = max(b for _, b in found)
                text = f"{np.mean(means):.3f} ±{np.std(means, ddof=min(1, seeds - 1)):.3f}"
                print(f"| {case.name} | {epsilon:g} | {method} | {text} | {worst} |", flush=True)


if __name__ == "__main__":
    main()
