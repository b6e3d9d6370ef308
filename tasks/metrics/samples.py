"""Samples of rows: rows as features or keys, and a score as an equivalent share of the real rows.

A score is as good as a random sample of that size.
Source: SDNist's equivalent subsample of the k-marginal score (github.com/usnistgov/SDNist), used here for any score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.sparse import csr_matrix

from privsyn.tasks.kernels.counting import CodeTable

_MAX_KEY = 1 << 62  # keys are replaced by ranks before they exceed this

Floats = NDArray[np.float64]
Score = Callable[[CodeTable], float]
Better = Literal["lower", "higher"]

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Measured shares of the real rows."""


def take_rows(table: CodeTable, rows: NDArray[np.intp]) -> CodeTable:
    """Return the rows with these numbers, in this order."""
    return CodeTable(table.domain, tuple(column[rows] for column in table.columns), table.padded)


def sample_rows(table: CodeTable, max_rows: int, seed: int) -> CodeTable:
    """Return ``max_rows`` rows drawn uniformly without replacement, in table order; a smaller table unchanged.

    Raises ValueError for fewer than one row.
    """
    if max_rows < 1:
        raise ValueError(f"a sample needs at least one row, not {max_rows}")
    if table.rows <= max_rows:
        return table
    chosen = np.random.default_rng(seed).choice(table.rows, max_rows, replace=False, shuffle=False)
    return take_rows(table, np.sort(chosen))


def encode_one_hot(table: CodeTable, attributes: Sequence[str]) -> csr_matrix:
    """Return a 0/1 matrix, rows x the concatenated codes of the attributes, with one 1 per row and attribute.

    Tables of one domain have the same columns, whichever codes they hold.
    """
    edges = np.concatenate([[0], np.cumsum(table.shape(attributes), dtype=np.int64)])
    places = np.empty((table.rows, len(attributes)), dtype=np.int64)
    for i, attribute in enumerate(attributes):
        places[:, i] = table.column(attribute) + edges[i]
    starts = np.arange(table.rows + 1, dtype=np.int64) * len(attributes)
    return csr_matrix((np.ones(places.size), places.ravel(), starts), shape=(table.rows, int(edges[-1])))


def make_row_keys(tables: Sequence[CodeTable], attributes: Sequence[str]) -> NDArray[np.int64]:
    """Return a key below 2^62 for each row of the tables, one table after another; shape (rows of all tables,).

    Two rows have equal keys exactly if they have equal codes of ``attributes``; keys follow the codes' row-major order.
    Exact for any number of attributes: when the next would not fit, keys are replaced by their ranks.  The tables share
    one domain.
    """
    keys, size = np.zeros(sum(table.rows for table in tables), np.int64), 1
    widths = np.max([table.shape(attributes) for table in tables], axis=0).astype(int).tolist()
    for attribute, width in zip(attributes, widths, strict=True):
        if size * width > _MAX_KEY:
            values, keys = np.unique(keys, return_inverse=True)
            size = max(values.size, 1)
        keys = keys * width + np.concatenate([table.column(attribute) for table in tables], dtype=np.int64)
        size *= width
    return keys


def draw_subsample(table: CodeTable, share: float, seed: int | Sequence[int]) -> CodeTable:
    """Return a random ``share`` of the rows without replacement, in table order, determined by the seed.

    The sample has round(share rows) rows, at least one if there are any.  Raises ValueError for a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"a share of the rows must be above 0 and at most 1, not {share}")
    size = min(table.rows, max(1, round(share * table.rows)))
    if size == table.rows:
        return table
    rows = np.sort(np.random.default_rng(seed).choice(table.rows, size, replace=False))
    return take_rows(table, rows)


def score_subsamples(
    scores: Mapping[str, Score], real: CodeTable, shares: Sequence[float] = SHARES, seed: int = 0
) -> dict[str, Floats]:
    """Return each score of a random sample of each share, shape (shares,).

    ``scores``: functions of a table by name, which all use the same samples; share 1 is the real table itself.  Raises
    ValueError for shares that are not ascending and within (0, 1].
    """
    if not shares or any(not 0 < s <= 1 for s in shares) or any(a >= b for a, b in pairwise(shares)):
        raise ValueError("shares must be ascending, above 0 and at most 1")
    values: dict[str, list[float]] = {name: [] for name in scores}
    for i, share in enumerate(shares):
        sample = draw_subsample(real, share, [seed, i, 0])
        for name, score in scores.items():
            values[name].append(float(score(sample)))
    return {name: np.array(by_share) for name, by_share in values.items()}


def find_equivalent_share(shares: Sequence[float], measured: Floats, value: float, better: Better) -> float | None:
    """Return the share whose random samples score ``value``, given the scores ``measured`` at ``shares`` (ascending).

    The measured scores are made monotone (isotonic regression: a larger sample is never worse) and interpolated
    linearly in log share.  The largest share means "at least as good": 1.0 is as close as all rows, or closer than the
    largest sample tried.  The smallest share means "no better".  None if a value or score is not finite, or if the
    scores do not distinguish sample sizes.
    """
    if not np.isfinite(value) or not np.isfinite(measured).all():
        return None
    sign = 1.0 if better == "higher" else -1.0
    quality = isotonic_regression(sign * np.asarray(measured, np.float64)).x
    if quality[0] == quality[-1]:
        return None
    if sign * value >= quality[-1]:
        return float(shares[-1])
    if sign * value <= quality[0]:
        return float(shares[0])
    levels, level = np.unique(quality, return_inverse=True)
    logs = np.bincount(level, weights=np.log(shares)) / np.bincount(level)  # a flat stretch counts at its middle
    return float(np.exp(np.interp(sign * value, levels, logs)))
