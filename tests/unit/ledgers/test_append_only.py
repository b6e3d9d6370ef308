"""What keeps the ledger append-only: REPLACE in SQLite, and a role that may only add in PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.ledgers.schema import make_sqlite_replace_guard
from tests.support import postgres
from tests.support.places import FIXTURES, ROOT
from tests.support.tampering import raw, tamper

CAP = Guarantee(epsilon=2.0, delta=1e-9)


def filled(address: str) -> Ledger:
    """A ledger with a row in each of its tables."""
    ledger = Ledger(address)
    ledger.register("people", CAP)
    ledger.reserve("people", "run-1", [ChargeLine("one_way", "a" * 64, Fraction(1, 1000))], period="2026-11")
    ledger.claim("people", "a" * 64, "draw")
    ledger.settle("people", "a" * 64)
    ledger.release_period("people", "2026-11", "run-1")
    ledger.refuse_period("people", "2026-12")
    return ledger


REPLACED = {
    "datasets": "REPLACE INTO datasets SELECT name, '99.0', delta, rho, created FROM datasets",
    "entries": "REPLACE INTO entries SELECT id, dataset, run, step, key, event, '1/1000000', detail, created, "
    "prev_hash, hash FROM entries WHERE id = 1",
    "periods": "REPLACE INTO periods SELECT id, dataset, '2026-10', run, event, created, prev_hash, hash FROM periods",
    "the release of a period": "INSERT OR REPLACE INTO periods SELECT 99, dataset, period, run, event, created, "
    "prev_hash, hash FROM periods WHERE event = 'release'",
    "marks": "REPLACE INTO marks SELECT id, dataset, kind, subject, 'other', created, prev_hash, hash FROM marks",
    "refusals": "REPLACE INTO refusals SELECT id, dataset, '2027-01', created, prev_hash, hash FROM refusals",
    "the refusal of a period": "INSERT OR REPLACE INTO refusals SELECT 99, dataset, period, 'now', prev_hash, hash "
    "FROM refusals",
    "the draw of a charge": "INSERT OR REPLACE INTO marks SELECT 99, dataset, kind, subject, 'other', created, "
    "prev_hash, hash FROM marks",
}


@pytest.mark.parametrize("statement", REPLACED.values(), ids=list(REPLACED))
def test_replacing_a_row_is_refused(tmp_path: Path, statement: str) -> None:
    address = f"sqlite:///{tmp_path}/ledger.sqlite"
    ledger = filled(address)
    before = ledger.export(), ledger.periods(), ledger.marks(), ledger.refusals()
    with pytest.raises(sa.exc.DatabaseError, match="append-only"), raw(address) as connection:
        connection.exec_driver_sql(statement)
    assert (ledger.export(), ledger.periods(), ledger.marks(), ledger.refusals()) == before
    assert ledger.verify() == []


def test_mutant_without_the_guard_a_row_is_replaced(tmp_path: Path) -> None:
    """Planted mutant: the triggers of before; a row is rewritten, and only its hash tells."""
    address = f"sqlite:///{tmp_path}/ledger.sqlite"
    ledger = filled(address)
    with raw(address) as connection:
        connection.exec_driver_sql("DROP TRIGGER entries_no_replace")
        connection.exec_driver_sql(REPLACED["entries"])
    assert str(ledger.export()[0]["rho"]) == "1/1000000"
    problems = ledger.verify()
    assert any("entry 1 or its data set" in problem for problem in problems)
    assert "a trigger that keeps the tables append-only is missing or switched off" in problems


def test_a_ledger_of_before_gets_the_guard_when_it_is_opened(tmp_path: Path) -> None:
    path = Path(shutil.copy(FIXTURES / "0.2.0" / "ledger.sqlite", tmp_path))
    path.chmod(0o600)
    address = f"sqlite:///{path}"
    with raw(address) as connection:
        assert not connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE name LIKE '%replace'").all()
    history = Ledger(path).export()
    with pytest.raises(sa.exc.DatabaseError, match="append-only"), raw(address) as connection:
        connection.exec_driver_sql(REPLACED["entries"])
    assert Ledger(path).export() == history
    assert Ledger(path).verify() == []
    with raw(address) as connection:
        connection.exec_driver_sql("DROP TRIGGER entries_no_replace")  # not healed silently a second time
    assert Ledger(path).verify() == ["a trigger that keeps the tables append-only is missing or switched off"]
    with raw(address) as connection:
        connection.exec_driver_sql(make_sqlite_replace_guard("entries"))
    assert Ledger(path).verify() == []


# PostgreSQL: an owner, and a role that may only add

CHANGES = {
    "a row is changed": "UPDATE entries SET rho = '1/1000000'",
    "a row is removed": "DELETE FROM entries",
    "the table is emptied": "TRUNCATE entries CASCADE",
    "the guards are switched off": "ALTER TABLE entries DISABLE TRIGGER USER",
    "a guard is dropped": "DROP TRIGGER entries_no_change ON entries",
    "the guard's function is replaced": "CREATE OR REPLACE FUNCTION public.privsyn_append_only() RETURNS trigger "
    "LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$",
    "the table is dropped": "DROP TABLE entries CASCADE",
    "a cap is raised": "UPDATE datasets SET rho = '99/1'",
    "a draw is forgotten": "DELETE FROM marks",
    "triggers are skipped": "SET session_replication_role = replica",
}
OWNERS = {"the guards are switched off", "a guard is dropped", "the table is dropped", "triggers are skipped"}
"""What the owner of the tables can do."""


@pytest.fixture
def owner(postgres_database: str) -> Iterator[str]:
    """The URL of the database's owner, who is no superuser."""
    with postgres.owner(postgres_database) as url:
        yield url


@pytest.fixture
def writer(owner: str) -> Iterator[str]:
    """The URL of a role made by deployments/ledger_role.sql in a database whose owner has made the ledger."""
    Ledger(owner).make_tables()
    with postgres.worker(owner) as url:
        yield url


def test_the_role_adds_to_the_ledger_and_changes_nothing(writer: str, postgres_database: str) -> None:
    ledger = filled(writer)
    ledger.check()
    assert ledger.verify() == []
    history = ledger.export()
    for what, statement in CHANGES.items():
        with pytest.raises(sa.exc.DBAPIError) as refused, raw(writer) as connection:
            connection.exec_driver_sql(statement)
        assert "permission denied" in str(refused.value) or "must be owner" in str(refused.value), what
    assert Ledger(postgres_database).export() == history
    with raw(writer) as connection:  # the history of Prefect's server is its own
        connection.exec_driver_sql("CREATE TABLE flow_run (id integer)")
        schemas = connection.exec_driver_sql("SELECT schemaname FROM pg_tables WHERE tablename = 'flow_run'").all()
    assert schemas == [("prefect",)]


def test_a_role_that_can_do_more_is_not_made_one_that_only_adds(owner: str) -> None:
    Ledger(owner).make_tables()
    role = str(sa.make_url(owner).username)
    with pytest.raises(AssertionError, match="the role can do more than add to the ledger"):
        postgres.psql(owner, ROOT / "deployments" / "ledger_role.sql", role=role, password=role)
    assert Ledger(owner).verify() == []


@pytest.mark.parametrize("what", sorted(OWNERS))
def test_mutant_the_owner_as_the_workers_role_can_take_the_guards_away(postgres_database: str, what: str) -> None:
    """Planted mutant: one role for all, as before."""
    filled(postgres_database)
    with raw(postgres_database) as connection:
        connection.exec_driver_sql(CHANGES[what])


def test_tables_that_are_missing_are_asked_of_the_owner(tmp_path: Path) -> None:
    """The command makes the later tables in a ledger of before."""
    path = Path(shutil.copy(FIXTURES / "0.2.0" / "ledger.sqlite", tmp_path))
    path.chmod(0o600)
    Ledger(path).make_tables()
    Ledger(path).make_tables()
    assert Ledger(path).verify() == []
    tamper(f"sqlite:///{path}", "UPDATE mark_chain SET rows = 3", table="mark_chain")
    assert any("rows of marks" in problem for problem in Ledger(path).verify())
