"""Drawing one attribute of every row given others, with exact conditional shares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from privsyn.data_contracts.domain import Domain, Merge, choose_code_dtype
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count, fill_keys
from privsyn.tasks.kernels.gum_update import index_rows
from privsyn.tasks.kernels.small_kernels import shuffle_segments
from privsyn.tasks.kernels.streams import derive_stream, draw_systematically, draw_uniforms


def draw_attribute(
    attribute: str,
    marginal: Marginal | None,
    columns: Mapping[str, np.ndarray],
    rows: int,
    one_way: np.ndarray,
    address: np.uint64,
) -> np.ndarray:
    """Return codes of ``attribute`` for ``rows`` rows, from the ``marginal`` on it and on attributes already drawn.

    ``columns``: the codes of these attributes, each of shape (rows,).  ``one_way``: counts of the attribute's codes,
    used if there is no marginal (None) or in cells where the marginal has no counts.  ``address``: the random stream.
    """
    if marginal is None:
        marginal = Marginal((attribute,), one_way)
    conditions = {a: n for a, n in zip(marginal.attributes, marginal.counts.shape, strict=True) if a != attribute}
    table = CodeTable(Domain.of(conditions), tuple(_merge_codes(columns[a], marginal.get_merge(a)) for a in conditions))
    return draw_given(table, rows, _split_merged(marginal, attribute, one_way), one_way, address)


def _merge_codes(codes: np.ndarray, merge: Merge | None) -> np.ndarray:
    return codes if merge is None else merge.astype(codes.dtype)[codes]


def _split_merged(marginal: Marginal, attribute: str, one_way: np.ndarray) -> np.ndarray:
    """Return the counts by the attribute's codes, which split a merged code by the one-way, or else evenly."""
    joint, merge = marginal.by_code(attribute), marginal.get_merge(attribute)
    if merge is None:
        return joint
    cells, sums = np.bincount(merge), np.bincount(merge, weights=one_way)
    shares = np.where(sums[merge] > 0, one_way, 1.0) / np.where(sums > 0, sums, cells)[merge]
    return np.ascontiguousarray(joint[:, merge] * shares)


def draw_given(
    given_codes: CodeTable, rows: int, joint: np.ndarray, one_way: np.ndarray, address: np.uint64
) -> np.ndarray:
    """Return codes for ``rows`` rows given their cell of ``given_codes``; joint: float64, shape (cells, codes).

    Within a cell, the codes have the joint's conditional shares up to rounding, in random order.  A cell without counts
    in the joint uses ``one_way``.  address: the random stream.
    """
    cells, size = joint.shape
    rows_by_cell = (
        count(given_codes, given_codes.domain.attributes).reshape(-1) if given_codes.columns else np.array([rows])
    )
    edges = np.concatenate([[0], np.cumsum(rows_by_cell)])
    weights = np.where(joint.sum(axis=1, keepdims=True) > 0, joint, one_way)
    quotas = draw_systematically(weights, rows_by_cell, draw_uniforms(address, cells))
    values = np.repeat(np.tile(np.arange(size, dtype=choose_code_dtype(size)), cells), quotas.ravel())
    shuffle_segments(values, edges, derive_stream(int(address), 1))
    if not given_codes.columns:
        return values
    keys, places = np.zeros(rows, np.uint32), edges[None, :-1].copy()
    fill_keys(keys, given_codes.columns, given_codes.domain.sizes)
    index = np.empty(rows, np.uint32)
    index_rows(keys, np.array([0, rows]), places, 0, 1, index)
    column = np.empty_like(values)
    column[index] = values
    return column
