"""A real schedule on a persistent server with a process worker: a release a period, never two, refused in words."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.states import Scheduled

from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.schedule import scheduled_release
from privsyn.ledgers.ledger import Ledger
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from tests.support import prefect_ui
from tests.support.releases import FEW
from tests.support.specs import make_spec, people
from tests.support.user_folder import imported_modules, write_modules_of_common_names

ZONE = "Pacific/Kiritimati"
"""14 hours before UTC: for ten hours of a UTC day, its date is another one."""


@dataclass(frozen=True)
class Server:
    """Its client, and the folder where the worker and its runs work: one with modules of common names."""

    client: SyncPrefectClient
    folder: Path

    def deploy(self, spec: ReleaseSpec, schedule: DeploymentScheduleCreate) -> UUID:
        flow = self.client.create_flow(scheduled_release)
        return self.client.create_deployment(
            flow,
            "monthly",
            schedules=[schedule],
            parameters={"spec": spec.model_dump(mode="json"), "every": "day", "catchup": True},
            work_pool_name="privsyn",
            entrypoint="privsyn.flows.schedule.scheduled_release",
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": str(self.folder)}}],
            parameter_openapi_schema=scheduled_release.parameters.model_dump(),
        )

    def trigger(self, deployment: UUID, moment: dt.datetime) -> UUID:
        """A run that should have started at ``moment``."""
        return self.client.create_flow_run_from_deployment(deployment, state=Scheduled(scheduled_time=moment)).id

    def ended(self, *runs: UUID) -> list[FlowRun]:
        return eventually(
            lambda: [self.client.read_flow_run(run) for run in runs],
            lambda found: all(r.state is not None and r.state.is_final() for r in found),
        )


def eventually(look: Callable[[], Any], enough: Callable[[Any], bool], seconds: float = 400) -> Any:
    end = time.monotonic() + seconds
    while True:
        found = look()
        if enough(found):
            return found
        assert time.monotonic() < end, found
        time.sleep(1)


@pytest.fixture
def server(places: Path) -> Iterator[Server]:
    """``privsyn server``: Prefect's server and a worker, with an SQLite database of its own."""
    (folder := places / "work").mkdir()
    write_modules_of_common_names(folder)
    quick = {"PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1"}
    with (
        prefect_ui.server(places, folder, **quick) as running,
        SyncPrefectClient(f"{running.page}/api", auth_string=running.login) as client,
    ):
        yield Server(client, folder)


@pytest.mark.slow
def test_a_schedule_releases_each_period_once_until_the_cap_refuses(places: Path, server: Server) -> None:
    months = places / "months"
    months.mkdir()
    pq.write_table(people(200, seed=1), months / "2026-10.parquet")
    spec = make_spec(
        FEW,
        data=str(months),
        privacy={"epsilon": 3.0, "delta": 1e-9},
        budget={"epsilon": 4.5, "delta": 1e-9},  # two releases
        synthesis={"sweeps": 1},
    )
    every = IntervalSchedule(
        interval=dt.timedelta(seconds=20), anchor_date=dt.datetime(2026, 1, 1, tzinfo=ZoneInfo(ZONE)), timezone=ZONE
    )
    deployment = server.deploy(spec, DeploymentScheduleCreate(schedule=every, max_scheduled_runs=3))

    # The schedule triggers three times within one day: one releases.
    mine = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment]))
    scheduled = eventually(
        lambda: [r for r in server.client.read_flow_runs(flow_run_filter=mine, limit=200) if r.state.is_final()],
        lambda found: len(found) >= 3,
    )
    server.client.update_deployment_schedule(
        deployment, server.client.read_deployment_schedules(deployment)[0].id, active=False
    )
    ledger = Ledger(Settings().ledger)
    days = {r.expected_start_time.astimezone(ZoneInfo(ZONE)).date().isoformat() for r in scheduled}
    assert {r.name for r in scheduled if r.state_name == "Cached"} <= {f"people {day}" for day in days}
    runs = {row.run for row in ledger.periods()}
    assert {r.name for r in scheduled if r.state_name == "Completed"} <= runs  # named by its run once that is known
    names = sorted(str(r.state_name) for r in scheduled)
    if len(days) == 1:  # midnight in Kiritimati may fall between them
        assert names == ["Cached", "Cached", "Completed"]
        assert ledger.summary()[0].rho == convert_epsilon_to_rho(3.0, 1e-9, "tight")
    (today,) = [row for row in ledger.periods() if row.released][:1]
    assert today.period in days
    for r in scheduled:
        if r.state_name == "Cached":
            assert today.run in str(r.state.message)
            assert r.state.type == "COMPLETED"

    # A late trigger, and the same one twice: the run keeps the period in which it should have started.
    pq.write_table(people(200, seed=2), months / "2026-11.parquet")
    missed = dt.datetime(2026, 10, 31, 23, 30, tzinfo=dt.UTC)  # the first of November where the schedule lives
    both = server.ended(server.trigger(deployment, missed), server.trigger(deployment, missed))
    late = ledger.period("people", "2026-11-01")
    assert {r.state_name: r.name for r in both} == {"Cached": "people 2026-11-01", "Completed": late.run}
    assert sorted(str(r.state_name) for r in both) == ["Cached", "Completed"]
    assert late.released

    # The cap is used up: refused, in a state of its own, with the ledger's figures; and again.
    before = ledger.summary()[0]
    (first,) = server.ended(server.trigger(deployment, missed - dt.timedelta(days=30)))
    assert (first.state_name, first.state.type) == ("Refused", "FAILED")
    for figure in (before.epsilon, before.cap.epsilon):
        assert f"epsilon {figure:.4g}" in str(first.state.message)
    assert ledger.summary()[0].rho == before.rho == 2 * convert_epsilon_to_rho(3.0, 1e-9, "tight")
    assert len(list(Settings().released_root.iterdir())) == 2
    assert ledger.verify() == []
    (again,) = server.ended(server.trigger(deployment, missed))
    assert again.state_name == "Cached"
    assert imported_modules(server.folder) == []
