"""Unmeasured pairs, as implied by rows that follow the measured marginals.

Not in the paper.  Rows that follow the measured marginals have sampling error in every other pair.  So a larger table
is made first; its other pairs, with less sampling error, become targets, too.  Post-processing of released counts costs
no budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count_all

MOST_ROWS = 120_000
"""Largest number of rows of the larger table: above it, sampling error is small beside the noise, but time is not."""

MOST_WORK = 150_000_000
"""Largest product of rows and pairs of attributes, for the same reason."""

MOST_CELLS = 4_000_000
"""Largest number of cells of all implied pairs together."""

MOST_SWEEPS = 3
"""Largest number of sweeps of the larger table: later ones repair single cells, and the other pairs hardly change."""

IMPLIED_SIGMA_FACTOR = 2.0
"""Least ratio of an implied pair's sigma to a measured pair's, which gives it at most half the weight."""


def compute_row_factor(rows: int, attributes: int, oversample: int) -> int:
    """Return the larger table's rows as a multiple of ``rows``, at most ``oversample``; 1 if it would take too long.

    A function of public or released numbers.
    """
    if rows < 1 or rows * attributes * (attributes - 1) // 2 > MOST_WORK:
        return 1
    return max(1, min(oversample, MOST_ROWS // rows))


def list_missing_pairs(cliques: Sequence[Clique], domain: Domain) -> list[Clique]:
    """Return the pairs of ``domain`` inside no clique, smallest first, as many as have MOST_CELLS cells together."""
    inside = {domain.ordered(pair) for clique in cliques for pair in combinations(clique, 2)}
    missing = sorted((p for p in combinations(domain.attributes, 2) if p not in inside), key=domain.cells)
    room = np.cumsum([domain.cells(p) for p in missing]) <= MOST_CELLS
    return [p for p, fits in zip(missing, room, strict=True) if fits]


def imply_pairs(
    synthetic: CodeTable, pairs: Sequence[Clique], total: float, sigma: float, threads: int
) -> list[Marginal]:
    """Return the pairs of the ``synthetic`` rows, scaled to ``total``, as if measured with noise.

    Their variance is the sum of two: IMPLIED_SIGMA_FACTOR times ``sigma`` (the median of the measured marginals),
    squared, and the sampling variance of a mean cell's count.
    """
    scale = total / max(synthetic.rows, 1)
    marginals = []
    for pair, counts in zip(pairs, count_all(synthetic, pairs, threads=threads), strict=True):
        chance = scale * math.sqrt(synthetic.rows / counts.size)
        marginals.append(Marginal(pair, counts * scale, math.hypot(IMPLIED_SIGMA_FACTOR * sigma, chance)))
    return marginals
