"""Unmeasured pairs, as implied by rows that follow the measured marginals.

Not in the paper.  Rows that follow the measured marginals have sampling error in every other pair.  So a larger table
is made first; its other pairs, with less sampling error, become targets, too.  Post-processing of released counts costs
no budget.

Rows of a wide table follow the most informative of these pairs.  A column of a wide table has about 45 pairs with a
trend.  Rows that follow the strongest pairs nearly match the others, since columns are related through each other; weak
pairs are mostly noise and disturb the strong ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable

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
    for pair, counts in zip(pairs, synthetic.counts(pairs, threads=threads), strict=True):
        chance = scale * math.sqrt(synthetic.rows / counts.size)
        marginals.append(Marginal(pair, counts * scale, math.hypot(IMPLIED_SIGMA_FACTOR * sigma, chance)))
    return marginals


MOST_FOLLOWED = 16
"""Pairs followed per attribute.  Measured on 300 columns as in ``benchmarks/wide.py``, 44 pairs each, 38,000 rows.
L1 distances within a block, to neighbours and further away: .073, .072, .060 with 24; .070, .075, .050 with 16; .070,
.079, .054 with 12; .089, .122, .075 with 6; .077, .077, .055 with all, which took 1.6 times as long as 16."""


def choose_strongest(pairs: Sequence[Marginal], limit: int = MOST_FOLLOWED) -> list[Marginal]:
    """Return the pairs that are among the ``limit`` of largest mutual information for one of their attributes.

    pairs: marginals of two attributes; they keep their order, and the first of equal ones wins.
    """
    information, holding = _compute_information(pairs), dict[str, list[int]]()
    for i, pair in enumerate(pairs):
        for a in pair.attributes:
            holding.setdefault(a, []).append(i)
    chosen = {
        i for pair_numbers in holding.values() for i in sorted(pair_numbers, key=lambda i: -information[i])[:limit]
    }
    return [pair for i, pair in enumerate(pairs) if i in chosen]


def _compute_information(pairs: Sequence[Marginal]) -> NDArray[np.float64]:
    """Return each pair's mutual information, rounded to 1e-9 nats in that unit: last bits differ between CPUs."""
    information, alike = np.zeros(len(pairs)), dict[tuple[int, ...], list[int]]()
    for i, pair in enumerate(pairs):
        alike.setdefault(pair.counts.shape, []).append(i)
    for numbers in alike.values():
        joint = np.stack([pairs[i].counts for i in numbers])
        joint /= np.maximum(joint.sum(axis=(1, 2), keepdims=True), 1e-9)
        one, other = joint.sum(axis=2), joint.sum(axis=1)
        information[numbers] = _compute_entropies(one) + _compute_entropies(other) - _compute_entropies(joint)
    return np.rint(information * 1e9)


def _compute_entropies(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return -(shares * logarithms).reshape(len(shares), -1).sum(axis=1)
