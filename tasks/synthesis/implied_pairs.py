"""Pairs in no measured marginal, as rows that follow the measured marginals show them.

Not in the paper.  Rows that follow the measured marginals still differ by chance in every other pair, as any sample
does.  So more rows than are wanted are made first; their other pairs, with less chance in them, become targets, too.
Post-processing of released counts costs no budget.
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
"""Most rows of the larger table: in large tables chance is small beside the noise, but the time would not be."""

MOST_WORK = 150_000_000
"""Most rows times pairs of attributes, for the same reason."""

MOST_CELLS = 4_000_000
"""Most cells of all implied pairs together."""

MOST_SWEEPS = 3
"""Most sweeps of the larger table: later ones mend single cells, and the other pairs hardly change."""

IMPLIED_SIGMA_FACTOR = 2.0
"""The sigma of an implied pair is at least this many times that of a measured one, so it has at most half its
weight."""


def compute_row_factor(rows: int, attributes: int, oversample: int) -> int:
    """Return how many times ``rows`` the larger table has, at most ``oversample``; 1 where that is not worth its time.

    It is a function of public or released numbers.
    """
    if rows < 1 or rows * attributes * (attributes - 1) // 2 > MOST_WORK:
        return 1
    return max(1, min(oversample, MOST_ROWS // rows))


def list_missing_pairs(cliques: Sequence[Clique], domain: Domain) -> list[Clique]:
    """Return pairs of ``domain`` inside no clique, in its order, smallest first while all have at most MOST_CELLS."""
    inside = {domain.ordered(pair) for clique in cliques for pair in combinations(clique, 2)}
    missing = sorted((p for p in combinations(domain.attributes, 2) if p not in inside), key=domain.cells)
    room = np.cumsum([domain.cells(p) for p in missing]) <= MOST_CELLS
    return [p for p, fits in zip(missing, room, strict=True) if fits]


def imply_pairs(
    synthetic: CodeTable, pairs: Sequence[Clique], total: float, sigma: float, threads: int
) -> list[Marginal]:
    """Return the pairs of the ``synthetic`` rows, scaled to ``total``, as if measured with noise.

    Their sigma is IMPLIED_SIGMA_FACTOR times ``sigma``, the median of the measured marginals', and the chance in a mean
    cell's count.
    """
    scale = total / max(synthetic.rows, 1)
    marginals = []
    for pair, counts in zip(pairs, count_all(synthetic, pairs, threads=threads), strict=True):
        chance = scale * math.sqrt(synthetic.rows / counts.size)
        marginals.append(Marginal(pair, counts * scale, math.hypot(IMPLIED_SIGMA_FACTOR * sigma, chance)))
    return marginals
