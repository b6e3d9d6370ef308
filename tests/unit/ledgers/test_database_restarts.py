"""A ledger's database: its reasons in words that hold no text of its own, and restarts that are waited for."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from privsyn.base.errors import LedgerError
from privsyn.base.settings import Settings
from privsyn.base.wording import API
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers import database
from privsyn.ledgers.backup import back_up
from privsyn.ledgers.database import describe_database_error, is_gone
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.server.server_and_worker import check_database
from tests.support import postgres
from tests.support.tampering import raw

CAP = Guarantee(epsilon=5.0, delta=1e-9)
RHO = Fraction(1, 10**6)
DOWN_SECONDS = 6.0


@pytest.fixture
def own() -> Iterator[postgres.Cluster]:
    """A server of this test's own, with a database."""
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: install privsyn-flows[postgres]")
    if postgres.programs() is None:
        pytest.skip("no PostgreSQL: install Debian's package postgresql")
    with postgres.cluster() as made:
        yield made


def charge(ledger: Ledger, number: int) -> None:
    key = f"{number:064d}"
    ledger.reserve("people", f"run-{number}", [ChargeLine("one_way_marginals", key, RHO)], period=f"2026-{number:03d}")
    ledger.claim("people", key, "draw")
    ledger.settle("people", key)
    ledger.release_period("people", f"2026-{number:03d}", f"run-{number}")


@pytest.mark.slow
def test_a_restart_of_six_seconds_is_waited_for(own: postgres.Cluster, tmp_path: Path) -> None:
    ledger = Ledger(own.url)
    ledger.register("people", CAP)
    charge(ledger, 0)
    done = threading.Event()

    def restart() -> None:
        time.sleep(0.2)
        own.stop(signal.SIGINT)  # as `systemctl restart` does: connections are broken off
        time.sleep(DOWN_SECONDS)
        own.start()
        done.set()

    thread = threading.Thread(target=restart)
    thread.start()
    began, number = time.monotonic(), 0
    try:
        while not done.is_set() or number < 3:
            number += 1
            charge(ledger, number)
    finally:
        thread.join()
    assert time.monotonic() - began > DOWN_SECONDS
    assert Ledger(own.url).verify() == []
    assert [e.event for e in ledger.entries()] == ["reserve", "spent"] * (number + 1)
    assert ledger.summary("people")[0].rho == (number + 1) * RHO
    assert back_up(own.url, tmp_path / "copy.sqlite") == 2 * (number + 1)


def test_every_call_goes_on_after_a_broken_connection(own: postgres.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second transaction is cut off in its middle."""
    monkeypatch.setattr(database, "_PAUSE", 0.05)
    ledger = Ledger(own.url)
    begun = []

    def break_off(connection: sa.Connection) -> None:
        begun.append(connection)
        if len(begun) % 2 == 1:
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            with raw(own.url) as other:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")

    sa.event.listen(ledger._database._engine, "begin", break_off)
    ledger.register("people", CAP)
    charge(ledger, 1)
    assert ledger.verify() == []
    assert ledger.states("people") == {f"{1:064d}": "spent"}
    assert [row.period for row in ledger.periods("people")] == ["2026-001", "2026-001"]
    assert len(begun) == 2 * 8


@pytest.mark.slow
def test_a_server_that_stays_away_is_said_to_be_one(own: postgres.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(own.url)
    own.stop()
    monkeypatch.setattr(database, "RESTART_SECONDS", 0.5)
    with pytest.raises(LedgerError, match=r"does not answer\. Start the database"):
        ledger.entries()
    own.start()
    assert ledger.entries() == []


@pytest.mark.slow
def test_a_server_that_starts_waits_for_its_database(own: postgres.Cluster) -> None:
    own.stop()
    thread = threading.Timer(2.0, own.start)
    thread.start()
    try:
        check_database(Settings(database_url=own.url))
    finally:
        thread.join()


ADDRESS = "postgresql://privsyn:hunter2@db.example.org/privsyn"


OF_A_SERVER = [
    ("fe_sendauth: no password supplied", "asks for a password", "PRIVSYN_DATABASE_PASSWORD_FILE"),
    ('FATAL:  password authentication failed for user "privsyn"', "refuses the user or", "PRIVSYN_LEDGER"),
    ('FATAL:  role "nobody" does not exist', "refuses the user or", "PRIVSYN_LEDGER"),
    ("permission denied for table entries", "refuses this user a right", "privsyn ledger create"),
    ("must be owner of table entries", "refuses this user a right", "ledger_role.sql"),
    ("cannot execute UPDATE in a read-only transaction", "cannot be opened for writing", "not a read-only copy"),
    ('FATAL:  database "none" does not exist', "is in a database that does not exist", "Create the database"),
    ('could not translate host name "db" to address', "cannot be found", "Correct the host"),
    ("server does not support SSL, but SSL was required", "as safely as its address asks", "sslmode"),
    ("FATAL:  sorry, too many clients already", "has no connection left", "max_connections"),
    ("could not extend file: No space left on device", "the disk is full", "database's computer"),
    ("connection failed: Connection refused", "does not answer", "Start the database"),
    ("FATAL:  the database system is starting up", "does not answer", "Start the database"),
    ("something new", "cannot be used (OSError)", "Check that the database is running"),
]
OF_A_FILE = [
    ("attempt to write a readonly database", "cannot be opened for writing", "write the file and its folder"),
    ("[Errno 13] Permission denied", "cannot be opened for writing", "write the file and its folder"),
    ("file is not a database", "is damaged or not a ledger", "Restore it from a backup"),
    ("database or disk is full", "the disk is full", "Free some space and start again"),
    ("something new", "cannot be used (OSError)", "Check that it is the right file"),
]


def said(text: str, *, is_file: bool) -> list[str]:
    error = OSError(f"connection to {ADDRESS} failed: {text}")
    return [API.text(part) for part in describe_database_error(error, is_file=is_file)]


@pytest.mark.parametrize(("text", "problem", "cure"), OF_A_SERVER)
def test_a_database_s_reason_is_named_without_the_driver_s_words(text: str, problem: str, cure: str) -> None:
    words = said(text, is_file=False)
    assert problem in words[0] and cure in words[1]
    assert "hunter2" not in " ".join(words)
    assert "the file" not in " ".join(words) and "folder" not in " ".join(words)


@pytest.mark.parametrize(("text", "problem", "cure"), OF_A_FILE)
def test_a_file_s_reason_speaks_of_files(text: str, problem: str, cure: str) -> None:
    words = said(text, is_file=True)
    assert problem in words[0] and cure in words[1]
    assert "hunter2" not in " ".join(words)


def test_only_a_database_that_may_be_starting_again_is_waited_for() -> None:
    assert {text for text, *_ in OF_A_SERVER if is_gone(OSError(text))} == {
        "connection failed: Connection refused",
        "FATAL:  the database system is starting up",
    }
