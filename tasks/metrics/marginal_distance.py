"""L1 distance of marginals: PrivSyn's mean over all pairs, and NIST 2018's density estimation.

Papers: PrivSyn, section 6.1 (marginal release); DPSyn report, section 5.1 (density estimation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count
from privsyn.tasks.metrics.features import make_row_keys

DENSE_CELLS = 1 << 22
"""Marginals with more cells are counted by sorting the rows' keys instead of allocating every cell."""

MAX_ROW_PRODUCT = 1 << 62
"""Rows of one table times rows of the other stay below this, so that distances are exact 64-bit integers."""

_FEW_CLIQUES = 1 << 16  # this many combinations are listed in milliseconds


def check_tables(real: CodeTable, synthetic: CodeTable) -> None:
    """Raise ValueError for tables of different domains, padded tables, or too many rows for exact arithmetic."""
    if real.domain != synthetic.domain:
        raise ValueError("the two tables are not over the same domain")
    if real.padded or synthetic.padded:
        raise ValueError("metrics compare tables of public bins; these have filtered values")
    if real.rows * synthetic.rows >= MAX_ROW_PRODUCT:
        raise ValueError("the two tables have too many rows for exact distances: their product must be below 2**62")


def compute_l1_distance(real: NDArray[np.int64], synthetic: NDArray[np.int64], rows: int, synthetic_rows: int) -> float:
    """Return the L1 distance of two marginals as shares of their tables' rows, from counts of equal shape; 0..2.

    Computed in integers, so equal shares give exactly 0 and the order of rows or cells never matters.  A table without
    rows has shares of 0: distance 1 from any other table, 0 from another empty one.
    """
    if not rows or not synthetic_rows:
        return float(rows != synthetic_rows)
    total = int(np.abs(real * synthetic_rows - synthetic * rows).sum())
    return total / (rows * synthetic_rows)


def count_occupied_cells(
    real: CodeTable, synthetic: CodeTable, clique: Clique
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the cells of a marginal of any size that contain a row of either table, in row-major order.

    Rows are numbered through the real table and then the synthetic one.  ``row``: one row of each cell, shape (cells,).
    ``cell``: the cell of each row, shape (rows of both,).  Memory grows with the rows, not with the cells.
    """
    _, row, cell = np.unique(make_row_keys([real, synthetic], clique), return_index=True, return_inverse=True)
    return row, cell


def stack_columns(real: CodeTable, synthetic: CodeTable, attribute: str) -> NDArray[np.int64]:
    """Return the attribute's codes in the real table, followed by its codes in the synthetic table."""
    return np.concatenate([real.column(attribute), synthetic.column(attribute)], dtype=np.int64)


def count_sparsely(
    real: CodeTable, synthetic: CodeTable, clique: Clique
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """Return (row, real count, synthetic count) of the :func:`count_occupied_cells`, each of shape (cells,)."""
    row, cell = count_occupied_cells(real, synthetic, clique)
    ours, theirs = (np.bincount(part, minlength=row.size) for part in (cell[: real.rows], cell[real.rows :]))
    return row, ours.astype(np.int64, copy=False), theirs.astype(np.int64, copy=False)


def compute_l1_distances(
    real: CodeTable, synthetic: CodeTable, cliques: Sequence[Clique], threads: int = 0
) -> NDArray[np.float64]:
    """Return the L1 distance of the normalised marginals, shape (len(cliques),), each 0..2 (0: equal, 2: disjoint).

    DPSyn report, section 5.1; PrivSyn, section 6.1.  Marginals of more than DENSE_CELLS cells are counted sparsely, so
    a clique may have any number of cells.  Exact and independent of ``threads`` (0: all cores).  For tables without
    rows, see :func:`compute_l1_distance`.  Raises ValueError for tables that cannot be compared.
    """
    check_tables(real, synthetic)
    dense = [i for i, c in enumerate(cliques) if real.domain.cells(c) <= DENSE_CELLS]
    sparse = [i for i, c in enumerate(cliques) if real.domain.cells(c) > DENSE_CELLS]
    distances = np.zeros(len(cliques))
    tables = iterate_both_counts(real, synthetic, [cliques[i] for i in dense], threads)
    for i, (ours, theirs) in zip(dense, tables, strict=True):
        distances[i] = compute_l1_distance(ours, theirs, real.rows, synthetic.rows)

    def distance(i: int) -> float:
        _, ours, theirs = count_sparsely(real, synthetic, cliques[i])
        return compute_l1_distance(ours, theirs, real.rows, synthetic.rows)

    with ThreadPoolExecutor(choose_thread_count(threads)) as pool:
        distances[sparse] = list(pool.map(distance, sparse))
    return distances


def iterate_both_counts(
    real: CodeTable, synthetic: CodeTable, cliques: Sequence[Clique], threads: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return both tables' dense counts of each clique, in order, lazily."""
    return zip(real.counts(cliques, threads=threads), synthetic.counts(cliques, threads=threads), strict=True)


def average_l1(real: CodeTable, synthetic: CodeTable, cliques: Sequence[Clique], threads: int = 0) -> float:
    """Return the mean of :func:`compute_l1_distances`, 0..2, lower is better; 0 for no cliques.

    Over ``list_all_cliques(domain, 2)`` this is the error of marginal release in PrivSyn, section 6.1.
    """
    return float(compute_l1_distances(real, synthetic, cliques, threads).mean()) if len(cliques) else 0.0


def list_all_cliques(domain: Domain, ways: int) -> list[Clique]:
    """Return every clique of ``ways`` attributes, in domain order; none if there are fewer attributes.

    Raises ValueError for a negative number of ways.
    """
    if ways < 0:
        raise ValueError(f"a marginal has at least 0 attributes, not {ways}")
    return list(combinations(domain.attributes, ways))


def draw_cliques(domain: Domain, ways: int, number: int, seed: int) -> list[Clique]:
    """Draw ``number`` different cliques of ``ways`` attributes, all equally likely; all cliques if there are no more.

    In the order of :func:`list_all_cliques`.  Depends on the arguments only.  Lists all combinations only if they are
    few, or fewer than 2 ``number``.  Raises ValueError for a negative number.
    """
    if number < 0:
        raise ValueError(f"the number of marginals must be 0 or more, not {number}")
    possible = comb(len(domain.attributes), ways) if ways >= 0 else 0
    if possible <= number:
        return list_all_cliques(domain, ways)
    rng = np.random.default_rng(seed)
    if possible < max(2 * number, _FEW_CLIQUES):
        every = list_all_cliques(domain, ways)
        return [every[i] for i in sorted(rng.choice(possible, number, replace=False))]
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < number:
        drawn = rng.choice(len(domain.attributes), ways, replace=False)
        chosen.add(tuple(sorted(int(i) for i in drawn)))
    return [tuple(domain.attributes[i] for i in clique) for clique in sorted(chosen)]


def estimate_density_error(
    real: CodeTable, synthetic: CodeTable, schemas: int = 300, seed: int = 0, threads: int = 0
) -> float:
    """Return NIST 2018's density estimation score, 0..10**6, higher is better.

    S = 10**6 (1 - s / 2), where s is the mean L1 distance (0..2) of normalised marginals (DPSyn report, section 5.1).
    The marginals are on ``schemas`` random sets of three attributes, or of all attributes if there are fewer than
    three.  If fewer sets exist, each counts once.  Bins are the public ones.
    """
    ways = min(3, len(real.domain.attributes))
    return 1e6 * (1 - average_l1(real, synthetic, draw_cliques(real.domain, ways, schemas, seed), threads) / 2)
