"""Periods in the ledger: one run each, whoever comes second, and rows that cannot be edited unseen."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import BudgetRefusedError, LedgerError, PeriodReleasedError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.backup import export_json
from privsyn.ledgers.ledger import ChargeLine, Ledger
from tests.support.places import FIXTURES
from tests.support.tampering import raw, tamper

CAP = Guarantee(epsilon=2.0, delta=1e-9)


@pytest.fixture
def url(ledger_url: str) -> str:
    return ledger_url


@pytest.fixture
def ledger(url: str) -> Ledger:
    made = Ledger(url)
    made.register("people", CAP)
    return made


def line(key: str, rho: str = "1/1000") -> ChargeLine:
    return ChargeLine("one_way_marginals", key, Fraction(rho))


def stands(ledger: Ledger, period: str = "2026-11") -> tuple[str, bool] | None:
    row = ledger.period("people", period)
    return None if row is None else (row.run, row.released)


def test_a_period_is_begun_with_the_charges_and_released_once(ledger: Ledger) -> None:
    assert stands(ledger) is None
    ledger.reserve("people", "run-1", [line("a")], period="2026-11")
    assert stands(ledger) == ("run-1", False)
    ledger.release_period("people", "2026-11", "run-1")
    ledger.release_period("people", "2026-11", "run-1")
    assert stands(ledger) == ("run-1", True)
    for run in ("run-1", "run-2"):
        with pytest.raises(PeriodReleasedError, match="2026-11 of 'people' is released already, by the run run-1") as e:
            ledger.reserve("people", run, [line(f"b-{run}")], period="2026-11")
        assert (e.value.run, e.value.exit_code) == ("run-1", 0)
    assert [e.key for e in ledger.entries()] == ["a"]
    assert [r.event for r in ledger.periods()] == ["begin", "release"]
    ledger.reserve("people", "run-2", [line("b")], period="2026-12")  # another period of the data set
    ledger.register("others", CAP)
    ledger.reserve("others", "run-3", [line("c")], period="2026-11")  # another data set
    assert ledger.verify() == []
    assert ledger.entries()[0].detail == {"period": "2026-11"}


def test_a_killed_run_goes_on_with_its_period_and_nobody_else_does(ledger: Ledger) -> None:
    ledger.reserve("people", "run-1", [line("a"), line("b")], period="2026-11")
    ledger.settle("people", "a")
    ledger.reserve("people", "run-1", [line("b")], period="2026-11")
    with pytest.raises(RequestError, match="the run run-1 has begun the period 2026-11 of 'people', holds charges"):
        ledger.reserve("people", "run-2", [line("c")], period="2026-11")
    with pytest.raises(LedgerError, match="which it has not begun"):
        ledger.release_period("people", "2026-11", "run-2")
    assert [r.run for r in ledger.periods()] == ["run-1"]
    assert sorted(e.key for e in ledger.entries() if e.event == "reserve") == ["a", "b"]


def test_a_run_that_asks_for_no_charge_or_finds_none_may_begin_anew(ledger: Ledger) -> None:
    ledger.reserve("people", "run-1", [line("a")], period="2026-11")
    ledger.reserve("people", "run-2", [line("a")], period="2026-11")  # on run-1's noise
    assert stands(ledger) == ("run-2", False)
    ledger.abandon("people", "a", data_was_read=False)
    ledger.reserve("people", "run-3", [line("c")], period="2026-11")
    assert stands(ledger) == ("run-3", False)
    ledger.abandon("people", "c", data_was_read=True)  # its noise was drawn: the period is run-3's for good
    with pytest.raises(RequestError, match="run-3 has begun"):
        ledger.reserve("people", "run-4", [line("d")], period="2026-11")
    assert ledger.verify() == []


def test_a_refused_reservation_begins_no_period(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefusedError):
        ledger.reserve("people", "run-1", [line("a", "1000")], period="2026-11")
    assert (ledger.periods(), ledger.entries()) == ([], [])
    assert ledger.verify() == []


def test_many_at_once_begin_one(url: str, ledger: Ledger) -> None:
    def attempt(number: int) -> bool:
        try:
            Ledger(url).reserve("people", f"run-{number}", [line(f"key-{number}")], period="2026-11")
        except RequestError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1
    assert len(ledger.periods()) == len(ledger.entries()) == 1
    assert ledger.verify() == []


def test_the_database_itself_holds_one_release_a_period(url: str, ledger: Ledger) -> None:
    ledger.reserve("people", "run-1", [line("a")], period="2026-11")
    ledger.release_period("people", "2026-11", "run-1")
    row = {**asdict(ledger.periods()[-1]), "id": 3, "run": "run-2"}
    with pytest.raises(sa.exc.IntegrityError), raw(url) as connection:
        names = ", ".join(row)
        connection.execute(sa.text(f"INSERT INTO periods ({names}) VALUES (:{', :'.join(row)})"), row)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE periods SET run = 'run-9' WHERE id = 1", "row 1 of the periods was changed"),
        ("UPDATE periods SET period = '2026-10' WHERE id = 2", "row 2 of the periods was changed"),
        ("DELETE FROM periods WHERE id = 2", "1 rows of periods, but its own count and last hash say 2"),
        ("DELETE FROM periods", "entry 1 is a charge for the period 2026-11, which its run has not begun"),
    ],
)
def test_edited_periods_are_found_and_stop_releases(url: str, ledger: Ledger, statement: str, found: str) -> None:
    ledger.reserve("people", "run-1", [line("a")], period="2026-11")
    ledger.release_period("people", "2026-11", "run-1")
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), raw(url) as connection:
        connection.exec_driver_sql(statement)
    tamper(url, statement, "periods")
    assert any(found in problem for problem in ledger.verify())
    with pytest.raises(LedgerError, match="does not add up"):
        ledger.reserve("people", "run-1", [line("b")])


def test_periods_without_their_table_or_their_guard_are_found(url: str, ledger: Ledger) -> None:
    ledger.reserve("people", "run-1", [line("a")], period="2026-11")
    with raw(url) as connection:
        if "sqlite" in url:
            connection.exec_driver_sql("DROP TRIGGER periods_no_delete")
        else:
            connection.exec_driver_sql("ALTER TABLE periods DISABLE TRIGGER periods_no_change")
    assert any("append-only" in problem for problem in ledger.verify())
    with raw(url) as connection:
        connection.exec_driver_sql("DROP TABLE periods")
    assert any("which its run has not begun" in problem for problem in ledger.verify())


def test_a_ledger_of_0_2_0_takes_periods_and_looking_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((FIXTURES / "ledger_0_2_0.sql").read_text(encoding="utf-8"))
    Ledger(path)  # gives it the guard against replaced rows
    before = path.read_bytes()
    ledger = Ledger(path)
    assert (ledger.periods(), ledger.period("people", "2026-11"), ledger.verify()) == ([], None, [])
    assert path.read_bytes() == before
    ledger.reserve("people", "people-2026-11-11111111", [line("c" * 64)], period="2026-11")
    ledger.release_period("people", "2026-11", "people-2026-11-11111111")
    assert ledger.verify() == []
    with pytest.raises(PeriodReleasedError):
        Ledger(path).reserve("people", "people-2026-11-22222222", [line("d" * 64)], period="2026-11")


def test_exports_and_views_hold_the_periods(url: str, ledger: Ledger) -> None:
    assert json.loads(export_json(ledger))["periods"] == []
    ledger.reserve("people", "run-1", [line("a")], period="2026-Q4")
    ledger.release_period("people", "2026-Q4", "run-1")
    rows = json.loads(export_json(ledger, "people"))["periods"]
    assert [(r["period"], r["run"], r["event"]) for r in rows] == [
        ("2026-Q4", "run-1", "begin"),
        ("2026-Q4", "run-1", "release"),
    ]
    assert LedgerView(Settings(ledger=url)).as_json("people")["datasets"][0]["periods"] == rows


def test_a_period_that_was_begun_and_not_finished_is_a_note_of_verify(url: str, ledger: Ledger, places: Path) -> None:
    ledger.reserve("people", "run-1", [line("a")], period="2026-10")
    ledger.release_period("people", "2026-10", "run-1")
    ledger.reserve("people", "run-2", [line("b")], period="2026-11")
    found = LedgerView(Settings(ledger=url)).verify("people")
    assert found.problems == ()
    (note,) = [n for n in map(str, found.notes) if "period" in n]
    assert "2026-11 of 'people' was begun by run-2 and is not released" in note
