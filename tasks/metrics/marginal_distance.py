"""Distances of marginals: L1 over all pairs, density estimation, k-marginal scores, and every pair's association.

Papers: PrivSyn, section 6.1 (marginal release, 2-way L1); DPSyn report, section 5.1 (NIST 2018's density estimation);
correlation ratio: K. Pearson, 1905; V: H. Cramer, 1946, chapter 21.

The k-marginal score is SDNist's over the whole table, and NIST 2020's by group with its bias penalty.
Sources: SDNist (github.com/usnistgov/SDNist), sdnist/metrics/kmarginal.py; NIST Differential Privacy Temporal Map
Challenge, sprint 2 (github.com/drivendataorg/deid2-runtime, runtime/scripts/metric.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count
from privsyn.tasks.metrics.samples import make_row_keys

DENSE_CELLS = 1 << 22
"""Marginals with more cells are counted by sorting the rows' keys instead of allocating every cell."""

MAX_ROW_PRODUCT = 1 << 62
"""Rows of one table times rows of the other stay below this, so that distances are exact 64-bit integers."""

_FEW_CLIQUES = 1 << 16  # this many combinations are listed in milliseconds

BIAS_COUNT = 250
"""A group gets the worst score if its number of rows is off by more than this."""

MAX_DENSITY_DIFFERENCE = 2.0
"""Largest difference of two densities: no common value."""

Floats = NDArray[np.float64]
Values = Mapping[str, Floats | None]
Counts = Any
"""2-way counts: an int64 array, or a scipy sparse array of the same shape; the code below handles both alike."""


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


def count_sparsely(
    real: CodeTable, synthetic: CodeTable, clique: Clique
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """Return (row, real count, synthetic count) of the :func:`count_occupied_cells`, each of shape (cells,)."""
    row, cell = count_occupied_cells(real, synthetic, clique)
    ours, theirs = (np.bincount(part, minlength=row.size) for part in (cell[: real.rows], cell[real.rows :]))
    return row, ours.astype(np.int64, copy=False), theirs.astype(np.int64, copy=False)


def compute_l1_distances(real: CodeTable, synthetic: CodeTable, cliques: Sequence[Clique], threads: int = 0) -> Floats:
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


class GroupScores(NamedTuple):
    """The k-marginal by group, in the order of the groups' codes; arrays of shape (groups,).

    ``score``: mean of ``scores``, 0..1000, 1000 for no groups.  ``biased``: bool, the groups penalised for a wrong
    number of rows.
    """

    score: float
    scores: Floats
    biased: NDArray[np.bool_]


def compute_k_marginal_score(
    real: CodeTable,
    synthetic: CodeTable,
    k: int = 3,
    *,
    cliques: Sequence[Clique] | None = None,
    number: int = 100,
    seed: int = 0,
    threads: int = 0,
) -> float:
    """Return SDNist's k-marginal score, 0..1000, higher is better: 1000 for equal tables, 0 for disjoint ones.

    The score is (2 - s) 500.  Here s is the mean over marginals of k attributes of sum_cell |real share - synthetic
    share|, in 0..2.  The marginals are ``cliques`` if given (newer versions of SDNist take all pairs).  Otherwise they
    are ``number`` different random sets of k attributes, or fewer if there are not as many.  With fewer than k
    attributes, the set has all attributes.  A table without rows has densities of 0: it scores 500 against any other
    table and 1000 against another empty one.  Raises ValueError for tables that cannot be compared.
    """
    if cliques is None:
        cliques = draw_cliques(real.domain, min(k, len(real.domain.attributes)), number, seed)
    return (MAX_DENSITY_DIFFERENCE - average_l1(real, synthetic, cliques, threads)) * 500


def compute_group_k_marginal(
    real: CodeTable,
    synthetic: CodeTable,
    groups: Sequence[str],
    k: int = 2,
    *,
    cliques: Sequence[Clique] | None = None,
    number: int = 50,
    seed: int = 0,
    threads: int = 0,
) -> GroupScores:
    """Return the k-marginal score within each group and its mean (NIST 2020, sprint 2); 0..1000, higher is better.

    A group is a combination of the group attributes' codes (in the challenge: PUMA and year) that has rows in either
    table.  Its distance, 0..2, is the mean over marginals of k other attributes of sum_cell |real share - synthetic
    share|, in shares of the group's own rows.  A group gets the worst distance, 2, if one table has no rows of it (as
    in the challenge).  The bias penalty is the same, if its two numbers of rows differ by more than BIAS_COUNT (the
    challenge's first scorer: by 250 or more; SDNist: by more).  Score: (2 - distance) 500.

    Marginals: ``cliques``, of attributes outside the groups, or ``number`` random sets of k such attributes (the
    challenge: 50 sets of 2).  Raises ValueError for no group attributes, cliques that touch them, and tables that
    cannot be compared.
    """
    check_tables(real, synthetic)
    by = real.domain.ordered(groups)
    if not by:
        raise ValueError("the k-marginal by group needs one group attribute or more")
    others = Domain.of({a: real.domain.size(a) for a in real.domain.attributes if a not in by})
    if cliques is None:
        cliques = draw_cliques(others, min(k, len(others.attributes)), number, seed)
    if any(set(clique) & set(by) for clique in cliques):
        raise ValueError(f"marginals by group must be of attributes other than {', '.join(by)}")
    row, number_of = count_occupied_cells(real, synthetic, by)
    ours, theirs = (np.bincount(g, minlength=row.size) for g in (number_of[: real.rows], number_of[real.rows :]))
    distance = _compute_distances(real, synthetic, number_of, cliques, (ours, theirs), threads)
    biased = np.abs(ours - theirs) > BIAS_COUNT
    distance[biased | (ours == 0) | (theirs == 0)] = MAX_DENSITY_DIFFERENCE
    scores = (MAX_DENSITY_DIFFERENCE - distance) * 500
    return GroupScores(float(scores.mean()) if scores.size else 1000.0, scores, biased)


def _compute_distances(
    real: CodeTable,
    synthetic: CodeTable,
    group: NDArray[np.intp],
    cliques: Sequence[Clique],
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
    threads: int,
) -> Floats:
    """Return each group's mean density difference over the cliques, 0..2, shape (groups,); 0 for no cliques.

    ``group``: the group number of every row of both tables; ``rows``: each group's number of rows in each table.
    """
    groups = rows[0].size
    total = np.zeros(groups)
    if not groups or not cliques:
        return total
    name = "".join(real.domain.attributes) + "'"  # longer than every attribute's name, so unused
    ours = _add_groups(real, name, group[: real.rows], groups)
    theirs = _add_groups(synthetic, name, group[real.rows :], groups)
    dense = [(name, *c) for c in cliques if ours.domain.cells((name, *c)) <= DENSE_CELLS]
    for a, b in iterate_both_counts(ours, theirs, dense, threads):
        first, second = (c.reshape(groups, -1) / np.maximum(n[:, None], 1) for c, n in zip((a, b), rows, strict=True))
        total += np.abs(first - second).sum(axis=1)
    for clique in [(name, *c) for c in cliques if ours.domain.cells((name, *c)) > DENSE_CELLS]:
        row, a, b = count_sparsely(ours, theirs, clique)
        first, second = (c / np.maximum(n[group[row]], 1) for c, n in zip((a, b), rows, strict=True))
        difference = np.abs(first - second)
        total += np.bincount(group[row], weights=difference, minlength=groups)
    return total / len(cliques)


def _add_groups(table: CodeTable, name: str, group: NDArray[np.intp], groups: int) -> CodeTable:
    """Return the table with each row's group number as an additional, last attribute."""
    domain = Domain((*table.domain.attributes, name), (*table.domain.sizes, groups))
    return CodeTable(domain, (*table.columns, group.astype(choose_code_dtype(groups))))


@dataclass(frozen=True, eq=False)
class PairFigures:
    """Figures of every pair of attributes (in domain order), all arrays of shape (pairs,).

    ``cells``: of the 2-way marginal, int64.  ``l1``: synthetic against real as shares, 0..2.  ``association_real``,
    ``association_synthetic``: -1..1 for two ordered attributes, else 0..1; NaN if undefined
    (:func:`measure_association`).
    """

    pairs: tuple[Clique, ...]
    cells: NDArray[np.int64]
    l1: Floats
    association_real: Floats
    association_synthetic: Floats


def compute_pair_figures(real: CodeTable, synthetic: CodeTable, values: Values, threads: int = 0) -> PairFigures:
    """Return the figures of all d (d - 1) / 2 pairs, each pair counted once in each table.

    ``values``: attribute -> the value of each of its codes (float64, shape (codes,), NaN for null), or None for a
    nominal attribute; missing attributes are nominal.  Marginals of more than DENSE_CELLS cells are counted sparsely.
    The figures do not depend on ``threads`` (0: all cores).  Raises ValueError for tables that cannot be compared and
    values that do not fit the domain.
    """
    check_tables(real, synthetic)
    numbers = _complete_values(real, values)
    pairs = list_all_cliques(real.domain, 2)
    l1, ours, theirs = (np.full(len(pairs), np.nan) for _ in range(3))
    for i, (pair, (a, b)) in enumerate(zip(pairs, _iterate_joint(real, synthetic, pairs, threads), strict=True)):
        first, second = numbers[pair[0]], numbers[pair[1]]
        l1[i] = compute_l1_distance(a, b, real.rows, synthetic.rows)
        ours[i], theirs[i] = measure_association(a, first, second), measure_association(b, first, second)
    cells = np.array([real.domain.cells(p) for p in pairs], np.int64)
    return PairFigures(tuple(pairs), cells, l1, ours, theirs)


def average_correlation_difference(figures: PairFigures) -> float:
    """Return the mean absolute difference of association over all pairs that both tables define; 0..2, lower is better.

    0 if no pair is defined in both tables.  SDNist draws the same differences pair by pair as heat maps: Pearson's
    correlation of all features, nominal ones by their code, and Kendall's rank correlation of the ordinal ones.  Here
    the measure for nominal attributes does not depend on the order of codes, ranks are not used, and one mean replaces
    the heat map.
    """
    difference = np.abs(figures.association_real - figures.association_synthetic)
    defined = difference[np.isfinite(difference)]
    return float(defined.mean()) if defined.size else 0.0


def measure_association(counts: Counts, a: Floats | None, b: Floats | None) -> float:
    """Return the association of the two attributes of a 2-way table of counts, shape (codes of a, codes of b).

    Two ordered attributes: Pearson's correlation of their values, -1..1.  One ordered: the correlation ratio eta of its
    values by the other's categories, 0..1.  None ordered: Cramer's V without bias correction, 0..1.  Rows with a null
    (NaN) in an ordered attribute are left out; null is a category of a nominal attribute.  NaN if no rows remain, or if
    an attribute has only one value in them.
    """
    if a is not None and b is not None:
        return _compute_pearson(counts, a, b)
    if a is not None:
        return _compute_correlation_ratio(counts, a)
    if b is not None:
        return _compute_correlation_ratio(counts.T, b)
    return _compute_cramers_v(counts)


def _compute_pearson(counts: Counts, a: Floats, b: Floats) -> float:
    """Return sum_ij n_ij (a_i - mean a) (b_j - mean b) / sqrt(SS_a SS_b) over the rows with both values."""
    known_a, known_b = ~np.isnan(a), ~np.isnan(b)
    rows, columns = known_a * (counts @ known_b), known_b * (known_a @ counts)
    if _is_constant(rows, a) or _is_constant(columns, b):
        return float("nan")
    u, v = _centre(rows, a), _centre(columns, b)
    together = u @ (counts @ v)
    return float(np.clip(together / np.sqrt((rows @ u**2) * (columns @ v**2)), -1, 1))


def _compute_correlation_ratio(counts: Counts, a: Floats) -> float:
    """Return eta: sqrt(sum_j n_j (mean of a in j - mean a)^2 / SS_a), over the rows with a value of a."""
    is_number = ~np.isnan(a)
    rows, columns = is_number * counts.sum(axis=1), is_number @ counts
    if _is_constant(rows, a) or np.count_nonzero(columns) < 2:
        return float("nan")
    u = _centre(rows, a)
    occupied = columns > 0
    between = ((u @ counts)[occupied] ** 2 / columns[occupied]).sum()
    return float(np.clip(np.sqrt(between / (rows @ u**2)), 0, 1))


def _compute_cramers_v(counts: Counts) -> float:
    """Return V: sqrt((sum_ij n_ij^2 / (n_i n_j) - 1) / (min(I, J) - 1)), I, J the occupied rows and columns."""
    rows, columns = counts.sum(axis=1), counts.sum(axis=0)
    smaller = min(np.count_nonzero(rows), np.count_nonzero(columns))
    if smaller < 2:
        return float("nan")
    squares = (counts * counts) @ _invert(columns)
    return float(np.sqrt(np.clip((_invert(rows) @ squares - 1) / (smaller - 1), 0, 1)))


def _is_constant(weights: NDArray[Any], values: Floats) -> bool:
    """Return whether the values with a positive weight are all equal, or there are none."""
    occurring = values[weights > 0]
    return occurring.size == 0 or bool(occurring.min() == occurring.max())


def _centre(weights: NDArray[Any], values: Floats) -> Floats:
    """Return values minus their weighted mean, scaled to at most 1; 0 for values without weight, which never count."""
    occurring = weights > 0
    centred = np.where(occurring, values - np.average(values[occurring], weights=weights[occurring]), 0.0)
    return centred / np.abs(centred).max()  # a square could overflow or vanish otherwise


def _invert(totals: NDArray[np.int64]) -> Floats:
    """Return 1 / totals, 0 for a total of 0."""
    return np.divide(1.0, totals, out=np.zeros(totals.shape), where=totals > 0)


def _iterate_joint(
    real: CodeTable, synthetic: CodeTable, pairs: Sequence[Clique], threads: int
) -> Iterator[tuple[Counts, Counts]]:
    """Yield both tables' counts of every pair, in order; sparse arrays for pairs of very many cells."""
    tables = iterate_both_counts(real, synthetic, [p for p in pairs if real.domain.cells(p) <= DENSE_CELLS], threads)
    for pair in pairs:
        yield next(tables) if real.domain.cells(pair) <= DENSE_CELLS else _count_sparsely(real, synthetic, pair)


def _count_sparsely(real: CodeTable, synthetic: CodeTable, pair: Clique) -> tuple[csr_array, csr_array]:
    row, *counts = count_sparsely(real, synthetic, pair)
    codes = [np.concatenate([real.column(a), synthetic.column(a)], dtype=np.int64)[row] for a in pair]
    first, second = (coo_array((c, codes), shape=real.domain.shape(pair)).tocsr() for c in counts)
    return first, second


def _complete_values(table: CodeTable, values: Values) -> dict[str, Floats | None]:
    """Return the values of every attribute of the domain.

    Raises ValueError for unknown attributes and wrong lengths.
    """
    for attribute, numbers in values.items():
        if attribute not in table.domain.attributes:
            raise ValueError(f"there are values of {attribute}, which is not in the domain")
        if numbers is not None and np.shape(numbers) != (table.domain.size(attribute),):
            raise ValueError(f"{attribute}: one value per code is needed, {table.domain.size(attribute)} in all")
        if numbers is not None and np.isinf(numbers).any():
            raise ValueError(f"{attribute}: its values must be finite, or NaN for null")
    return {a: values.get(a) for a in table.domain.attributes}
