"""What the best Gaussian mechanism for marginals would gain over noisy tables: ``python -m benchmarks.residual_bases``.

Closed forms only, no rows.  ResidualPlanner (Xiao and others, arXiv 2305.08175) measures for every set of columns A
inside the workload what the table of A says that smaller ones do not.  With p_A = prod (n_i - 1) / n_i, noise of
variance s_A costs p_A / s_A, and a sum of variances sum c_A s_A is least, at cost 1, at (sum sqrt(c_A p_A))^2.  A noisy
table of B of variance v tells of A inside B with s_A = v prod n_j over the columns of B outside A; precisions add up,
which is what the best linear estimate reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from math import prod, sqrt

Set = tuple[int, ...]

ONE_WAYS = 0.25
"""Share of the one-ways, which come before any set in ``privsyn``."""


def list_workloads() -> dict[str, tuple[list[int], list[Set]]]:
    """Return name -> the numbers of levels of the columns, and the sets that are asked for."""
    mixed = [2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 16, 2, 5]
    return {
        "one triple of 4, 8, 16 levels": ([4, 8, 16], [(0, 1, 2)]),
        "three triples of six columns": ([4, 8, 16, 2, 6, 10], [(0, 1, 2), (2, 3, 4), (1, 4, 5)]),
        "all pairs of 6 columns of 16": ([16] * 6, [*combinations(range(6), 2)]),
        "all pairs of 15 columns of 2 to 16": (mixed, [*combinations(range(15), 2)]),
        "all pairs of 15 columns of 2": ([2] * 15, [*combinations(range(15), 2)]),
        "all triples of 8 columns of 3": ([3] * 8, [*combinations(range(8), 3)]),
    }


def compute_ratio(levels: Sequence[int], workload: Sequence[Set], one_ways: float) -> float:
    """Return the root mean square error of tables with noise, over that of the best mechanism, at the same price.

    Tables have parts of the budget by their cells^(2/3), and ``one_ways`` of it is for single columns.
    """
    inside = {a for b in workload for a in chain.from_iterable(combinations(b, k) for k in range(len(b) + 1))}
    price = {a: prod((levels[i] - 1) / levels[i] for i in a) for a in inside}
    measured = _share_by_size(levels, workload, 1 - one_ways)
    if one_ways:
        measured += _share_by_size(levels, [(i,) for i in sorted({*chain.from_iterable(workload)})], one_ways)
    best = reached = 0.0
    for a in inside:
        holding = [b for b in workload if {*a} <= {*b}]
        rest = [prod(levels[j] for j in b if j not in a) for b in holding]
        weight = sum(prod(levels[i] for i in b) * price[a] / r**2 for b, r in zip(holding, rest, strict=True))
        told = ((b, share) for b, share in measured if {*a} <= {*b})
        precision = sum(share / prod(levels[j] for j in b if j not in a) for b, share in told)
        best += sqrt(weight * price[a])
        reached += weight / precision
    return sqrt(reached) / best


def _share_by_size(levels: Sequence[int], sets: Sequence[Set], whole: float) -> list[tuple[Set, float]]:
    weights = [prod(levels[i] for i in b) ** (2 / 3) for b in sets]
    return [(b, whole * w / sum(weights)) for b, w in zip(sets, weights, strict=True)]


def main() -> None:
    """Print the table of docs/notes."""
    print("| workload | tables alone | one-ways and tables |\n|---|---|---|")
    for name, (levels, workload) in list_workloads().items():
        print(f"| {name} | {' | '.join(f'{compute_ratio(levels, workload, s):.2f}' for s in (0.0, ONE_WAYS))} |")


if __name__ == "__main__":
    main()
