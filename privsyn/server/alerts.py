"""Alerts about runs, the worker and budgets, derived from the states that the server stores.

The source is states, not events.  Prefect emits no event for the first state of a scheduled run.  It holds later
events for up to 15 minutes, and loses them when the server restarts.  A state is in the database after any kill.

An alert holds the state's message: the ledger's figures, or names of tables and expectations; nothing read from rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, get_args

from privsyn.flows.states import BUDGET_LOW, CONTRACT_FAILED, DATASET, LEDGER_FAILED, REFUSED
from privsyn.server.lost_runs import RESTART

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

Kind = Literal[
    "refused",
    "contract-failed",
    "ledger-failed",
    "failed",
    "crashed",
    "late",
    "missed",
    "made-up",
    "worker-gone",
    "budget-low",
]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of alerts, which can be switched off separately."""

LATE_AFTER = timedelta(minutes=15)
"""How late a run may start before an alert is sent."""

TOLD, TOLD_LATE = "privsyn.alert", "privsyn.alert.late"
"""Labels of a flow run: the ID of the state whose alert was sent."""

_FAILURES: dict[str, tuple[Kind, str]] = {
    REFUSED: ("refused", "was refused by the budget"),
    CONTRACT_FAILED: ("contract-failed", "broke a data contract"),
    LEDGER_FAILED: ("ledger-failed", "found a ledger that does not verify or answer"),
}


@dataclass(frozen=True)
class Alert:
    """One message to people: its kind, its text, and the ID of Prefect's resource."""

    kind: Kind
    subject: str
    body: str
    resource: str


def judge_end(run: FlowRun, page: str) -> Alert | None:
    """Return the alert of an ended run; None if nobody needs to act.

    ``page``: the address of the server's page.
    """
    state = run.state
    if state is None:
        return None
    link = _link(run, page)
    if state.is_failed() or state.is_crashed():
        other: tuple[Kind, str] = ("crashed", "crashed") if state.is_crashed() else ("failed", "failed")
        kind, words = _FAILURES.get(state.name or "", other)
        message = state.message or state.name or ""
        if state.is_crashed() and RESTART not in message:
            message = f"{message} {RESTART}"
        return _alert(kind, run, words, f"{message}\n\n{link}")
    low = run.labels.get(BUDGET_LOW)
    if state.is_completed() and low:
        subject = f"PrivSyn: the budget of {find_dataset(run) or run.name} is low"
        return Alert("budget-low", subject, f"{low}\n\n{link}", f"prefect.flow-run.{run.id}")
    return None


def judge_start(run: FlowRun, page: str, now: datetime) -> Alert | None:
    """Return the alert of a run that should have started by LATE_AFTER before ``now``; None if it is not that late."""
    due, state = run.expected_start_time, run.state
    if state is None or state.name != "Late" or due is None or due > now - LATE_AFTER:
        return None
    return _alert(
        "late",
        run,
        "is late",
        f"It was scheduled and no worker took it for a quarter of an hour.\n\n{_link(run, page)}",
    )


def alert_without_worker(pool: str) -> Alert:
    """Return the alert of the work pool with this ID, which no worker polls any more."""
    return Alert(
        "worker-gone",
        "PrivSyn: no worker is there",
        "Nothing that is started or scheduled runs until a worker is there again (`make worker`).",
        f"prefect.work-pool.{pool}",
    )


def alert_missed(dataset: str, periods: Sequence[str]) -> Alert:
    """Return the alert of scheduled periods, in order, that are not released."""
    number = "a period was" if len(periods) == 1 else f"{len(periods)} periods were"
    return Alert(
        "missed",
        f"PrivSyn: {number} missed of {dataset}",
        f"Not released, though a schedule asked for it: {', '.join(periods)}.\n\nMake it up with "
        f"`privsyn backfill {dataset} --from {periods[0]} --to {periods[-1]}`.",
        f"privsyn.data-set.{dataset}",
    )


def alert_made_up(dataset: str, periods: Sequence[str]) -> Alert:
    """Return the message that missed periods are now released."""
    subject = f"PrivSyn: {', '.join(periods)} of {dataset} {'is' if len(periods) == 1 else 'are'} made up"
    return Alert("made-up", subject, "What was missed is released.", f"privsyn.data-set.{dataset}")


def find_dataset(run: FlowRun) -> str:
    """Return the data set from a run's spec or label; empty if it has neither."""
    spec = run.parameters.get("spec")
    return str(spec.get("dataset", "") if isinstance(spec, dict) else run.labels.get(DATASET, ""))


def _alert(kind: Kind, run: FlowRun, words: str, body: str) -> Alert:
    """Return the alert of a run; a run that never began has only a generated name, so the data set is added."""
    dataset = find_dataset(run)
    name = run.name if run.run_count or not dataset or dataset in run.name else f"{dataset} ({run.name})"
    return Alert(kind, f"PrivSyn: {name} {words}", body, f"prefect.flow-run.{run.id}")


def _link(run: FlowRun, page: str) -> str:
    return f"{page}/runs/flow-run/{run.id}"
