"""The queue of scheduled releases on a server's states: the latest only, in order; pauses and crashes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import CronSchedule
from prefect.states import Cancelling, Completed, Crashed, Late, Pending, Running, Scheduled, State

from privsyn.base.errors import RequestError
from privsyn.data_contracts.promise import Every
from privsyn.flows.schedule import scheduled_release
from privsyn.server.backfill_runs import find_deployment
from privsyn.server.scheduled_releases import HELD, RETRY_PAUSES, SKIPPED, ReleaseQueue

LENGTHS: tuple[Every, ...] = ("day", "month")
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


@dataclass
class Desk:
    """A server's client, and a deployment of a daily release."""

    client: SyncPrefectClient
    name: str

    def deploy(self, days: int, **parameters: Any) -> UUID:
        """Deploy a daily release whose schedule has made runs for the ``days`` before NOW and the one after."""
        daily = DeploymentScheduleCreate(schedule=CronSchedule(cron="0 4 * * *", timezone="Asia/Tokyo"), active=True)
        deployment = self.client.create_deployment(
            self.client.create_flow(scheduled_release),
            self.name,
            schedules=[daily],
            parameters={"spec": {"dataset": "people"}, "every": "day", **parameters},
            entrypoint="privsyn.flows.schedule.scheduled_release",
            parameter_openapi_schema=scheduled_release.parameters.model_dump(),
            enforce_parameter_schema=False,
        )
        first = NOW - dt.timedelta(days=days)
        window = {
            "start_time": first.isoformat(),
            "end_time": (NOW + dt.timedelta(days=1)).isoformat(),
            "min_runs": days + 1,
        }
        self.client.request("POST", f"/deployments/{deployment}/schedule", json=window).raise_for_status()
        return deployment

    def runs(self, deployment: UUID) -> list[FlowRun]:
        """The deployment's runs, the earliest first."""
        of_deployment = FlowRunFilter.model_validate({"deployment_id": {"any_": [str(deployment)]}})
        runs = self.client.read_flow_runs(flow_run_filter=of_deployment)
        return sorted(runs, key=lambda run: run.expected_start_time or NOW)

    def set(self, run: FlowRun, *states: State[Any]) -> None:
        """Let a run come into these states, one after the other."""
        for state in states:
            self.client.set_flow_run_state(run.id, state, force=True)

    def pause(self, deployment: UUID) -> None:
        (schedule,) = self.client.read_deployment_schedules(deployment)
        self.client.update_deployment_schedule(deployment, schedule.id, active=False)

    def states(self, deployment: UUID) -> list[str | None]:
        return [run.state_name for run in self.runs(deployment)]


@pytest.fixture
def desk(prefect_server: str, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with get_client(sync_client=True) as client:
        desk = Desk(client, request.node.name)
        yield desk
        for deployment in client.read_deployments():
            for run in desk.runs(deployment.id):  # a run that stays would count as one of this data set
                client.delete_flow_run(run.id)
            client.delete_deployment(deployment.id)


def test_of_runs_that_queued_up_only_the_latest_is_left_and_the_others_say_how_they_are_made_up(desk: Desk) -> None:
    deployment = desk.deploy(days=12)
    ReleaseQueue(desk.client).tend(NOW)
    assert desk.states(deployment) == [SKIPPED] * 11 + ["Scheduled"] * 2
    first, *_, latest, _ = desk.runs(deployment)
    assert first.state is not None and first.state.type == "CANCELLED"
    assert f"({latest.name})" in str(first.state.message)
    assert "`privsyn backfill people --from 2026-11-09 --to 2026-11-09`" in str(first.state.message)


def test_runs_that_have_not_begun_are_named_by_data_set_and_period_on_the_schedules_calendar(desk: Desk) -> None:
    deployment = desk.deploy(days=1)
    ReleaseQueue(desk.client).tend(NOW)
    assert [run.name for run in desk.runs(deployment)] == ["people 2026-11-20", "people 2026-11-21"]


def test_with_catchup_every_period_is_released_in_order_one_after_another(desk: Desk) -> None:
    deployment = desk.deploy(days=4, catchup=True)
    queue = ReleaseQueue(desk.client)
    released = []
    for _ in range(4):
        queue.tend(NOW)
        free = [run for run in desk.runs(deployment) if run.state_name == "Scheduled"][:-1]
        assert len(free) == 1  # a worker can take this one only
        released.append(free[0].name)
        desk.set(free[0], Pending(), Running(), Completed())
    assert released == [f"people 2026-11-{day}" for day in (17, 18, 19, 20)]


def test_a_held_run_is_not_due_until_the_earlier_one_is_over(desk: Desk) -> None:
    deployment = desk.deploy(days=2, catchup=True)
    ReleaseQueue(desk.client).tend(NOW)
    _, second, _ = desk.runs(deployment)
    assert second.state_name == HELD and second.next_scheduled_start_time is not None
    assert second.next_scheduled_start_time > NOW
    assert second.expected_start_time is not None and second.expected_start_time < NOW  # it keeps its period


def test_a_pause_cancels_what_is_queued_also_what_waits_for_a_slot(desk: Desk) -> None:
    deployment = desk.deploy(days=2, catchup=True)
    first, second, _ = desk.runs(deployment)
    desk.client.set_flow_run_state(first.id, Running(), force=True)
    waits = Scheduled(name="AwaitingConcurrencySlot", scheduled_time=NOW + dt.timedelta(seconds=30))
    desk.client.set_flow_run_state(second.id, waits, force=True)
    desk.pause(deployment)
    ReleaseQueue(desk.client).tend(NOW)
    assert desk.states(deployment)[:2] == ["Running", "Cancelled"]
    assert "paused" in str(desk.runs(deployment)[1].state.message)
    assert desk.states(deployment)[2] == "Scheduled"  # tomorrow's: the schedule would not make it again


def test_a_run_that_somebody_started_is_left_alone(desk: Desk) -> None:
    deployment = desk.deploy(days=1)
    by_hand = desk.client.create_flow_run_from_deployment(deployment, name="mine", state=Scheduled(scheduled_time=NOW))
    ReleaseQueue(desk.client).tend(NOW + dt.timedelta(hours=12))
    mine = desk.client.read_flow_run(by_hand.id)
    assert (mine.name, mine.state_name) == ("mine", "Scheduled")


def test_a_crashed_scheduled_release_is_tried_again_a_set_number_of_times(desk: Desk) -> None:
    deployment = desk.deploy(days=1)
    queue, run = ReleaseQueue(desk.client), desk.runs(deployment)[0]
    now = dt.datetime.now(dt.UTC)
    for pause in RETRY_PAUSES:
        desk.set(run, Running(), Crashed())
        assert queue.will_retry(desk.client.read_flow_run(run.id))
        queue.tend(now)
        again = desk.client.read_flow_run(run.id)
        assert again.state_name == "AwaitingRetry" and again.expected_start_time == run.expected_start_time
        assert abs(again.next_scheduled_start_time - now - pause) < dt.timedelta(seconds=1)
    desk.set(run, Running(), Crashed())
    assert not queue.will_retry(desk.client.read_flow_run(run.id))
    queue.tend(now)
    assert desk.client.read_flow_run(run.id).state_name == "Crashed"


def test_a_crash_that_is_reported_twice_is_one_attempt(desk: Desk) -> None:
    """The process that ran it reports it, and seconds later its worker does: of a run that waits already."""
    deployment = desk.deploy(days=1)
    queue, run = ReleaseQueue(desk.client), desk.runs(deployment)[0]
    for _ in RETRY_PAUSES:
        desk.set(run, Running(), Crashed())
        for state in (None, Crashed()):
            if state is not None:
                desk.client.set_flow_run_state(run.id, state, force=True)
            assert queue.will_retry(desk.client.read_flow_run(run.id))
            queue.tend(dt.datetime.now(dt.UTC))
    assert "(2 of 2)" in str(desk.client.read_flow_run(run.id).state.message)


@pytest.mark.parametrize("why", ["cancelled", "paused", "by hand"])
def test_a_crash_that_somebody_wanted_is_not_tried_again(desk: Desk, why: str) -> None:
    deployment = desk.deploy(days=1)
    run = desk.runs(deployment)[0]
    if why == "by hand":
        run = desk.client.read_flow_run(desk.client.create_flow_run_from_deployment(deployment).id)
    desk.set(run, Running(), *([Cancelling()] if why == "cancelled" else []), Crashed())
    if why == "paused":
        desk.pause(deployment)
    assert not ReleaseQueue(desk.client).will_retry(desk.client.read_flow_run(run.id))


def test_a_crashed_run_that_waits_to_be_tried_again_is_not_skipped_and_comes_first(desk: Desk) -> None:
    deployment = desk.deploy(days=2)
    queue, (first, *_) = ReleaseQueue(desk.client), desk.runs(deployment)
    desk.set(first, Running(), Crashed())
    queue.tend(dt.datetime.now(dt.UTC))
    assert desk.states(deployment) == ["AwaitingRetry", SKIPPED, HELD]


def test_a_late_run_of_a_queue_is_skipped_too(desk: Desk) -> None:
    deployment = desk.deploy(days=2)
    first, *_ = desk.runs(deployment)
    desk.client.set_flow_run_state(first.id, Late(scheduled_time=first.expected_start_time), force=True)
    ReleaseQueue(desk.client).tend(NOW)
    assert desk.states(deployment) == [SKIPPED, "Scheduled", "Scheduled"]


def test_a_backfill_takes_the_deployment_whose_periods_are_as_long_as_those_that_are_asked_for(desk: Desk) -> None:
    """A data set may be released once a month and once a day: by two deployments."""
    spec = {"spec": {"dataset": desk.name}}
    daily, monthly = desk.deploy(1, **spec), replace(desk, name=f"{desk.name} 2").deploy(1, **spec, every="month")
    found = {every: find_deployment(desk.client, desk.name, every).deployment.id for every in LENGTHS}
    assert found == {"day": daily, "month": monthly}
    with pytest.raises(RequestError, match=r"has no deployments of .* once a week"):
        find_deployment(desk.client, desk.name, "week")
