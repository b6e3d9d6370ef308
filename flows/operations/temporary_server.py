"""Prefect's own temporary server, begun before what takes seconds to load.

Belongs here: starting it early.  Does not belong here: how its process is started
(release_server.py), the server that stays (server.py), what a run does with it (flows/release.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer


@contextmanager
def temporary_server_starting() -> Iterator[None]:
    """Start the server that a flow would start for itself, load other things in the block, and wait for it at the end.

    Does nothing where PREFECT_API_URL names a server.  A server that does not come up is no error here: the flow tries
    again and says what is wrong.  An interrupt does not wait for it; Prefect stops its server when the process ends.
    """
    from prefect.client.base import ServerType, determine_server_type

    if determine_server_type() != ServerType.EPHEMERAL:
        yield
        return
    from flows.operations.release_server import ReleaseServer

    starting = Thread(target=_start, args=(ReleaseServer(),), name="start-server", daemon=True)
    starting.start()
    yield
    starting.join()


def _start(server: SubprocessASGIServer) -> None:
    with suppress(Exception):
        server.start()
