"""Runs whose process is gone end when their worker starts, others go on; and the history is as long as it is to be."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import LogCreate
from prefect.states import Completed, Pending, Running

from privsyn.server import work_pool
from privsyn.server.work_pool import (
    HEARTBEAT,
    RUN,
    WORKER,
    LostRunWatch,
    close_pool,
    end_lost_runs,
    end_runs_of_absent_workers,
    name_worker,
)
from tests.support import prefect_ui


@flow(name="any")
def anything() -> None:
    """Never run: it stands for a flow."""


@task
def step() -> None:
    """Never run: it stands for a step."""


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
    steps = {run: client.create_task_run(step, run, dynamic_key="0", state=Running()).id for run in (lost, alive)}
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
    of_steps = {run: client.read_task_run(task).state for run, task in steps.items()}
    assert of_steps[lost].name == "Crashed", "a step that is left as running would grow on the run's page for ever"  # type: ignore[union-attr]
    assert of_steps[alive].name == "Running"  # type: ignore[union-attr]
    assert client.read_flow_run(elsewhere).state.name == "Running"  # type: ignore[union-attr]
    assert end_lost_runs(client, name_worker()) == ["alive"]  # its process has ended since
    client.delete_flow_run(elsewhere)


def test_a_worker_ends_a_run_that_loses_its_process_while_it_works(client: SyncPrefectClient) -> None:
    """Prefect's worker reports a process that ends; where the server is away at that moment, nobody else would."""
    lost, starting = running(client, "lost", name_worker()), running(client, "starting", name_worker())
    client.set_flow_run_state(starting, Pending(), force=True)
    ended = running(client, "ended", name_worker())
    watch = LostRunWatch(client, name_worker())
    assert watch.end_lost(100.0) == []
    client.set_flow_run_state(ended, Completed(), force=True)
    assert watch.end_lost(103.0) == []
    assert watch.end_lost(104.0) == ["lost"]
    assert watch.end_lost(105.0) == []
    assert watch.end_lost(160.0) == ["starting"]
    names = [client.read_flow_run(run).state.name for run in (lost, starting, ended)]  # type: ignore[union-attr]
    assert names == ["Crashed", "Crashed", "Completed"]


def test_a_run_that_ended_by_itself_meanwhile_keeps_its_state(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(client, "just in time", name_worker())

    def none_alive() -> set[str]:
        client.set_flow_run_state(run, Completed(), force=True)
        return set()

    monkeypatch.setattr(work_pool, "_list_alive", none_alive)
    end_lost_runs(client, name_worker())
    assert client.read_flow_run(run).state.name == "Completed"  # type: ignore[union-attr]


def test_the_server_ends_the_silent_runs_of_a_worker_that_is_gone(client: SyncPrefectClient) -> None:
    close_pool(client)
    client.send_worker_heartbeat("privsyn", "elsewhere", 30)
    silent, alive = running(client, "silent", "elsewhere"), running(client, "beating", "elsewhere")
    other = running(client, "of another", "unknown-worker")
    later = datetime.now(UTC) + timedelta(minutes=3)
    assert end_runs_of_absent_workers(client, datetime.now(UTC)) == []
    resource = {"prefect.resource.id": f"prefect.flow-run.{alive}", "prefect.resource.name": "beating"}
    occurred = (later - timedelta(seconds=40)).isoformat()
    beat = {"id": str(uuid4()), "occurred": occurred, "event": HEARTBEAT, "resource": resource}
    client.request("POST", "/events", json=[beat])
    asked = {"filter": {"event": {"name": [HEARTBEAT]}, "occurred": {"until": later.isoformat()}}}
    while not client.request("POST", "/events/filter", json=asked).json()["events"]:  # written every few seconds
        time.sleep(0.5)
    try:
        assert end_runs_of_absent_workers(client, later) == ["silent"]
        assert "Its worker is gone" in str(client.read_flow_run(silent).state.message)  # type: ignore[union-attr]
        assert client.read_flow_run(alive).state.name == "Running"  # type: ignore[union-attr]
        assert end_runs_of_absent_workers(client, later + timedelta(minutes=3)) == ["beating"]
    finally:
        client.delete_flow_run(other)
        client.delete_work_pool("privsyn")


@flow(name="any-flow-with-a-past")
def past() -> None:
    """Never run: it stands for a flow."""


@pytest.mark.slow
def test_what_is_older_goes_and_the_rest_stays(tmp_path: Path) -> None:
    quick = {"PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "2", "PRIVSYN_HISTORY_DAYS": "30"}
    with (
        prefect_ui.server(tmp_path, tmp_path, **quick) as server,
        SyncPrefectClient(f"{server.page}/api", auth_string=server.login) as client,
    ):
        runs = {}
        for days in (40, 20):
            moment = dt.datetime.now(dt.UTC) - dt.timedelta(days=days)
            run = client.create_flow_run(past, state=Completed())
            line = LogCreate(name="x", level=20, message="m", timestamp=moment, flow_run_id=run.id)
            client.create_logs([line])
            with sqlite3.connect(tmp_path / "prefect" / "prefect.db", timeout=60) as history:
                ended = (f"{moment:%Y-%m-%d %H:%M:%S.%f}", str(run.id))
                assert history.execute("UPDATE flow_run SET end_time = ? WHERE id = ?", ended).rowcount == 1
            runs[days] = str(run.id)

        def count_logs(run: str) -> int:
            return len(server.ask("/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}}))

        prefect_ui.eventually(lambda: [r["id"] for r in server.runs()] == [runs[20]], "the end of the older run")
        prefect_ui.eventually(lambda: count_logs(runs[40]) == 0, "the end of its log")
        assert count_logs(runs[20]) == 1
