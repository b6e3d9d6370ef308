"""The alert service on a server's states: told once, in the state's words, also after restarts and undelivered ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, VariableCreate, VariableUpdate
from prefect.client.schemas.objects import FlowRun, WorkPoolStatus
from prefect.client.schemas.schedules import CronSchedule
from prefect.states import Cancelled, Cancelling, Completed, Crashed, Failed, Late, Running, Scheduled, State
from prometheus_client import CollectorRegistry, generate_latest

from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Guarantee
from privsyn.flows.budget import budget_report
from privsyn.flows.compare import compare
from privsyn.flows.evaluate import evaluate
from privsyn.flows.release import release
from privsyn.flows.schedule import scheduled_release
from privsyn.flows.states import (
    BUDGET_LEFT_EPSILON,
    BUDGET_LEFT_RELEASES,
    BUDGET_LEFT_RHO,
    BUDGET_LOW,
    CACHED,
    CONTRACT_FAILED,
    DATASET,
    FAILURES,
    FLOWS,
    LEDGER_FAILED,
    REFUSED,
    RELEASE_FLOWS,
)
from privsyn.ledgers.ledger import Ledger
from privsyn.server import alert_service, scheduled_releases
from privsyn.server.alert_service import AlertService
from privsyn.server.alerts import ON_SERVER, Addressee, Alert
from privsyn.server.scheduled_releases import read_names_in_ledger
from privsyn.server.work_pool import RESTART, close_pool, was_cancelled

PAGE = "http://page.example"


@flow(name="any-flow")
def anything(spec: dict[str, Any] | None = None) -> None:
    """Never run: it stands for a flow."""


@dataclass
class Taker:
    """Stands for the notification block: it keeps what is sent, or fails."""

    alerts: list[Alert] = field(default_factory=list)
    broken: bool = False

    def __call__(self, to: Addressee, alert: Alert) -> None:
        if self.broken:
            raise OSError("the address is a secret")
        assert to.block == "custom-webhook/privsyn-notify"
        self.alerts.append(alert)

    def about(self, run: FlowRun) -> list[Alert]:
        return [a for a in self.alerts if a.resource == f"prefect.flow-run.{run.id}"]


@dataclass
class Desk:
    """A server's client, and services whose alerts go to one taker."""

    client: SyncPrefectClient
    file: Path
    taker: Taker = field(default_factory=Taker)

    def start(self, hours_ago: float = 1) -> AlertService:
        started = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours_ago)
        return AlertService(self.client, self.taker, PAGE, self.file, started)

    def run(self, name: str, state: State[Any], **labels: Any) -> FlowRun:
        spec = {"dataset": f"data_{name}"}
        made = self.client.create_flow_run(anything, name=name, parameters={"spec": spec}, state=Running())
        if labels:
            self.client.update_flow_run_labels(made.id, labels)
        self.client.set_flow_run_state(made.id, state, force=True)
        return made


def look(service: AlertService) -> None:
    service.check_runs(dt.datetime.now(dt.UTC))


@pytest.fixture
def desk(prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(alert_service, "SLOW_CHECK_SECONDS", 0.0)
    with get_client(sync_client=True) as client:
        value = {"to": "custom-webhook/privsyn-notify", "off": []}
        if client.read_variable_by_name(ON_SERVER) is not None:  # of another module's deployments
            client.delete_variable_by_name(ON_SERVER)
        client.create_variable(VariableCreate(name=ON_SERVER, value=value))
        yield Desk(client, tmp_path / "alerts.json")
        client.delete_variable_by_name(ON_SERVER)


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        (Failed(message="it broke"), "failed", "failed"),
        (Crashed(message="Its process is gone."), "crashed", "crashed"),
        (Failed(name=REFUSED, message="the cap is 4"), "refused", "was refused by the budget"),
        (Failed(name=CONTRACT_FAILED, message="pairs"), "contract-failed", "broke a data contract"),
        (Failed(name=LEDGER_FAILED, message="sums"), "ledger-failed", "found a ledger that does not verify or answer"),
    ],
)
def test_a_failure_is_told_once_in_the_words_of_its_state(desk: Desk, state: State[Any], kind: str, words: str) -> None:
    service = desk.start()
    run = desk.run("one", state)
    for _ in range(3):
        look(service)
    look(desk.start())  # a server that was started anew
    (alert,) = desk.taker.about(run)
    assert (alert.kind, alert.subject) == (kind, f"PrivSyn: one {words}")
    cure = f" {RESTART}" if kind == "crashed" else ""
    assert alert.body == f"{state.message}{cure}\n\n{PAGE}/runs/flow-run/{run.id}"


def test_a_run_that_somebody_cancelled_is_not_told(desk: Desk) -> None:
    service = desk.start()
    run = desk.run("stopped", Cancelling())
    desk.client.set_flow_run_state(run.id, Crashed(message="aborted by a termination signal"), force=True)
    look(service)
    desk.client.set_flow_run_state(run.id, Cancelled(), force=True)
    look(service)
    assert desk.taker.about(run) == [] and "data_stopped" not in service.memory.failures
    seen = desk.client.read_flow_run(run.id)  # also where its last state arrives before anybody looked
    seen.state = desk.client.read_flow_run_states(run.id)[-2]
    assert seen.state.is_crashed() and was_cancelled(desk.client, seen)
    for state in (Running(), Crashed()):
        desk.client.set_flow_run_state(run.id, state, force=True)
    assert not was_cancelled(desk.client, desk.client.read_flow_run(run.id))  # it ran again


def test_ends_that_need_nobody_are_not_told(desk: Desk) -> None:
    service = desk.start()
    calm = (Completed(), Completed(name=CACHED), Cancelled(), Running())
    runs = [desk.run(f"calm{i}", state) for i, state in enumerate(calm)]
    for _ in range(2):
        look(service)
    assert [desk.taker.about(run) for run in runs] == [[], [], [], []]


def test_what_ended_while_no_server_looked_is_told_after_the_restart(desk: Desk) -> None:
    look(desk.start())
    run = desk.run("meanwhile", Crashed())
    look(desk.start(hours_ago=0))
    assert len(desk.taker.about(run)) == 1
    # A run that fails again is told again.
    service = desk.start()
    run = desk.run("twice", Failed(message="first"))
    look(service)
    desk.client.set_flow_run_state(run.id, Running(), force=True)
    desk.client.set_flow_run_state(run.id, Failed(message="second"), force=True)
    look(service)
    assert [a.body.splitlines()[0] for a in desk.taker.about(run)] == ["first", "second"]


def test_what_ended_before_the_first_start_is_not_told(desk: Desk) -> None:
    run = desk.run("before", Failed())
    service = desk.start(hours_ago=-48)  # as if two days had passed
    look(service)
    assert desk.taker.about(run) == []


def test_what_cannot_be_delivered_is_told_later_and_its_address_is_in_no_log(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alert_service, "CHECK_SECONDS", 0.0)
    service = desk.start()
    run = desk.run("undelivered", Failed())
    desk.taker.broken = True
    until = service.memory.told_until
    look(service)
    assert service.memory.unsent >= 1
    assert service.memory.told_until == until  # a restart looks as far back
    assert "OSError" in caplog.text and "secret" not in caplog.text
    desk.taker.broken = False
    look(service)
    assert (len(desk.taker.about(run)), service.memory.unsent) == (1, 0)


def test_a_mark_that_fails_is_made_later_and_the_alert_is_not_sent_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = desk.start()
    run = desk.run("unmarked", Failed())
    with monkeypatch.context() as patch:
        patch.setattr(desk.client, "update_flow_run_labels", lambda *_: (_ for _ in ()).throw(httpx.ReadError("gone")))
        for _ in range(2):
            with pytest.raises(httpx.ReadError):
                look(service)
    look(service)
    look(desk.start())
    assert len(desk.taker.about(run)) == 1


def test_labels_that_somebody_else_wrote_stop_nothing(desk: Desk) -> None:
    service = desk.start()
    desk.run("odd", Completed(), **{DATASET: "odd", BUDGET_LEFT_RHO: "much", BUDGET_LEFT_RELEASES: "many"})
    run = desk.run("after", Failed())
    look(service)
    assert len(desk.taker.about(run)) == 1
    assert "odd" not in service.memory.last_success


def test_kinds_that_are_switched_off_are_not_sent_then_or_later(desk: Desk) -> None:
    service = desk.start()
    value = {"to": "custom-webhook/privsyn-notify", "off": ["crashed"]}
    desk.client.update_variable(VariableUpdate(name=ON_SERVER, value=value))
    crashed, failed = desk.run("crashed", Crashed()), desk.run("failed", Failed())
    look(service)
    desk.client.update_variable(VariableUpdate(name=ON_SERVER, value={**value, "off": []}))
    look(service)
    assert (desk.taker.about(crashed), len(desk.taker.about(failed))) == ([], 1)


def test_a_late_run_is_told_once_and_only_after_a_quarter_of_an_hour(desk: Desk) -> None:
    service, now = desk.start(), dt.datetime.now(dt.UTC)
    tardy, soon = (
        desk.client.create_flow_run(anything, name=name, state=Late(scheduled_time=now - dt.timedelta(minutes=m)))
        for name, m in (("tardy", 16), ("soon", 14))
    )
    for _ in range(2):
        look(service)
    assert [a.subject for a in desk.taker.about(tardy)] == ["PrivSyn: tardy is late"]
    assert desk.taker.about(soon) == []
    # A run that has not begun is named by its data set.
    due = now - dt.timedelta(hours=1)
    spec = {"spec": {"dataset": "people"}}
    run = desk.client.create_flow_run(anything, name="wise-otter", parameters=spec, state=Late(scheduled_time=due))
    look(service)
    assert [alert.subject for alert in desk.taker.about(run)] == ["PrivSyn: people (wise-otter) is late"]


def test_a_worker_that_is_gone_is_told_once_until_it_is_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    close_pool(desk.client)
    pool = desk.client.read_work_pool("privsyn")
    shown = iter(["NOT_READY", "READY", "NOT_READY", "NOT_READY", "READY", "PAUSED", "NOT_READY"])
    monkeypatch.setattr(
        desk.client, "read_work_pool", lambda _: pool.model_copy(update={"status": WorkPoolStatus(next(shown))})
    )
    service = desk.start()
    counts = []
    for restarted in (False, False, False, True, False, False, False):
        service = desk.start() if restarted else service
        look(service)
        counts.append(len([a for a in desk.taker.alerts if a.kind == "worker-gone"]))
    desk.client.delete_work_pool("privsyn")
    assert counts == [0, 0, 1, 1, 1, 1, 2]  # that no worker was ever there is not told


def test_nothing_is_concluded_from_absence_while_the_server_starts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    close_pool(desk.client)
    pool = desk.client.read_work_pool("privsyn").model_copy(update={"status": WorkPoolStatus.NOT_READY})
    monkeypatch.setattr(desk.client, "read_work_pool", lambda _: pool)
    monkeypatch.setattr(alert_service, "end_runs_of_absent_workers", lambda *_: pytest.fail("it is too early"))
    service = desk.start(hours_ago=0)
    service.memory.worker = "there"
    look(service)
    desk.client.delete_work_pool("privsyn")
    assert desk.taker.alerts == []


def test_a_low_budget_is_told_with_the_ledger_s_figures(desk: Desk) -> None:
    service = desk.start()
    run = desk.run("poor", Completed(), **{BUDGET_LOW: "poor: what is left is for 1 more", DATASET: "poor"})
    for _ in range(2):
        look(service)
    (alert,) = desk.taker.about(run)
    assert (alert.kind, alert.subject) == ("budget-low", "PrivSyn: the budget of data_poor is low")
    assert alert.body.startswith("poor: what is left is for 1 more")


def test_the_gauges_say_what_failed_what_succeeded_and_what_is_left(desk: Desk) -> None:
    service = desk.start()
    left = {DATASET: "data_good", BUDGET_LEFT_RHO: 0.25, BUDGET_LEFT_EPSILON: 2.5, BUDGET_LEFT_RELEASES: 7}
    good = desk.run("good", Completed(), **left)
    desk.run("good", Completed(name=CACHED), **{**left, BUDGET_LEFT_RHO: 9.0})
    bad = desk.run("bad", Failed(name=REFUSED))
    look(service)
    desk.run("bad", Crashed())
    look(service)
    registry = CollectorRegistry()
    registry.register(desk.start().memory)  # it survives a restart
    lines = [line for line in generate_latest(registry).decode().splitlines() if line[0] != "#"]
    said = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    ends = {run.id: desk.client.read_flow_run(run.id).end_time.timestamp() for run in (good, bad)}  # type: ignore[union-attr]
    assert said['privsyn_run_failures_total{dataset="data_bad",flow="any-flow",state="Refused"}'] == 1
    assert said['privsyn_run_failures_total{dataset="data_bad",flow="any-flow",state="Crashed"}'] == 1
    assert said['privsyn_last_run_timestamp_seconds{dataset="data_good",flow="any-flow"}'] >= ends[good.id]
    assert said['privsyn_last_success_timestamp_seconds{dataset="data_good"}'] == pytest.approx(ends[good.id])
    assert said['privsyn_last_failure_timestamp_seconds{dataset="data_bad"}'] >= ends[bad.id]
    for name, value in (("rho", 0.25), ("epsilon", 2.5), ("releases", 7)):
        assert said[f'privsyn_budget_left_{name}{{dataset="data_good"}}'] == value
    assert said["privsyn_alerts_untold"] == 0


def test_an_evaluation_is_counted_for_its_data_set_and_is_no_release(desk: Desk) -> None:
    service = desk.start()
    for name, state in (("fine", Completed()), ("broken", Failed())):
        made = desk.client.create_flow_run(anything, name=name, parameters={}, state=Running())
        desk.client.update_flow_run_labels(made.id, {DATASET: f"data_{name}"})
        desk.client.set_flow_run_state(made.id, state, force=True)
    look(service)
    assert "any-flow" in service.memory.last_runs["data_fine"] and "data_fine" not in service.memory.last_success
    assert service.memory.failures["data_broken"] == {"any-flow/Failed": 1}


@pytest.mark.parametrize("content", [None, "{", "[]", '{"told_until": "x", "budgets": {}}'])
def test_a_memory_that_cannot_be_read_begins_anew(desk: Desk, content: str | None) -> None:
    if content is not None:
        desk.file.write_text(content)
    service = desk.start()
    assert service.memory.told_until == service.started
    look(service)


def test_the_gauges_of_what_is_deployed_and_in_the_ledger_are_there_at_0(desk: Desk, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.sqlite")
    assert read_names_in_ledger(Settings(ledger=ledger)) == set()
    Ledger(ledger).register("in_ledger", Guarantee(epsilon=1.0, delta=1e-6))
    made = [
        desk.client.create_deployment(desk.client.create_flow_from_name(flow_name), name, parameters=parameters)
        for flow_name, name, parameters in (
            ("release", "filled-in", {"spec": {"dataset": "to_release"}}),
            ("compare", "filled-in", {"spec": {"dataset": "to_compare"}}),
            ("release", "any-table", {}),
            ("release", "odd", {"spec": "{{ file.spec }}"}),
        )
    ]
    service = desk.start()
    service.memory.known.update(read_names_in_ledger(Settings(ledger=ledger)))
    look(service)
    registry = CollectorRegistry()
    registry.register(service.memory)
    text = generate_latest(registry).decode()
    for one in made:
        desk.client.delete_deployment(one)
    for dataset in ("to_release", "to_compare", "in_ledger"):
        for flow_name in FLOWS:
            for state in FAILURES:
                labels = f'dataset="{dataset}",flow="{flow_name}",state="{state}"'
                assert f"privsyn_run_failures_total{{{labels}}} 0.0\n" in text
    said = [line for line in text.splitlines() if line.startswith("privsyn_last_success_timestamp_seconds{")]
    assert 'privsyn_last_success_timestamp_seconds{dataset="to_release"} 0.0' in said
    assert not any("to_compare" in line or "in_ledger" in line for line in said)
    look(service)
    assert service.memory.to_release == set()  # nobody waits for a release of what is deployed no more


def test_the_flows_of_the_gauges_are_the_project_s() -> None:
    assert {*FLOWS} == {one.name for one in (release, scheduled_release, evaluate, compare, budget_report)}
    assert {*RELEASE_FLOWS} == {release.name, scheduled_release.name}


def test_a_reached_cap_is_told_once_until_something_changes(desk: Desk) -> None:
    service = desk.start()

    def refuse(message: str) -> int:
        run = desk.run("capped", Failed(name=REFUSED, message=message))
        look(service)
        return len(desk.taker.about(run))

    assert [refuse("spent 3 of 4, asked 2") for _ in range(3)] == [1, 0, 0]
    service = desk.start()  # a server that was started anew
    assert refuse("spent 3 of 4, asked 2") == 0
    assert refuse("spent 3 of 4, asked 1.5") == 1  # somebody asks for less
    labels = {DATASET: "data_capped", BUDGET_LEFT_RHO: 0.5, BUDGET_LEFT_EPSILON: 1.0, BUDGET_LEFT_RELEASES: 0}
    desk.run("released", Completed(), **labels)
    look(service)
    assert refuse("spent 3 of 4, asked 1.5") == 1
    assert service.memory.count_failures()["data_capped", "any-flow", REFUSED] == 6  # the gauge counts all


def test_a_crash_that_is_tried_again_is_told_when_the_attempts_are_used_up(desk: Desk) -> None:
    service = desk.start()
    service.will_retry = lambda run: True
    run = desk.run("again", Crashed())
    look(service)
    assert desk.taker.about(run) == []
    service.will_retry = lambda run: False
    look(service)
    assert len(desk.taker.about(run)) == 1


EVERY_HOUR = CronSchedule(cron="0 * * * *", timezone="UTC")


@dataclass
class Hourly:
    """A deployment that releases each hour, whose schedule went on two days ago, and a ledger of what it released."""

    client: SyncPrefectClient
    deployment: UUID
    released: set[tuple[str, str]] = field(default_factory=set)

    def end(self, hours_ago: int, state: State[Any]) -> None:
        """A run that was due so many hours ago and ended so."""
        due = dt.datetime.now(dt.UTC).replace(minute=0) - dt.timedelta(hours=hours_ago)
        made = self.client.create_flow_run_from_deployment(self.deployment, state=Scheduled(scheduled_time=due))
        for one in (Running(), state):
            self.client.set_flow_run_state(made.id, one, force=True)

    @staticmethod
    def name(hours_ago: int) -> str:
        return f"{dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours_ago):%Y-%m-%dT%HZ}"


@pytest.fixture
def hourly(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hourly]:
    deployment = desk.client.create_deployment(
        desk.client.create_flow(scheduled_release),
        "hourly",
        schedules=[DeploymentScheduleCreate(schedule=EVERY_HOUR, active=True)],
        parameters={"spec": {"dataset": "people"}, "every": "hour"},
        enforce_parameter_schema=False,
    )
    made = Hourly(desk.client, deployment)
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
    monkeypatch.setattr(alert_service, "read_released_periods", lambda _: set(made.released))
    deployed = scheduled_releases.read_deployed

    def read_deployed(client: SyncPrefectClient) -> Iterator[Any]:
        for name, one in deployed(client):
            one.schedules = [schedule.model_copy(update={"updated": long_ago}) for schedule in one.schedules]
            yield name, one

    monkeypatch.setattr(scheduled_releases, "read_deployed", read_deployed)
    yield made
    desk.client.delete_deployment(deployment)


def told(desk: Desk, kind: str) -> list[Alert]:
    return [alert for alert in desk.taker.alerts if alert.kind == kind]


def test_missed_periods_are_told_once_with_the_command_that_makes_them_up_and_then_that_they_are(
    desk: Desk, hourly: Hourly
) -> None:
    hourly.released = {("people", hourly.name(hour)) for hour in range(30)} - {("people", hourly.name(2))}
    service = desk.start()
    for _ in range(2):
        look(service)
    look(desk.start())
    (alert,) = told(desk, "missed")
    assert alert.subject == "PrivSyn: a period was missed of people"
    assert f"`privsyn backfill people --from {hourly.name(2)} --to {hourly.name(2)}`" in alert.body
    hourly.released.add(("people", hourly.name(2)))
    service = desk.start()
    for _ in range(2):
        look(service)
    assert [a.subject for a in told(desk, "made-up")] == [f"PrivSyn: {hourly.name(2)} of people is made up"]
    assert len(told(desk, "missed")) == 1 and service.memory.missed == {}


def test_a_period_whose_run_failed_is_not_told_twice_but_that_it_is_made_up_is(desk: Desk, hourly: Hourly) -> None:
    hourly.released = {("people", hourly.name(hour)) for hour in range(30)} - {("people", hourly.name(2))}
    hourly.end(2, Failed(message="a disk"))
    look(service := desk.start())
    assert len(told(desk, "failed")) == 1 and told(desk, "missed") == []
    hourly.released.add(("people", hourly.name(2)))
    look(service)
    assert len(told(desk, "made-up")) == 1


def test_a_period_is_not_missed_while_a_run_waits_or_the_ledger_cannot_be_read(
    desk: Desk, hourly: Hourly, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setattr(alert_service, "read_released_periods", lambda _: None)
        look(desk.start())
    hourly.end(1, Running())
    look(desk.start())
    assert told(desk, "missed") == []
    # What was due while the schedule was off is not missed.
    (schedule,) = desk.client.read_deployment_schedules(hourly.deployment)
    desk.client.update_deployment_schedule(hourly.deployment, schedule.id, active=False)
    look(desk.start())
    assert told(desk, "missed") == []
