"""What a method is asked for: marginals in numbers of rows."""

from __future__ import annotations

import numpy as np

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.kernels.updater import Target
from privsyn.tasks.marginals import Marginal


def target_of(marginal: Marginal, group: Clique, rows: int) -> Target:
    """The marginal scaled to ``rows``, its attributes by their positions in ``group``; without any count, uniform."""
    wanted = marginal.counts.astype(np.float64).ravel()
    total = wanted.sum()
    scale = rows / total if total > 0 else 0.0
    wanted = wanted * scale if total > 0 else np.full(wanted.size, rows / wanted.size)
    attributes = tuple(group.index(a) for a in marginal.attributes)
    return Target(attributes, marginal.counts.shape, wanted, marginal.sigma * scale)
