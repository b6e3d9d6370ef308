"""The server's history is as long as PRIVSYN_HISTORY_DAYS says: runs with their logs and artifacts."""

from __future__ import annotations

import datetime as dt
import sqlite3
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import LogCreate
from prefect.states import Completed

from tests.support import prefect_ui


@flow(name="any-flow-with-a-past")
def anything() -> None:
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
            run = client.create_flow_run(anything, state=Completed())
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
