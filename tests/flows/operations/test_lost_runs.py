"""Runs whose process is gone end when their worker starts; runs with a process, and those of others, go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.states import Running

from privsyn.server.lost_runs import RUN, WORKER, end_lost_runs, name_worker


@flow(name="any")
def anything() -> None:
    """Never run: it stands for a flow."""


@pytest.fixture
def client(prefect_server: str) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as found:
        yield found


def running(client: SyncPrefectClient, name: str, worker: str) -> UUID:
    run = client.create_flow_run(anything, name=name, state=Running())
    client.update_flow_run_labels(run.id, {WORKER: worker})
    return run.id


def test_only_those_without_a_process_end(client: SyncPrefectClient) -> None:
    lost = running(client, "lost", name_worker())
    alive = running(client, "alive", name_worker())
    elsewhere = running(client, "elsewhere", "another-computer-1000")
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={**os.environ, RUN: str(alive)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        assert end_lost_runs(client, name_worker()) == ["lost"]
    finally:
        process.communicate(b"\n")
    states = {name: client.read_flow_run(run).state for name, run in (("lost", lost), ("alive", alive))}
    assert states["lost"].name == "Crashed"  # type: ignore[union-attr]
    assert "Its process is gone" in str(states["lost"].message)  # type: ignore[union-attr]
    assert states["alive"].name == "Running"  # type: ignore[union-attr]
    assert client.read_flow_run(elsewhere).state.name == "Running"  # type: ignore[union-attr]
    assert end_lost_runs(client, name_worker()) == ["alive"]  # its process has ended since
    client.delete_flow_run(elsewhere)


def test_a_worker_s_name_is_the_same_the_next_time() -> None:
    assert name_worker() == name_worker()
    assert name_worker().endswith(f"-{os.getuid()}")
