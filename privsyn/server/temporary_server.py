"""The Prefect server of a run: its own temporary one, begun before what takes seconds to load, or the one named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.server.environment import build_prefect_environment
from privsyn.server.login import CLIENT, build_client_login, make_login, make_login_error
from privsyn.server.private_home import make_home_private

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer

SERVER_TIMEOUT = 5.0
"""Seconds in which a server that is named has to answer."""


@contextmanager
def start_temporary_server() -> Iterator[None]:
    """Start the server that a flow would start for itself, load other things in the block, and wait for it at the end.

    Raises RequestError if PREFECT_API_URL names a server that does not answer, or if PREFECT_HOME cannot be made
    private for a temporary one.  A temporary server that does not come up is no error here: the flow tries again and
    says what is wrong.  An interrupt does not wait for it; Prefect stops its server when the process ends.
    """
    from prefect.client.base import ServerType, determine_server_type

    kind = determine_server_type()
    _set_login(temporary=kind == ServerType.EPHEMERAL)
    if kind == ServerType.SERVER:
        _check_named()
    if kind != ServerType.EPHEMERAL:
        yield
        return
    from privsyn.server.release_server import ReleaseServer

    _make_home_private()
    starting = Thread(target=_start, args=(ReleaseServer(),), name="start-server", daemon=True)
    starting.start()
    yield
    starting.join()


def _set_login(*, temporary: bool) -> None:
    """Let this process know the server's login: a new one for a temporary server, this computer's for its own server.

    One that is set in Prefect's settings stays.
    """
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


def _make_home_private() -> None:
    """Make the folder private in which the temporary server keeps its history."""
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    database = settings.server.database.connection_url
    make_home_private(settings.home, database.get_secret_value() if database is not None else "")


def _start(server: SubprocessASGIServer) -> None:
    with suppress(Exception):
        server.start()


def _check_named() -> None:
    """Raise RequestError if no Prefect server answers at PREFECT_API_URL, asked once, with Prefect's own settings."""
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
    """PrivsynError instead of the error of a connection, should the server stop answering while the block runs."""
    import httpx

    try:
        yield
    except httpx.TransportError:
        raise PrivsynError(
            "Prefect's server stopped answering during the run",
            "Run the same command again: finished steps are kept, nothing is charged twice",
        ) from None
