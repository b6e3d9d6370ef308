"""Notifications: automations of Prefect's server that tell people of what they should not have to look for.

A notification holds the state's message: the ledger's figures, or names of tables and expectations; nothing read from
rows.  NOTICES says what each tells of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from prefect.automations import Automation, AutomationCore, DoNothing, EventTrigger, SendNotification
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.actions import ActionTypes, ChangeFlowRunState
from prefect.events.schemas.automations import Posture
from prefect.exceptions import ObjectNotFound
from prefect.states import StateType
from prefect.types import SecretDict

from privsyn.base.errors import RequestError
from privsyn.flows.states import ALREADY_RELEASED, BUDGET_LOW, CONTRACT_FAILED, FEW_RELEASES, LEDGER_FAILED, REFUSED
from privsyn.server.environment import POOL

VARIABLE = "PRIVSYN_NOTIFY"
BLOCK = "privsyn-notify"
"""Name of the block that holds the web address of PRIVSYN_NOTIFY."""

Change = Literal["made", "changed", "as it was"]


def set_up(variables: Mapping[str, str]) -> dict[str, Change]:
    """Make the automation of every notification, or bring it up to date; returns name -> what changed.

    They notify where PRIVSYN_NOTIFY says: a web address that takes a JSON object ``{"text": ...}`` (as the incoming
    webhooks of chat programs do), or the name of a notification block on the server as ``TYPE/NAME``.  Without it, an
    automation keeps the actions that it has on the server, and a new one has none: its triggering stands in the
    server's events.  One that was switched off stays off.  Raises RequestError for a wrong PRIVSYN_NOTIFY.
    """
    with get_client(sync_client=True) as client:
        block = _block(client, variables.get(VARIABLE, "").strip())
        return {notice.name: _set_up(client, notice, block) for notice in NOTICES}


def _set_up(client: SyncPrefectClient, notice: Notice, block: UUID | None) -> Change:
    found = client.read_automations_by_name(notice.name)
    wanted = _build_automation(notice, block)
    if not found:
        wanted.create()
        return "made"
    for double in found[1:]:
        client.delete_automation(double.id)
    known = found[0]
    if block is None:
        wanted.actions = known.actions
    wanted.enabled = known.enabled
    if _get_content(wanted) == _get_content(known):
        return "as it was"
    whole = wanted.model_dump(exclude={"id", "owner_resource"})  # the client sends what was set; the server wants all
    client.update_automation(known.id, AutomationCore.model_validate(whole))
    return "changed"


def _build_automation(notice: Notice, block: UUID | None) -> Automation:
    tell = (
        DoNothing()
        if block is None
        else SendNotification(block_document_id=block, subject=notice.subject, body=notice.body)
    )
    return Automation(
        name=notice.name,
        description=f"{notice.meaning} Set up by `privsyn deploy`; {VARIABLE} says who is told.",
        trigger=notice.trigger,
        actions=[*notice.before, tell],
    )


def _get_content(automation: Any) -> dict[str, Any]:
    """Return what two automations are compared by; sets of events stay sets, whose order as JSON differs by process."""
    fields = {"name", "description", "enabled", "trigger", "actions"}
    return dict(automation.model_dump(include=fields))


def _block(client: SyncPrefectClient, text: str) -> UUID | None:
    """Return the block's id, saved where ``text`` is a web address; None without one."""
    if not text:
        return None
    if text.startswith(("https://", "http://")):
        # the address may hold a token, so it is one of the block's secrets
        webhook = CustomWebhookNotificationBlock(
            name="PrivSyn",
            url="{{url}}",
            json_data={"text": "{{subject}}\n\n{{body}}"},
            secrets=SecretDict({"url": text}),
            headers=None,
            cookies=None,
        )
        return UUID(str(webhook.save(BLOCK, overwrite=True)))
    kind, _, name = text.partition("/")
    try:
        return client.read_block_document_by_name(name or "-", kind).id
    except ObjectNotFound:
        raise RequestError(
            "this is neither a web address nor the name of a notification block on the server",
            "Write https://... or TYPE/NAME as `prefect block ls` shows them, for example slack-webhook/stewards",
            VARIABLE,
        ) from None


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
