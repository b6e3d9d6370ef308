"""OpenDP and dp-accounting on receipts: they agree with each accountant, and contradict noise that is too small."""

from dataclasses import replace

import pytest

from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, get_pricing
from privsyn.tasks.privacy.second_opinion import form_second_opinion

EPSILON, DELTA = 1.0, 1e-9


def spend(accountant, epsilon=EPSILON):
    """Queries of two sensitivities that cost the whole budget."""
    rho, pricing = convert_epsilon_to_rho(epsilon, DELTA, accountant), get_pricing(accountant)
    sensitivities = [2] * 4 + [3] * 4
    return [Query((str(i),), 10, k, compute_sigma(rho / 8, k, pricing), pricing) for i, k in enumerate(sensitivities)]


@pytest.mark.parametrize("accountant", ["tight", "gaussian", "paper"])
def test_both_libraries_stay_below_what_a_release_states(accountant):
    opinion = form_second_opinion(spend(accountant), EPSILON, DELTA, accountant)
    assert opinion.problems == []
    assert opinion.opendp_rho == pytest.approx(opinion.rho, rel=1e-12)
    assert opinion.opendp_epsilon == pytest.approx(opinion.renyi_epsilon, rel=1e-5)
    assert opinion.pld_epsilon == pytest.approx(opinion.pld_epsilon_at_least, rel=2e-3)
    assert opinion.queries == 8


def test_tight_is_opendp_s_conversion_and_gaussian_the_privacy_loss_distribution_s():
    assert form_second_opinion(spend("tight"), EPSILON, DELTA, "tight").opendp_epsilon == pytest.approx(1, rel=1e-6)
    gaussian = form_second_opinion(spend("gaussian"), EPSILON, DELTA, "gaussian")
    assert gaussian.pld_epsilon_at_least == pytest.approx(1, rel=2e-3)
    assert gaussian.opendp_epsilon > 1  # published theorems alone, as the certificate says too


@pytest.mark.parametrize("accountant", ["tight", "gaussian", "paper"])
def test_mutant_noise_that_is_a_tenth_too_small_is_contradicted(accountant):
    """Planted mutant: receipts with less noise than the stated epsilon needs, for `paper` two tenths."""
    share = 0.8 if accountant == "paper" else 0.9
    small = [replace(query, sigma=share * query.sigma, pricing="zcdp") for query in spend(accountant)]
    assert form_second_opinion(small, EPSILON, DELTA, accountant).problems


def test_mutant_a_look_that_is_not_charged_is_contradicted():
    """Planted mutant: one query's price is left out of the epsilon that is stated."""
    queries = spend("tight")
    assert form_second_opinion([*queries, queries[0]], EPSILON, DELTA, "tight").problems


def test_no_query_has_no_opinion():
    with pytest.raises(ValueError, match="no query"):
        form_second_opinion([], EPSILON, DELTA, "tight")
