"""The periods that the budget refused, in the ledger: each once, chained, and readable in ledgers without them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from privsyn.base.errors import LedgerError
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.ledger import ChargeLine, Ledger
from tests.support.tampering import raw, tamper

CAP = Guarantee(epsilon=2.0, delta=1e-9)
QUARTER_HOUR = "2026-11-21T1315Z"


def make_ledger(url: str) -> Ledger:
    ledger = Ledger(url)
    ledger.register("people", CAP)
    return ledger


def test_a_refusal_is_noted_once_and_only_of_a_known_data_set(ledger_url: str) -> None:
    ledger = make_ledger(ledger_url)
    for dataset in ("people", "people", "strangers"):
        ledger.refuse_period(dataset, QUARTER_HOUR)
    ledger.refuse_period("people", "2026-12")
    assert [(row.dataset, row.period) for row in ledger.refusals()] == [("people", QUARTER_HOUR), ("people", "2026-12")]
    assert ledger.refusals("strangers") == [] and ledger.verify() == []


def test_a_refusal_that_is_changed_or_taken_away_is_found(ledger_url: str) -> None:
    ledger = make_ledger(ledger_url)
    ledger.refuse_period("people", "2026-12")
    tamper(ledger_url, "UPDATE refusals SET period = '2026-11'", table="refusals")
    assert any("row 1 of the refusals" in problem for problem in ledger.verify())
    tamper(ledger_url, "DELETE FROM refusals", table="refusals")
    assert any("0 rows of refusals" in problem for problem in ledger.verify())


def test_a_ledger_of_before_has_no_refusals_and_gets_their_table_with_the_first(ledger_url: str) -> None:
    ledger = make_ledger(ledger_url)
    with raw(ledger_url) as connection:
        for table in ("refusals", "refusal_chain"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
    assert ledger.refusals() == [] and ledger.verify() == []
    ledger.refuse_period("people", "2026-12")
    assert len(ledger.refusals()) == 1 and ledger.verify() == []


def test_every_period_has_room_in_postgresql_and_the_owner_widens_a_ledger_of_before(postgres_database: str) -> None:
    ledger = make_ledger(postgres_database)
    charge = [ChargeLine("one_way", "a" * 64, Fraction(1, 1000))]
    with raw(postgres_database) as connection:
        connection.exec_driver_sql("ALTER TABLE periods ALTER COLUMN period TYPE varchar(10)")
    with pytest.raises(LedgerError, match="shorter names") as refused:
        ledger.reserve("people", "run-1", charge, period=QUARTER_HOUR)
    assert "privsyn ledger create" in str(refused.value) and ledger.entries() == []
    ledger.make_tables()
    ledger.reserve("people", "run-1", charge, period=QUARTER_HOUR)
    assert ledger.periods()[0].period == QUARTER_HOUR and ledger.verify() == []
