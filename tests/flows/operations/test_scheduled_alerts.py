"""Alerts of runs that a schedule makes, on a real server: told once, whatever is killed; never without cause."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import psutil
import pyarrow.parquet as pq
import pytest
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.compare import compare
from privsyn.flows.schedule import scheduled_release
from privsyn.server.alerts import VARIABLE, set_up
from privsyn.server.scheduled_releases import SKIPPED
from privsyn.server.work_pool import RUN
from tests.support import prefect_ui
from tests.support.releases import FEW
from tests.support.specs import make_spec, people
from tests.support.webhook import Told, webhook

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

PATIENCE = 120.0
"""Seconds that something may take on a busy machine."""

QUIET = 25.0
"""Seconds in which a second alert would come."""


@dataclass
class Site:
    """``privsyn server`` with a worker, and the webhook that its alerts go to."""

    server: prefect_ui.Server
    client: SyncPrefectClient
    told: Told

    def schedule(self, flow: Flow[..., Any], name: str, seconds: float, **parameters: Any) -> UUID:
        """Deploy a flow with a schedule that is on; the deployment's ID."""
        first = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
        every = IntervalSchedule(interval=dt.timedelta(seconds=seconds), anchor_date=first)
        return self.client.create_deployment(
            self.client.create_flow(flow),
            name,
            schedules=[DeploymentScheduleCreate(schedule=every, max_scheduled_runs=1)],
            parameters=parameters,
            work_pool_name="privsyn",
            entrypoint=f"{flow.fn.__module__}.{flow.fn.__name__}",
            parameter_openapi_schema=flow.parameters.model_dump(),
        )

    def end_schedule(self, deployment: UUID) -> None:
        (only,) = self.client.read_deployment_schedules(deployment)
        self.client.update_deployment_schedule(deployment, only.id, active=False)

    def in_state(self, deployment: UUID, *names: str) -> list[FlowRun]:
        """The deployment's runs in a state of one of these names; of none: all."""
        asked = {"deployment_id": {"any_": [str(deployment)]}, "state": {"name": {"any_": names}} if names else None}
        return self.client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(asked), limit=200)


def eventually(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first truthy answer; a server that is killed meanwhile is asked again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(httpx.HTTPError):
            if found := look():
                return found
        time.sleep(0.2)
    raise AssertionError("it does not happen")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    quick = {"PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1"}
    with webhook() as told, prefect_ui.server(folder, folder, **quick) as server:
        api, login = f"{server.page}/api", server.login
        with temporary_settings({PREFECT_API_URL: api, PREFECT_API_AUTH_STRING: login}):
            set_up({VARIABLE: told.url})
            with SyncPrefectClient(api, auth_string=login) as client:
                yield Site(server, client, told)


@pytest.fixture(scope="module")
def spec(site: Site) -> ReleaseSpec:
    path = site.server.folder / "people.parquet"
    pq.write_table(people(100), path)
    return make_spec(FEW, data=str(path), synthesis={"sweeps": 1})


def content(spec: ReleaseSpec, **changes: Any) -> dict[str, Any]:
    return {**spec.model_dump(mode="json"), **changes}


def programs() -> dict[str, psutil.Process]:
    """The server and the worker of this test's command, by the words of their command lines."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            line = " ".join(child.cmdline())
            for name, words in (("server", ":create_app"), ("worker", "work_pool")):
                if words in line and "ends_with_parent" in line:
                    found[name] = child
    return found


def processes_of(run: UUID) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(RUN) == str(run):
                found.append(process)
    return found


def wait_for_restart(name: str, before: psutil.Process) -> None:
    eventually(lambda: (p := programs().get(name)) and p.pid != before.pid)


def test_of_three_that_fail_at_once_each_is_told_once(site: Site, spec: ReleaseSpec) -> None:
    asked = [content(spec, dataset=f"absent_{i}", data=str(site.server.folder / "absent.parquet")) for i in range(3)]
    deployments = [site.schedule(scheduled_release, a["dataset"], 3600, spec=a, every="day") for a in asked]
    runs = [eventually(lambda d=d: site.in_state(d, "Failed"))[0] for d in deployments]
    for run in runs:
        eventually(lambda run=run: site.told.about(str(run.id)))
    time.sleep(QUIET)
    assert [len(site.told.about(str(run.id))) for run in runs] == [1, 1, 1]


def test_thirty_scheduled_runs_without_a_failure_tell_nothing(site: Site, spec: ReleaseSpec) -> None:
    """One releases, the others find the period released and end at once."""
    before = list(site.told.heard)
    asked = content(spec, dataset="calm", budget={"epsilon": 100.0, "delta": 1e-9})
    deployment = site.schedule(scheduled_release, "calm", 12, spec=asked, every="month")
    eventually(lambda: len(site.in_state(deployment, "Completed", "Cached")) >= 30, 900)
    site.end_schedule(deployment)
    eventually(lambda: not site.in_state(deployment, "Running", "Pending", "Submitting"))
    time.sleep(100)  # longer than three heartbeats
    assert site.told.heard == before
    assert {r.state_name for r in site.in_state(deployment)} <= {"Completed", "Cached", "Scheduled", "Late", SKIPPED}


@pytest.mark.parametrize("what", ["run", "worker", "worker and run", "server", "server, worker and run"])
def test_what_is_killed_is_told_once_in_time(site: Site, spec: ReleaseSpec, what: str) -> None:
    asked = {"spec": content(spec), "methods": ["independent"], "epsilons": [1.0], "seeds": 1_000}
    deployment = site.schedule(compare, f"long {what}", 3600, **asked)
    (run,) = eventually(lambda: site.in_state(deployment, "Running"))
    site.end_schedule(deployment)
    eventually(lambda: processes_of(run.id))
    time.sleep(3)
    alive, mine = programs(), processes_of(run.id)
    told_before = len(site.told.heard)
    for name in ("server", "worker"):
        if name in what:
            alive[name].kill()
    if "run" in what:
        for process in mine:
            process.kill()
    for name in ("server", "worker"):
        if name in what:
            wait_for_restart(name, alive[name])
    if "server" in what:
        eventually(lambda: site.client.api_healthcheck() is None)
    if "run" not in what:  # it goes on, and nobody is told anything
        time.sleep(QUIET)
        assert site.told.heard[told_before:] == []
        assert [p for p in processes_of(run.id) if p.is_running()]
        for process in processes_of(run.id):
            process.kill()
    eventually(lambda: site.told.about(str(run.id)))
    (text,) = site.told.about(str(run.id))
    time.sleep(QUIET)
    assert len(site.told.about(str(run.id))) == 1
    assert "crashed" in text
    assert eventually(lambda: site.client.read_flow_run(run.id)).state_name == "Crashed"
    assert len(site.told.heard) == told_before + 1
