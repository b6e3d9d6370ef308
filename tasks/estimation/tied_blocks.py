"""Blocks of codes that rules tie: as many rows are in one attribute's block as in another's.

Where `MSP` is null just below 15 years, these ages have as many rows as the null, whether or not the pair was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.estimation.known_zeros import KnownZeros

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class OneWay(Protocol):
    """The one-way of an attribute while it is being adjusted; ``variance`` is the noise variance of each count."""

    attributes: Clique
    counts: Floats
    variance: Floats


class BlockMember:
    """A one-way as one of two that have the same rows in each block.

    labels: the block of each code; ``precision``: 1 / variance of its estimate of each block.
    """

    def __init__(self, estimate: OneWay, labels: Ints, number: int) -> None:
        self.estimate, self.labels, self.number = estimate, labels, number
        total = np.bincount(labels, estimate.variance, number)
        self.precision = 1.0 / np.maximum(total, 1e-6 * estimate.variance.min())  # a block without codes is empty
        self.share = estimate.variance / total[labels]

    def project(self) -> Floats:
        """Return counts of the blocks."""
        found: Floats = np.bincount(self.labels, self.estimate.counts, self.number).astype(np.float64)
        return found

    def shift(self, change: Floats) -> None:
        """Spread ``change``, one number a block, over the codes by their variance."""
        self.estimate.counts += change[self.labels] * self.share


def list_tied_blocks(one_ways: Sequence[OneWay], zeros: KnownZeros | None) -> list[list[BlockMember]]:
    """Return the two members of every pair of attributes that ``zeros`` tie block by block."""
    groups, ones = [], {o.attributes[0]: o for o in one_ways}
    for (a, b), forbidden in zeros.implied if zeros is not None else ():
        labels = label_blocks(forbidden)
        if labels is not None and a in ones and b in ones:
            number = 1 + max(int(side.max()) for side in labels)
            groups.append([BlockMember(ones[x], side, number) for x, side in zip((a, b), labels, strict=True)])
    return groups


def label_blocks(forbidden: NDArray[np.bool_]) -> tuple[Ints, Ints] | None:
    """Return the block of every code of the first and of the second attribute, from 0 on; None where all are one block.

    forbidden: bool, of the pair's shape.  Blocks are the connected parts of the codes that are allowed together.
    """
    allowed = ~forbidden
    met = allowed.any(axis=1).all() and allowed.any(axis=0).all()
    if met and (allowed.all(axis=1).any() or allowed.all(axis=0).any()):
        return None  # one code is allowed with all others, and so ties them
    from scipy.sparse import csr_array  # here: most releases come to no such pair, and it loads slowly
    from scipy.sparse.csgraph import connected_components

    first, second = forbidden.shape
    links = np.zeros((first + second, first + second), dtype=bool)
    links[:first, first:] = allowed
    number, labels = connected_components(csr_array(links), directed=False)
    return None if number < 2 else (labels[:first].astype(np.int64), labels[first:].astype(np.int64))
