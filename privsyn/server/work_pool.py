"""The closed work pool and its worker, which also ends runs whose process is gone.

A user who starts a run chooses its parameters, but not how the worker runs it.  A worker ends lost runs as Crashed, or
the server if the worker is gone too.  Processes, states and workers' polls decide whether a run is alive, not events.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
import psutil

from privsyn.server.environment import POOL

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from prefect.states import State


LIMIT = 4
"""Largest number of simultaneous runs in a new pool; each may use all threads.  A limit set on the server is kept."""

TEMPLATE: dict[str, Any] = {
    "job_configuration": {"stream_output": True},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""No command, environment, working folder or name: the server refuses a run with one, and no worker takes it."""

WORKER, RUN = "prefect.worker.name", "PREFECT__FLOW_RUN_ID"
"""The label that Prefect's worker gives its runs, and the variable of their processes."""

HEARTBEAT = "prefect.flow-run.heartbeat"
"""The event that a run's process emits every 30 seconds."""

RESTART = "Started again, it finds its finished steps; nothing is charged twice."

MESSAGE = f"Its process is gone. {RESTART}"

MESSAGE_WITHOUT_WORKER = f"Its worker is gone, and it gives no sign of life. {RESTART}"

CHECK_SECONDS = 2.0
"""Seconds between two checks of a worker's runs."""

GRACE_SECONDS = {"RUNNING": 4.0, "PENDING": 60.0, "CANCELLING": 60.0}
"""Seconds without a process, by the type of a run's state, after which the run is lost.

Prefect's worker itself reports a process that ends, starts a pending run's process, and ends a cancelling run's.
"""

SILENT_AFTER = timedelta(seconds=90)
"""A worker or run silent for longer is gone: three polls of a worker, or three heartbeats of a run."""


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
        watch = LostRunWatch(client, name_worker())
        threading.Thread(target=watch.keep_ending, name="lost-runs", daemon=True).start()
        sys.argv[0] = "prefect"
        runpy.run_module("prefect", run_name="__main__", alter_sys=False)


def name_worker() -> str:
    """Return the name of every worker of this user on this computer, so that the next one knows the last one's runs."""
    return f"{socket.gethostname()}-{os.getuid()}"


def end_lost_runs(client: SyncPrefectClient, worker: str, states: Iterable[str] = tuple(GRACE_SECONDS)) -> list[str]:
    """End the runs of ``worker`` in ``states`` without a process here, at a start; return their names.

    For runs of workers elsewhere, see :func:`end_runs_of_absent_workers`.
    """
    runs = _read_unfinished(client, [worker], states)
    alive = _list_alive() if runs else set()
    return _end(client, (run for run in runs if str(run.id) not in alive), MESSAGE)


@dataclass
class LostRunWatch:
    """Ends a worker's runs that have had no process here for GRACE_SECONDS, while the worker runs."""

    client: SyncPrefectClient
    worker: str
    _absent_since: dict[UUID, float] = field(default_factory=dict)

    def end_lost(self, now: float) -> list[str]:
        """End the worker's lost runs, at the time ``now`` in seconds; return their names."""
        runs = _read_unfinished(self.client, [self.worker])
        alive = _list_alive() if runs else set()
        absent = [run for run in runs if str(run.id) not in alive]
        self._absent_since = {run.id: self._absent_since.get(run.id, now) for run in absent}
        lost = [run for run in absent if now - self._absent_since[run.id] >= _get_grace(run)]
        return _end(self.client, lost, MESSAGE)

    def keep_ending(self) -> None:
        """End the worker's lost runs as long as this process runs."""
        while True:
            time.sleep(CHECK_SECONDS)
            with suppress(httpx.HTTPError):  # the server restarts
                self.end_lost(time.monotonic())


def end_runs_of_absent_workers(client: SyncPrefectClient, now: datetime) -> list[str]:
    """End silent runs of workers that have not polled for SILENT_AFTER; return the runs' names."""
    workers = client.read_workers_for_work_pool(POOL)
    absent = [w.name for w in workers if w.last_heartbeat_time and w.last_heartbeat_time < now - SILENT_AFTER]
    runs = _read_unfinished(client, absent) if absent else []
    silent = (run for run in runs if _is_silent(client, run, now))
    return _end(client, silent, MESSAGE_WITHOUT_WORKER)


def was_cancelled(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Return whether a run crashed because it was being cancelled; its worker calls it Cancelled later."""
    before = find_state_before_crash(client, run)
    return before is not None and before.is_cancelling()


def find_state_before_crash(client: SyncPrefectClient, run: FlowRun) -> State[Any] | None:
    """Return the state before a run's crash; None if it did not crash."""
    if run.state is None or not run.state.is_crashed():
        return None
    crash = run.state.id
    before = [*takewhile(lambda state: state.id != crash, client.read_flow_run_states(run.id))]
    return before[-1] if before else None


def _get_grace(run: FlowRun) -> float:
    return GRACE_SECONDS[run.state.type.value] if run.state is not None else 0.0


def _read_unfinished(
    client: SyncPrefectClient, workers: Iterable[str], states: Iterable[str] = tuple(GRACE_SECONDS)
) -> list[FlowRun]:
    from prefect.client.schemas.filters import FlowRunFilter

    unfinished = FlowRunFilter.model_validate({"state": {"type": {"any_": list(states)}}})
    names = set(workers)
    return [r for r in client.read_flow_runs(flow_run_filter=unfinished) if r.labels.get(WORKER) in names]


def _is_silent(client: SyncPrefectClient, run: FlowRun, now: datetime) -> bool:
    """Return whether a run has had no new state and no heartbeat for SILENT_AFTER."""
    since = now - SILENT_AFTER
    if run.state is None or run.state.timestamp > since:
        return False
    event_filter = {
        "occurred": {"since": since.isoformat(), "until": (now + SILENT_AFTER).isoformat()},
        "event": {"name": [HEARTBEAT]},
        "resource": {"id": [f"prefect.flow-run.{run.id}"]},
    }
    return not client.request("POST", "/events/filter", json={"filter": event_filter, "limit": 1}).json()["events"]


def _end(client: SyncPrefectClient, runs: Iterable[FlowRun], message: str) -> list[str]:
    """End runs as Crashed, except runs that have ended meanwhile; return the names of all."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
    from prefect.states import Crashed

    is_running, names = TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING"]}}}), []
    for run in runs:
        client.set_flow_run_state(run.id, Crashed(message=message))
        of_run = FlowRunFilter.model_validate({"id": {"any_": [run.id]}})
        for task in client.read_task_runs(flow_run_filter=of_run, task_run_filter=is_running):  # else its graph grows
            client.set_task_run_state(task.id, Crashed(message=message), force=True)
        names.append(run.name)
    return names


def _list_alive() -> set[str]:
    """Return the IDs of the flow runs with a process of this user."""
    runs = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            runs.add(process.environ().get(RUN, ""))
    return runs


if __name__ == "__main__":
    main()
