"""Algorithm 2 of "Public prior: distribution estimation" on real public tables: mean L1 of pairs by group.

    nice python -m benchmarks.prior_mechanism [--seeds 2] [--epsilons 10]

The metric is that of NIST's challenge of 2020, sprint 2: 50 random pairs of other columns in every group, a group whose
number of rows is off by more than 250 has the worst distance, 2.  ``same``: the public table is the private one, as in
the paper's section 4.3 (the algorithm does not know it); ``half``: they are two random halves of one
table.  The noise has a seed, so nothing here is private.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import rows_of
from privsyn.comparison.method import compute_laplace_scale
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.estimation.prior_levels import GroupWorkload, count_exactly, plan
from privsyn.tasks.estimation.prior_levels import select_rows as made_of
from privsyn.tasks.estimation.public_workload import (
    choose_independent_one_ways,
    choose_related_cliques,
    compute_mutual_information,
)
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.k_marginal import compute_group_k_marginal
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import SeededNoise

DELTA = 1e-9
CELLS, EDGE, TURNS = 500, 0.3, 5
METHODS = ("laplace", "gaussian", "public as is")


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
    queries = plan(levels, domain, convert_epsilon_to_rho(epsilon, DELTA, "gaussian"), 1)
    counts = count_exactly(case.private, queries, 1)
    if method == "gaussian":
        answers = [c + noise.draw(q.under("gaussian").sigma, q.cells) for c, q in zip(counts, queries, strict=True)]
    else:  # the paper's: a quarter of epsilon a look, L1 sensitivity of a look of m marginals m
        look = Fraction(epsilon) / 4
        scales = [compute_laplace_scale(look, len(c)) for c in levels.looks() for _ in c]
        answers = [c + noise.draw_laplace(s, q.cells) for c, s, q in zip(counts, scales, queries, strict=True)]
    return made_of(case.public, levels, [a.astype(float) for a in answers], seed, turns=TURNS)


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
