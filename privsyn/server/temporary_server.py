"""The Prefect server of a run: a temporary one, started before slow imports, or the server in PREFECT_API_URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.server.environment import build_prefect_environment, make_home_private
from privsyn.server.login import CLIENT, build_client_login, make_login, make_login_error

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer

SERVER_TIMEOUT = 5.0
"""Seconds within which the server in PREFECT_API_URL must answer."""


@contextmanager
def start_temporary_server() -> Iterator[None]:
    """Start a flow's temporary server while the block loads other modules, and wait for it at the end.

    Raises RequestError if PREFECT_API_URL names a server that does not answer, or if PREFECT_HOME cannot be made
    private for a temporary one.  A temporary server that does not start is not an error here: the flow tries again and
    reports it.  An interrupt does not wait for it; Prefect stops its server when the process ends.
    """
    from prefect.client.base import ServerType, determine_server_type
    from prefect.settings import get_current_settings

    kind = determine_server_type()
    _set_login(temporary=kind == ServerType.EPHEMERAL)
    if kind == ServerType.SERVER:
        _check_named()
    if kind != ServerType.EPHEMERAL:
        yield
        return
    from privsyn.server.release_server import ReleaseServer

    settings = get_current_settings()
    database = settings.server.database.connection_url
    make_home_private(settings.home, database.get_secret_value() if database is not None else "")
    starting = Thread(target=_start, args=(ReleaseServer(),), name="start-server", daemon=True)
    starting.start()
    yield
    starting.join()


def _set_login(*, temporary: bool) -> None:
    """Set this process's login, if Prefect's settings have none: a new one, or the one of this computer's server."""
    from prefect.context import refresh_global_settings_context
    from prefect.settings import get_current_settings

    prefect_settings = get_current_settings()
    if prefect_settings.api.auth_string is not None:
        return
    if temporary:
        login = {CLIENT: make_login()}
    else:
        settings = Settings()
        login = build_client_login(settings, build_prefect_environment(settings), str(prefect_settings.api.url))
    if login:
        os.environ.update(login)
        refresh_global_settings_context()


def _start(server: SubprocessASGIServer) -> None:
    with suppress(Exception):
        server.start()


def _check_named() -> None:
    """Raise RequestError if no Prefect server answers at PREFECT_API_URL; try once, with Prefect's settings."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_CLIENT_MAX_RETRIES,
        temporary_settings,
    )

    try:
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            client = get_client(httpx_settings={"timeout": SERVER_TIMEOUT}, sync_client=True)
            problem = client.api_healthcheck()
            if problem is None:
                client.api_version()
    except PrefectHTTPStatusError as error:
        if error.response.status_code == 401:
            raise make_login_error(str(PREFECT_API_URL.value()), brought=PREFECT_API_AUTH_STRING.value()) from None
        problem = None  # it answers
    except Exception as error:  # not an address at all
        problem = error
    if problem is not None:
        raise RequestError(
            f"no Prefect server answers at {PREFECT_API_URL.value()!r}",
            "Correct the address, start that server (`privsyn server`), or unset the variable for a temporary one",
            "PREFECT_API_URL",
        )


@contextmanager
def translate_server_loss() -> Iterator[None]:
    """Raise PrivsynError instead of a connection error if the server stops answering while the block runs."""
    import httpx

    try:
        yield
    except httpx.TransportError:
        raise PrivsynError(
            "Prefect's server stopped answering during the run",
            "Run the same command again: finished steps are kept, nothing is charged twice",
        ) from None
