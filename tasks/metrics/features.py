"""Rows and features for the models and attacks among the metrics.

Belongs here: seeded samples of rows, and codes as one-hot features.  Does not belong here: any model or figure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from tasks.kernels.counting import CodeTable


def take(table: CodeTable, rows: NDArray[np.intp]) -> CodeTable:
    """The rows with these numbers, in this order."""
    return CodeTable(table.domain, tuple(column[rows] for column in table.columns), table.padded)


def sample(table: CodeTable, max_rows: int, seed: int) -> CodeTable:
    """``max_rows`` rows drawn evenly without replacement, in table order; a table of no more rows as it is.

    ValueError for fewer than one row.
    """
    if max_rows < 1:
        raise ValueError(f"a sample needs at least one row: {max_rows}")
    if table.rows <= max_rows:
        return table
    chosen = np.random.default_rng(seed).choice(table.rows, max_rows, replace=False, shuffle=False)
    return take(table, np.sort(chosen))


def one_hot(table: CodeTable, attributes: Sequence[str]) -> csr_matrix:
    """A 0/1 matrix, rows x all codes of the attributes one after another; one 1 a row and attribute.

    Tables of one domain have the same columns, whichever codes they hold.
    """
    edges = np.concatenate([[0], np.cumsum(table.shape(attributes), dtype=np.int64)])
    places = np.empty((table.rows, len(attributes)), dtype=np.int64)
    for i, attribute in enumerate(attributes):
        places[:, i] = table.column(attribute) + edges[i]
    starts = np.arange(table.rows + 1, dtype=np.int64) * len(attributes)
    return csr_matrix((np.ones(places.size), places.ravel(), starts), shape=(table.rows, int(edges[-1])))
