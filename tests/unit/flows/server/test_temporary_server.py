"""The temporary server is begun early and waited for; one that is named is asked whether it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from privsyn.errors import PrivsynError, RequestError
from privsyn.flows.server import temporary_server
from privsyn.flows.server.temporary_server import server_loss_in_words, temporary_server_starting


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
    from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, temporary_settings

    monkeypatch.setattr("privsyn.flows.server.release_server.ReleaseServer", fake)
    with (
        temporary_settings({PREFECT_API_URL: url, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: True}),
        temporary_server_starting(),
    ):
        assert not fake.started  # what is loaded here, is loaded meanwhile
        fake.loaded.set()


@pytest.mark.parametrize("error", [None, RuntimeError("no port is free")])
def test_it_starts_while_other_things_load_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    fake = Fake(error)
    begin(monkeypatch, fake, None)
    assert fake.started


class Health(BaseHTTPRequestHandler):
    """Answers as the server's class says: 200 where Prefect's server would, another number where it is not one."""

    def do_GET(self) -> None:
        self.send_response(self.server.status if self.path == "/api/health" else 404)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening() -> Iterator[HTTPServer]:
    """A web server that answers every look at Prefect's health with its ``status``."""
    server = HTTPServer(("127.0.0.1", 0), Health)
    server.status = 200  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_where_a_server_is_named_none_is_started(monkeypatch: pytest.MonkeyPatch, listening: HTTPServer) -> None:
    fake = Fake()
    begin(monkeypatch, fake, f"http://127.0.0.1:{listening.server_port}/api")
    assert not fake.started


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
    monkeypatch.setattr(temporary_server, "PATIENCE", 0.2)
    try:
        with pytest.raises(RequestError, match="no Prefect server answers"):
            begin(monkeypatch, Fake(), f"http://127.0.0.1:{listening.server_port}/api")
    finally:
        free.set()


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadError("cut off")])
def test_a_server_that_is_lost_during_the_run_is_said_in_words(error: Exception) -> None:
    with pytest.raises(PrivsynError, match="server stopped answering") as said, server_loss_in_words():
        raise error
    assert said.value.exit_code == 1
    assert "finished steps are kept" in said.value.paragraph()
