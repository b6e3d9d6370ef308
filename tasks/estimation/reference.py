"""The counts of pairs if they were independent, by the noisy one-ways: what scores compare private counts with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.recode import Recode, estimate_total

FRACTION_BITS = 16  # a reference count is a whole number of 2^-16 records


MAX_ROWS = 3_000_000_000
"""Above this, the exact 64-bit arithmetic of :func:`indif` could overflow."""


@dataclass(frozen=True)
class IndependentCounts:
    """The counts of each pair if it were independent, by the noisy one-ways: public once these are released.

    ``shares``: attribute -> share of every coarse code and, last, of the filtered values; they sum to 1, or are 0
    where the noisy counts are.  ``total``: noisy number of rows.
    """

    shares: Mapping[str, NDArray[np.float64]]
    total: float

    @classmethod
    def of(cls, recode: Recode) -> IndependentCounts:
        """Return the reference that the released recoding implies; negative noisy counts become 0."""
        shares = {}
        for attribute, r in recode.items():
            counts = np.bincount(np.where(r.kept, r.coarse, r.size), weights=r.estimate, minlength=r.size + 1)
            positive = np.maximum(counts, 0.0)
            shares[attribute] = positive / max(float(positive.sum()), 1.0)
        return cls(shares, max(estimate_total(recode), 0.0))

    def counts(self, a: str, b: str) -> NDArray[np.int64]:
        """Return the pair's independent counts in units of 2^-16 records, rounded.

        Shape (size of a + 1, size of b + 1).
        """
        expected = np.multiply.outer(self.shares[a], self.shares[b]) * min(self.total, MAX_ROWS)
        return np.rint(np.ldexp(expected, FRACTION_BITS)).astype(np.int64)


class ExpectedCounts(Protocol):
    """What counts of pairs are compared with: public once the one-ways are released."""

    def counts(self, a: str, b: str) -> NDArray[np.int64]:
        """Return the pair's expected counts in units of 2^-16 records; shape (size of a + 1, size of b + 1)."""
        ...
