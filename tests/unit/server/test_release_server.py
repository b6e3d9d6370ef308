"""The temporary server is Prefect's own program, in a session of its own, and every part of Prefect uses it."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
from prefect.server.api.server import SubprocessASGIServer

from privsyn.server import ends_with_parent, request_guard
from privsyn.server.release_server import ReleaseServer

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
