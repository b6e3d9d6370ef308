"""PREFECT_HOME and the server's SQLite files are their account's only, also where they exist already."""

from __future__ import annotations

import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.server import server_and_worker as programs
from privsyn.server.environment import Address, make_home_private
from privsyn.server.server_and_worker import Programs, run_server, run_worker


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that an earlier program made: open to everybody, with a database that is being written."""
    folder = tmp_path / "prefect"
    folder.mkdir()
    folder.chmod(0o755)
    for name in ("prefect.db", "prefect.db-wal", "prefect.db-shm"):
        (folder / name).write_bytes(b"")
        (folder / name).chmod(0o644)
    return folder


def test_what_exists_is_made_private(home: Path) -> None:
    make_home_private(home)
    make_home_private(home)  # nothing is left to be done
    assert mode(home) == 0o700
    assert {mode(path) for path in home.iterdir()} == {0o600} and len(list(home.iterdir())) == 3


def test_a_new_one_is_made_private(tmp_path: Path) -> None:
    make_home_private(tmp_path / "new" / "prefect")
    assert mode(tmp_path / "new" / "prefect") == 0o700
    assert list((tmp_path / "new" / "prefect").iterdir()) == []


def test_a_database_elsewhere_is_made_private_and_its_folder_stays(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "other"
    elsewhere.mkdir(mode=0o755)
    for name in ("history.db", "history.db-wal", "notes.txt"):
        (elsewhere / name).write_bytes(b"")
        (elsewhere / name).chmod(0o644)
    make_home_private(home, f"sqlite+aiosqlite:///{elsewhere / 'history.db'}?timeout=60")
    assert [mode(elsewhere / name) for name in ("history.db", "history.db-wal", "notes.txt")] == [0o600, 0o600, 0o644]
    assert mode(elsewhere) == 0o755
    for url in (
        "sqlite+aiosqlite:///:memory:",
        "sqlite+aiosqlite:///file::memory:?uri=true",
        "postgresql+asyncpg://h/d",
    ):
        make_home_private(home, url)


def test_one_of_another_account_is_refused_in_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(RequestError, match="belongs to another account and is open to other users") as caught:
        make_home_private(home)
    assert caught.value.field == "PREFECT_HOME" and str(home) in str(caught.value)
    with pytest.raises(PrivsynError):
        make_home_private(home / "prefect.db")  # no folder


@pytest.mark.parametrize("run", [run_server, run_worker])
def test_a_server_and_a_worker_do_so_before_they_start(
    run: object, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Started(Exception):
        pass

    def start(*_: object, **how: object) -> None:
        assert how["umask"] == (0o077 if run is run_server else -1)
        raise Started

    monkeypatch.setenv("PREFECT_HOME", str(home))
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "a:b")
    monkeypatch.setattr(Address, "check_free", lambda _: None)
    monkeypatch.setattr(Address, "wait", lambda _: None)
    monkeypatch.setattr(Address, "admits", lambda *_: True)
    monkeypatch.setattr(programs.subprocess, "Popen", start)
    with pytest.raises(Started):
        run(Settings(), print)  # type: ignore[operator]
    assert mode(home) == 0o700 and mode(home / "prefect.db") == 0o600


def test_files_that_a_program_makes_take_its_umask_and_those_of_sqlite_the_database_s(tmp_path: Path) -> None:
    made = Programs()
    made.start("one", [sys.executable, "-c", f"open({str(tmp_path / 'made')!r}, 'w')"], {}, umask=0o077)
    assert made.started["one"].wait(30) == 0 and mode(tmp_path / "made") == 0o600
    database = tmp_path / "prefect.db"
    database.touch(mode=0o600)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE run (name TEXT)")
        connection.commit()
        beside = {path.name: mode(path) for path in tmp_path.glob("prefect.db-*")}
    assert beside == {"prefect.db-wal": 0o600, "prefect.db-shm": 0o600}
