"""Transitions: with what probability a person's next row has which code, from noisy counts of pairs of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]

SELECTION = 0.1
"""How far persons with one row only may move the shares of codes, relative: what the noise of rows' sums is held to."""


@dataclass(frozen=True, eq=False)
class Transition:
    """The transitions of one attribute of k coarse codes.

    ``shares``: of all persons by the row's code, shape (k,); ``moves``: the probability of each code of the next row,
    given that of the row, shape (k, k); ``same``: of the same fine code, shape (k,); each row of ``moves`` and its
    ``same`` sum to 1.  ``sigma``: the noise of a cell, as a share of all pairs.
    """

    shares: Floats
    moves: Floats
    same: Floats
    sigma: float

    @property
    def next_codes(self) -> Floats:
        """The probability of each code of the next row, shape (k, k), whether the fine code is the same or not."""
        return self.moves + np.diag(self.same)

    def back(self) -> Transition:
        """Return the transitions from a row to the one before it."""
        joint = self.shares[:, None] * self.moves
        same = self.shares * self.same
        arrive = joint.sum(axis=0) + same
        known = np.maximum(arrive, 1e-12)
        moves, stays = joint.T / known[:, None], same / known
        lost = arrive <= 1e-12
        moves[lost], stays[lost] = 0.0, 1.0
        return Transition(arrive / max(arrive.sum(), 1e-12), moves, stays, self.sigma)

    def correlate_moves(self) -> float:
        """Return the correlation of normal scores between the codes of those whose fine code changes, below 1."""
        joint = self.shares[:, None] * self.moves
        total = joint.sum()
        if total <= 1e-9:
            return 0.0
        joint = joint / total
        rows, columns = joint.sum(axis=1), joint.sum(axis=0)
        x, y = (ndtri(np.clip(np.cumsum(m) - m / 2, 1e-6, 1 - 1e-6)) for m in (rows, columns))
        x, y = x - rows @ x, y - columns @ y
        spread = np.sqrt((rows @ x**2) * (columns @ y**2))
        return float(np.clip((x @ joint @ y) / spread, -0.98, 0.98)) if spread > 1e-9 else 0.0


def estimate_transition(counts: Floats, sigma: float, shares: Floats) -> Transition:
    """Return the transitions that noisy ``counts``, shape (k, k + 1), say; the last column counts the same fine code.

    ``shares``: of all rows by code, from released counts.  Each row of the counts is moved to the nearest one that is
    not negative and has the sum that counts and shares agree on best.
    """
    k = len(shares)
    pairs = max(float(counts.sum()), 1.0)
    expected = shares * pairs
    prior = (SELECTION * expected) ** 2 + 1e-9
    noise = (k + 1) * sigma**2
    sums = np.maximum((counts.sum(axis=1) * prior + expected * noise) / (prior + noise), 1e-9)
    found = np.stack([project_to_sum(row, total) for row, total in zip(counts, sums, strict=True)])
    found /= found.sum(axis=1, keepdims=True)
    return Transition(sums / sums.sum(), found[:, :k], found[:, k], sigma / pairs)


def project_to_sum(values: Floats, total: float) -> Floats:
    """Return the nearest vector that is not negative and sums to ``total`` > 0."""
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(falling > excess)[-1]
    return np.maximum(values - excess[last], 0.0)


Transitions = Mapping[str, Transition]
"""Attribute -> its transitions."""
