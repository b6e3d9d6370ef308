"""Every pair of attributes in one pass: the L1 distance of its marginal, and the association of its attributes.

Papers: PrivSyn, section 6.1 (2-way L1); correlation ratio: K. Pearson, 1905; V: H. Cramer, 1946, chapter 21.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import (
    DENSE_CELLS,
    check_tables,
    compute_l1_distance,
    count_sparsely,
    iterate_both_counts,
    list_all_cliques,
    stack_columns,
)

Floats = NDArray[np.float64]
Values = Mapping[str, Floats | None]
Counts = Any
"""2-way counts: an int64 array, or a scipy sparse array of the same shape; the code below handles both alike."""


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
    codes = [stack_columns(real, synthetic, a)[row] for a in pair]
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
