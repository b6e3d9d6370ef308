"""Draw one attribute of every row given others, with exact conditional shares.

Belongs here: low-variance draws from one marginal.  Does not belong here: which attribute is drawn from which
marginal (tree_start.py, tasks/append_attributes.py).
"""

from __future__ import annotations

import numpy as np

from data_contracts.domain import code_dtype
from tasks.kernels.counting import CodeTable, count, fill_keys
from tasks.kernels.gum import index_rows
from tasks.kernels.streams import shuffle_segments, stream, systematic, uniforms


def draw_given(known: CodeTable, rows: int, joint: np.ndarray, one_way: np.ndarray, address: np.uint64) -> np.ndarray:
    """Codes for ``rows`` rows given their cell of ``known``; joint: float64 (cells of known, codes).

    Within the rows of one cell the codes have the joint's conditional shares up to rounding, in random
    order.  Cells that the joint has never seen fall back on ``one_way``.  address: the random stream.
    """
    cells, size = joint.shape
    here = count(known, known.domain.attributes).reshape(-1) if known.columns else np.array([rows])
    edges = np.concatenate([[0], np.cumsum(here)])
    weights = np.where(joint.sum(axis=1, keepdims=True) > 0, joint, one_way)
    quotas = systematic(weights, here, uniforms(address, cells))
    values = np.repeat(np.tile(np.arange(size, dtype=code_dtype(size)), cells), quotas.ravel())
    shuffle_segments(values, edges, stream(int(address), 1))
    if not known.columns:
        return values
    keys, places = np.zeros(rows, np.uint32), edges[None, :-1].copy()
    fill_keys(keys, known.columns, known.domain.sizes)
    index = np.empty(rows, np.uint32)
    index_rows(keys, np.array([0, rows]), places, 0, 1, index)
    column = np.empty_like(values)
    column[index] = values
    return column
