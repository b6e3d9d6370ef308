"""Gaussian DP of discrete noise: every step of the argument against a referee that knows nothing of it."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data_contracts.receipts import SMOOTHING, compute_sigma
from privsyn.tasks.privacy import gaussian_dp
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, convert_rho_to_epsilon
from privsyn.tasks.privacy.gaussian_dp import SAFETY_MARGIN, bound_delta, bound_tail, bound_theta, keeps_promise
from tests.support.examples import choose_example_count, keep_first

EPSILONS = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0)


def exact(value: Decimal | Fraction) -> mpmath.mpf:
    """The number itself, at the precision of the caller's mpmath context."""
    if isinstance(value, Decimal):  # as text: a fraction of it could have 10^11 digits
        return mpmath.mpf(str(value))
    return mpmath.mpf(value.numerator) / value.denominator


def upper_tail(z: mpmath.mpf) -> mpmath.mpf:
    """Q(z) by another library."""
    return mpmath.erfc(z / mpmath.sqrt(2)) / 2


def curve(rho: Fraction, epsilon: Fraction) -> mpmath.mpf:
    """Balle and Wang's delta, at the precision of the caller's mpmath context."""
    mu, loss = mpmath.sqrt(2 * exact(rho)), exact(epsilon)
    return upper_tail(loss / mu - mu / 2) - mpmath.exp(loss) * upper_tail(loss / mu + mu / 2)


# The curve, in directed rounding


@pytest.mark.parametrize("z", ["0", "1e-30", "0.5", "2.9", "3", "3.0000001", "5", "12", "40", "1414", "999999.5"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_the_tail_is_bracketed_closely(z, sign):
    with mpmath.workdps(400):
        low, high = map(exact, bound_tail(Decimal(sign + z)))
        true = upper_tail(mpmath.mpf(sign + z))
        assert low <= true <= high
        assert high - low <= true * mpmath.mpf(10) ** -25


def test_very_far_out_there_is_nothing_but_a_bound():
    low, high = bound_tail(Decimal(10) ** 7)
    assert low == 0 < high < Decimal("1e-1000000")


@settings(max_examples=choose_example_count(150), deadline=None)
@given(st.floats(-13, 4), st.floats(-6, 6))
def test_delta_is_never_too_small_and_hardly_too_large(log_rho, log_epsilon):
    rho, epsilon = Fraction(10.0**log_rho), Fraction(10.0**log_epsilon)
    found = bound_delta(rho, epsilon)
    with mpmath.workdps(400):
        true = curve(rho, epsilon)
        assert exact(found) >= true
        if true > mpmath.mpf(10) ** -10_000:
            assert exact(found) <= true * (1 + mpmath.mpf(10) ** -20)


def test_the_callers_decimal_context_changes_nothing():
    with localcontext() as context:
        context.prec = 5
        rough = bound_delta(Fraction(1), Fraction(1, 1000)), bound_tail(Decimal("-0.30001")), bound_theta(Fraction(1))
    assert rough == (
        bound_delta(Fraction(1), Fraction(1, 1000)),
        bound_tail(Decimal("-0.30001")),
        bound_theta(Fraction(1)),
    )


def test_the_discreteness_costs_epsilon_and_delta():
    rho, delta, leaked = Fraction(1, 10), float(bound_delta(Fraction(1, 10), Fraction(1))), float(SAFETY_MARGIN)
    assert keeps_promise(rho, 1 + 1.01 * leaked, delta * (1 + 1.01 * leaked))
    assert not keeps_promise(rho, 1 + 1.01 * leaked, delta * (1 + 0.9 * leaked))
    assert not keeps_promise(rho, 1 + 0.5 * leaked, delta * (1 + 1.01 * leaked))
    assert not keeps_promise(rho, leaked / 2, 0.999999)


# Smoothing: discrete noise is, but for a small factor, continuous noise that is rounded at random


def sum_around(centre: float, variance: float) -> float:
    """sum over all integers z of exp(-(z - centre)^2 / (2 variance)), directly."""
    z = np.arange(-60, 61)
    return float(np.exp(-((z - centre) ** 2) / (2 * variance)).sum())


@pytest.mark.parametrize("variance", [0.05, 0.1, 0.3, 1.0])
def test_theta_bounds_how_much_the_sum_depends_on_its_centre(variance):
    sums = np.array([sum_around(c, variance) for c in np.linspace(0, 1, 101)]) / math.sqrt(2 * math.pi * variance)
    bound = float(bound_theta(Fraction(variance)))
    assert np.abs(sums - 1).max() <= bound * (1 + 1e-9) + 1e-14
    assert np.abs(sums - 1).max() >= bound * 0.6  # not a bound that anything meets


@pytest.mark.parametrize("smoothing", [0.1, 0.2, 0.3])
@pytest.mark.parametrize("rest", [0.05, 1.0, 9.0])
def test_random_rounding_of_continuous_noise_gives_the_discrete_one_but_for_theta(smoothing, rest):
    """At a smoothing small enough that the factor shows; the integral by a fine sum, which converges at once."""
    step = math.sqrt(min(rest, smoothing)) / 40
    x = np.arange(-14 * math.sqrt(rest), 14 * math.sqrt(rest), step)
    weight = np.exp(-(x**2) / (2 * rest)) * step / math.sqrt(2 * math.pi * rest)
    sums = np.array([sum_around(c % 1.0, smoothing) for c in x])
    y = np.arange(-8, 9)
    y = y[np.abs(y) <= 6 * math.sqrt(rest + smoothing)]
    rounded = (np.exp(-((y[:, None] - x) ** 2) / (2 * smoothing)) / sums * weight).sum(axis=1)
    variance = rest + smoothing
    discrete = np.exp(-(y**2) / (2 * variance)) / sum_around(0.0, variance)
    ratio = discrete / rounded
    at, norm = float(bound_theta(Fraction(smoothing))), sum_around(0.0, variance) / math.sqrt(2 * math.pi * variance)
    assert np.all(ratio <= (1 + at) / norm * (1 + 1e-9)) and np.all(ratio >= (1 - at) / norm * (1 - 1e-9))
    if smoothing == 0.1:
        assert np.abs(ratio - 1).max() > 1e-3  # the test sees what it bounds


def test_what_is_taken_off_covers_ten_to_the_fifteen_counts():
    at, counts = Fraction(bound_theta(Fraction(SMOOTHING))), 10**15
    # ln((1 + t) / (1 - t)) = 2 t + 2 t^3 / 3 + ... <= 2 t (1 + t), and (1 + t)^n <= 1 + 2 n t where n t <= 1
    assert counts * 2 * at * (1 + at) <= SAFETY_MARGIN
    assert 2 * counts * at <= SAFETY_MARGIN


# Composition: the best adaptive adversary against exact discrete Gaussians, by backward induction


def discrete(sigma: float, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the answers on an integer range that holds all but 1e-30, with the person and without."""
    y = np.arange(-int(13 * sigma) - 2, int(13 * sigma) + shift + 3)
    without = np.exp(-(y**2) / (2 * sigma**2))
    return np.exp(-((y - shift) ** 2) / (2 * sigma**2)) / without.sum(), without / without.sum()


def hockey_stick(epsilons: np.ndarray, sigma: float, shift: int) -> np.ndarray:
    """sum_y max(P(y) - exp(epsilon) Q(y), 0), exactly, for each epsilon (negative ones too)."""
    p, q = discrete(sigma, shift)
    return np.maximum(p - np.exp(epsilons)[:, None] * q, 0).sum(axis=1)


def worst_adaptive(epsilon: float, rho: Fraction, share: Fraction, shift: int, pricing: str) -> float:
    """The exact delta of two looks where the second is chosen, answer by answer, to hurt most.

    The first costs ``share`` of rho at sensitivity ``shift``; the second all that is left, at sensitivity 1, 2, 3 or 5,
    or nothing at all.
    """
    p, q = discrete(compute_sigma(rho * share, shift, pricing), shift)
    seen = (p > 0) & (q > 0)
    left = epsilon - np.log(p[seen] / q[seen])
    worst = np.maximum(1 - np.exp(left), 0)
    for second in (1, 2, 3, 5):
        worst = np.maximum(worst, hockey_stick(left, compute_sigma(rho * (1 - share), second, pricing), second))
    return float((p[seen] * worst).sum() + p[~seen].sum())


TOTALS = (0.006, 0.0166, 0.06, 0.34, 1.18, 2.0)  # the rho of epsilon 0.6 to 14 at delta 1e-9
SHARES = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))


@pytest.mark.parametrize("rho", TOTALS)
def test_no_adaptive_choice_of_noise_passes_the_claim(rho):
    nearest = 0.0
    for epsilon in EPSILONS:
        claim = float(bound_delta(Fraction(rho), Fraction(epsilon)))
        if claim < 1e-11:  # below what floating-point sums can show
            continue
        found = [worst_adaptive(epsilon, Fraction(rho), s, k, "gaussian") for s in SHARES for k in (1, 3)]
        assert max(found) <= claim
        nearest = max(nearest, max(found) / claim)
    assert nearest > 0.85  # and the claim is no idle one


@pytest.mark.parametrize("rho", TOTALS)
def test_the_same_without_smoothing_would_be_wrong(rho):
    """The planted mutant: noise priced as zCDP under the Gaussian's curve.  The adversary of the test above sees it."""
    passed = [
        worst_adaptive(epsilon, Fraction(rho), share, 1, "zcdp") / claim
        for epsilon in EPSILONS
        for share in SHARES
        if (claim := float(bound_delta(Fraction(rho), Fraction(epsilon)))) >= 1e-11
    ]
    assert max(passed) > 1.001


# The mix of a release, by dp-accounting's privacy loss distributions


def composed(mix: list[tuple[float, int, int]], step: float, *, upper: bool) -> pld.PrivacyLossDistribution:
    """dp-accounting's own discrete Gaussians: (sigma, sensitivity, how many times); a bound from above or from below.

    From above by its connect-the-dots discretization, which hardly overestimates.
    """
    total = None
    for sigma, sensitivity, times in mix:
        one = pld.from_discrete_gaussian_mechanism(
            sigma,
            sensitivity,
            pessimistic_estimate=upper,
            value_discretization_interval=step,
            use_connect_dots=upper,
        ).self_compose(times)
        total = one if total is None else total.compose(one)
    return total


def release_mix(rho: Fraction) -> list[tuple[float, int, int]]:
    """14 one-ways and 91 scores at equal shares, 42 marginals at shares 1:2:4, as `privsyn release` would split."""
    one_ways, scores, measured = (rho * share for share in (Fraction(1, 4), Fraction(1, 50), Fraction(73, 100)))
    parts = [(one_ways / 14, 1, 14), (scores / 91, 1, 91)]
    parts += [(measured * weight / 98, 1, 14) for weight in (1, 2, 4)]
    return [(compute_sigma(share, k, "gaussian"), k, times) for share, k, times in parts]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_dp_accounting_agrees_from_both_sides_on_a_release(epsilon):
    """Even its bound from above, for the noise as drawn, is below the claim, and by no more than SMOOTHING costs."""
    delta = 1e-6
    mix = release_mix(convert_epsilon_to_rho(epsilon, delta, "gaussian"))
    assert composed(mix, 1e-4, upper=False).get_epsilon_for_delta(delta) <= epsilon
    above = composed(mix, 2e-5, upper=True).get_epsilon_for_delta(delta)
    smallest = min(sigma for sigma, _, _ in mix)
    assert epsilon * (1 - SMOOTHING / smallest**2) <= above <= epsilon


@pytest.mark.parametrize("epsilon", keep_first([1.0, 0.2, 3.0]))
def test_dp_accounting_finds_noise_that_is_a_little_too_small(epsilon):
    """The referee itself: 2 % less noise than the claim needs, and its bound from below passes the claim."""
    mix = [
        (0.98 * sigma, k, times) for sigma, k, times in release_mix(convert_epsilon_to_rho(epsilon, 1e-6, "gaussian"))
    ]
    assert composed(mix, 5e-5 * epsilon, upper=False).get_epsilon_for_delta(1e-6) > epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-5])
def test_it_lies_between_the_exact_gaussian_and_the_zcdp_conversion(epsilon, delta):
    rho = convert_epsilon_to_rho(epsilon, delta, "gaussian")
    with mpmath.workdps(60):
        assert curve(rho, Fraction(epsilon)) <= delta
        assert curve(rho * (1 + Fraction(1, 10**6)), Fraction(epsilon)) > delta
    assert rho > convert_epsilon_to_rho(epsilon, delta, "tight")
    assert convert_rho_to_epsilon(rho, delta, "gaussian") < convert_rho_to_epsilon(rho, delta, "tight")


@pytest.mark.parametrize(("epsilon", "gain"), [(0.2, 1.41), (1.0, 1.31), (2.0, 1.27)])
def test_the_known_gain_over_the_paper(epsilon, gain):
    assert float(
        convert_epsilon_to_rho(epsilon, 1e-12, "gaussian") / convert_epsilon_to_rho(epsilon, 1e-12, "paper")
    ) == pytest.approx(gain, abs=0.005)


@pytest.mark.parametrize("delta", [1e-300, 1e-9, 0.01])
def test_below_a_millionth_the_zcdp_conversion_takes_over_upwards(delta):
    at = gaussian_dp.MIN_EPSILON
    below = at * (1 - 1e-9)
    assert (
        convert_epsilon_to_rho(below, delta, "gaussian")
        == convert_epsilon_to_rho(below, delta, "tight")
        <= convert_epsilon_to_rho(at, delta, "gaussian")
    )
    for epsilon in (below, at):
        assert convert_rho_to_epsilon(convert_epsilon_to_rho(epsilon, delta, "gaussian"), delta, "gaussian") <= epsilon
