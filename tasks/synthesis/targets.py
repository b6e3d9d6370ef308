"""What a method is asked for: marginals in numbers of rows, and which of their cells are empty for sure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.updater import TargetMarginal

MIN_IMPLIED_SHARE = 0.95
"""One attribute follows from a value of another if at least this share of the value's rows are wanted in one cell."""

MIN_EXPECTED_COUNT = 2.0
"""A cell can be known as empty where independence would put at least so many standard deviations of its noise."""

MAX_WANTED_DEVIATIONS = 0.1
"""A cell counts as empty if at most so many standard deviations are wanted in it."""


def scale_target(marginal: Marginal, group: Clique, rows: int, zeros: KnownZeros | None = None) -> TargetMarginal:
    """Return marginal scaled to ``rows``, its attributes by their positions in ``group``; without any count, uniform.

    zeros: what rules forbid, of which the target knows its own cells.
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
    """Return which cells of all targets, one after another in row-major order, are empty beyond what noise can hide.

    Not in the paper.  Pairs with known noise say so: where one attribute follows from a value of the other
    (MIN_IMPLIED_SHARE), a cell is empty in which independence would put many rows (MIN_EXPECTED_COUNT) and next to none
    are wanted (MAX_WANTED_DEVIATIONS).
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
