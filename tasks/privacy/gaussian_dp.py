"""Gaussian differential privacy of discrete Gaussian noise: upper bounds on the (epsilon, delta) of a total price.

Discrete Gaussian noise of scale sigma is, up to a factor within exp(+-4e-26) per count, continuous Gaussian noise of
variance sigma^2 - SMOOTHING that is rounded at random.  Consider continuous Gaussian mechanisms, even adaptive ones,
with a sum of sensitivity^2 / variance of at most mu^2 = 2 rho.  Their composition is no easier to distinguish than one
Gaussian with shift mu and variance 1.  docs/privacy.md has both proofs, and why SAFETY_MARGIN covers the factor.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Final

SAFETY_MARGIN: Final = Fraction(1, 10**10)
"""Margin subtracted from epsilon, and relatively from delta, because the noise is discrete.

Over 10^15 counts that one person changes (drawing them would take three centuries), the proof needs 8e-11 of epsilon
and 4e-11 of delta: see :func:`bound_theta`.
"""

MIN_EPSILON: Final = 1e-6
"""Smallest epsilon: below it SAFETY_MARGIN is not negligible, and the zCDP conversion is used instead."""

_DIGITS, _SURE = 60, Decimal(10) ** -40
_UP = Context(prec=_DIGITS, rounding=ROUND_CEILING, Emin=-(10**13), Emax=10**13)
_DOWN = Context(prec=_DIGITS, rounding=ROUND_FLOOR, Emin=-(10**13), Emax=10**13)
_NEAR = Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN, Emin=-(10**13), Emax=10**13)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")
_SERIES_TO, _SERIES_TERMS, _FRACTION_TERMS = 3, 80, 140
_HALVINGS, _ERFC_TO = 60, 35.0
_FAR, _NOTHING = 10**6, Decimal("1E-100000000000")


def keeps_promise(rho: Fraction, epsilon: float, delta: float) -> bool:
    """Return whether mechanisms of total price ``rho`` (pricing "gaussian") are (epsilon, delta)-DP.

    True is proved; False may be caution within one part in 10^9 of the border.  Requires ``rho`` > 0,
    ``epsilon`` >= MIN_EPSILON and 0 < ``delta`` < 1.
    """
    safe_epsilon = Fraction(epsilon) - SAFETY_MARGIN
    if safe_epsilon < 0:
        return False
    return _UP.multiply(bound_delta(rho, safe_epsilon), _divide(_UP, 1 + SAFETY_MARGIN)) <= Decimal(delta)


def approximate_epsilon(rho: float, delta: float, low: float, high: float) -> float:
    """Return approximately where :func:`keeps_promise` changes in [low, high]; a starting point, not a proof."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _exceeds(rho, middle, delta):
            low = middle
        else:
            high = middle
    return high


def approximate_rho(epsilon: float, delta: float, low: float) -> float:
    """Return approximately the rho where :func:`keeps_promise` changes; a starting point, not a proof.

    ``low``: a rho that keeps it.
    """
    high, least = low, epsilon - float(SAFETY_MARGIN)
    while not _exceeds(high, least, delta) and math.isfinite(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _exceeds(middle, least, delta / (1 + float(SAFETY_MARGIN))):
            high = middle
        else:
            low = middle
    return low


def _exceeds(rho: float, epsilon: float, delta: float) -> bool:
    """Return whether the approximate delta of N(mu, 1) against N(0, 1), mu^2 = 2 ``rho``, is above ``delta``."""
    mu = math.sqrt(2 * rho)
    near, far = _log_tail(epsilon / mu - mu / 2), epsilon + _log_tail(epsilon / mu + mu / 2)
    share = -math.expm1(min(far - near, 0.0))
    return share > 0 and near + math.log(share) > math.log(delta)


def _log_tail(z: float) -> float:
    """Return approximately ln Q(z), with Q the normal distribution's upper tail."""
    if z < _ERFC_TO:
        return math.log(math.erfc(z / math.sqrt(2)) / 2)
    square = z * z
    return -square / 2 - math.log(z * math.sqrt(2 * math.pi)) + math.log1p(-1 / square * (1 - 3 / square))


def bound_delta(rho: Fraction, epsilon: Fraction) -> Decimal:
    """Return an upper bound on the delta of N(mu, 1) against N(0, 1) at ``epsilon`` >= 0, mu^2 = 2 ``rho`` > 0.

    Balle and Wang (2018), Theorem 8: delta = Q(epsilon/mu - mu/2) - exp(epsilon) Q(epsilon/mu + mu/2), with Q the
    normal distribution's upper tail.  It rises with mu and falls with epsilon, so mu is rounded up and epsilon down;
    the first Q is bounded from above and the product from below.
    """
    mu = _UP.sqrt(_UP.multiply(2, _divide(_UP, rho))).next_plus(_UP)
    loss = _divide(_DOWN, epsilon)
    near = _DOWN.subtract(_DOWN.divide(loss, mu), _UP.divide(mu, 2))
    far = _UP.add(_UP.divide(loss, mu), _UP.divide(mu, 2))
    return _UP.subtract(bound_tail(near)[1], _DOWN.multiply(_list_bounds(_NEAR.exp(loss))[0], bound_tail(far)[0]))


def bound_tail(z: Decimal) -> tuple[Decimal, Decimal]:
    """Return bounds, below and above, on Q(z) = P(N(0, 1) > z), about 40 digits apart.

    Up to 3: the power series Q(z) = 1/2 - phi(z) (z + z^3/3 + z^5/15 + ...), whose rest is below a geometric series.
    Above 3: Laplace's continued fraction Q(z) = phi(z) / (z + 1/(z + 2/(z + 3/(z + ...)))), which lies between any two
    neighbouring convergents.  All terms are positive, so each of about a hundred roundings at 60 digits moves a bound
    by parts in 10^60; widening by 10^-40 covers them.  Above 10^6, Q is below exp(-z^2/2) < 10^(-10^11).
    """
    if z < 0:
        low, high = bound_tail(z.copy_negate())  # unary minus would round to the default context
        return _DOWN.subtract(1, high), _UP.subtract(1, low)
    if z > _FAR:
        return Decimal(0), _NOTHING
    if z <= _SERIES_TO:
        least, most = _list_series_terms(z)
        return _DOWN.subtract(Decimal("0.5"), most), _UP.subtract(Decimal("0.5"), least)
    density = _bound_density(z)
    return _list_bounds(
        *(_NEAR.multiply(density, _bound_mills_ratio(z, terms)) for terms in (_FRACTION_TERMS, _FRACTION_TERMS + 1))
    )


def bound_theta(variance: Fraction) -> Decimal:
    """Return an upper bound on theta = 2 sum_{k >= 1} exp(-2 pi^2 k^2 ``variance``).

    By Poisson summation, sum_z exp(-(z - c)^2 / (2 ``variance``)) over all integers z is within a factor 1 +- theta of
    sqrt(2 pi variance) for every centre c.  So for SMOOTHING, one count's odds between two tables are within the factor
    (1 + theta) / (1 - theta) of the odds under randomly rounded noise: 8e-26 of epsilon (docs/privacy.md).
    """
    exponent = _NEAR.multiply(_NEAR.multiply(_NEAR.multiply(-2, _PI), _PI), _divide(_NEAR, variance))
    first = _list_bounds(_NEAR.exp(exponent))[1]
    return _UP.divide(_UP.multiply(2, first), _DOWN.subtract(1, first))


def _list_series_terms(z: Decimal) -> tuple[Decimal, Decimal]:
    term = total = z
    square = _NEAR.multiply(z, z)
    for k in range(1, _SERIES_TERMS):
        term = _NEAR.divide(_NEAR.multiply(term, square), 2 * k + 1)
        total = _NEAR.add(total, term)
    # each later term is at most z^2 / (2 _SERIES_TERMS + 1) < 1/2 of the one before, so their sum is below the last one
    density = _bound_density(z)
    return _list_bounds(_NEAR.multiply(density, total), _NEAR.multiply(density, _NEAR.add(total, term)))


def _bound_mills_ratio(z: Decimal, terms: int) -> Decimal:
    fraction = z
    for k in range(terms, 0, -1):
        fraction = _NEAR.add(z, _NEAR.divide(k, fraction))
    return _NEAR.divide(1, fraction)


def _bound_density(z: Decimal) -> Decimal:
    """Return phi(z) for z up to _FAR; the exponent's rounding error, z^2 parts in 10^60, is far below _SURE."""
    exponent = _NEAR.divide(_NEAR.multiply(z, z), -2)
    return _NEAR.divide(_NEAR.exp(exponent), _NEAR.sqrt(_NEAR.multiply(2, _PI)))


def _list_bounds(*values: Decimal) -> tuple[Decimal, Decimal]:
    return _DOWN.multiply(min(values), _DOWN.subtract(1, _SURE)), _UP.multiply(max(values), _UP.add(1, _SURE))


def _divide(context: Context, value: Fraction) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))
