"""What the best Gaussian mechanism for marginals would gain over noisy tables: ``python -m benchmarks.residual_bases``.

Closed forms, and with ``--tables`` errors on public tables, from end to end.  ResidualPlanner (Xiao and others, arXiv
2305.08175) measures for every set of columns A inside the workload what the table of A says that smaller ones do not.
With p_A = prod (n_i - 1) / n_i, noise of variance s_A costs p_A / s_A, and a sum of variances sum c_A s_A is least, at
cost 1, at (sum sqrt(c_A p_A))^2.  A noisy table of B of variance v tells of A inside B with s_A = v prod n_j over the
columns of B outside A; precisions add up, which is what the best linear estimate reaches.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, combinations
from math import prod, sqrt
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from benchmarks.compare_tables import DELTA, load_split_table, only
from privsyn.data_contracts.focus import NamedMarginal
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import MethodInput
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import average_l1, list_all_cliques
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import SeededNoise

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


def list_inside(workload: Sequence[Set]) -> list[Set]:
    """Return every set inside a set of the workload, the empty one too."""
    return sorted({a for b in workload for a in chain.from_iterable(combinations(b, k) for k in range(len(b) + 1))})


def price_sets(levels: Sequence[int], workload: Sequence[Set]) -> dict[Set, tuple[float, float]]:
    """Return each set inside the workload -> its price p_A, and c_A, what its variance adds to the sum of variances."""
    found = {}
    for a in list_inside(workload):
        price = prod((levels[i] - 1) / levels[i] for i in a)
        tables = [b for b in workload if {*a} <= {*b}]
        squares = (prod(levels[i] for i in b) / prod(levels[j] for j in b if j not in a) ** 2 for b in tables)
        found[a] = price, price * sum(squares)
    return found


def compute_ratio(levels: Sequence[int], workload: Sequence[Set], one_ways: float) -> float:
    """Return the root mean square error of tables with noise, over that of the best mechanism, at the same price.

    Tables have parts of the budget by their cells^(2/3), and ``one_ways`` of it is for single columns.
    """
    measured = _share_by_size(levels, workload, 1 - one_ways)
    if one_ways:
        measured += _share_by_size(levels, [(i,) for i in sorted({*chain.from_iterable(workload)})], one_ways)
    best = reached = 0.0
    for a, (price, weight) in price_sets(levels, workload).items():
        told = ((b, share) for b, share in measured if {*a} <= {*b})
        precision = sum(share / prod(levels[j] for j in b if j not in a) for b, share in told)
        best += sqrt(weight * price)
        reached += weight / precision
    return sqrt(reached) / best


def _share_by_size(levels: Sequence[int], sets: Sequence[Set], whole: float) -> list[tuple[Set, float]]:
    weights = [prod(levels[i] for i in b) ** (2 / 3) for b in sets]
    return [(b, whole * w / sum(weights)) for b, w in zip(sets, weights, strict=True)]


def measure_residuals(
    tables: Mapping[Set, NDArray[np.int64]], rho: float, rng: np.random.Generator
) -> dict[Set, NDArray[np.float64]]:
    """Return the tables of a workload as the best mechanism tells them at the price rho, each cut at 0.

    tables: the exact counts of each set of the workload.  Noise is of real numbers.  All agree with each other until
    they are cut (:func:`cut_at_zero`).
    """
    levels = {i: n for b, table in tables.items() for i, n in zip(b, table.shape, strict=True)}
    sizes = [levels.get(i, 1) for i in range(max(levels) + 1)]
    priced = price_sets(sizes, list(tables))
    whole = sum(sqrt(weight * price) for price, weight in priced.values()) / (2 * rho)
    noise = {}
    for a, (price, weight) in priced.items():
        drawn = rng.normal(0, sqrt(whole * sqrt(price / weight)), tuple(sizes[i] for i in a))
        noise[a] = reduce(lambda z, axis: z - z.mean(axis=axis, keepdims=True), range(len(a)), drawn)
    found = {}
    for b, table in tables.items():
        told = table.astype(np.float64)
        for a in list_inside([b]):
            rest = prod(sizes[j] for j in b if j not in a)
            told += noise[a].reshape([sizes[j] if j in a else 1 for j in b]) / rest
        found[b] = cut_at_zero(told)
    return found


def cut_at_zero(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest table without counts below 0 that has the same sum, or none at all where that is below 0."""
    falling = np.sort(table, axis=None)[::-1]
    spare = (np.cumsum(falling) - max(0.0, float(table.sum()))) / np.arange(1, table.size + 1)
    kept = np.flatnonzero(falling > spare)
    return np.maximum(table - (spare[kept[-1]] if kept.size else falling[0]), 0.0)


def compare_rows(name: str, columns: int, epsilon: float, seeds: int) -> dict[str, float]:
    """Return the mean L1 error, 0 to 2, of all pairs of the table's columns with fewest codes, by who told of them.

    Residuals have the budget of a release by its accountant.  The workload is all pairs, of one weight each.
    """
    whole = load_split_table(name)
    sizes = dict(zip(whole.train.domain.attributes, whole.train.domain.sizes, strict=True))
    rows = only(whole.train, sorted(sizes, key=lambda a: sizes[a])[:columns])
    names = rows.domain.attributes
    pairs = list_all_cliques(rows.domain, 2)
    sets = [*combinations(range(len(names)), 2)]
    exact = dict(zip(sets, rows.counts(pairs, threads=1), strict=True))
    rho = float(convert_epsilon_to_rho(epsilon, DELTA, "gaussian"))
    named = tuple(NamedMarginal(columns=pair, measured=True) for pair in pairs)
    found: dict[str, list[float]] = {"residuals": [], "default": [], "workload": []}
    for seed in range(seeds):
        told = measure_residuals(exact, rho, np.random.default_rng(seed))
        found["residuals"].append(
            fmean(float(np.abs(t / max(t.sum(), 1.0) - exact[b] / rows.rows).sum()) for b, t in told.items())
        )
        for method, workload in (("default", ()), ("workload", named)):
            made = METHODS["default"].run(_ask(whole.trial(epsilon, seed, rows), rows, seed, workload)).table
            found[method].append(average_l1(rows, made, pairs))
    return {method: fmean(errors) for method, errors in found.items()}


def _ask(trial: MethodInput, rows: CodeTable, seed: int, workload: tuple[NamedMarginal, ...]) -> MethodInput:
    binning = {a: trial.binning[a] for a in rows.domain.attributes}
    settings = replace(trial.settings, workload=workload)
    return replace(trial, binning=binning, settings=settings, noise=SeededNoise(seed))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Residuals against noisy tables, and against releases.")
    parser.add_argument("--tables", nargs="*", default=[], help="public tables to measure on, in place of closed forms")
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    if asked.tables:
        print("| table | columns | epsilon | residuals | default | default, workload |\n|---|---|---|---|---|---|")
        for name in asked.tables:
            for epsilon in asked.epsilons:
                found = compare_rows(name, asked.columns, epsilon, asked.seeds)
                cells = " | ".join(f"{error:.4f}" for error in found.values())
                print(f"| {name} | {asked.columns} | {epsilon:g} | {cells} |", flush=True)
        return
    print("| workload | tables alone | one-ways and tables |\n|---|---|---|")
    for name, (levels, workload) in list_workloads().items():
        print(f"| {name} | {' | '.join(f'{compute_ratio(levels, workload, s):.2f}' for s in (0.0, ONE_WAYS))} |")


if __name__ == "__main__":
    main()
