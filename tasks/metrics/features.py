"""Sample rows of a table, and turn rows into model features or into keys that find equal rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from privsyn.tasks.kernels.counting import CodeTable

_MAX_KEY = 1 << 62  # keys are replaced by ranks before they exceed this


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
