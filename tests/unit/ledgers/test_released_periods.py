"""Periods in the ledger: one run each, refusals noted once, their calendar, and rows that cannot be edited unseen."""

from __future__ import annotations

import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
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
from privsyn.ledgers.released_periods import PeriodRow, RefusalRow, build_calendar
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


QUARTER_HOUR = "2026-11-21T1315Z"


def test_a_refusal_is_noted_once_and_only_of_a_known_data_set(url: str, ledger: Ledger) -> None:
    for dataset in ("people", "people", "strangers"):
        ledger.refuse_period(dataset, QUARTER_HOUR)
    ledger.refuse_period("people", "2026-12")
    assert [(row.dataset, row.period) for row in ledger.refusals()] == [("people", QUARTER_HOUR), ("people", "2026-12")]
    assert ledger.refusals("strangers") == [] and ledger.verify() == []


def test_a_refusal_that_is_changed_or_taken_away_is_found(url: str, ledger: Ledger) -> None:
    ledger.refuse_period("people", "2026-12")
    tamper(url, "UPDATE refusals SET period = '2026-11'", table="refusals")
    assert any("row 1 of the refusals" in problem for problem in ledger.verify())
    tamper(url, "DELETE FROM refusals", table="refusals")
    assert any("0 rows of refusals" in problem for problem in ledger.verify())


def test_a_ledger_of_before_has_no_refusals_and_gets_their_table_with_the_first(url: str, ledger: Ledger) -> None:
    with raw(url) as connection:
        for table in ("refusals", "refusal_chain"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
    assert ledger.refusals() == [] and ledger.verify() == []
    ledger.refuse_period("people", "2026-12")
    assert len(ledger.refusals()) == 1 and ledger.verify() == []


def test_every_period_has_room_in_postgresql_and_the_owner_widens_a_ledger_of_before(postgres_database: str) -> None:
    ledger = Ledger(postgres_database)
    ledger.register("people", CAP)
    charge = [ChargeLine("one_way", "a" * 64, Fraction(1, 1000))]
    with raw(postgres_database) as connection:
        connection.exec_driver_sql("ALTER TABLE periods ALTER COLUMN period TYPE varchar(10)")
    with pytest.raises(LedgerError, match="shorter names") as refused:
        ledger.reserve("people", "run-1", charge, period=QUARTER_HOUR)
    assert "privsyn ledger create" in str(refused.value) and ledger.entries() == []
    ledger.make_tables()
    ledger.reserve("people", "run-1", charge, period=QUARTER_HOUR)
    assert ledger.periods()[0].period == QUARTER_HOUR and ledger.verify() == []


NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
WHEN = "2026-08-01T00:00:00"


def day_states(*events: tuple[str, str], refused: tuple[str, ...] = (), last: int = 12) -> dict[str, str]:
    rows = [PeriodRow(i, "people", WHEN, "", "", p, f"run-{p}", e) for i, (p, e) in enumerate(events)]
    refusals = [RefusalRow(i, name, WHEN, "", "", p) for i, p in enumerate(refused) for name in ("people", "others")]
    return {day.period: day.state for day in build_calendar("people", rows, refusals, NOW, last)}


JULY = [("2026-07", "begin"), ("2026-07", "release")]
SEPTEMBER = [("2026-09", "begin")]


def test_every_period_from_the_first_to_the_current_one_has_its_state() -> None:
    assert day_states(*JULY, *SEPTEMBER) == {
        "2026-07": "released",
        "2026-08": "missed",
        "2026-09": "begun",
        "2026-10": "missed",
        "2026-11": "current",
    }


def test_only_what_the_budget_refused_is_called_so_and_a_later_release_outweighs_it() -> None:
    assert day_states(*JULY, *SEPTEMBER, refused=("2026-10", "2026-09", "2026-07")) == {
        "2026-07": "released",
        "2026-08": "missed",
        "2026-09": "begun",
        "2026-10": "refused",
        "2026-11": "current",
    }
    assert day_states(refused=("2026-10",)) == {"2026-10": "refused", "2026-11": "current"}


def test_only_the_last_periods_of_each_length_are_shown_and_an_early_one_is_not_lost() -> None:
    early = [("2026-12", "begin"), ("2026-12", "release")]
    assert day_states(*JULY, *early, last=3) == {"2026-10": "missed", "2026-11": "current", "2026-12": "released"}
    days = day_states(*JULY, ("2026-11-19", "begin"), last=2)
    assert days == {"2026-11-19": "begun", "2026-11-20": "current", "2026-10": "missed", "2026-11": "current"}


def test_a_data_set_without_periods_has_no_calendar() -> None:
    assert day_states() == {}
