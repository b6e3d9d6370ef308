"""Who gets the alerts: a notification block on the server, and the kinds of alerts that are switched off.

Both stand in a variable of the server, which its page shows and changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import VariableCreate, VariableUpdate
from prefect.events.actions import SendNotification
from prefect.exceptions import ObjectNotFound
from prefect.types import SecretDict

from privsyn.base.errors import RequestError
from privsyn.server.alerts import KINDS

VARIABLE = "PRIVSYN_NOTIFY"
BLOCK = "custom-webhook/privsyn-notify"
"""The block that holds the web address of PRIVSYN_NOTIFY."""

ON_SERVER = "privsyn_alerts"
"""The server's variable: ``{"to": "TYPE/NAME", "off": [kinds]}``."""

EARLIER = {
    "privsyn: refused by the budget": "refused",
    "privsyn: contract failed": "contract-failed",
    "privsyn: ledger failed": "ledger-failed",
    "privsyn: failed": "failed",
    "privsyn: crashed": "crashed",
    "privsyn: late": "late",
    "privsyn: no heartbeat": "",
    "privsyn: worker gone": "worker-gone",
    "privsyn: budget is low": "budget-low",
}
"""Automations of 0.3 and earlier, which told of the same, and the kinds of alerts in their place."""


@dataclass(frozen=True)
class Addressee:
    """The notification block as TYPE/NAME, empty for nobody, and the kinds of alerts that are switched off."""

    block: str = ""
    off: tuple[str, ...] = ()


def read_addressee(client: SyncPrefectClient) -> Addressee:
    """Return the addressee that the server's variable names; nobody where that is absent or not one of ours."""
    variable = client.read_variable_by_name(ON_SERVER)
    value = variable.value if variable is not None else None
    if not isinstance(value, dict):
        return Addressee()
    off = value.get("off")
    return Addressee(str(value.get("to") or ""), tuple(map(str, off)) if isinstance(off, list) else ())


def load_addressee(to: Addressee) -> NotificationBlock:
    """Return the block, from the server of Prefect's settings; TypeError if it is a block of another kind."""
    block = Block.load(to.block)
    if not isinstance(block, NotificationBlock):
        raise TypeError(to.block)
    return block


def set_up(variables: Mapping[str, str]) -> Addressee:
    """Write down who gets the alerts, and remove the automations of earlier versions; returns what holds now.

    They go where PRIVSYN_NOTIFY says: a web address that takes a JSON object ``{"text": ...}`` (as the incoming
    webhooks of chat programs do), or the name of a notification block on the server as ``TYPE/NAME``.  Without it, to
    whom they went before.  A kind that was switched off stays off.  Raises RequestError for a wrong PRIVSYN_NOTIFY.
    """
    with get_client(sync_client=True) as client:
        before = read_addressee(client)
        wanted_block = _save_block(client, variables.get(VARIABLE, "").strip())
        earlier = _read_earlier(client)
        off = {*before.off, *earlier.off}
        now = Addressee(wanted_block or before.block or earlier.block, tuple(k for k in KINDS if k in off))
        value = {"to": now.block, "off": list(now.off)}
        if client.read_variable_by_name(ON_SERVER) is None:
            client.create_variable(VariableCreate(name=ON_SERVER, value=value, tags=["privsyn"]))
        elif now != before:
            client.update_variable(VariableUpdate(name=ON_SERVER, value=value))
        for automation in client.read_automations():
            if automation.name in EARLIER:
                client.delete_automation(automation.id)
    return now


def _read_earlier(client: SyncPrefectClient) -> Addressee:
    """Return the addressee of the automations of an earlier version, with those that are switched off."""
    automations = [a for a in client.read_automations() if a.name in EARLIER]
    blocks = [
        action.block_document_id for a in automations for action in a.actions if isinstance(action, SendNotification)
    ]
    name = ""
    for block in blocks[:1]:
        with suppress(ObjectNotFound):
            document = client.read_block_document(block)
            name = f"{document.block_type.slug}/{document.name}" if document.block_type else ""
    return Addressee(name, tuple(EARLIER[a.name] for a in automations if not a.enabled))


def _save_block(client: SyncPrefectClient, text: str) -> str:
    """Return the block's name, saved where ``text`` is a web address; empty without one."""
    if not text:
        return ""
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
        webhook.save(BLOCK.partition("/")[2], overwrite=True)
        return BLOCK
    kind, _, name = text.partition("/")
    try:
        client.read_block_document_by_name(name or "-", kind)
    except ObjectNotFound:
        raise RequestError(
            "this is neither a web address nor the name of a notification block on the server",
            "Write https://... or TYPE/NAME as `prefect block ls` shows them, for example slack-webhook/stewards",
            VARIABLE,
        ) from None
    return text


def describe(to: Addressee) -> list[str]:
    """Return the lines that `privsyn deploy` says of it."""
    kinds: list[Any] = [kind for kind in KINDS if kind not in to.off]
    lines = [f"Alerts ({', '.join(kinds)}) go to {to.block}"] if to.block else []
    if to.off:
        lines.append(f"Switched off in the server's variable {ON_SERVER}: {', '.join(to.off)}")
    if not to.block:
        lines.append(
            f"Nobody is notified of failures yet: set {VARIABLE} (docs/operations/monitoring.md) and run this again."
        )
    return lines
