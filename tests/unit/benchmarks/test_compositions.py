"""Figure 2 of the DPSyn report: the crossings that it states, and each line against its own definition."""

from __future__ import annotations

import math

import pytest

from benchmarks.compositions import (
    REPORTED,
    SETTINGS,
    compute_gaussian_advanced,
    compute_gaussian_zcdp,
    compute_laplace_advanced,
    compute_laplace_naive,
    compute_laplace_zcdp,
    find_crossing,
)


@pytest.mark.parametrize(("setting", "reported"), list(zip(SETTINGS, REPORTED, strict=True)))
def test_naive_laplace_and_gaussian_zcdp_cross_where_the_report_says(
    setting: tuple[float, float], reported: int
) -> None:
    k = find_crossing(*setting)
    assert round(k) == reported
    assert compute_laplace_naive(*setting, k) == pytest.approx(compute_gaussian_zcdp(*setting, k), rel=1e-12)
    below, above = math.floor(k), math.ceil(k)
    assert compute_laplace_naive(*setting, below) < compute_gaussian_zcdp(*setting, below)
    assert compute_laplace_naive(*setting, above) > compute_gaussian_zcdp(*setting, above)


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize("k", [1, 20, 100])
def test_each_line_keeps_epsilon_and_delta(epsilon: float, delta: float, k: int) -> None:
    """The noise back to the promise, by the textbook's formulas."""
    each = math.sqrt(2) / compute_laplace_naive(epsilon, delta, k)
    assert k * each == pytest.approx(epsilon)

    def advanced(each: float, slack: float) -> float:
        return each * math.sqrt(2 * k * math.log(1 / slack)) + k * each * (math.exp(each) - 1)

    assert advanced(math.sqrt(2) / compute_laplace_advanced(epsilon, delta, k), delta) == pytest.approx(epsilon)
    own = math.sqrt(2 * math.log(1.25 * 2 * k / delta)) / compute_gaussian_advanced(epsilon, delta, k)
    assert own < 1
    assert advanced(own, delta / 2) == pytest.approx(epsilon)
    for rho in (
        k / (2 * compute_gaussian_zcdp(epsilon, delta, k) ** 2),
        k / compute_laplace_zcdp(epsilon, delta, k) ** 2,
    ):
        assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) == pytest.approx(epsilon)
