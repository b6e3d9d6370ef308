"""Prices of noise, exactly: both pricings, from sigma to rho and back, and through the receipts table."""

from __future__ import annotations

import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn.data_contracts.receipts import SMOOTHING, Query, compute_sigma, sum_rho
from privsyn.tasks.estimation.noisy import read_receipts, tabulate_receipts


@pytest.mark.parametrize(("pricing", "rho"), [("zcdp", Fraction(4, 2 * 25)), ("gaussian", Fraction(4, 2 * 22))])
def test_the_price_is_the_formula_exactly(pricing, rho):
    assert Query(("a",), 3, 2, 5.0, pricing).rho == rho


@given(st.fractions(Fraction(1, 10**12), 10**6), st.integers(1, 10_000), st.sampled_from(["zcdp", "gaussian"]))
def test_sigma_is_the_smallest_that_the_budget_pays(rho, sensitivity, pricing):
    query = Query(("a",), 1, sensitivity, compute_sigma(rho, sensitivity, pricing), pricing)
    assert query.rho <= rho
    less = query.sigma * (1 - 1e-12)
    if pricing == "zcdp" or Fraction(less) ** 2 > SMOOTHING:
        assert Query(("a",), 1, sensitivity, less, pricing).rho > rho


@given(st.fractions(Fraction(1, 10**9), 100), st.integers(1, 100))
def test_the_same_price_under_the_other_pricing_is_three_counts_of_variance_more(rho, sensitivity):
    plain = Query(("a", "b"), 7, sensitivity, compute_sigma(rho, sensitivity))
    paid = plain.under("gaussian")
    assert paid.rho <= plain.rho <= rho and paid.rho >= plain.rho * (1 - Fraction(1, 10**9))
    assert paid.sigma == pytest.approx(math.sqrt(plain.sigma**2 + SMOOTHING))
    assert (paid.attributes, paid.cells, paid.sensitivity, paid.pricing) == (("a", "b"), 7, sensitivity, "gaussian")
    assert Fraction(sensitivity) ** 2 / (2 * Fraction(paid.sigma) ** 2) < paid.rho  # so it is a zCDP price too
    assert plain.under("zcdp") is plain and paid.under("gaussian") is paid


@pytest.mark.parametrize("sigma", [0.1, 1.0, math.sqrt(3) * (1 - 1e-15)])
def test_noise_too_small_to_hide_its_discreteness_has_no_gaussian_price(sigma):
    with pytest.raises(ValueError, match="no price"):
        assert Query(("a",), 1, 1, sigma, "gaussian").rho
    assert Query(("a",), 1, 1, sigma).rho > 0


def test_receipts_keep_their_pricing_and_those_of_earlier_versions_are_zcdp():
    asked = [Query(("a",), 4, 1, 9.5), Query(("a", "b"), 8, 2, 9.5, "gaussian"), Query(("b",), 2, 1, 0.5)]
    table = tabulate_receipts(asked)
    assert read_receipts(table) == asked
    old = table.to_pylist()[:1]
    assert Fraction(old[0]["rho"]) == 1 / (2 * Fraction(9.5) ** 2)
    assert sum_rho(read_receipts(pa.Table.from_pylist(old, schema=table.schema))) == Fraction(old[0]["rho"])


@pytest.mark.parametrize("wrong", ["1/2", "2/362", "1/180500000000000000000"])
def test_a_stated_price_that_is_neither_is_refused(wrong):
    table = tabulate_receipts([Query(("a",), 4, 1, 9.5, "gaussian")])
    rows = [{**table.to_pylist()[0], "rho": wrong}]
    with pytest.raises(ValueError, match=r"receipt 0: the stated rho is neither .* nor .*\(sigma\^2 - 3\)"):
        read_receipts(pa.Table.from_pylist(rows, schema=table.schema))
