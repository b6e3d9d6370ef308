"""The temporary server: Prefect's own, begun early and waited for; one that is named is asked whether it is there."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextvars import Context
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import prefect.context
import prefect.settings
import pytest
from prefect.server.api.server import SubprocessASGIServer

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.server import ends_with_parent, request_guard, temporary_server
from privsyn.server.login import CLIENT
from privsyn.server.release_server import ReleaseServer
from privsyn.server.temporary_server import start_temporary_server, translate_server_loss
from tests.support.webhook import listen


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login is known, and what a test brings is forgotten."""
    monkeypatch.setenv(CLIENT, "")
    monkeypatch.delenv(CLIENT)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr(prefect.context, "GLOBAL_SETTINGS_CONTEXT", prefect.context.GLOBAL_SETTINGS_CONTEXT)


class Fake:
    """Stands for Prefect's class; ``start`` takes until ``loaded`` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.loaded, self.started, self.error = threading.Event(), False, error

    def __call__(self) -> Fake:
        return self

    def start(self) -> None:
        assert self.loaded.wait(30)
        self.started = True
        if self.error is not None:
            raise self.error


def begin(monkeypatch: pytest.MonkeyPatch, fake: Fake, url: str | None) -> None:
    monkeypatch.setattr("privsyn.server.release_server.ReleaseServer", fake)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    if url is not None:
        monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setenv("PREFECT_SERVER_EPHEMERAL_ENABLED", "true")
    Context().run(_begin, fake)  # an empty context has no settings of other tests


def _begin(fake: Fake) -> None:
    prefect.context.refresh_global_settings_context()
    with start_temporary_server():
        assert not fake.started  # what is loaded here, is loaded meanwhile
        fake.loaded.set()


@pytest.mark.parametrize("error", [None, RuntimeError("no port is free")])
def test_it_starts_while_other_things_load_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    fake = Fake(error)
    begin(monkeypatch, fake, None)
    assert fake.started


def test_a_temporary_server_has_a_login_that_only_this_process_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, Fake(), None)
    first = os.environ[CLIENT]
    assert len(first) > 40
    assert Context().run(prefect.settings.PREFECT_API_AUTH_STRING.value) == first
    begin(monkeypatch, Fake(), None)
    assert os.environ[CLIENT] == first  # a process has one


def test_the_folder_of_its_history_is_made_private_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "prefect.db").touch(mode=0o644)
    begin(monkeypatch, Fake(), None)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "prefect.db").stat().st_mode & 0o777 == 0o600


class Health(BaseHTTPRequestHandler):
    """Answers as the server's class says: 200 where Prefect's server would, another number where it is not one."""

    def do_GET(self) -> None:
        if self.path == "/api/admin/version" and self.server.login:  # type: ignore[attr-defined]
            shown = self.headers["Authorization"] or ""
            wanted = "Basic " + b64encode(self.server.login.encode()).decode()  # type: ignore[attr-defined]
            self.send_response(200 if shown == wanted else 401)
            self.end_headers()
            self.wfile.write(b'"3"')
            return
        self.send_response(self.server.status if self.path == "/api/health" else 404)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening() -> Iterator[HTTPServer]:
    """A web server that answers every look at Prefect's health with its ``status``."""
    with listen(Health) as server:
        server.status, server.login = 200, ""  # type: ignore[attr-defined]
        yield server


def test_where_a_server_is_named_none_is_started(monkeypatch: pytest.MonkeyPatch, listening: HTTPServer) -> None:
    fake = Fake()
    begin(monkeypatch, fake, f"http://127.0.0.1:{listening.server_port}/api")
    assert not fake.started


def test_this_computer_s_server_is_brought_the_login_of_its_file(
    monkeypatch: pytest.MonkeyPatch, listening: HTTPServer, tmp_path: Path
) -> None:
    listening.login = "privsyn:secret"  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{listening.server_port}/api"
    with pytest.raises(RequestError, match=f"PREFECT_API_AUTH_STRING: the Prefect server at {url} asks for a login"):
        begin(monkeypatch, Fake(), url)
    (tmp_path / "login").write_text("privsyn:other\n")
    (tmp_path / "login").chmod(0o600)
    with pytest.raises(RequestError, match="refuses this login"):
        begin(monkeypatch, Fake(), url)
    monkeypatch.delenv(CLIENT)
    prefect.context.refresh_global_settings_context()
    (tmp_path / "login").write_text("privsyn:secret\n")
    begin(monkeypatch, Fake(), url)
    assert os.environ[CLIENT] == "privsyn:secret"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/api", "garbage", "ftp://127.0.0.1/api"])
def test_a_named_server_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    fake = Fake()
    with pytest.raises(RequestError, match="unset the variable") as error:
        begin(monkeypatch, fake, url)
    assert error.value.paragraph().startswith(f"PREFECT_API_URL: no Prefect server answers at {url!r}. Correct")
    assert not fake.loaded.is_set()  # nothing of the block was run


@pytest.mark.parametrize("status", [404, 503])
def test_what_is_no_prefect_server_is_none_and_asked_once(
    monkeypatch: pytest.MonkeyPatch, listening: HTTPServer, status: int
) -> None:
    listening.status = status  # type: ignore[attr-defined]
    start = time.monotonic()
    with pytest.raises(RequestError, match="no Prefect server answers"):
        begin(monkeypatch, Fake(), f"http://127.0.0.1:{listening.server_port}/api")
    assert time.monotonic() - start < 30  # Prefect's own five tries take a minute


def test_a_named_server_that_is_silent_is_waited_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, listening: HTTPServer
) -> None:
    free = threading.Event()
    monkeypatch.setattr(Health, "do_GET", lambda _: free.wait(60))
    monkeypatch.setattr(temporary_server, "SERVER_TIMEOUT", 0.2)
    try:
        with pytest.raises(RequestError, match="no Prefect server answers"):
            begin(monkeypatch, Fake(), f"http://127.0.0.1:{listening.server_port}/api")
    finally:
        free.set()


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadError("cut off")])
def test_a_server_that_is_lost_during_the_run_is_said_in_words(error: Exception) -> None:
    with pytest.raises(PrivsynError, match="server stopped answering") as said, translate_server_loss():
        raise error
    assert said.value.exit_code == 1
    assert "finished steps are kept" in said.value.paragraph()


PREFECTS = "prefect.server.api.server:create_app"


@pytest.fixture(autouse=True)
def none_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server was made before, and what a test makes is forgotten."""
    monkeypatch.setattr(SubprocessASGIServer, "_instances", {})


def test_it_differs_from_prefects_in_its_session_and_its_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def start(args: list[str], **more: Any) -> None:
        made.append({"args": args, **more})

    monkeypatch.setattr(subprocess, "Popen", start)
    server = ReleaseServer(8123)
    server._run_uvicorn_command()
    SubprocessASGIServer._run_uvicorn_command(server)
    ours, prefects = made
    python, module, *command = prefects.pop("args")
    assert module == "-m"
    behind = [f"{request_guard.__name__}:create_temporary_app" if part == PREFECTS else part for part in command]
    assert behind != command
    assert ours.pop("args") == [python, "-P", ends_with_parent.__file__, str(os.getpid()), *behind]
    assert ours.pop("start_new_session") is True
    assert ours.pop("umask") == 0o077
    assert ours == prefects


def test_it_asks_for_the_login_of_the_process_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

    made: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda args, env, **_: made.append(env))
    with temporary_settings({PREFECT_API_AUTH_STRING: "privsyn:secret"}):
        ReleaseServer(8123)._run_uvicorn_command()
    assert made[0]["PREFECT_SERVER_API_AUTH_STRING"] == "privsyn:secret"


def test_made_first_it_is_used_by_prefect() -> None:
    server = ReleaseServer()
    assert SubprocessASGIServer() is server
