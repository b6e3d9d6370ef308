"""Prefect's temporary server as a process that no signal of the terminal reaches and that outlives nobody."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings

from privsyn.server import doors, ends_with_parent
from privsyn.server.login import SERVER
from privsyn.server.private_home import UMASK


class ReleaseServer(SubprocessASGIServer):
    """Prefect's class with another start of the process; where it is made first, Prefect uses it in all places.

    A Ctrl-C goes to a terminal's whole process group: a server that stopped first could not record that the run was
    cut short.  Prefect stops the server when this process ends; if it is killed, the server ends itself.
    """

    def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
        return subprocess.Popen(  # noqa: S603
            _build_command(self.port), env=_build_environment(), start_new_session=True, umask=UMASK
        )


def _build_command(port: int | None) -> list[str]:
    """Prefect's own command, watched, with the doors around its application."""
    return [
        *ends_with_parent.build_watched_command(),
        *doors.build_uvicorn_command("create_temporary_app", "127.0.0.1", port or 0, "error"),
    ]


def _build_environment() -> dict[str, str]:
    """Prefect's own: no page, and no second temporary server; it asks for the login that this process has."""
    fixed = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    settings = get_current_settings()
    login = {SERVER: settings.api.auth_string.get_secret_value()} if settings.api.auth_string else {}
    return {**os.environ, **fixed, **settings.to_environment_variables(exclude_unset=True), **login}
