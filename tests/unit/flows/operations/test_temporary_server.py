"""The temporary server is begun early, waited for, and left alone where another server is named."""

from __future__ import annotations

import threading

import pytest

from flows.operations.temporary_server import temporary_server_starting


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

    monkeypatch.setattr("flows.operations.release_server.ReleaseServer", fake)
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


def test_where_a_server_is_named_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    begin(monkeypatch, fake, "http://127.0.0.1:4200/api")
    assert not fake.started
