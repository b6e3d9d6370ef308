"""PREFECT_HOME, its files and the login are their account's only, and the login is told to nobody else's server."""

from __future__ import annotations

import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.server import environment
from privsyn.server import server_and_worker as programs
from privsyn.server.environment import Address, build_client_auth_env, make_home_private
from privsyn.server.login import CLIENT, SERVER, build_client_login, build_server_login, make_login
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


HERE, ELSEWHERE = "http://127.0.0.1:4200/api", "https://prefect.example.org/api"


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.delenv("PRIVSYN_LOGIN_FILE", raising=False)
    return {"PREFECT_HOME": str(tmp_path / "prefect")}


def test_it_is_made_once_for_its_owner_only_and_used_again(tmp_path: Path, variables: dict[str, str]) -> None:
    made = build_server_login(Settings(), variables)
    file = tmp_path / "prefect" / "login"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert made[SERVER] == made[CLIENT] == file.read_text().strip()
    assert len(made[SERVER]) > 40
    assert build_server_login(Settings(), variables) == made
    assert build_client_login(Settings(), variables, HERE) == {CLIENT: made[CLIENT]}
    assert [path.name for path in file.parent.iterdir()] == ["login"]


def test_two_are_never_the_same() -> None:
    assert len({make_login() for _ in range(100)}) == 100


def test_what_the_environment_says_counts_and_makes_no_file(tmp_path: Path, variables: dict[str, str]) -> None:
    for name in (SERVER, CLIENT):
        assert build_server_login(Settings(), {**variables, name: "a:b"}) == {SERVER: "a:b", CLIENT: "a:b"}
    assert build_client_login(Settings(), {**variables, CLIENT: "a:b"}, ELSEWHERE) == {CLIENT: "a:b"}
    assert not (tmp_path / "prefect").exists()


def test_another_computer_s_server_is_not_told_this_one_s_login(tmp_path: Path, variables: dict[str, str]) -> None:
    login = build_server_login(Settings(), variables)[CLIENT]
    for api in (ELSEWHERE, "http://192.0.2.1:4200/api", "http://127.0.0.1.example.org/api", "http://x@example.org/api"):
        assert build_client_login(Settings(), variables, api) == {}
    for api in (HERE, "http://localhost:4200/api", "http://[::1]:4200/api"):
        assert build_client_login(Settings(), variables, api) == {CLIENT: login}
    named = Settings(login_file=tmp_path / "prefect" / "login")
    assert build_client_login(named, variables, ELSEWHERE) == {CLIENT: login}  # somebody says so


def test_one_that_other_users_may_read_or_that_holds_none_is_refused(tmp_path: Path, variables: dict[str, str]) -> None:
    build_server_login(Settings(), variables)
    file = tmp_path / "prefect" / "login"
    file.chmod(0o640)
    with pytest.raises(RequestError, match=r"PRIVSYN_LOGIN_FILE: other users may read .*/login\. Remove it"):
        build_server_login(Settings(), variables)
    assert build_server_login(Settings(login_file=file), variables)  # a container's secret is what its engine makes it
    file.chmod(0o600)
    for text in ("", "\n", "one\ntwo\n"):
        file.write_text(text)
        with pytest.raises(RequestError, match="does not hold one line"):
            build_client_login(Settings(), variables, HERE)


def test_a_named_file_that_cannot_be_read_is_refused(tmp_path: Path, variables: dict[str, str]) -> None:
    for file in (tmp_path / "none", tmp_path):
        with pytest.raises(RequestError, match=r"PRIVSYN_LOGIN_FILE: .* cannot be read .*Name a copy of the server's"):
            build_client_login(Settings(login_file=file), variables, ELSEWHERE)


@pytest.mark.parametrize(("login", "words"), [("", "asks for a login"), ("a:b", "refuses this login")])
def test_a_server_that_lets_nobody_in_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], login: str, words: str
) -> None:
    monkeypatch.setattr(environment.Address, "admits", lambda *_: False)
    with pytest.raises(RequestError, match=f"PREFECT_API_AUTH_STRING: the Prefect server at {HERE} {words}"):
        build_client_auth_env(Settings(), {**variables, CLIENT: login}, Address("127.0.0.1", 4200, HERE))
