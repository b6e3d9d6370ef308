"""The work pool, closed: whoever starts a run chooses its parameters, and nothing of how the worker runs it."""

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
"""Runs at a time of a new pool; each may use all threads.  What somebody set on the server stays."""

TEMPLATE: dict[str, Any] = {
    "job_configuration": {"stream_output": True},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""No command, environment, working folder or name: the server refuses a run that brings one, and no worker takes it."""


def close_pool(client: SyncPrefectClient) -> None:
    """Make the pool, or close one that an earlier version or a worker of Prefect's own made open."""
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
"""Seconds in which a server that starts anew beside the worker has to answer."""


def _wait(client: SyncPrefectClient) -> None:
    """Wait for the server, so that a worker that starts with it need not start twice."""
    end = time.monotonic() + WAIT_SECONDS
    while client.api_healthcheck() is not None and time.monotonic() < end:
        time.sleep(0.2)


def main() -> None:
    """Close the pool, end lost runs, and go on looking for them beside ``prefect`` with the arguments.

    So a worker never polls an open pool.  Ends with 1 and a line where no server answers.
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
