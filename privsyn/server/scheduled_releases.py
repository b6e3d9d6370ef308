"""Scheduled releases: the deployments that make them, the queue of their runs, and the periods that are missed.

**Data sets** are known from deployments and the ledger before any of their runs has ended.
Their series begin at 0, so that Prometheus sees the first failure as an increase.  Only names are read, no rows.

**The queue** runs only the latest, in order, none of a paused schedule, and retries crashed ones.
Prefect itself runs everything that is due, several at once and in any order, and runs that wait for a slot survive a
pause.  Runs started by people or programs are left alone.

**Missed periods** are scheduled and not released, found from schedules and the ledger.
A trigger leaves no run if no server is running, so runs alone do not show all missed periods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import UUID

from privsyn.base.calendar_periods import check_period, name_period
from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.flows.states import FAILURES, RELEASE_FLOWS, SCHEDULED_FLOW, get_dataset
from privsyn.server.work_pool import find_state_before_crash

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule, FlowRun
    from prefect.client.schemas.responses import DeploymentResponse
    from prefect.states import State


PAGE_SIZE = 200

RETRY_PAUSES = (timedelta(minutes=1), timedelta(minutes=10))
"""Pauses before each retry of a crashed scheduled release; after the last one, an alert is sent."""

RETRIES = "privsyn.retries"
"""Label of a flow run: number of retries after a crash."""

RECENT = timedelta(days=1)
"""How far back to look for crashed runs."""

HOLD = timedelta(minutes=2)
"""How long a run is postponed while an earlier one waits; the next check comes sooner."""

SKIPPED, HELD = "Skipped", "AwaitingEarlierRun"
"""State names of a run replaced by a later one, and of a run that waits for an earlier one."""

MOST_TRIGGERS = 1000
"""Largest number of triggers of a schedule that are checked."""


UNFINISHED = ("SCHEDULED", "PENDING", "RUNNING", "CANCELLING", "PAUSED")
"""State types of a run that may still release its period."""


def read_pages(read: Callable[..., Sequence[Any]], **filters: Any) -> Iterator[Any]:
    """Yield all that a client's method ``read`` finds, page by page, each item once."""
    seen, offset = set[UUID](), 0
    while page := read(**filters, limit=PAGE_SIZE, offset=offset):
        yield from (item for item in page if item.id not in seen)
        seen |= {item.id for item in page}
        offset += len(page)
        if len(page) < PAGE_SIZE:
            return


@lru_cache
def read_flow_name(client: SyncPrefectClient, flow_id: UUID) -> str:
    """Return the name of a flow, which never changes."""
    return client.read_flow(flow_id).name


def read_deployed(client: SyncPrefectClient) -> Iterator[tuple[str, DeploymentResponse]]:
    """Yield (data set, deployment) for every deployment with a spec."""
    for deployment in read_pages(client.read_deployments):
        if name := get_dataset(deployment.parameters):
            yield name, deployment


def read_names_in_ledger(settings: Settings) -> set[str]:
    """Return the ledger's data sets; empty if there is no ledger or it cannot be read, which runs report."""
    from privsyn.ledgers.ledger import Ledger

    try:
        return set(Ledger(settings.ledger, create=False).list_datasets())
    except PrivsynError:
        return set()


@dataclass
class ReleaseQueue:
    """Manages the queue of scheduled releases on the server of ``client``."""

    client: SyncPrefectClient
    _named: set[UUID] = field(default_factory=set)

    def tend(self, now: datetime) -> None:
        """Retry crashed runs, and order the waiting runs."""
        for run in self._read("CRASHED", {"end_time": {"after_": now - RECENT}}):
            if self.will_retry(run):
                self._retry(run, now)
        waiting = [run for run in self._read("SCHEDULED", {}) if run.auto_scheduled and run.deployment_id]
        waiting.sort(key=lambda run: (str(run.deployment_id), run.expected_start_time or now))
        for deployment_id, group in groupby(waiting, key=lambda run: run.deployment_id):
            runs = list(group)
            if any(_is_due(run, now) or run.id not in self._named for run in runs):
                deployment = self._read_deployment(deployment_id)
                if deployment is not None:
                    self._tend_deployment(deployment, runs, now)
        self._named &= {run.id for run in waiting}

    def will_retry(self, run: FlowRun) -> bool:
        """Return whether a run is a crashed scheduled release that will be retried."""
        if run.state is None or not run.state.is_crashed() or not run.auto_scheduled:
            return False
        if read_flow_name(self.client, run.flow_id) not in RELEASE_FLOWS:
            return False
        before = find_state_before_crash(self.client, run)
        if _count_retries(run) >= len(RETRY_PAUSES) and not _is_late_report(before):
            return False
        deployment = self._read_deployment(run.deployment_id)
        is_cancelled = before is not None and before.is_cancelling()
        return deployment is not None and _is_on(run, deployment) and not is_cancelled

    def _retry(self, run: FlowRun, now: datetime) -> None:
        """Schedule a crashed run again; the retry is counted first, so a kill in between loses one retry."""
        from prefect.states import AwaitingRetry

        is_late = _is_late_report(find_state_before_crash(self.client, run))
        count = _count_retries(run) if is_late else _count_retries(run) + 1
        self.client.update_flow_run_labels(run.id, {RETRIES: count})
        message = f"It crashed, and is tried again by itself ({count} of {len(RETRY_PAUSES)})."
        pause = RETRY_PAUSES[max(count, 1) - 1]
        state: State[None] = AwaitingRetry(scheduled_time=now + pause, message=message)
        self.client.set_flow_run_state(run.id, state)

    def _tend_deployment(self, deployment: DeploymentResponse, runs: Sequence[FlowRun], now: datetime) -> None:
        """Name a deployment's waiting runs, given in order; free the first, cancel or hold what must not start."""
        from prefect.states import Scheduled

        for run in runs:
            self._name(run, deployment)
        due = [run for run in runs if _is_due(run, now)]  # Prefect itself replaces later runs
        for run in [run for run in due if not _is_on(run, deployment)]:
            due.remove(run)
            self._cancel(run, "Cancelled", "Its schedule was paused or removed.")
        if not deployment.parameters.get("catchup"):
            for run in [run for run in due[:-1] if not run.run_count]:  # a started run is finished
                due.remove(run)
                self._cancel(run, SKIPPED, _explain_skipping(run, due[-1], deployment))
        if due and due[0].state is not None and due[0].state.name == HELD:
            self.client.set_flow_run_state(due[0].id, Scheduled(scheduled_time=now))
        for run in due[1:]:
            self._hold(run, now)

    def _cancel(self, run: FlowRun, name: str, message: str) -> None:
        from prefect.states import Cancelled

        self.client.set_flow_run_state(run.id, Cancelled(name=name, message=message))

    def _hold(self, run: FlowRun, now: datetime) -> None:
        """Postpone a run that would start soon."""
        from prefect.states import Scheduled

        starts = run.next_scheduled_start_time
        if starts is None or starts < now + HOLD / 2:
            state: State[None] = Scheduled(
                name=HELD, scheduled_time=now + HOLD, message="An earlier run of its schedule comes first."
            )
            self.client.set_flow_run_state(run.id, state)

    def _name(self, run: FlowRun, deployment: DeploymentResponse) -> None:
        """Name a waiting run by data set and period, as when it begins."""
        name = name_waiting_run(run, deployment)
        if name and name != run.name and not run.run_count:
            self.client.update_flow_run(run.id, name=name)
            run.name = name
        self._named.add(run.id)

    def _read_deployment(self, deployment_id: UUID | None) -> DeploymentResponse | None:
        from prefect.exceptions import ObjectNotFound

        with suppress(ObjectNotFound):
            return None if deployment_id is None else self.client.read_deployment(deployment_id)
        return None

    def _read(self, state: str, fields: dict[str, Any]) -> Iterator[FlowRun]:
        from prefect.client.schemas.filters import FlowFilter, FlowRunFilter

        releases = FlowFilter.model_validate({"name": {"any_": RELEASE_FLOWS}})
        wanted = FlowRunFilter.model_validate({"state": {"type": {"any_": [state]}}, **fields})
        return read_pages(self.client.read_flow_runs, flow_filter=releases, flow_run_filter=wanted)


def find_period(parameters: dict[str, Any], moment: datetime, zone: str | None) -> str | None:
    """Return the period of a scheduled release by its parameters; None if they name no valid period.

    ``moment``: its scheduled start; ``zone``: its schedule's time zone, if the parameters have none.
    """
    try:
        if parameters.get("period"):
            return check_period(str(parameters["period"]))
        return name_period(moment, parameters.get("every", "month"), parameters.get("time_zone") or zone or "UTC")
    except (PrivsynError, KeyError):
        return None


def name_waiting_run(run: FlowRun, deployment: DeploymentResponse) -> str:
    """Return a run's name when it begins: data set and period; empty without a data set."""
    dataset = get_dataset(run.parameters)
    if not dataset or "every" not in (deployment.parameter_openapi_schema or {}).get("properties", {}):
        return dataset
    zone = next((_get_zone(schedule) for schedule in deployment.schedules if _has_made(schedule, run)), None)
    period = find_period(run.parameters, run.expected_start_time, zone) if run.expected_start_time else None
    return f"{dataset} {period}" if period else dataset


def _is_due(run: FlowRun, now: datetime) -> bool:
    return run.expected_start_time is not None and run.expected_start_time <= now


def _get_zone(schedule: Any) -> str | None:
    return getattr(schedule.schedule, "timezone", None)


def find_zone(deployment: DeploymentResponse) -> str | None:
    """Return the first time zone of a deployment's schedules."""
    return next(filter(None, map(_get_zone, deployment.schedules)), None)


def _has_made(schedule: Any, run: FlowRun) -> bool:
    return run.created_by is not None and run.created_by.id == schedule.id


def _is_on(run: FlowRun, deployment: DeploymentResponse) -> bool:
    """Return whether the schedule that created a run is on, or, if it no longer exists, whether another one is."""
    schedules: list[Any] = deployment.schedules
    own = [schedule for schedule in schedules if _has_made(schedule, run)] or schedules
    return not deployment.paused and any(schedule.active for schedule in own)


def _is_late_report(before: State[Any] | None) -> bool:
    """Return whether a crash was reported, by process or worker, for a run that already waits for its retry."""
    return before is not None and before.is_scheduled()


def _count_retries(run: FlowRun) -> int:
    count = run.labels.get(RETRIES, 0)
    return int(count) if isinstance(count, int | float) else 0


def _explain_skipping(run: FlowRun, latest: FlowRun, deployment: DeploymentResponse) -> str:
    name = name_waiting_run(run, deployment)
    dataset, _, period = name.partition(" ")
    later = f"A later run of its schedule is due ({latest.name}), and only the latest runs."
    return f"{later} Make it up with `privsyn backfill {dataset} --from {period} --to {period}`." if period else later


def find_due_periods(client: SyncPrefectClient, since: datetime, until: datetime) -> dict[str, dict[str, bool]]:
    """Return data set -> period -> whether a run of it failed, for scheduled releases due between the moments.

    Deployments with an unfinished run, and periods that were due while their schedule was off, are left out.
    """
    found: dict[str, dict[str, bool]] = {}
    for dataset, deployment in read_deployed(client):
        if deployment.paused or read_flow_name(client, deployment.flow_id) != SCHEDULED_FLOW:
            continue
        periods = list(_list_periods(deployment, since, until))
        runs = _read_runs(client, deployment, since) if periods else []
        if any(run.state_type in UNFINISHED and (run.expected_start_time or until) <= until for run in runs):
            continue
        zone = find_zone(deployment)
        failed = {
            find_period(run.parameters, run.expected_start_time, zone)
            for run in runs
            if run.state_name in FAILURES and run.expected_start_time
        }
        found.setdefault(dataset, {}).update({period: period in failed for period in periods})
    return found


def read_released_periods(settings: Settings) -> set[tuple[str, str]] | None:
    """Return (data set, period) of all released periods in the ledger; None if it cannot be read."""
    from privsyn.ledgers.ledger import Ledger

    try:
        ledger = Ledger(settings.ledger, create=False)
        return {(row.dataset, row.period) for row in ledger.periods() if row.released}
    except PrivsynError:
        return None


def _list_periods(deployment: DeploymentResponse, since: datetime, until: datetime) -> Iterator[str]:
    """Yield the distinct periods of a deployment's triggers between the moments, in order."""
    seen = set()
    for schedule in deployment.schedules:
        begins = max(filter(None, (since, schedule.updated)))
        for moment in _list_triggers(schedule, begins, until) if schedule.active else ():
            period = find_period({**deployment.parameters, **schedule.parameters}, moment, _get_zone(schedule))
            if period is not None and period not in seen:
                seen.add(period)
                yield period


def _list_triggers(schedule: DeploymentSchedule, since: datetime, until: datetime) -> list[datetime]:
    """Return the moments from ``since`` to ``until`` at which a schedule starts a run, by the server's computation."""
    from prefect.server.schemas import schedules

    known: dict[str, Any] = {
        "CronSchedule": schedules.CronSchedule,
        "IntervalSchedule": schedules.IntervalSchedule,
        "RRuleSchedule": schedules.RRuleSchedule,
    }
    own = known[type(schedule.schedule).__name__].model_validate(schedule.schedule.model_dump())
    if since >= until:
        return []
    return list(asyncio.run(own.get_dates(n=MOST_TRIGGERS, start=since, end=until)))


def _read_runs(client: SyncPrefectClient, deployment: DeploymentResponse, since: datetime) -> list[FlowRun]:
    """Return the runs of a deployment that were due after ``since``, including waiting runs."""
    from prefect.client.schemas.filters import FlowRunFilter

    of_deployment = {"deployment_id": {"any_": [str(deployment.id)]}, "expected_start_time": {"after_": since}}
    return list(read_pages(client.read_flow_runs, flow_run_filter=FlowRunFilter.model_validate(of_deployment)))
