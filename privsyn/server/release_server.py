"""Prefect's temporary server as a process that gets no terminal signals and ends with its parent."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings

from privsyn.server import ends_with_parent, request_guard
from privsyn.server.environment import UMASK
from privsyn.server.login import SERVER

_FIXED = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""Prefect's variables of a server with no page, which starts no second temporary server."""


class ReleaseServer(SubprocessASGIServer):
    """Prefect's class with another start of the process; if created first, Prefect uses it everywhere.

    Ctrl-C goes to the terminal's whole process group: a server that stopped first could not record that the run was
    interrupted.  Prefect stops the server when this process ends; if this process is killed, the server ends itself.
    """

    def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
        settings = get_current_settings()
        login = {SERVER: settings.api.auth_string.get_secret_value()} if settings.api.auth_string else {}
        own = {**_FIXED, **settings.to_environment_variables(exclude_unset=True), **login}
        return subprocess.Popen(  # noqa: S603
            _build_command(self.port), env={**os.environ, **own}, start_new_session=True, umask=UMASK
        )


def _build_command(port: int | None) -> list[str]:
    """Return Prefect's command, watching its parent, with the checks of request_guard.py around its application."""
    return [
        *ends_with_parent.build_watched_command(),
        *request_guard.build_uvicorn_command("create_temporary_app", "127.0.0.1", port or 0, "error"),
    ]
