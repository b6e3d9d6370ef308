"""Queries and receipts: what a release step asks of the private rows and what that costs, exactly.

Belongs here: the description of a noisy query and its exact price.  Does not belong here: drawing
noise (tasks/privacy/noise.py), the composition to (epsilon, delta) (tasks/privacy/accountant.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from data_contracts.domain import Clique


@dataclass(frozen=True)
class Query:
    """One vector of integer counts that gets discrete Gaussian noise.

    ``attributes`` are those of the marginal; a figure about no single marginal has its name there.
    ``sensitivity`` is the exact L2 sensitivity under adding or removing one person (all their records).
    ``sigma`` is the noise scale in counts; the price is rho = sensitivity^2 / (2 sigma^2) zCDP (Theorem 3).
    """

    attributes: Clique
    cells: int
    sensitivity: int
    sigma: float

    @property
    def rho(self) -> Fraction:
        """Exact zCDP price of the noise actually drawn."""
        return _price(self.sensitivity, self.sigma)


@lru_cache(maxsize=4096)
def _price(sensitivity: int, sigma: float) -> Fraction:
    return Fraction(sensitivity) ** 2 / (2 * Fraction(sigma) ** 2)


def sigma_for(rho: Fraction, sensitivity: int) -> float:
    """Smallest sigma (a float, rounded up) whose exact price is at most ``rho``.

    sigma = sensitivity / sqrt(2 rho).  Raises ValueError for rho <= 0.
    """
    if rho <= 0:
        raise ValueError(f"rho must be positive, not {rho}")
    sigma = sensitivity / math.sqrt(2 * float(rho))
    while Fraction(sensitivity) ** 2 > 2 * Fraction(sigma) ** 2 * rho:
        sigma = math.nextafter(sigma, math.inf)
    return sigma


def rho_text(rho: Fraction) -> str:
    """``rho`` as a decimal, rounded up at the 30th place: exact sums of many prices have thousands of digits."""
    scaled = -(-rho.numerator * 10**30 // rho.denominator)
    return f"{scaled // 10**30}.{scaled % 10**30:030d}".rstrip("0").removesuffix(".")


def total_rho(queries: Iterable[Query]) -> Fraction:
    """Exact sum of the queries' prices (zCDP adds up, Theorem 1)."""
    prices = Counter(q.rho for q in queries)
    return sum((rho * times for rho, times in prices.items()), Fraction(0))
