"""Queries and receipts: what a release step asks of the private rows, and its exact price."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

from privsyn.data_contracts.domain import Clique

Pricing = Literal["zcdp", "gaussian"]
"""The theorem behind a price rho = sensitivity^2 / (2 variance), and therefore the variance that it counts.

``zcdp``: sigma^2; rho-zCDP (Canonne, Kamath and Steinke 2020, Theorem 14; the paper's Theorem 3). ``gaussian``:
sigma^2 - SMOOTHING; sqrt(2 rho)-Gaussian DP but for privsyn.tasks.privacy.gaussian_dp.SAFETY_MARGIN (docs/privacy.md).
This implies rho-zCDP: the second price of the same noise is the higher one.
"""

SMOOTHING: Final = 3
"""tau^2, in squared counts: the part of the discrete noise's variance that hides its discreteness (docs/privacy.md)."""


@dataclass(frozen=True)
class Query:
    """One vector of integer counts that gets discrete Gaussian noise.

    ``attributes`` belong to the marginal; a figure about no single marginal has its name there.
    ``sensitivity`` is the exact L2 sensitivity under adding or removing one person (all their records).
    ``sigma`` is the noise scale in counts; ``pricing`` says by which formula its price follows.
    """

    attributes: Clique
    cells: int
    sensitivity: int
    sigma: float
    pricing: Pricing = "zcdp"

    @property
    def rho(self) -> Fraction:
        """The exact price of the noise; raises ValueError if sigma is too small for the pricing."""
        return _compute_price(self.sensitivity, self.sigma, self.pricing)

    def under(self, pricing: Pricing) -> Query:
        """Return the same query with its noise changed so that it costs at most the same price under ``pricing``.

        From zcdp to gaussian, sigma^2 grows by SMOOTHING (and by rounding up to a float).
        """
        if pricing == self.pricing:
            return self
        return replace(self, sigma=_reprice(self.sensitivity, self.sigma, self.pricing, pricing), pricing=pricing)


@lru_cache(maxsize=4096)
def _compute_price(sensitivity: int, sigma: float, pricing: Pricing) -> Fraction:
    variance = Fraction(sigma) ** 2 - (SMOOTHING if pricing == "gaussian" else 0)
    if variance <= 0:
        raise ValueError(f"noise of scale {sigma} has no price under the pricing {pricing!r}")
    return Fraction(sensitivity) ** 2 / (2 * variance)


@lru_cache(maxsize=4096)
def _reprice(sensitivity: int, sigma: float, old: Pricing, new: Pricing) -> float:
    return compute_sigma(_compute_price(sensitivity, sigma, old), sensitivity, new)


def compute_sigma(rho: Fraction, sensitivity: int, pricing: Pricing = "zcdp") -> float:
    """Return a sigma whose exact price is at most ``rho``: the smallest such float, or one of the next few.

    sigma = sensitivity / sqrt(2 rho), under ``gaussian`` sqrt(sensitivity^2 / (2 rho) + SMOOTHING), so at least 1.73
    counts.  Raises ValueError for rho <= 0.
    """
    if rho <= 0:
        raise ValueError(f"rho must be positive, not {rho}")
    smoothing = SMOOTHING if pricing == "gaussian" else 0
    plain = sensitivity / math.sqrt(2 * float(rho))
    sigma = math.hypot(plain, math.sqrt(smoothing)) if smoothing else plain
    while Fraction(sensitivity) ** 2 > 2 * (Fraction(sigma) ** 2 - smoothing) * rho:
        sigma = math.nextafter(sigma, math.inf)
    return sigma


def format_rho(rho: Fraction) -> str:
    """Return ``rho`` as a decimal, rounded up at the 30th place, because exact sums may have thousands of digits."""
    scaled = -(-rho.numerator * 10**30 // rho.denominator)
    return f"{scaled // 10**30}.{scaled % 10**30:030d}".rstrip("0").removesuffix(".")


def sum_rho(queries: Iterable[Query]) -> Fraction:
    """Return the exact sum of the queries' prices, which add up under either pricing (Theorem 1; docs/privacy.md)."""
    prices = Counter((q.sensitivity, q.sigma, q.pricing) for q in queries)
    return sum((_compute_price(*price) * times for price, times in prices.items()), Fraction(0))
