"""The accountant: (epsilon, delta) to a total price rho and back, each rounded in the safe direction.

``gaussian`` is the exact curve of Gaussian differential privacy at mu = sqrt(2 rho) (Dong, Roth and Su 2022; Balle and
Wang 2018, Theorem 8).  The curve is proved for discrete Gaussian noise that is priced for it (docs/privacy.md).  It
requires prices under the pricing "gaussian"; these are zCDP prices too, so the other two hold for them as well.

``tight`` is the optimal conversion of a zCDP bound into approximate DP by Canonne, Kamath and
Steinke (2020), Proposition 12 and Corollary 13,

    delta = inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha,

computed by OpenDP with directed rounding.  ``paper`` is PrivSyn's Theorem 2 (Bun and Steinke 2016),
rho + 2 sqrt(rho ln(1/delta)) = epsilon.  Both hold for any rho-zCDP mechanism.

At delta = 1e-12, ``tight`` allows 1.30 times the paper's rho at epsilon 0.2, 1.21 times at 1 and 1.17 times at 2;
``gaussian`` allows 1.41, 1.31 and 1.27 times.  Above rho = 50,000 (``tight``) and 10^9 (``gaussian``), where no privacy
is left, the paper's conversion replaces them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, Literal

from privsyn.data_contracts.receipts import Pricing
from privsyn.tasks.privacy import gaussian_dp

Accountant = Literal["gaussian", "tight", "paper"]
CapAccountant = Literal["gaussian", "tight"]

RHO_DIGITS = 10
"""Significant decimal digits of a rho converted from (epsilon, delta), rounded down."""

SMALLEST_EPSILON = 1e-30
"""Smallest accepted epsilon: the computation for a smaller one would leave the range of floats."""

_STEPS = 60
_WIDTHS = (1e-12, 1e-9, 1e-6)  # relative widths around an approximation in which the exact border is searched
_SECTIONS, _GOLDEN = 120, (3 - math.sqrt(5)) / 2
_OPENDP_LARGEST = Fraction(50_000)  # its arithmetic overflows from rho = 7e4, where no privacy is left
_GAUSSIAN_LARGEST = Fraction(10**9)
_UP = Context(prec=40, rounding=ROUND_CEILING, Emin=-(10**9), Emax=10**9)
_DOWN = Context(prec=RHO_DIGITS, rounding=ROUND_FLOOR, Emin=-(10**9), Emax=10**9)


def get_pricing(accountant: Accountant) -> Pricing:
    """Return the pricing that releases under this accountant use."""
    return "gaussian" if accountant == "gaussian" else "zcdp"


def cap_accountant(accountant: Accountant) -> CapAccountant:
    """Return the accountant that converts a data set's lifetime cap if its first release is under ``accountant``."""
    return "gaussian" if accountant == "gaussian" else "tight"


@functools.lru_cache(maxsize=256)
def convert_epsilon_to_rho(epsilon: float, delta: float, accountant: Accountant = "tight") -> Fraction:
    """Return the largest rho, rounded down to RHO_DIGITS digits, whose epsilon at ``delta`` is at most ``epsilon``.

    Deterministic: the same arguments give the same fraction, so a release may spend exactly a cap.
    Raises ValueError unless SMALLEST_EPSILON <= epsilon < infinity and 0 < delta < 1.
    """
    _check(epsilon, delta)
    if epsilon < SMALLEST_EPSILON:
        raise ValueError(f"epsilon must be at least {SMALLEST_EPSILON:g} to be accounted for, not {epsilon}")
    low = _convert_paper_epsilon(epsilon, delta)
    if accountant == "gaussian" and epsilon >= gaussian_dp.MIN_EPSILON and low <= _GAUSSIAN_LARGEST / 8:
        guess = gaussian_dp.approximate_rho(epsilon, delta, low)
        low = _bisect(low, lambda rho: gaussian_dp.keeps_promise(Fraction(rho), epsilon, delta), guess)
    elif accountant != "paper":
        guess = _approximate_tight_rho(epsilon, delta)
        low = _bisect(low, lambda rho: convert_rho_to_epsilon(Fraction(rho), delta, "tight") <= epsilon, guess)
    rho = _round_down(low)
    while convert_rho_to_epsilon(rho, delta, accountant) > epsilon:
        rho = _round_down(float(rho) * (1 - 1e-9))
    return rho


@functools.lru_cache(maxsize=1024)
def convert_rho_to_epsilon(rho: Fraction, delta: float, accountant: Accountant = "tight") -> float:
    """Return the smallest float epsilon, rounded up, such that a total price of ``rho`` implies (epsilon, delta)-DP.

    For ``gaussian`` the price must be under the pricing "gaussian"; for ``tight``, the default, and ``paper`` it may be
    under either.  ``rho`` = 0 gives 0.
    Raises ValueError for rho < 0 and unless 0 < delta < 1.
    """
    _check(1.0, delta)
    if rho < 0:
        raise ValueError(f"rho must be 0 or more, not {rho}")
    if rho == 0:
        return 0.0
    paper = _convert_paper_rho(rho, delta)
    if accountant == "gaussian" and rho <= _GAUSSIAN_LARGEST:
        epsilon = min(paper, _convert_gaussian_rho(rho, delta, paper))
        return (
            epsilon if epsilon > gaussian_dp.MIN_EPSILON else min(epsilon, convert_rho_to_epsilon(rho, delta, "tight"))
        )
    if accountant == "paper" or rho > _OPENDP_LARGEST:
        return paper
    return min(paper, _convert_tight_rho(rho, delta))


def _check(epsilon: float, delta: float) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be positive and finite, not {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, not {delta}")


def _convert_paper_epsilon(epsilon: float, delta: float) -> float:
    """Return rho by Theorem 2, (sqrt(L + epsilon) - sqrt(L))^2 with L = ln(1/delta), without cancellation."""
    log = -math.log(delta)
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2


def _convert_paper_rho(rho: Fraction, delta: float) -> float:
    """Return epsilon by Theorem 2, in 40-digit decimals, rounded up."""
    exact = _UP.divide(Decimal(rho.numerator), Decimal(rho.denominator))
    log = _UP.minus(_UP.ln(Decimal(delta)))
    # ln and sqrt round to nearest; one part in 10^30 more keeps the sum an upper bound
    root = _UP.multiply(_UP.sqrt(_UP.multiply(exact, log)), Decimal(1) + Decimal(10) ** -30)
    return _round_up_to_float(Fraction(_UP.add(exact, _UP.multiply(Decimal(2), root))))


def _convert_tight_rho(rho: Fraction, delta: float) -> float:
    """Return OpenDP's conversion, at or just above ``rho``."""
    distance = math.sqrt(2 * _round_up_to_float(rho))
    while Fraction(distance) ** 2 < 2 * rho:
        distance = math.nextafter(distance, math.inf)
    return float(_get_opendp().map(distance).epsilon(delta))


def _convert_gaussian_rho(rho: Fraction, delta: float, limit: float) -> float:
    """Return the smallest epsilon from gaussian_dp.MIN_EPSILON up to ``limit`` that Gaussian DP keeps, else that."""
    low, high = gaussian_dp.MIN_EPSILON, limit
    if high <= low or gaussian_dp.keeps_promise(rho, low, delta):
        return min(low, high)
    guess = gaussian_dp.approximate_epsilon(float(rho), delta, low, high)
    for width in _WIDTHS:  # gives the same answer as the whole range, in fewer exact steps
        below, above = max(low, guess * (1 - width)), min(high, guess * (1 + width))
        if not gaussian_dp.keeps_promise(rho, below, delta) and gaussian_dp.keeps_promise(rho, above, delta):
            low, high = below, above
            break
    while low < (middle := (low + high) / 2) < high:
        if gaussian_dp.keeps_promise(rho, middle, delta):
            high = middle
        else:
            low = middle
    return high


def _approximate_tight_rho(epsilon: float, delta: float) -> float:
    """Return approximately the rho of Proposition 12: a starting point, not a proof."""

    def allowed(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        rest = math.log(delta) + log_excess + (1 + excess) * math.log1p(1 / excess)
        return (epsilon + rest / excess) / (1 + excess)

    low, high = math.log(1e-9), math.log(1e40)
    for _ in range(_SECTIONS):
        width = (high - low) * _GOLDEN
        if allowed(low + width) > allowed(high - width):
            high -= width
        else:
            low += width
    return allowed(low)


def _bisect(low: float, fits: Callable[[float], bool], guess: float) -> float:
    """Return the largest float found that ``fits``; ``low`` and everything below it must fit.

    The result does not depend on ``guess``.
    """
    surely, never = _decide_bisection(low, fits, guess)

    def is_allowed(rho: float) -> bool:
        return rho <= surely or (rho < never and fits(rho))

    high, factor = low, 1.5
    while is_allowed(high):
        low, high, factor = high, high * factor, factor**2
    for _ in range(_STEPS):
        if high - low <= low * 1e-12:
            break
        middle = (low + high) / 2 if high < 2 * low else math.sqrt(low) * math.sqrt(high)
        if is_allowed(middle):
            low = middle
        else:
            high = middle
    return low


def _decide_bisection(low: float, fits: Callable[[float], bool], guess: float) -> tuple[float, float]:
    """Return a value that fits and a larger one that does not, as bounds to bisect: close to a good ``guess``."""
    for width in _WIDTHS:
        below, above = guess * (1 - width), guess * (1 + width)
        if fits(below) and not fits(above):
            return max(low, below), above
    return low, math.inf


def _round_down(rho: float) -> Fraction:
    """Return ``rho`` rounded down to RHO_DIGITS significant decimal digits, exactly."""
    return Fraction(_DOWN.create_decimal(Decimal(rho)))


def _round_up_to_float(value: Fraction) -> float:
    """Return the smallest float that is not below ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


@functools.lru_cache(maxsize=1)
def _get_opendp() -> Any:
    """Return a mechanism whose map converts d^2/2 zCDP into approximate DP; it is never invoked."""
    # Imported here, since it is needed late; not from opendp.prelude, which loads scikit-learn for over a second.
    from opendp.combinators import make_zCDP_to_approxDP
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    carrier = make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=1.0)
    return make_zCDP_to_approxDP(carrier)
