"""The closed work pool: a user who starts a run chooses its parameters, but not how the worker runs it."""

from __future__ import annotations

import runpy
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx

from privsyn.server.environment import POOL
from privsyn.server.lost_runs import end_lost_runs, name_worker, watch_lost_runs

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

LIMIT = 4
"""Largest number of simultaneous runs in a new pool; each may use all threads.  A limit set on the server is kept."""

TEMPLATE: dict[str, Any] = {
    "job_configuration": {"stream_output": True},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""No command, environment, working folder or name: the server refuses a run with one, and no worker takes it."""


def close_pool(client: SyncPrefectClient) -> None:
    """Create the pool, or close an open one made by an earlier version or by Prefect's own worker."""
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists

    new_pool = WorkPoolCreate(name=POOL, type="process", base_job_template=TEMPLATE, concurrency_limit=LIMIT)
    try:
        client.create_work_pool(new_pool)
    except ObjectAlreadyExists:
        known = client.read_work_pool(POOL)
        if known.base_job_template != TEMPLATE or known.concurrency_limit is None:
            limit = LIMIT if known.concurrency_limit is None else known.concurrency_limit
            client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=TEMPLATE, concurrency_limit=limit))


WAIT_SECONDS = 30.0
"""Seconds within which a server that restarts beside the worker must answer."""


def _wait(client: SyncPrefectClient) -> None:
    """Wait for the server, so that a worker that starts with it does not start twice."""
    end = time.monotonic() + WAIT_SECONDS
    while client.api_healthcheck() is not None and time.monotonic() < end:
        time.sleep(0.2)


def main() -> None:
    """Close the pool, end lost runs, and keep watching for them while ``prefect`` runs with the arguments.

    So a worker never polls an open pool.  Exits with 1 and a line if no server answers.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        try:
            _wait(client)
            close_pool(client)
            for name in end_lost_runs(client, name_worker()):
                print(f"The run {name} had lost its process and is ended.", file=sys.stderr)
        except httpx.TransportError as error:
            sys.exit(f"The worker finds no server ({type(error).__name__}).")
        watch_lost_runs(client, name_worker())
        sys.argv[0] = "prefect"
        runpy.run_module("prefect", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    main()
