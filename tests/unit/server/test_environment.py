"""The environment of Prefect's programs, the server's address, and what is said before anything is started."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.server import server_and_worker as programs
from privsyn.server.environment import Address, build_prefect_environment
from privsyn.server.server_and_worker import check_database, run_server
from tests.support.prefect_ui import find_free_port

URL = "postgresql://u:p@h/db"


@pytest.mark.parametrize(
    ("host", "api"),
    [
        ("0.0.0.0", "http://127.0.0.1:4201/api"),  # noqa: S104 - not listened to
        ("::1", "http://[::1]:4201/api"),
        ("db.example", "http://db.example:4201/api"),
    ],
)
def test_the_api_s_address_follows_host_and_port(host: str, api: str) -> None:
    variables = {"PREFECT_SERVER_API_HOST": host, "PREFECT_SERVER_API_PORT": "4201"}
    assert Address.of(variables).api == api
    assert Address.of({**variables, "PREFECT_API_URL": "https://proxy.example/api/"}).api == "https://proxy.example/api"


@pytest.mark.parametrize("port", ["abc", "0", "65536", "-1", "4200.5"])
def test_a_wrong_port_is_refused_by_its_name(port: str) -> None:
    with pytest.raises(RequestError, match=r"PREFECT_SERVER_API_PORT: .* is not a valid port"):
        Address.of({"PREFECT_SERVER_API_PORT": port})


@pytest.mark.parametrize("api", ["nonsense", "127.0.0.1:4200/api", "ftp://host/api"])
def test_an_address_that_is_none_is_refused_and_not_waited_for(api: str) -> None:
    with pytest.raises(RequestError, match=r"PREFECT_API_URL: .* is not a web address\. Write one as http://"):
        Address.of({"PREFECT_API_URL": api}).wait()


def test_a_port_in_use_is_said_so_and_a_free_one_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = urllib.request.urlopen
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: ask(url, timeout=timeout / 50))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        address = Address("127.0.0.1", port, f"http://127.0.0.1:{port}/api")
        with pytest.raises(RequestError, match=f"PREFECT_SERVER_API_PORT: port {port} of 127.0.0.1 is not free"):
            address.check_free()
        assert not address.answers()  # something listens there, but no Prefect server answers
    address.check_free()


def test_a_host_of_another_computer_is_refused() -> None:
    with pytest.raises(RequestError, match="PREFECT_SERVER_API_"):
        Address("192.0.2.1", 4200, "").check_free()


def test_waiting_for_a_server_that_is_not_there_ends_in_words() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
        port = nobody.getsockname()[1]
        with pytest.raises(PrivsynError, match=r"no Prefect server answers at http://127.0.0.1:.*privsyn server"):
            Address("127.0.0.1", port, f"http://127.0.0.1:{port}/api").wait(0.1)


def test_what_is_set_stays_and_what_is_empty_is_not_set(tmp_path: Path) -> None:
    given = {"PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": "", "DO_NOT_TRACK": "0", "PATH": "/bin", "OTHER": "x"}
    made = build_prefect_environment(Settings(database_url=""), given)
    assert (made["PREFECT_HOME"], made["DO_NOT_TRACK"], made["OTHER"]) == (str(tmp_path), "0", "x")
    assert made["PREFECT_API_URL"] == "http://127.0.0.1:4200/api"
    assert made["PATH"].endswith(":/bin")
    assert "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in made
    assert made["PREFECT_WORKER_QUERY_SECONDS"] == "2"  # what is started on the page starts within two seconds
    slower = build_prefect_environment(Settings(database_url=""), {**given, "PREFECT_WORKER_QUERY_SECONDS": "30"})
    assert slower["PREFECT_WORKER_QUERY_SECONDS"] == "30"


def test_one_variable_moves_the_server_s_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIVSYN_LEDGER", raising=False)
    settings = Settings(database_url=URL)
    made = build_prefect_environment(settings, {})
    assert made["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == URL.replace("postgresql", "postgresql+asyncpg")
    own = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:////x"}
    assert (
        build_prefect_environment(settings, own)["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == "sqlite+aiosqlite:////x"
    )


def test_the_server_s_history_lies_beside_the_ledger_not_in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIVSYN_LEDGER", raising=False)
    home = Path(build_prefect_environment(Settings(database_url=""), {})["PREFECT_HOME"])
    assert home.parent == Path(Settings(database_url="").ledger).parent


@pytest.fixture(autouse=True)
def nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(programs.subprocess, "Popen", refuse)
    for name in ("PRIVSYN_DATABASE_URL", "PRIVSYN_DATABASE_PASSWORD_FILE", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))


def test_a_port_in_use_is_said_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("PREFECT_SERVER_API_PORT", str(other.getsockname()[1]))
        with pytest.raises(RequestError, match=r"PREFECT_SERVER_API_PORT: port [0-9]+ of 127.0.0.1 is not free"):
            run_server(Settings(), print)
    assert not (tmp_path / "prefect").exists()


def test_a_database_that_does_not_answer_is_said_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_SERVER_API_PORT", str(find_free_port()))
    monkeypatch.setattr("privsyn.ledgers.database.RESTART_SECONDS", 0.5)
    settings = Settings(database_url=f"postgresql://u:hunter2@127.0.0.1:{find_free_port()}/db")
    with pytest.raises(PrivsynError, match=r"^PRIVSYN_DATABASE_URL: the database .* does not answer") as refusal:
        run_server(settings, print)
    assert "hunter2" not in str(refusal.value)
    assert "u:***@127.0.0.1" in str(refusal.value)


def test_a_database_that_answers_is_not_touched(postgres_database: str) -> None:
    import sqlalchemy as sa

    check_database(Settings(database_url=postgres_database))
    engine = sa.create_engine(sa.make_url(postgres_database).set(drivername="postgresql+psycopg"))
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()
