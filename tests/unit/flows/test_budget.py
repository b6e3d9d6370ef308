"""The budget report: the ledger's figures, its audit, and no ledger made by looking."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from privsyn.base.errors import LedgerError, RequestError
from privsyn.data_contracts.promise import Guarantee
from privsyn.flows.budget import BAR, budget_report, describe_budgets, read_budgets
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho

CAP = Guarantee(epsilon=2.0, delta=1e-9)


@pytest.fixture
def ledger(places: Path) -> Ledger:
    made = Ledger(places / "ledger.sqlite")
    made.register("people", CAP)
    made.register("untouched", CAP)
    made.reserve("people", "run-1", [ChargeLine("one_way_marginals", "a" * 64, convert_epsilon_to_rho(2.0, 1e-9) / 4)])
    return made


def test_every_data_set_has_a_row_with_what_the_ledger_says(ledger: Ledger) -> None:
    report = budget_report.fn()
    people, untouched = report.rows
    summary = ledger.summary("people")[0]
    assert (people["data set"], people["entries"]) == ("people", "1")
    assert people["epsilon used"] == f"{summary.epsilon:.4g} of 2"
    use = "25 % used; 3 more releases like the last one fit"  # a quarter of rho, not of epsilon
    assert people["budget"] == "█" * 5 + "░" * 15 + " " + use == f"█████{'░' * 15} {summary.use}"
    assert untouched["budget"] == "░" * BAR + " 0 % used"
    assert report.problems == []
    assert budget_report.fn("people").rows == [people]


def test_the_page_holds_the_same_figures_and_the_verdict(ledger: Ledger) -> None:
    page = describe_budgets(read_budgets(ledger.name))
    assert page.count("| people |") == page.count("| untouched |") == 1
    assert "no problem found" in page


def test_a_bar_is_full_only_when_nothing_is_left(places: Path) -> None:
    made = Ledger(places / "ledger.sqlite")
    made.register("people", CAP)
    made.reserve(
        "people", "run-1", [ChargeLine("one_way_marginals", "a" * 64, convert_epsilon_to_rho(2.0, 1e-9) * 999 / 1000)]
    )
    assert read_budgets(made.name).rows[0]["budget"] == (
        "█" * 19 + "░ 99.9 % used; no further release like the last one fits"
    )


def test_a_ledger_that_does_not_add_up_is_shown_and_fails(ledger: Ledger) -> None:
    with sqlite3.connect(ledger.name) as connection:
        connection.execute("UPDATE ledger SET entries = 7")
    assert "PROBLEM" in describe_budgets(read_budgets(ledger.name))
    with pytest.raises(LedgerError, match="does not add up"):
        budget_report.fn()


def test_an_unknown_data_set_is_refused(ledger: Ledger) -> None:
    with pytest.raises(RequestError, match="the field Dataset of the run form: the ledger does not know 'other'"):
        budget_report.fn("other")
