"""Scheduled periods that are not released, found from schedules and the ledger.

A trigger leaves no run if no server is running, so runs alone do not show all missed periods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.flows.states import FAILURES, SCHEDULED_FLOW
from privsyn.server.known_data_sets import read_deployed
from privsyn.server.release_queue import find_period

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule, FlowRun
    from prefect.client.schemas.responses import DeploymentResponse

MOST_TRIGGERS = 1000
"""Largest number of triggers of a schedule that are checked."""

PAGE_SIZE = 200

UNFINISHED = ("SCHEDULED", "PENDING", "RUNNING", "CANCELLING", "PAUSED")
"""State types of a run that may still release its period."""


def find_due_periods(client: SyncPrefectClient, since: datetime, until: datetime) -> dict[str, dict[str, bool]]:
    """Return data set -> period -> whether a run of it failed, for scheduled releases due between the moments.

    Deployments with an unfinished run, and periods that were due while their schedule was off, are left out.
    """
    found: dict[str, dict[str, bool]] = {}
    for dataset, deployment in read_deployed(client):
        if deployment.paused or client.read_flow(deployment.flow_id).name != SCHEDULED_FLOW:
            continue
        periods = list(_list_periods(deployment, since, until))
        runs = _read_runs(client, deployment, since) if periods else []
        if any(run.state_type in UNFINISHED and _is_before(run, until) for run in runs):
            continue
        failed = {_find_own_period(run, deployment) for run in runs if run.state_name in FAILURES}
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
        zone = getattr(schedule.schedule, "timezone", None)
        begins = max(filter(None, (since, schedule.updated)))
        for moment in _list_triggers(schedule, begins, until) if schedule.active else ():
            period = find_period({**deployment.parameters, **schedule.parameters}, moment, zone)
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

    runs: list[FlowRun] = []
    of_deployment = {"deployment_id": {"any_": [str(deployment.id)]}, "expected_start_time": {"after_": since}}
    while page := client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate(of_deployment), limit=PAGE_SIZE, offset=len(runs)
    ):
        runs += page
    return runs


def _is_before(run: FlowRun, moment: datetime) -> bool:
    return run.expected_start_time is None or run.expected_start_time <= moment


def _find_own_period(run: FlowRun, deployment: DeploymentResponse) -> str | None:
    zones = [getattr(schedule.schedule, "timezone", None) for schedule in deployment.schedules]
    zone = next(filter(None, zones), None)
    return find_period(run.parameters, run.expected_start_time, zone) if run.expected_start_time else None
