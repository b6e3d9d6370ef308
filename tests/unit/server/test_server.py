"""What is said before a server or a worker is started, and that nothing is started then."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.server import server_and_worker as programs
from privsyn.server.server_and_worker import check_database, run_server


@pytest.fixture(autouse=True)
def nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(programs.subprocess, "Popen", refuse)
    for name in ("PRIVSYN_DATABASE_URL", "PRIVSYN_DATABASE_PASSWORD_FILE", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_in_use_is_said_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("PREFECT_SERVER_API_PORT", str(other.getsockname()[1]))
        with pytest.raises(RequestError, match=r"PREFECT_SERVER_API_PORT: port [0-9]+ of 127.0.0.1 is not free"):
            run_server(Settings(), print)
    assert not (tmp_path / "prefect").exists()


def test_a_database_that_does_not_answer_is_said_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_SERVER_API_PORT", str(unused_port()))
    monkeypatch.setattr("privsyn.ledgers.database.RESTART_SECONDS", 0.5)
    settings = Settings(database_url=f"postgresql://u:hunter2@127.0.0.1:{unused_port()}/db")
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
