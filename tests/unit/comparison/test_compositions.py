"""Figure 2 of the DPSyn report: the crossings that it states, and each line against its own definition."""

from __future__ import annotations

import math

import pytest

from privsyn.comparison.compositions import (
    COMPOSITIONS,
    REPORTED,
    SETTINGS,
    chart,
    crossing,
    crossings_table,
    gaussian_advanced,
    gaussian_zcdp,
    laplace_advanced,
    laplace_naive,
    laplace_zcdp,
)
from privsyn.comparison.plot import COLORS, drawn


@pytest.mark.parametrize(("setting", "reported"), list(zip(SETTINGS, REPORTED, strict=True)))
def test_naive_laplace_and_gaussian_zcdp_cross_where_the_report_says(
    setting: tuple[float, float], reported: int
) -> None:
    k = crossing(*setting)
    assert round(k) == reported
    assert laplace_naive(*setting, k) == pytest.approx(gaussian_zcdp(*setting, k), rel=1e-12)
    below, above = math.floor(k), math.ceil(k)
    assert laplace_naive(*setting, below) < gaussian_zcdp(*setting, below)
    assert laplace_naive(*setting, above) > gaussian_zcdp(*setting, above)


def test_the_crossings_exactly() -> None:
    """epsilon^2 / (4 rho) = (sqrt(L + epsilon) + sqrt(L))^2 / 4 with L = ln(1/delta), by hand."""
    for epsilon, delta in SETTINGS:
        log = -math.log(delta)
        assert crossing(epsilon, delta) == pytest.approx((math.sqrt(log + epsilon) + math.sqrt(log)) ** 2 / 4, rel=1e-9)
    assert [round(crossing(*s), 4) for s in SETTINGS] == [18.4257, 27.6360, 18.9174, 28.1288]
    assert [row.split("|")[4].strip() for row in crossings_table()[2:]] == ["18", "28", "19", "28"]


@pytest.mark.parametrize("setting", SETTINGS)
def test_laplace_advanced_and_in_zcdp_almost_overlap(setting: tuple[float, float]) -> None:
    """The report: "the difference is less than 10"."""
    for k in range(1, 101):
        assert 0 < laplace_advanced(*setting, k) - laplace_zcdp(*setting, k) < 10


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
@pytest.mark.parametrize("k", [1, 20, 100])
def test_each_line_keeps_epsilon_and_delta(epsilon: float, delta: float, k: int) -> None:
    """The noise back to the promise, by the textbook's formulas."""
    each = math.sqrt(2) / laplace_naive(epsilon, delta, k)
    assert k * each == pytest.approx(epsilon)

    def advanced(each: float, slack: float) -> float:
        return each * math.sqrt(2 * k * math.log(1 / slack)) + k * each * (math.exp(each) - 1)

    assert advanced(math.sqrt(2) / laplace_advanced(epsilon, delta, k), delta) == pytest.approx(epsilon)
    own = math.sqrt(2 * math.log(1.25 * 2 * k / delta)) / gaussian_advanced(epsilon, delta, k)
    assert own < 1
    assert advanced(own, delta / 2) == pytest.approx(epsilon)
    for rho in (k / (2 * gaussian_zcdp(epsilon, delta, k) ** 2), k / laplace_zcdp(epsilon, delta, k) ** 2):
        assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) == pytest.approx(epsilon)


def test_the_best_is_naive_laplace_for_few_and_gaussian_zcdp_for_many() -> None:
    for setting, reported in zip(SETTINGS, REPORTED, strict=True):
        for k, best in ((reported - 2, "Laplace, naive"), (reported + 2, "Gaussian, zCDP")):
            assert min(COMPOSITIONS, key=lambda name: COMPOSITIONS[name](*setting, k)) == best


def test_the_picture_has_four_panels_of_five_lines() -> None:
    made = chart(COLORS[:5], 10)
    assert len(made["concat"]) == len(SETTINGS)
    picture = drawn(made, "svg").decode()
    for words in (*COMPOSITIONS, "epsilon 0.01, delta 1e-08", "marginals k"):
        assert words in picture, words
