"""The accountant: (epsilon, delta) to zCDP's rho and back, each rounded in the safe direction.

Belongs here: the two conversions, as pure functions.  Does not belong here: who spent what
(flows/ledger.py), how rho becomes noise (data_contracts/receipts.py).

``tight`` is the optimal conversion of a zCDP bound into approximate DP by Canonne, Kamath and
Steinke (2020), Proposition 12 and Corollary 13,

    delta = inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha,

computed by OpenDP with directed rounding.  ``paper`` is PrivSyn's Theorem 2 (Bun and Steinke 2016),
rho + 2 sqrt(rho ln(1/delta)) = epsilon.  Both hold for any rho-zCDP mechanism; ``tight`` promises
the same with more budget (at delta = 1e-12 rho is 1.30 times the paper's at epsilon 0.2, 1.21 at 1,
1.17 at 2).  Above rho = 50,000, where no privacy is left to speak of, ``tight`` is the paper's too.
"""

from __future__ import annotations

import functools
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, Literal

Accountant = Literal["tight", "paper"]

RHO_DIGITS = 10
"""Significant decimal digits of a rho made from (epsilon, delta); the rest is rounded away, downwards."""

SMALLEST_EPSILON = 1e-30
"""No smaller epsilon is accounted for: its rho and the steps towards it would leave the range of floats."""

_STEPS = 60
_OPENDP_LARGEST = Fraction(50_000)  # its arithmetic overflows from rho = 7e4, where no privacy is left
_UP = Context(prec=40, rounding=ROUND_CEILING, Emin=-(10**9), Emax=10**9)
_DOWN = Context(prec=RHO_DIGITS, rounding=ROUND_FLOOR, Emin=-(10**9), Emax=10**9)


@functools.lru_cache(maxsize=256)
def rho_for(epsilon: float, delta: float, accountant: Accountant = "tight") -> Fraction:
    """Largest rho (to RHO_DIGITS digits, rounded down) with ``epsilon_for(rho, delta) <= epsilon``.

    Deterministic: the same arguments give the same fraction, so a release may ask for exactly a cap.
    Raises ValueError unless SMALLEST_EPSILON <= epsilon < infinity and 0 < delta < 1.
    """
    _check(epsilon, delta)
    if epsilon < SMALLEST_EPSILON:
        raise ValueError(f"epsilon must be at least {SMALLEST_EPSILON:g} to be accounted for, not {epsilon}")
    low = _paper_rho(epsilon, delta)
    if accountant == "tight":
        low = _bisect(low, epsilon, delta)
    rho = _floor(low)
    while epsilon_for(rho, delta, accountant) > epsilon:
        rho = _floor(float(rho) * (1 - 1e-9))
    return rho


@functools.lru_cache(maxsize=1024)
def epsilon_for(rho: Fraction, delta: float, accountant: Accountant = "tight") -> float:
    """Smallest epsilon (a float, rounded up) such that rho-zCDP implies (epsilon, delta)-DP.

    ``rho`` = 0 gives 0.  Raises ValueError for rho < 0 and unless 0 < delta < 1.
    """
    _check(1.0, delta)
    if rho < 0:
        raise ValueError(f"rho must not be negative, and is {rho}")
    if rho == 0:
        return 0.0
    paper = _paper_epsilon(rho, delta)
    if accountant == "paper" or rho > _OPENDP_LARGEST:
        return paper
    return min(paper, _tight_epsilon(rho, delta))


def _check(epsilon: float, delta: float) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be positive and finite, not {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, not {delta}")


def _paper_rho(epsilon: float, delta: float) -> float:
    """Theorem 2 solved for rho: (sqrt(L + epsilon) - sqrt(L))^2, L = ln(1/delta), without cancellation."""
    log = -math.log(delta)
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2


def _paper_epsilon(rho: Fraction, delta: float) -> float:
    """Theorem 2 in 40-digit decimals, rounded up."""
    exact = _UP.divide(Decimal(rho.numerator), Decimal(rho.denominator))
    log = _UP.minus(_UP.ln(Decimal(delta)))
    # ln and sqrt round to nearest; one part in 10^30 more keeps the sum an upper bound
    root = _UP.multiply(_UP.sqrt(_UP.multiply(exact, log)), Decimal(1) + Decimal(10) ** -30)
    return _float_up(Fraction(_UP.add(exact, _UP.multiply(Decimal(2), root))))


def _tight_epsilon(rho: Fraction, delta: float) -> float:
    """OpenDP's conversion, at or just above ``rho``."""
    distance = math.sqrt(2 * _float_up(rho))
    while Fraction(distance) ** 2 < 2 * rho:
        distance = math.nextafter(distance, math.inf)
    return float(_opendp().map(distance).epsilon(delta))


def _bisect(low: float, epsilon: float, delta: float) -> float:
    """Largest float found with tight epsilon <= ``epsilon``; epsilon_for rises with rho."""
    high, factor = low, 1.5
    while epsilon_for(Fraction(high), delta) <= epsilon:
        low, high, factor = high, high * factor, factor**2
    for _ in range(_STEPS):
        if high - low <= low * 1e-12:
            break
        middle = (low + high) / 2 if high < 2 * low else math.sqrt(low) * math.sqrt(high)
        if epsilon_for(Fraction(middle), delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def _floor(rho: float) -> Fraction:
    """``rho`` rounded down to RHO_DIGITS significant decimal digits, exactly."""
    return Fraction(_DOWN.create_decimal(Decimal(rho)))


def _float_up(value: Fraction) -> float:
    """Smallest float that is not below ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


@functools.lru_cache(maxsize=1)
def _opendp() -> Any:
    """A mechanism whose map is d -> d^2/2 zCDP, seen as approximate DP; it is never invoked."""
    import opendp.prelude as dp  # here, because loading the library takes a while

    dp.enable_features("contrib")
    carrier = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale=1.0)
    return dp.c.make_zCDP_to_approxDP(carrier)
