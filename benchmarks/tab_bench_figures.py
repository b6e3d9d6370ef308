"""The figures of two published benchmarks: tab_bench's distances and queries, SynMeter's fidelity and disclosure.

Written from their papers and from what their code computes (Chen et al., "Benchmarking Differentially Private Tabular
Data Synthesis", 2025; Du and Li, "Systematic Assessment of Tabular Data Synthesis", CCS 2025).
Tables are pandas frames with equal columns, numbers as floats and all else as text.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance
from sklearn.neighbors import NearestNeighbors

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import average_l1, list_all_cliques

CUTS = 100
QUERIES = 1_000
WAYS = 3
PAIRED_ROWS = 500
"""Rows of each table that are matched for a two-way distance; SynMeter takes 3,000."""


def number(real: pd.Series, made: pd.Series) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the values of both columns as numbers from 0, the same for the same value."""
    codes = pd.factorize(pd.concat([real, made], ignore_index=True))[0]
    return codes[: len(real)], codes[len(real) :]


def scale(real: pd.Series, made: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numbers of both columns, from 0 for the least of either to 1 for the greatest."""
    low, high = min(real.min(), made.min()), max(real.max(), made.max())
    wide = float(high - low) or 1.0
    return (real.to_numpy(float) - low) / wide, (made.to_numpy(float) - low) / wide


def cut(real: pd.DataFrame, made: pd.DataFrame, numbers: Collection[str]) -> tuple[CodeTable, CodeTable]:
    """Return both tables in codes: numbers by CUTS between the least and the greatest of either, rounded."""
    sizes: dict[str, int] = {}
    columns: tuple[list[NDArray[np.integer]], list[NDArray[np.integer]]] = ([], [])
    for name in real:
        if name in numbers:
            parts = tuple(np.round((CUTS - 1) * side).astype(int) for side in scale(real[name], made[name]))
            sizes[name] = CUTS
        else:
            parts = number(real[name], made[name])
            sizes[name] = int(max(part.max() for part in parts)) + 1
        for side, part in zip(columns, parts, strict=True):
            side.append(part.astype(choose_code_dtype(sizes[name])))
    domain = Domain.of(sizes)
    return CodeTable(domain, tuple(columns[0])), CodeTable(domain, tuple(columns[1]))


def compute_total_variation(real: pd.DataFrame, made: pd.DataFrame, numbers: Collection[str]) -> dict[str, float]:
    """Return the mean total variation distance, 0 to 1, of all single columns, pairs and triples."""
    tables = cut(real, made, numbers)
    return {f"tvd{k}": average_l1(*tables, list_all_cliques(tables[0].domain, k)) / 2 for k in range(1, WAYS + 1)}


def compute_query_error(real: pd.DataFrame, made: pd.DataFrame, numbers: Collection[str], seed: int = 0) -> float:
    """Return the mean difference of shares, 0 to 1, over QUERIES conditions on three columns.

    A number lies between two even draws from its range in the real rows, any other column has one of its real values.
    As in tab_bench's code the difference is taken after each of the three conditions is added.
    """
    rng = np.random.default_rng(seed)
    sides: list[dict[str, NDArray]] = [{}, {}]
    for name in real:
        values = (real[name].to_numpy(), made[name].to_numpy()) if name in numbers else number(real[name], made[name])
        for side, own in zip(sides, values, strict=True):
            side[name] = own
    levels = {name: np.unique(sides[0][name]) for name in real if name not in numbers}
    errors = []
    for _ in range(QUERIES):
        held = [np.ones(len(table), dtype=bool) for table in (real, made)]
        for name in rng.choice(real.columns.to_numpy(), min(WAYS, len(real.columns)), replace=False):
            if name in numbers:
                low, high = np.sort(rng.uniform(sides[0][name].min(), sides[0][name].max(), 2))
                held = [h & (side[name] >= low) & (side[name] <= high) for h, side in zip(held, sides, strict=True)]
            else:
                value = rng.choice(levels[name])
                held = [h & (side[name] == value) for h, side in zip(held, sides, strict=True)]
            errors.append(abs(held[0].mean() - held[1].mean()))
    return float(np.mean(errors))


def compute_wasserstein(
    real: pd.DataFrame, made: pd.DataFrame, numbers: Collection[str], seed: int = 0
) -> dict[str, float]:
    """Return SynMeter's fidelity: the mean Wasserstein distance of single columns and of pairs.

    Numbers are scaled to 0..1 by both tables, values that differ are 1 apart, distances of two columns add up.  Columns
    alone are exact; pairs are optimal matches of PAIRED_ROWS rows of each table, so that real rows have a distance too.
    """
    scaled: list[dict[str, NDArray]] = [{}, {}]
    for name in real:
        if name in numbers:
            scaled[0][name], scaled[1][name] = scale(real[name], made[name])
        else:
            scaled[0][name], scaled[1][name] = number(real[name], made[name])
    alone = [_compare_column(scaled[0][c], scaled[1][c], c in numbers) for c in real]
    rng = np.random.default_rng(seed)
    matched = min(PAIRED_ROWS, len(real), len(made))
    few = [rng.choice(len(table), matched, replace=False) for table in (real, made)]
    costs = {c: _price(scaled[0][c][few[0]], scaled[1][c][few[1]], c in numbers) for c in real}
    pairs = [_match(costs[a] + costs[b]) for a, b in combinations(costs, 2)]
    return {"wasserstein1": float(np.mean(alone)), "wasserstein2": float(np.mean(pairs)) if pairs else 0.0}


def _compare_column(real: NDArray, made: NDArray, is_number: bool) -> float:
    if is_number:
        return float(wasserstein_distance(real, made))
    size = int(max(real.max(), made.max())) + 1
    shares = [np.bincount(side, minlength=size) / len(side) for side in (real, made)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _price(real: NDArray, made: NDArray, is_number: bool) -> NDArray[np.float64]:
    gaps = real[:, None] - made[None, :]
    return np.abs(gaps) if is_number else (gaps != 0).astype(np.float64)


def _match(costs: NDArray[np.float64]) -> float:
    """Return the mean cost of the cheapest match of rows with columns, shape (n, n)."""
    return float(costs[linear_sum_assignment(costs)].mean())


def measure_nearest(rows: pd.DataFrame, made: pd.DataFrame, numbers: Collection[str]) -> NDArray[np.float64]:
    """Return each row's distance from the nearest of the ``made`` rows, 0 to 1, shape (rows,).

    Euclidean over numbers scaled by the range of ``rows`` and values of which each that differs counts 1, over the root
    of the number of columns.
    """
    points: list[list[NDArray[np.float64]]] = [[], []]
    for name in rows:
        if name in numbers:
            low, high = float(rows[name].min()), float(rows[name].max())
            for side, table in zip(points, (rows, made), strict=True):
                side.append((table[name].to_numpy(float)[:, None] - low) / (high - low or 1.0))
        else:
            values = np.unique(rows[name].to_numpy())
            for side, table in zip(points, (rows, made), strict=True):
                side.append((table[name].to_numpy()[:, None] == values[None, :]) * np.sqrt(0.5))
    of, near = (np.concatenate(side, axis=1) for side in points)
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(near)
    return nearest.kneighbors(of)[0][:, 0] / np.sqrt(rows.shape[1])


def compute_disclosure(distances: NDArray[np.float64], members: NDArray[np.bool_]) -> float:
    """Return SynMeter's membership disclosure score: the most that one record's distance tells of its membership.

    distances, members: of shape (releases, records), the distance of each record from the nearest synthetic row and
    whether it was in the release.  A record's score is the difference of its mean distance with and without it.

    Raises ValueError where a record is in all releases or in none.
    """
    within = members.sum(axis=0)
    if (within == 0).any() or (within == len(members)).any():
        raise ValueError("every record must be in some of the releases and not in others")
    inside = np.where(members, distances, 0).sum(axis=0) / within
    outside = np.where(members, 0, distances).sum(axis=0) / (len(members) - within)
    return float(np.abs(inside - outside).max())


def draw_members(releases: int, records: int, seed: int = 0) -> NDArray[np.bool_]:
    """Return which records are in which release, shape (releases, records): each in half of them, at random."""
    places = np.random.default_rng(seed).random((releases, records)).argsort(axis=0)
    return places < releases // 2
