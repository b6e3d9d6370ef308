"""The login's file: made once, for its owner only, and told to nobody else's server."""

from __future__ import annotations

from pathlib import Path

import pytest

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.server import environment
from privsyn.server.environment import Address, build_client_auth_env
from privsyn.server.login import CLIENT, SERVER, build_client_login, build_server_login, make_login

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
