"""Regressions against closed forms: two groups have means, odds and errors that a hand can compute."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.metrics.sample_estimates import compute_quantile, compute_share, fit_regression


def test_least_squares_of_two_groups() -> None:
    """The slope is the difference of means; HC1 has each group's own variance."""
    rng = np.random.default_rng(1)
    group = np.repeat([0.0, 1.0], [300, 200])
    y = 5 + 2 * group + rng.normal(0, 1 + 3 * group)
    fit = fit_regression(np.stack([np.ones(500), group], axis=1), y, two_values=False)
    one, other = y[:300], y[300:]
    assert fit.coefficients == pytest.approx([one.mean(), other.mean() - one.mean()])
    error = np.sqrt((one.var() / 300 + other.var() / 200) * 500 / 498)
    assert fit.errors[1] == pytest.approx(error)
    assert fit.r_squared == pytest.approx(np.corrcoef(group, y)[0, 1] ** 2)


def test_logistic_of_two_groups() -> None:
    """The slope is the logarithm of the odds ratio, its error that of a table of four counts."""
    group, y = np.repeat([0.0, 0, 1, 1], [90, 60, 40, 160]), np.repeat([0.0, 1, 0, 1], [90, 60, 40, 160])
    fit = fit_regression(np.stack([np.ones(350), group], axis=1), y, two_values=True)
    assert fit.coefficients[1] == pytest.approx(np.log(160 * 90 / (40 * 60)), rel=1e-3)
    assert fit.errors[1] == pytest.approx(np.sqrt(1 / 90 + 1 / 60 + 1 / 40 + 1 / 160), rel=1e-3)


@pytest.mark.parametrize("two_values", [True, False])
def test_no_row_has_no_coefficient(two_values: bool) -> None:
    assert np.isnan(fit_regression(np.ones((0, 2)), np.ones(0), two_values=two_values).coefficients).all()


def test_no_more_rows_than_columns_have_no_error() -> None:
    assert np.isnan(fit_regression(np.ones((1, 1)), np.ones(1), two_values=False).errors).all()


def test_a_quantile_has_the_error_of_its_order_statistics() -> None:
    """Of an even distribution on 0..1 the median's error is 1 / (2 sqrt(n))."""
    middle, error = compute_quantile(np.arange(1, 10_001) / 10_000, 0.5)
    assert middle == 0.5
    assert error == pytest.approx(0.005, rel=0.01)


def test_a_share_has_the_error_of_a_binomial() -> None:
    assert compute_share(20, 100) == pytest.approx((0.2, 0.04))


def test_least_squares_of_moments_keeps_the_other_columns() -> None:
    """Seconds since 1970 are so large beside 0 and 1 that columns would be taken for none."""
    rng = np.random.default_rng(3)
    x = np.stack([np.ones(200), rng.integers(0, 2, 200), 1.6e15 + rng.integers(0, 10**12, 200)], axis=1)
    y = x @ np.array([-2.0, 3.0, 1e-12])
    assert fit_regression(x, y, two_values=False).coefficients[1:] == pytest.approx([3.0, 1e-12], rel=1e-3)
