"""Pairs that nobody measured, as the measured marginals imply them.

Belongs here: which pairs are worth it, how many rows they are counted on, and the marginals made of the counts.  Does
not belong here: making those rows (tasks/synthesize.py), moving rows towards targets (sweep.py).

Not in the paper.  Rows that follow the measured marginals still differ by chance in every other pair, as any sample
does.  So more rows than are wanted are made first; their other pairs, with less chance in them, become targets, too.
Post-processing of released counts: costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from data_contracts.domain import Clique, Domain
from tasks.kernels.counting import CodeTable, count_all
from tasks.marginals import Marginal

MOST_ROWS = 120_000
"""Rows to count on at most: in large tables chance is small beside the noise, and the time would not be."""

MOST_WORK = 150_000_000
"""Rows times pairs of attributes at most, for the same reason."""

MOST_CELLS = 4_000_000
"""Cells of all implied pairs at most."""

MOST_SWEEPS = 3
"""Sweeps of the rows to count on, at most: later ones mend single cells, and the other pairs hardly change."""

DOUBT = 2.0
"""An implied pair counts as known to so many times the sigma of a measured one at best: half its weight."""


def times_the_rows(rows: int, attributes: int, oversample: int) -> int:
    """For how many times ``rows`` the rows to count on are made: at most ``oversample``; 1 where it is not worth it.

    A function of public or released numbers.
    """
    if rows < 1 or rows * attributes * (attributes - 1) // 2 > MOST_WORK:
        return 1
    return max(1, min(oversample, MOST_ROWS // rows))


def missing_pairs(cliques: Sequence[Clique], domain: Domain) -> list[Clique]:
    """The pairs of ``domain`` inside no clique, in its order, smallest first while all have at most MOST_CELLS."""
    inside = {domain.ordered(pair) for clique in cliques for pair in combinations(clique, 2)}
    missing = sorted((p for p in combinations(domain.attributes, 2) if p not in inside), key=domain.cells)
    room = np.cumsum([domain.cells(p) for p in missing]) <= MOST_CELLS
    return [p for p, fits in zip(missing, room, strict=True) if fits]


def implied(made: CodeTable, pairs: Sequence[Clique], total: float, sigma: float, threads: int) -> list[Marginal]:
    """The pairs of the rows ``made``, scaled to ``total``, as if measured with noise.

    Their sigma is DOUBT times ``sigma``, the median of the measured marginals', and the chance in a mean cell's count.
    """
    scale = total / max(made.rows, 1)
    found = []
    for pair, counts in zip(pairs, count_all(made, pairs, threads=threads), strict=True):
        chance = scale * math.sqrt(made.rows / counts.size)
        found.append(Marginal(pair, counts * scale, math.hypot(DOUBT * sigma, chance)))
    return found
