"""What people are told of: each notice with the events that trigger it, its words, and what is done besides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from prefect.automations import EventTrigger
from prefect.events.actions import ActionTypes, ChangeFlowRunState
from prefect.events.schemas.automations import Posture
from prefect.states import StateType

from privsyn.flows.states import ALREADY_RELEASED, BUDGET_LOW, CONTRACT_FAILED, FEW_RELEASES, LEDGER_FAILED, REFUSED
from privsyn.server.environment import POOL

LATE_AFTER = timedelta(minutes=15)
"""How late a run may start before people are told."""

SILENT_AFTER = timedelta(seconds=90)
"""Three heartbeats: a run that is silent for longer has no process any more."""

HEARTBEAT = "prefect.flow-run.heartbeat"

_OF_A_RUN = "{{ event.resource['prefect.state-message'] }}\n\n{{ flow_run | ui_url }}"
_RUN: dict[str, str | list[str]] = {"prefect.resource.id": "prefect.flow-run.*"}
_ENDS = ("Completed", "Failed", "Crashed", "Cancelled", REFUSED, CONTRACT_FAILED, LEDGER_FAILED, ALREADY_RELEASED)


@dataclass(frozen=True)
class Notice:
    """One notice: its automation's name and trigger, its words, and the actions before it is told."""

    name: str
    meaning: str
    trigger: EventTrigger
    subject: str
    body: str = _OF_A_RUN
    before: tuple[ActionTypes, ...] = ()


def _match_event(*states: str) -> set[str]:
    return {f"prefect.flow-run.{state}" for state in states}


def _match_ended(name: str, state: str, what: str) -> Notice:
    """Return the notice of runs that end in ``state``."""
    trigger = EventTrigger(expect=_match_event(state), match=_RUN, threshold=1)
    return Notice(name, f"A run ended in the state {state}.", trigger, f"PrivSyn: {{{{ flow_run.name }}}} {what}")


def _match_silent(after: set[str], expect: set[str], within: timedelta) -> EventTrigger:
    """Return for each run: ``after`` one event none of ``expect`` came ``within`` the time."""
    return EventTrigger(
        posture=Posture.Proactive,
        after=after,
        expect=expect,
        match=_RUN,
        for_each={"prefect.resource.id"},
        threshold=1,
        within=within,
    )


NOTICES = (
    _match_ended("privsyn: refused by the budget", REFUSED, "was refused by the budget"),
    _match_ended("privsyn: contract failed", CONTRACT_FAILED, "broke a data contract"),
    _match_ended("privsyn: ledger failed", LEDGER_FAILED, "found a ledger that does not verify or answer"),
    _match_ended("privsyn: failed", "Failed", "failed"),
    _match_ended("privsyn: crashed", "Crashed", "crashed"),
    Notice(
        "privsyn: late",
        f"A run has not started {LATE_AFTER.seconds // 60} minutes after it was late.",
        _match_silent(_match_event("Late"), _match_event("Pending", "Running", *_ENDS), LATE_AFTER),
        "PrivSyn: {{ flow_run.name }} is late",
        "It was scheduled and no worker took it for a quarter of an hour.\n\n{{ flow_run | ui_url }}",
    ),
    Notice(
        "privsyn: no heartbeat",
        f"A run was silent for {SILENT_AFTER.seconds} seconds and is taken for dead.",
        _match_silent({HEARTBEAT}, {HEARTBEAT, *_match_event(*_ENDS)}, SILENT_AFTER),
        "PrivSyn: {{ flow_run.name }} gives no sign of life",
        "Its process is gone or hangs. Started again, it finds its finished steps; nothing is charged twice."
        "\n\n{{ flow_run | ui_url }}",
        (
            ChangeFlowRunState(
                name="Crashed",
                state=StateType.CRASHED,
                message="No heartbeat: its process is gone or hangs.",
                force=False,
            ),
        ),
    ),
    Notice(
        "privsyn: worker gone",
        "No worker asks for runs any more.",
        EventTrigger(
            expect={"prefect.work-pool.not-ready"},
            match={"prefect.resource.id": "prefect.work-pool.*", "prefect.resource.name": POOL},
            threshold=1,
        ),
        "PrivSyn: no worker is there",
        "Nothing that is started or scheduled runs until a worker is there again (`make worker`).",
    ),
    Notice(
        "privsyn: budget is low",
        f"A data set's budget is for fewer than {FEW_RELEASES} more releases like the last one.",
        EventTrigger(expect={BUDGET_LOW}, match={"prefect.resource.id": "privsyn.dataset.*"}, threshold=1),
        "PrivSyn: the budget of {{ event.resource.name }} is low",
        "{{ event.payload.message }}",
    ),
)
