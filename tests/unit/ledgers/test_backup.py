"""The ledger's backup: one moment of it, verified, never over another file."""

from __future__ import annotations

import sqlite3
import stat
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from privsyn.data_contracts.release_spec import Guarantee
from privsyn.errors import LedgerError, LedgerMissingError, RequestError
from privsyn.ledgers.backup import back_up
from privsyn.ledgers.ledger import Ledger, Line

LINE = Fraction(1, 1000)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.sqlite")
    made.register("people", Guarantee(epsilon=2.0, delta=1e-9))
    made.reserve("people", "run-1", [Line("one_way_marginals", "a" * 64, LINE)])
    return made


def test_the_copy_is_a_ledger_with_the_same_history(ledger: Ledger, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    assert back_up(ledger.name, copy) == 1
    restored = Ledger(copy, create=False)
    assert restored.export() == ledger.export()
    assert restored.verify() == []
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    restored.reserve("people", "run-2", [Line("one_way_marginals", "b" * 64, LINE)])  # and it goes on from there
    assert restored.summary("people")[0].rho == 2 * LINE


def test_copies_taken_while_another_writes_are_each_one_moment(ledger: Ledger, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        for number in range(200):
            if stop.is_set():
                return
            ledger.reserve("people", f"run-{number}", [Line("indif_scores", f"{number:064d}", Fraction(1, 10**6))])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        counts = [back_up(ledger.name, tmp_path / f"copy-{i}.sqlite") for i in range(10)]
    finally:
        stop.set()
        writer.join()
    assert counts == sorted(counts)
    assert len(set(counts)) > 1  # it was written meanwhile
    assert all(Ledger(tmp_path / f"copy-{i}.sqlite", create=False).verify() == [] for i in range(10))


def test_a_ledger_that_does_not_add_up_has_no_backup(ledger: Ledger, tmp_path: Path) -> None:
    with sqlite3.connect(ledger.name) as connection:
        connection.execute("UPDATE ledger SET entries = 7")
    with pytest.raises(LedgerError, match="no backup was made"):
        back_up(ledger.name, tmp_path / "copy.sqlite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.sqlite"]


def test_no_file_is_overwritten_and_a_missing_ledger_is_not_made(ledger: Ledger, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(RequestError, match="exists already"):
        back_up(ledger.name, taken)
    assert taken.read_text() == "mine"
    with pytest.raises(LedgerMissingError):
        back_up(str(tmp_path / "none.sqlite"), tmp_path / "copy.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


def test_postgresql_is_told_of_its_own_program(postgres_database: str, tmp_path: Path) -> None:
    Ledger(postgres_database)
    with pytest.raises(RequestError, match="pg_dump"):
        back_up(postgres_database, tmp_path / "copy.sqlite")
