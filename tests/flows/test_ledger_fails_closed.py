"""A ledger that is corrupted, read-only, full, locked, missing or of another version stops a release before its data.

The kernel is asked whether the private table was opened: it was not, not even to be hashed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privsyn.base.settings import Settings
from privsyn.ledgers import database as ledger_database
from privsyn.ledgers.ledger import Ledger
from privsyn.specs.spec_file import load_spec
from tests.support import postgres
from tests.support.commands import privsyn, use_no_server
from tests.support.opened import watched
from tests.support.releases import release_in_process
from tests.support.specs import people
from tests.support.tampering import tamper

SPEC = """\
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1, delta: 1.0e-9}
budget: {epsilon: 9, delta: 1.0e-9}
synthesis: {sweeps: 1}
columns: {age: {kind: integer, min: 18, max: 89, bins: 6}, happy: {kind: boolean}}
"""
Damage = Callable[[Path, pytest.MonkeyPatch], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One release's ledger; the spec and the table of the next one."""
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("made")
    pq.write_table(people(80).select(["age", "happy"]), folder / "people.parquet")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    settings = Settings(out=folder / "out", ledger=str(folder / "ledger.sqlite"))
    release_in_process(load_spec(folder / "spec.yaml"), settings)
    return folder


@pytest.fixture
def again(made: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same places after that release, copied; what is asked for next is another release."""
    for name in ("out", "people.parquet", "spec.yaml", "ledger.sqlite"):
        copy = shutil.copytree if (made / name).is_dir() else shutil.copy
        copy(made / name, places / name)
    monkeypatch.setattr(ledger_database, "TIMEOUT", 0.2)
    monkeypatch.setattr(ledger_database, "RESTART_SECONDS", 0.2)
    use_no_server(monkeypatch)
    return places


def refused(folder: Path, *words: str, code: int = 1) -> None:
    """One sentence with the words, the exit code, and nobody has opened the table or left anything anew."""
    out = folder / "out"
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.suffix != ".lock"}
    with watched(folder / "people.parquet") as events:
        result = privsyn("release", str(folder / "spec.yaml"), "--epsilon", "0.5")
        assert events() == 0, "the private table was opened"
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("privsyn: ")
    for word in words:
        assert word in line
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.suffix != ".lock"} == before


def ledger_file() -> Path:
    return Path(Settings().ledger)


def test_the_kernel_sees_a_release_read_its_table(again: Path) -> None:
    """Without damage the same request reads the table: the watch can tell."""
    with watched(again / "people.parquet") as events:
        result = privsyn("release", str(again / "spec.yaml"), "--epsilon", "0.5")
        assert result.exit_code == 0, result.output
        assert events() > 0


def execute(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def anew(path: Path, make: Callable[[Path], Any]) -> None:
    """Put something else in the ledger's place."""
    path.unlink()
    make(path)


def fill(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite may not have a page more than it has: its own answer to a full disk."""
    prepare = ledger_database._set_manual_transactions

    def limited(connection: Any, record: Any) -> None:
        prepare(connection, record)
        connection.execute("PRAGMA max_page_count = 1")  # never below the pages that there are

    monkeypatch.setattr(ledger_database, "_set_manual_transactions", limited)


def protect(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No right to write the file, also for a superuser, for whom permissions mean nothing."""
    opener = os.open

    def refuse(name: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(name) == str(path) and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return opener(name, flags, *rest, **more)

    monkeypatch.setattr(ledger_database.os, "open", refuse)


DAMAGES: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "garbled": (lambda path, _: path.write_bytes(b"no database " * 900), ("damaged or not a ledger", "backup")),
    "cut": (lambda path, _: os.truncate(path, path.stat().st_size // 2), ("ledger", "backup")),
    "blank": (
        lambda path, _: path.write_bytes(path.read_bytes()[:8192] + bytes(path.stat().st_size - 8192)),
        ("ledger", "backup"),
    ),
    "edited": (
        lambda path, _: tamper(f"sqlite:///{path}", "UPDATE entries SET rho = '1/1000000' WHERE id = 1"),
        ("does not add up", "entry 1", "backup"),
    ),
    "shortened": (
        lambda path, _: tamper(f"sqlite:///{path}", "DELETE FROM entries WHERE id = 6"),
        ("does not add up", "backup"),
    ),
    "without a trigger": (
        lambda path, _: execute(path, "DROP TRIGGER entries_no_delete"),
        ("does not add up", "trigger"),
    ),
    "of a later version": (
        lambda path, _: execute(path, "UPDATE ledger SET version = 99"),
        ("schema version 99", "Use the version of privsyn-flows"),
    ),
    "with other tables": (
        lambda path, _: anew(path, lambda new: execute(new, "CREATE TABLE ledger (x)")),
        ("damaged or not a ledger",),
    ),
    "lost": (lambda path, _: path.unlink(), ("is missing", "Restore it from a backup")),
    "empty": (lambda path, _: path.write_bytes(b""), ("is missing", "Restore it from a backup")),
    "begun anew": (lambda path, _: anew(path, Ledger), ("charged to another ledger", "PRIVSYN_LEDGER")),
    "a folder": (lambda path, _: anew(path, Path.mkdir), ("ledger", "cannot be opened")),
    "a pipe": (lambda path, _: anew(path, os.mkfifo), ("ledger", "is not a regular file")),
    "a link to nothing": (lambda path, _: anew(path, lambda new: new.symlink_to("gone")), ("is missing",)),
    "on a full disk": (fill, ("the disk is full", "Free some space")),
    "protected": (protect, ("cannot be opened for writing", "right to write")),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_ledger_that_cannot_be_trusted_stops_a_release_before_its_data(
    again: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    damage, words = DAMAGES[how]
    damage(ledger_file(), monkeypatch)
    existed = ledger_file().exists()
    refused(again, *words)
    assert ledger_file().exists() == existed  # a missing ledger is not begun anew


def test_a_locked_ledger_stops_a_release_before_its_data(again: Path) -> None:
    with contextlib.closing(sqlite3.connect(ledger_file(), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused(again, "locked by another process", "Wait for the other run")


def test_a_server_that_is_gone_stops_a_release_before_its_data(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", f"postgresql://user:hunter2@/none?host={again}")
    refused(again, "ledger", "does not answer", "Start the database")


def test_a_read_only_server_stops_a_release_before_its_data(
    again: Path, monkeypatch: pytest.MonkeyPatch, postgres_database: str
) -> None:
    """PostgreSQL: the history is there, and nothing may be written to it."""
    pytest.importorskip("psycopg")
    monkeypatch.setenv("PRIVSYN_LEDGER", postgres_database)
    shutil.rmtree(again / "out")
    release_in_process(load_spec(again / "spec.yaml"), Settings())
    with postgres.autocommit(postgres_database) as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    refused(again, "ledger", "cannot be opened for writing", "not a read-only copy of it")
