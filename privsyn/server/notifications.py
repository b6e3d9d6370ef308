"""The addressee of alerts: a notification block on the server, and the kinds of alerts that are switched off.

Both are in a variable of the server, which its page shows and changes.
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
"""The block with the web address of PRIVSYN_NOTIFY."""

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
"""Automations of 0.3 and earlier -> the kinds of alerts that replace them."""


@dataclass(frozen=True)
class Addressee:
    """The notification block as TYPE/NAME (empty: none), and the kinds of alerts that are switched off."""

    block: str = ""
    off: tuple[str, ...] = ()


def read_addressee(client: SyncPrefectClient) -> Addressee:
    """Return the addressee in the server's variable; an empty one if the variable is absent or has another form."""
    variable = client.read_variable_by_name(ON_SERVER)
    value = variable.value if variable is not None else None
    if not isinstance(value, dict):
        return Addressee()
    off = value.get("off")
    return Addressee(str(value.get("to") or ""), tuple(map(str, off)) if isinstance(off, list) else ())


def load_addressee(to: Addressee) -> NotificationBlock:
    """Return the block from the server in Prefect's settings.  Raises TypeError if it is not a notification block."""
    block = Block.load(to.block)
    if not isinstance(block, NotificationBlock):
        raise TypeError(to.block)
    return block


def set_up(variables: Mapping[str, str]) -> Addressee:
    """Save the addressee of alerts, remove the automations of earlier versions, and return the addressee.

    PRIVSYN_NOTIFY names it: a web address that accepts a JSON object ``{"text": ...}`` (like the incoming webhooks of
    chat programs), or a notification block on the server as ``TYPE/NAME``.  Without it, the addressee stays the same.
    A kind that was switched off stays off.  Raises RequestError if PRIVSYN_NOTIFY is not valid.
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
    """Return the addressee of an earlier version's automations, with the kinds that are switched off."""
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
    """Return the name of the block in ``text``; a web address is saved as a block.  Empty if ``text`` is empty."""
    if not text:
        return ""
    if text.startswith(("https://", "http://")):
        # the address may contain a token, so it is a secret of the block
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
    """Return the lines of `privsyn deploy` about the addressee."""
    kinds: list[Any] = [kind for kind in KINDS if kind not in to.off]
    lines = [f"Alerts ({', '.join(kinds)}) go to {to.block}"] if to.block else []
    if to.off:
        lines.append(f"Switched off in the server's variable {ON_SERVER}: {', '.join(to.off)}")
    if not to.block:
        lines.append(
            f"Nobody is notified of failures yet: set {VARIABLE} (docs/operations/monitoring.md) and run this again."
        )
    return lines
