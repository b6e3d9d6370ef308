"""Notifications: automations of Prefect's server that tell people of what they should not have to look for.

A notification holds the state's message: the ledger's figures, or names of tables and expectations; nothing read from
rows.  What each tells of stands in privsyn/server/notices.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

from prefect.automations import Automation, AutomationCore, DoNothing, SendNotification
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound
from prefect.types import SecretDict

from privsyn.base.errors import RequestError
from privsyn.server.notices import NOTICES, Notice

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
        description=f"{notice.meaning} Set up by `make deploy`; {VARIABLE} says who is told.",
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
