"""(epsilon, delta) and rho: two independent referees, each from the side where it is safe."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, convert_rho_to_epsilon
from tests.support.examples import choose_example_count, keep_first

EPSILONS = (1e-3, 0.05, 0.2, 1.0, 2.0, 10.0, 100.0, 1e4)
DELTAS = (1e-30, 1e-12, 1e-9, 1e-5, 1e-2, 0.5)
_T = np.exp(np.linspace(math.log(1e-6), math.log(1e9), 40_001))  # alpha - 1


def brute_minimum(function) -> float:
    """Minimum over a grid of alpha - 1 and over a second, finer grid around its best point."""
    best = int(np.argmin(function(_T)))
    finer = np.linspace(_T[max(best - 1, 0)], _T[min(best + 1, len(_T) - 1)], 10_001)
    return float(function(finer).min())


def brute_epsilon(rho: float, delta: float) -> float:
    """Corollary 13's epsilon by search over alpha: never below the infimum."""
    log = math.log(delta)
    found = brute_minimum(lambda t: (1 + t) * rho + np.log(t) - np.log1p(t) - (log + np.log1p(t)) / t)
    return max(found, 0.0)


def brute_delta(rho: float, epsilon: float) -> float:
    """Proposition 12's delta by the same search."""

    def log_delta(t: np.ndarray) -> np.ndarray:
        return t * ((1 + t) * rho - epsilon) - np.log(t) + (1 + t) * (np.log(t) - np.log1p(t))

    return math.exp(brute_minimum(log_delta))


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_tight_is_the_infimum_and_never_promises_more(epsilon, delta):
    rho = float(convert_epsilon_to_rho(epsilon, delta))
    assert brute_epsilon(rho, delta) >= epsilon * (1 - (1e-3 if epsilon > 5e3 else 1e-7))
    assert brute_epsilon(rho, delta) <= epsilon * (1 + 1e-9)
    assert brute_delta(rho, epsilon) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("delta", keep_first([1e-9, 1e-12, 1e-5]))
def test_dp_accounting_agrees_from_both_sides(epsilon, delta):
    rho = convert_epsilon_to_rho(epsilon, delta)
    event = GaussianDpEvent(1 / math.sqrt(2 * float(rho)))
    orders = 1 + np.exp(np.linspace(math.log(1e-3), math.log(1e5), 4_000))
    rdp = RdpAccountant(orders=orders).compose(event).get_epsilon(delta)
    assert rdp == pytest.approx(epsilon, rel=1e-4)  # the same bound over a grid of orders: no lower
    assert rdp >= epsilon * (1 - 1e-8)
    pld = PLDAccountant(value_discretization_interval=1e-4).compose(event).get_epsilon(delta)
    assert pld <= epsilon  # the exact curve of the Gaussian lies below any zCDP conversion
    assert pld >= 0.8 * epsilon


def test_dp_accounting_agrees_on_a_composition():
    shares = [Fraction(1, 10), Fraction(1, 10), Fraction(8, 10)]
    rho = convert_epsilon_to_rho(1.0, 1e-9)
    events = [GaussianDpEvent(1 / math.sqrt(2 * float(rho * s))) for s in shares]
    orders = 1 + np.exp(np.linspace(math.log(1e-2), math.log(1e4), 4_000))
    composed = RdpAccountant(orders=orders).compose(dp_event.ComposedDpEvent(events)).get_epsilon(1e-9)
    assert composed == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "gain"), [(0.2, 1.30), (1.0, 1.21), (2.0, 1.17)])
def test_tight_gives_the_known_gain_over_the_paper(epsilon, gain):
    assert float(
        convert_epsilon_to_rho(epsilon, 1e-12) / convert_epsilon_to_rho(epsilon, 1e-12, "paper")
    ) == pytest.approx(gain, abs=0.005)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_paper_is_theorem_2(epsilon, delta):
    rho = float(convert_epsilon_to_rho(epsilon, delta, "paper"))
    theorem = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert theorem == pytest.approx(epsilon, rel=1e-9)
    assert theorem <= epsilon * (1 + 1e-14)
    assert convert_epsilon_to_rho(epsilon, delta, "paper") <= convert_epsilon_to_rho(epsilon, delta)


@pytest.mark.parametrize("accountant", ["gaussian", "tight", "paper"])
@pytest.mark.parametrize("delta", [1e-30, 1e-9, 0.5])
def test_extremes_are_finite_and_monotone(accountant, delta):
    epsilons = np.geomspace(1e-3, 1e6, 9)
    rhos = [convert_epsilon_to_rho(float(e), delta, accountant) for e in epsilons]
    assert all(0 < a < b for a, b in itertools.pairwise(rhos))
    back = [convert_rho_to_epsilon(r, delta, accountant) for r in rhos]
    assert all(b <= e for b, e in zip(back, epsilons, strict=True))
    assert back == pytest.approx(epsilons, rel=2e-6)


@pytest.mark.parametrize("delta", [1e-300, 1e-30, 0.5, 0.999999])
@pytest.mark.parametrize(("accountant", "last"), [("tight", 50_000), ("gaussian", 10**9)])
def test_the_hand_over_to_the_papers_conversion_is_upwards(delta, accountant, last):
    below, above = (convert_rho_to_epsilon(Fraction(r), delta, accountant) for r in (last, last + 1))
    assert below * (1 + 1e-3) >= last and below < above < below * 1.01


@settings(max_examples=choose_example_count(40), deadline=None)
@given(
    st.floats(1e-12, 1e3),
    st.floats(-29, -2),
    st.floats(1.0, 2.0),
    st.sampled_from(["gaussian", "tight", "paper"]),
)
def test_epsilon_rises_with_rho_and_falls_with_delta(rho, log_delta, factor, accountant):
    exact, delta = Fraction(rho), 10.0**log_delta
    epsilon = convert_rho_to_epsilon(exact, delta, accountant)
    # 1e-9: the search for the best alpha ends within rounding of the optimum
    assert epsilon <= convert_rho_to_epsilon(exact * Fraction(factor), delta, accountant) * (1 + 1e-9) + 1e-12
    assert epsilon >= convert_rho_to_epsilon(exact, delta * factor, accountant) * (1 - 1e-9) - 1e-12
    assert epsilon <= convert_rho_to_epsilon(exact, delta, "paper")


def test_a_fraction_no_float_can_hold_is_rounded_up():
    rho = Fraction(1, 3) + Fraction(1, 10**40)
    for accountant in ("gaussian", "tight", "paper"):
        assert convert_rho_to_epsilon(rho, 1e-9, accountant) >= convert_rho_to_epsilon(Fraction(1, 3), 1e-9, accountant)
    assert convert_rho_to_epsilon(Fraction(0), 1e-9) == 0.0


@pytest.mark.parametrize("accountant", ["gaussian", "tight", "paper"])
def test_rho_is_deterministic_and_short(accountant):
    convert_epsilon_to_rho.cache_clear()
    first = convert_epsilon_to_rho(1.0, 1e-9, accountant)
    convert_epsilon_to_rho.cache_clear()
    assert convert_epsilon_to_rho(1.0, 1e-9, accountant) == first
    assert len(str(first)) < 40


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-9), (-1, 1e-9), (math.inf, 1e-9), (math.nan, 1e-9)])
def test_bad_epsilon_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match="epsilon"):
        convert_epsilon_to_rho(epsilon, delta)


@pytest.mark.parametrize("accountant", ["gaussian", "tight", "paper"])
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 0.5])
def test_an_epsilon_beyond_floats_is_refused_and_a_tiny_one_is_accounted(accountant, delta):
    """1e-17 and the limit itself have a rho, found without overflow; 1e-100 and 1e-300 have none."""
    for epsilon in (1e-300, 1e-100, 9.9e-31):
        with pytest.raises(ValueError, match="epsilon must be at least 1e-30"):
            convert_epsilon_to_rho(epsilon, delta, accountant)
    for epsilon in (1e-30, 1e-17):
        rho = convert_epsilon_to_rho(epsilon, delta, accountant)
        assert rho > 0 and convert_rho_to_epsilon(rho, delta, accountant) <= epsilon


@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, math.nan])
def test_bad_delta_is_refused(delta):
    with pytest.raises(ValueError, match="delta"):
        convert_epsilon_to_rho(1.0, delta)
    with pytest.raises(ValueError, match="delta"):
        convert_rho_to_epsilon(Fraction(1), delta)


def test_negative_rho_is_refused():
    with pytest.raises(ValueError, match="rho"):
        convert_rho_to_epsilon(Fraction(-1, 10), 1e-9)
