"""Targets of a synthesis method: marginals scaled to the number of rows, and their cells that must be empty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.gum_update import TargetMarginal

MIN_IMPLIED_SHARE = 0.95
"""A value determines another attribute if at least this share of the value's wanted rows are in one cell."""

MIN_EXPECTED_COUNT = 2.0
"""Least independent count, in standard deviations of noise, of a cell that is treated as empty."""

MAX_WANTED_DEVIATIONS = 0.1
"""Largest wanted count, in standard deviations of noise, of a cell that is treated as empty."""


def scale_target(marginal: Marginal, group: Clique, rows: int, zeros: KnownZeros | None = None) -> TargetMarginal:
    """Return the marginal scaled to ``rows``, with attributes as positions in ``group``; uniform if all counts are 0.

    zeros: cells that rules forbid; the target keeps the ones on its attributes.
    """
    wanted = marginal.counts.astype(np.float64).ravel()
    total = wanted.sum()
    scale = rows / total if total > 0 else 0.0
    wanted = wanted * scale if total > 0 else np.full(wanted.size, rows / wanted.size)
    attributes = tuple(group.index(a) for a in marginal.attributes)
    unknown = zeros is None or bool(marginal.merges)
    zero_cells = None if unknown or zeros is None else zeros.on(marginal.attributes, marginal.counts.shape)
    return TargetMarginal(
        attributes, marginal.counts.shape, wanted, marginal.sigma * scale, zero_cells, marginal.merges
    )


def find_empty_cells(targets: Sequence[TargetMarginal]) -> NDArray[np.bool_]:
    """Return the mask of the targets' cells, concatenated in row-major order, that are surely empty.

    Not in the paper.  Besides forbidden cells, these are cells of pairs with known noise.  If a value determines the
    other attribute (MIN_IMPLIED_SHARE), a cell is empty if independence would put many rows in it (MIN_EXPECTED_COUNT)
    and almost none are wanted (MAX_WANTED_DEVIATIONS).
    """
    return np.concatenate([_find_empty(target) for target in targets])


def _find_empty(target: TargetMarginal) -> NDArray[np.bool_]:
    zero_cells = np.zeros(target.wanted.size, bool) if target.zero is None else target.zero.ravel()
    if len(target.shape) != 2 or target.sigma <= 0:
        return zero_cells
    wanted = target.wanted.reshape(target.shape)
    first, second = wanted.sum(axis=1, keepdims=True), wanted.sum(axis=0, keepdims=True)
    expected = first * second / max(float(wanted.sum()), 1.0)
    follows = wanted.max(axis=1, keepdims=True) >= MIN_IMPLIED_SHARE * first
    follows = follows | (wanted.max(axis=0, keepdims=True) >= MIN_IMPLIED_SHARE * second)
    bare = (expected >= MIN_EXPECTED_COUNT * target.sigma) & (wanted <= MAX_WANTED_DEVIATIONS * target.sigma)
    return zero_cells | (follows & bare).ravel()
