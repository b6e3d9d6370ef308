"""Alerts about runs, the worker and budgets, derived from the states that the server stores, and their addressee.

The source is states, not events.  Prefect emits no event for the first state of a scheduled run.  It holds later
events for up to 15 minutes, and loses them when the server restarts.  A state is in the database after any kill.

An alert holds the state's message: the ledger's figures, or names of tables and expectations; nothing read from rows.

The addressee is a notification block on the server.  It and the kinds of alerts that are switched off are in a variable
of the server, which its page shows and changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import VariableCreate, VariableUpdate
from prefect.events.actions import SendNotification
from prefect.exceptions import ObjectNotFound
from prefect.types import SecretDict

from privsyn.base.errors import RequestError
from privsyn.flows.states import BUDGET_LOW, CONTRACT_FAILED, DATASET, LEDGER_FAILED, REFUSED, get_dataset
from privsyn.server.work_pool import RESTART

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
class Alert:
    """One message to people: its kind, its text, and the ID of Prefect's resource."""

    kind: Kind
    subject: str
    body: str
    resource: str


def judge_end(run: FlowRun, page: str) -> Alert | None:
    """Return the alert of an ended run, which links to the server's ``page``; None if nobody needs to act."""
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
    return get_dataset(run.parameters) or str(run.labels.get(DATASET, ""))


def _alert(kind: Kind, run: FlowRun, words: str, body: str) -> Alert:
    """Return the alert of a run; a run that never began has only a generated name, so the data set is added."""
    dataset = find_dataset(run)
    name = run.name if run.run_count or not dataset or dataset in run.name else f"{dataset} ({run.name})"
    return Alert(kind, f"PrivSyn: {name} {words}", body, f"prefect.flow-run.{run.id}")


def _link(run: FlowRun, page: str) -> str:
    return f"{page}/runs/flow-run/{run.id}"


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
