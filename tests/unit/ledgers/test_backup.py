"""The ledger's backup: one moment of it, verified, never over another file."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from privsyn.base.errors import LedgerError, LedgerMissingError, PrivsynError, RequestError
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.backup import back_up, restore
from privsyn.ledgers.ledger import ChargeLine, Ledger
from tests.support import postgres
from tests.support.commands import privsyn
from tests.support.places import FIXTURES, ROOT
from tests.support.tampering import raw, tamper

LINE = Fraction(1, 1000)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.sqlite")
    made.register("people", Guarantee(epsilon=2.0, delta=1e-9))
    made.reserve("people", "run-1", [ChargeLine("one_way_marginals", "a" * 64, LINE)])
    return made


def test_the_copy_is_a_ledger_with_the_same_history(ledger: Ledger, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    assert back_up(ledger.name, copy) == 1
    restored = Ledger(copy, create=False)
    assert restored.export() == ledger.export()
    assert restored.verify() == []
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    restored.reserve("people", "run-2", [ChargeLine("one_way_marginals", "b" * 64, LINE)])  # and it goes on from there
    assert restored.summary("people")[0].rho == 2 * LINE


def test_copies_taken_while_another_writes_are_each_one_moment(ledger: Ledger, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        for number in range(200):
            if stop.is_set():
                return
            ledger.reserve(
                "people", f"run-{number}", [ChargeLine("indif_scores", f"{number:064d}", Fraction(1, 10**6))]
            )

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


@pytest.fixture
def in_postgres(postgres_database: str) -> Ledger:
    made = Ledger(postgres_database)
    made.register("people", Guarantee(epsilon=2.0, delta=1e-9))
    made.reserve("people", "run-1", [ChargeLine("one_way_marginals", "a" * 64, LINE)], period="2026-11")
    made.claim("people", "a" * 64, "draw")
    return made


def test_a_ledger_in_postgresql_is_copied_and_restored(
    in_postgres: Ledger, postgres_database: str, postgres_server: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite"
    assert back_up(postgres_database, copy) == 1
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with postgres.database(postgres_server) as empty:
        assert restore(copy, empty) == 1
        restored = Ledger(empty, create=False)
        for ledger in (Ledger(copy, create=False), restored):
            assert ledger.export() == in_postgres.export()
            assert (ledger.periods(), ledger.marks()) == (in_postgres.periods(), in_postgres.marks())
            assert ledger.verify() == []
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), raw(empty) as connection:
            connection.exec_driver_sql("DELETE FROM entries")
        with pytest.raises(LedgerError, match="already drawn"):
            restored.claim("people", "a" * 64, "another draw")
        with pytest.raises(RequestError, match="already holds data sets"):
            restore(copy, empty)


def test_a_recovery_works_a_second_time(
    in_postgres: Ledger, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/operations/backup.md says, as an owner who is no superuser, and the role's rights are made anew."""
    monkeypatch.delenv("PRIVSYN_LEDGER", raising=False)
    back_up(postgres_database, tmp_path / "copy.sqlite")
    history = in_postgres.export()
    with raw(postgres_database) as connection:
        for table in (
            "ledger",
            "datasets",
            "entries",
            "periods",
            "marks",
            "refusals",
            "period_chain",
            "mark_chain",
            "refusal_chain",
        ):
            connection.exec_driver_sql(f"DROP TABLE {table} CASCADE")
        connection.exec_driver_sql("DROP FUNCTION privsyn_append_only")
    with postgres.owner(postgres_database) as owner:
        Ledger(owner).make_tables()
        monkeypatch.setenv("PRIVSYN_DATABASE_URL", owner)
        for number in ("first", "second"):
            postgres.psql(owner, ROOT / "deployments" / "put_ledger_aside.sql", aside=f"broken_{number}")
            done = privsyn("ledger", "restore", tmp_path / "copy.sqlite")
            assert done.exit_code == 0, done.stderr
            assert Ledger(owner, create=False).export() == history
            with postgres.worker(owner) as worker:
                assert Ledger(worker).verify() == []
                Ledger(worker).check()
                with pytest.raises(sa.exc.DBAPIError, match="permission denied"), raw(worker) as connection:
                    connection.exec_driver_sql(f"SELECT * FROM broken_{number}.entries")


def test_a_copy_that_fails_halfway_leaves_no_file(
    in_postgres: Ledger, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("privsyn.ledgers.backup._verify_entries", fail)
    with pytest.raises(PrivsynError):
        back_up(postgres_database, tmp_path / "copy.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_password_in_a_file_is_enough(
    in_postgres: Ledger, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recommended setting, through the command."""
    (tmp_path / "password").write_text("not asked for by the tests' server")
    monkeypatch.setenv("PRIVSYN_DATABASE_URL", postgres_database)
    monkeypatch.setenv("PRIVSYN_DATABASE_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.delenv("PRIVSYN_LEDGER", raising=False)
    result = privsyn("ledger", "backup", tmp_path / "copy.sqlite")
    assert result.exit_code == 0, result.stderr
    assert "1 entries, every hash and sum verified" in " ".join(result.stderr.split())
    refused = privsyn("ledger", "restore", tmp_path / "copy.sqlite")
    assert refused.exit_code == 2 and "already holds data sets" in refused.stderr
    assert "not asked for" not in result.output + refused.output


def test_a_backup_that_does_not_add_up_is_not_restored(ledger: Ledger, tmp_path: Path) -> None:
    copy, target = tmp_path / "copy.sqlite", tmp_path / "new.sqlite"
    back_up(ledger.name, copy)
    tamper(f"sqlite:///{copy}", "UPDATE entries SET rho = '1/2000'")
    with pytest.raises(LedgerError, match="nothing was restored"):
        restore(copy, str(target))
    assert not target.exists()
    with pytest.raises(RequestError, match="is not a file"):
        restore(tmp_path / "none", str(target))
    (tmp_path / "text").write_text("no backup")
    with pytest.raises(RequestError, match=r"^file: .*text is not a backup of a ledger. Name one"):
        restore(tmp_path / "text", str(target))


def test_a_ledger_of_before_is_restored_as_it_is(tmp_path: Path) -> None:
    old = Path(shutil.copy(FIXTURES / "0.2.0" / "ledger.sqlite", tmp_path))
    old.chmod(0o600)
    back_up(str(old), tmp_path / "copy.sqlite")
    restore(tmp_path / "copy.sqlite", str(tmp_path / "new.sqlite"))
    restored = Ledger(tmp_path / "new.sqlite", create=False)
    assert restored.export() == Ledger(old).export()
    assert restored.verify() == []
