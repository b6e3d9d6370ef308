"""The unmeasured pairs that the rows of a wide table follow: the most informative pairs of each attribute.

Not in the paper.  A column of a wide table has about 45 pairs with a trend.  Rows that follow the strongest pairs
nearly match the others, since columns are related through each other; weak pairs are mostly noise and disturb the
strong ones.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.marginals import Marginal

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
