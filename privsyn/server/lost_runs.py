"""Runs whose process is gone: when a worker starts, they end as Crashed instead of being Running for ever."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

WORKER, RUN = "prefect.worker.name", "PREFECT__FLOW_RUN_ID"
"""The label that Prefect's worker gives its runs, and the variable that their processes have."""

MESSAGE = "Its process is gone. Started again, it finds its finished steps; nothing is charged twice."


def name_worker() -> str:
    """Return same for every worker of this user on this computer, so that the next one knows the runs of the last."""
    return f"{socket.gethostname()}-{os.getuid()}"


def end_lost_runs(client: SyncPrefectClient, worker: str) -> list[str]:
    """End the runs of ``worker`` that have not ended and have no process here; their names.

    Runs of workers elsewhere are left alone: those that are silent end by the notice "no heartbeat".
    """
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    unfinished = FlowRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}})
    runs = client.read_flow_runs(flow_run_filter=unfinished)
    alive = _list_alive() if runs else set()
    lost = [r for r in runs if r.labels.get(WORKER) == worker and str(r.id) not in alive]
    for run in lost:
        client.set_flow_run_state(run.id, Crashed(message=MESSAGE), force=True)
    return [run.name for run in lost]


def _list_alive() -> set[str]:
    """Return the flow runs that have a process of this user."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found.add(process.environ().get(RUN, ""))
    return found
