"""The scheduled release: one release of a growing table per period, until the cap refuses."""

from __future__ import annotations

from typing import Annotated, cast

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.runtime import flow_run as this_run
from pydantic import Field

from privsyn.base.calendar_periods import check_period, name_period
from privsyn.base.errors import PrivsynError, RequestError
from privsyn.data_contracts.promise import Every
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.private_errors import hide_private_errors
from privsyn.flows.release import NewDataset, run_release
from privsyn.flows.states import make_failed_state
from privsyn.publish.folder import ReleaseSummary

Zone = Annotated[str, Field(description="IANA time zone, such as Europe/Berlin.")]
Label = Annotated[str, Field(description="A period, such as 2026-11.")]
CatchUp = Annotated[
    bool, Field(description="Release also periods whose run waited until a later one was due, the earliest first.")
]
Early = Annotated[str, Field(description="Why the period is released before it begins.")]


def _name_run() -> str:
    """Return ``people 2026-11``; only the data set if the request names no valid period, which the run then refuses."""
    parameters = this_run.parameters  # without defaults
    dataset = str(parameters["spec"].dataset)
    try:
        asked = (parameters.get("every", "month"), parameters.get("time_zone"), parameters.get("period"))
        period, _ = _find_period(*asked)
        return f"{dataset} {period}"
    except PrivsynError:
        return dataset


@flow(
    name="scheduled-release",
    flow_run_name=_name_run,
    description="One release a period of a table that grows, until the data set's lifetime cap refuses.",
    persist_result=False,
)
def scheduled_release(
    spec: ReleaseSpec,
    every: Every = "month",
    time_zone: Zone | None = None,
    period: Label | None = None,
    early: Early | None = None,
    catchup: CatchUp = False,  # the server reads it: privsyn/server/scheduled_releases.py
    new_dataset: NewDataset | None = None,
) -> ReleaseSummary:
    """Release the data set's table once for the period in which this run was scheduled.

    Args:
        spec: The release spec; its table is usually a folder to which files are added.
        every: How long a period is.
        time_zone: The calendar of the periods; default: the schedule's, else UTC.
        period: The period to release, for example a missed one; default: the period of the scheduled start.
        early: The reason for releasing the period before it begins; the ledger keeps it.
        catchup: Whether all runs that waited for a worker release, in order; default: only the latest.
        new_dataset: The reason for a second budget if the table was released under another name; the ledger keeps it.

    A late run keeps the period in which it was scheduled.  If the period is released already, the run ends in a
    COMPLETED state named Cached.  If the cap refuses, it ends in a FAILED state named Refused, before the table is
    opened.  Privacy: every period draws and pays again, whether or not the table changed; otherwise as ``release``.
    """
    try:
        with hide_private_errors("release"):
            label, calendar = _find_period(every, time_zone, period)
    except PrivsynError as error:
        return cast(ReleaseSummary, make_failed_state(error))
    return run_release(spec, period=label, early=early, calendar=calendar, new_dataset=new_dataset)


def _find_period(every: Every, zone: str | None, period: str | None) -> tuple[str, str | None]:
    """Return the period's label and the time zone in which it begins (None: this computer's).  Raises RequestError."""
    if period is not None:
        return check_period(period), zone or _get_schedule_zone()
    zone = zone or _get_schedule_zone() or "UTC"
    return name_period(this_run.scheduled_start_time, every, zone), zone


def _get_schedule_zone() -> str | None:
    """Return the time zone of the schedule of this run, or of all its deployment's schedules; UTC without one.

    None for a run without a deployment, started by a program or a command.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    if run is None or run.deployment_id is None:
        return None
    with get_client(sync_client=True) as client:
        schedules = client.read_deployment_schedules(run.deployment_id)
    made_by = run.created_by.id if run.created_by is not None else None
    own_schedules = [s for s in schedules if s.id == made_by] or schedules
    zones = {getattr(s.schedule, "timezone", None) or "UTC" for s in own_schedules}
    if len(zones) > 1:
        raise RequestError(
            f"the deployment's schedules have several time zones: {', '.join(sorted(zones))}",
            "Say which one the periods follow",
            "release.time_zone",
        )
    return zones.pop() if zones else "UTC"
