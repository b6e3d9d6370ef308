"""Notifications: automations of Prefect's server that tell people of refusals and broken contracts.

A notification holds the state's message: the ledger's figures, or names of tables and expectations; nothing read from
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from prefect.automations import Automation, AutomationCore, DoNothing, EventTrigger, SendNotification
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound
from prefect.types import SecretDict

from privsyn.errors import RequestError
from privsyn.flows.states import CONTRACT_FAILED, REFUSED

VARIABLE = "PRIVSYN_NOTIFY"
BLOCK = "privsyn-notify"
"""Name of the block that holds the web address of PRIVSYN_NOTIFY."""

BODY = "{{ event.resource['prefect.state-message'] }}\n\n{{ flow_run | ui_url }}"


@dataclass(frozen=True)
class Notification:
    """One notification: its automation's name, the state whose event triggers it, and its subject."""

    name: str
    state: str
    subject: str


NOTIFICATIONS = (
    Notification(
        "privsyn: refused by the budget", REFUSED, "PrivSyn: release of {{ flow_run.name }} refused by the budget"
    ),
    Notification(
        "privsyn: contract failed", CONTRACT_FAILED, "PrivSyn: release of {{ flow_run.name }} broke a data contract"
    ),
)

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
        return {notification.name: _set_up(client, notification, block) for notification in NOTIFICATIONS}


def _set_up(client: SyncPrefectClient, notification: Notification, block: UUID | None) -> Change:
    found = client.read_automations_by_name(notification.name)
    wanted = _wanted(notification, block)
    if not found:
        wanted.create()
        return "made"
    for double in found[1:]:
        client.delete_automation(double.id)
    known = found[0]
    if block is None:
        wanted.actions = known.actions
    wanted.enabled = known.enabled
    if _content(wanted) == _content(known):
        return "as it was"
    whole = wanted.model_dump(exclude={"id", "owner_resource"})  # the client sends what was set; the server wants all
    client.update_automation(known.id, AutomationCore.model_validate(whole))
    return "changed"


def _wanted(notification: Notification, block: UUID | None) -> Automation:
    action = (
        DoNothing()
        if block is None
        else SendNotification(block_document_id=block, subject=notification.subject, body=BODY)
    )
    return Automation(
        name=notification.name,
        description=f"A run ended in the state {notification.state}. "
        f"Set up by `make deploy`; {VARIABLE} says who is told.",
        trigger=EventTrigger(
            expect={f"prefect.flow-run.{notification.state}"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            threshold=1,
        ),
        actions=[action],
    )


def _content(automation: Any) -> dict[str, Any]:
    """What two automations are compared by."""
    fields = {"name", "description", "enabled", "trigger", "actions"}
    return dict(automation.model_dump(mode="json", include=fields))


def _block(client: SyncPrefectClient, text: str) -> UUID | None:
    """The block's id, saved where ``text`` is a web address; None without one."""
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
